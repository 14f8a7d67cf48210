"""What an examination warns of: what waits for nobody, clocks that stepped, and what lies around the file."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import JobState, NewJob, RecordError, doctoring
from litequeue import upkeep as upkeep_room
from litequeue.sqlite import filesystem, opening
from litequeue.sqlite.gate import Gate
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue
    from tests.conftest import MakeQueue


@pytest.fixture
def clock() -> FakeClock:
    """Give the clock of the handle and of the examination."""
    return FakeClock()


@pytest.fixture
def queue(make_queue: MakeQueue, path: Path, clock: FakeClock) -> Queue:
    """Give a handle on a fresh queue."""
    return make_queue(path=path, clock=clock)


@pytest.fixture
def found(path: Path, clock: FakeClock) -> Callable[[], dict[str, str]]:
    """Give the examination: the severity of each finding by its code."""

    def examine() -> dict[str, str]:
        return {finding.code: str(finding.severity) for finding in litequeue.doctor(path, clock=clock).findings}

    return examine


def plant(path: Path, *statements: str) -> None:
    """Write what no verb writes."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def test_leases_that_nobody_reaps(
    queue: Queue, clock: FakeClock, found: Callable[[], dict[str, str]], path: Path
) -> None:
    """Only once maintenance is late, not as soon as a deadline is past; --fix reaps them (V11)."""
    job_id = queue.enqueue("work").job_id
    queue.lease_many(1, ttl=60)
    clock.advance(100)
    assert "lease.lapsed" not in found()
    clock.advance(60)
    assert found()["lease.lapsed"] == "warning"
    assert litequeue.doctor(path, fix=True, clock=clock).mended == ("reaped lapsed leases: 1",)
    assert queue.get(job_id).state is JobState.RETRYABLE
    assert "lease.lapsed" not in found()


def test_what_is_late_by_a_little_is_no_warning(
    queue: Queue, clock: FakeClock, found: Callable[[], dict[str, str]]
) -> None:
    """Maintenance comes every half a minute (§5)."""
    queue.enqueue("work", delay=10)
    queue.enqueue("work", expires=10)
    clock.advance(60)
    assert not {"job.due", "job.overdue"} & found().keys()
    clock.advance(60)
    assert found()["job.due"] == found()["job.overdue"] == "warning"


def test_a_lease_of_nobody(queue: Queue, found: Callable[[], dict[str, str]], path: Path) -> None:
    """A live lease whose holder is not registered (DESIGN §4)."""
    queue.enqueue("work")
    queue.lease_many(1)
    assert "lease.holder" not in found()
    plant(path, "DELETE FROM litequeue_holder")
    assert found()["lease.holder"] == "warning"


def test_a_deadline_that_no_lease_has(queue: Queue, found: Callable[[], dict[str, str]], path: Path) -> None:
    """More than a year from now (V3)."""
    queue.enqueue("work")
    queue.lease_many(1, ttl=86_400 * 365)
    assert "lease.far" not in found()
    plant(path, "UPDATE litequeue_job SET lease_deadline = lease_deadline * 2 + 100000000000000")
    assert found()["lease.far"] == "warning"


def test_back_offs_after_a_backward_step(
    queue: Queue, clock: FakeClock, found: Callable[[], dict[str, str]], path: Path
) -> None:
    """They are longer than they were meant to be until somebody pulls them in; --fix does (§5)."""
    queue.enqueue("work")
    (lease,) = queue.lease_many(1)
    lease.fail("boom")
    assert not {"job.distant", "clock.ahead"} & found().keys()
    clock.step_wall(-86_400)
    assert found()["job.distant"] == found()["clock.ahead"] == "warning"
    assert "pulled in back-offs: 1" in litequeue.doctor(path, fix=True, clock=clock).mended
    assert "job.distant" not in found()


def test_schedules_that_nobody_fires(
    queue: Queue, clock: FakeClock, found: Callable[[], dict[str, str]], path: Path
) -> None:
    """Only once maintenance is late; one that is paused is not waited for (issue 6)."""
    assert "schedule.count" not in found()
    queue.schedule("tick", "@every 60s", "work")
    clock.advance(120)
    assert found()["schedule.count"] == "fact"
    assert "schedule.late" not in found()
    clock.advance(60)
    assert found()["schedule.late"] == "warning"
    queue.pause_schedule("tick")
    assert "schedule.late" not in found()
    plant(path, "UPDATE litequeue_schedule SET timezone = 'Mars/Olympus'")
    assert found()["schedule.foreign"] == "warning"


def test_a_schedule_with_a_value_of_another_type(queue: Queue, found: Callable[[], dict[str, str]], path: Path) -> None:
    """As a flipped bit leaves it: the others are read and fired all the same (§6)."""
    for name in ("a", "b", "c"):
        queue.schedule(name, "@every 60s", "work")
    queue.close()
    plant(
        path,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, ', STRICT', '') WHERE name = 'litequeue_schedule'",
        "PRAGMA writable_schema = RESET",
        "UPDATE litequeue_schedule SET payload = 'text' WHERE name = 'b'",
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'WITHOUT ROWID', 'WITHOUT ROWID, STRICT')"
        " WHERE name = 'litequeue_schedule'",
        "PRAGMA writable_schema = RESET",
    )
    assert found()["schedule.values"] == "problem"
    clock = FakeClock()
    clock.advance(60)
    with litequeue.open(path, durability="normal", clock=clock) as again:
        fires = again.fire_schedules()
        assert (fires.jobs, list(fires.refused)) == (2, ["b"])
        with pytest.raises(RecordError, match="schedule 'b': its payload is stored as str"):
            again.schedules()
        again.unschedule("b")
        assert [schedule.name for schedule in again.schedules()] == ["a", "c"]


def test_a_value_of_a_type_that_no_queue_writes(queue: Queue, found: Callable[[], dict[str, str]], path: Path) -> None:
    """As a flipped bit in a row's header leaves it; the other jobs are looked at all the same (§6)."""
    queue.enqueue_many(NewJob("work", n) for n in range(2))
    queue.close()
    plant(
        path,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, ', STRICT', '') WHERE name = 'litequeue_job'",
        "PRAGMA writable_schema = RESET",
        "UPDATE litequeue_job SET reaps = 'many' WHERE created_at = (SELECT min(created_at) FROM litequeue_job)",
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'WITHOUT ROWID', 'WITHOUT ROWID, STRICT')"
        " WHERE name = 'litequeue_job'",
        "PRAGMA writable_schema = RESET",
    )
    assert found()["job.values"] == "problem"


def test_a_file_that_gives_no_pages_back(
    path: Path, make_queue: MakeQueue, found: Callable[[], dict[str, str]]
) -> None:
    """A queue in a database that an application has made (DESIGN §2)."""
    plant(path, "CREATE TABLE orders (id)", "DROP TABLE orders")
    make_queue(path=path)
    assert found()["file.vacuum"] == "fact"


def test_a_log_that_nobody_copies_back(
    queue: Queue, path: Path, found: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than maintenance lets it grow; --fix cuts it when no reader is in the way (V11)."""
    queue.enqueue("work")
    assert "log.large" not in found()
    for room in (doctoring, upkeep_room):
        monkeypatch.setattr(room, "WAL_TRUNCATE_BYTES", 0)
    assert found()["log.large"] == "warning"
    assert litequeue.doctor(path, fix=True).mended == ("copied the write-ahead log back and cut it",)
    assert path.with_name("app.queue-wal").stat().st_size == 0


@pytest.mark.skipif(sys.platform == "win32", reason="the gate is POSIX")
def test_a_gate_that_is_not_had(queue: Queue, found: Callable[[], dict[str, str]], path: Path) -> None:
    """A stopped process has it, or a long transaction; the examination goes on without it (DESIGN §3)."""
    queue.enqueue("work")
    gate = Gate(f"{path}-lock", 0o600)
    assert gate.enter(time.monotonic() + 1)
    try:
        codes = found()
    finally:
        gate.close()
    assert codes["sidecar.held"] == "warning"
    assert codes["job.count"] == "fact"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can give a file away")
def test_a_sidecar_of_somebody_else(queue: Queue, found: Callable[[], dict[str, str]], path: Path) -> None:
    """Made by a program that ran as another user (§6)."""
    queue.enqueue("work")
    os.chown(f"{path}-lock", 12345, 12345)
    assert found()["sidecar.owner"] == "warning"


@pytest.mark.parametrize(
    ("kind", "code", "severity"),
    [("nfs", "disk.breaks", "problem"), ("exotic", "disk.unknown", "warning"), ("ext4", "disk.kind", "fact")],
)
def test_the_file_system(  # noqa: PLR0917 - fixtures and parameters
    queue: Queue,
    found: Callable[[], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    code: str,
    severity: str,
) -> None:
    """Its name and what is known of it (§6)."""
    queue.enqueue("work")
    monkeypatch.setattr(filesystem, "kind_of", lambda _folder: kind)
    assert found()[code] == severity


def test_a_disk_that_is_nearly_full(
    queue: Queue, found: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept free for acknowledgements is all that is left (§6)."""
    queue.enqueue("work")
    monkeypatch.setattr(filesystem, "free_bytes", lambda _folder: 1_000_000)
    assert found()["disk.reserve"] == "warning"


def test_a_disk_that_is_full(
    queue: Queue, found: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be opened for want of room is not called damaged; one that is open is looked at (§6)."""
    queue.enqueue("work")
    monkeypatch.setattr(filesystem, "free_bytes", lambda _folder: 1000)
    codes = found()
    assert (codes["disk.reserve"], "disk.full" in codes, "job.count" in codes) == ("warning", False, True)
    queue.close()
    codes = found()
    assert (codes["disk.full"], "job.count" in codes) == ("problem", False)


def test_a_file_that_cannot_be_opened_for_want_of_room_is_told_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls it an error of input or output; which it is, the disk tells (§6)."""
    exc = apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE)
    assert "the disk is full" not in str(opening.refusal(exc, str(path)))
    monkeypatch.setattr(filesystem, "free_bytes", lambda _folder: 1000)
    refused = opening.refusal(exc, str(path))
    assert isinstance(refused, litequeue.CannotOpen)
    assert refused.reason == "the disk is full"
