"""Stored values that no queue writes, planted in every place that has one: only their own job is affected (§6, V3).

Each test runs in a process whose memory is bounded, so that a size which a value claims is never believed. The values
stand in `tools/damage/bombs.py`; the plain cases are those of tests/sqlite/test_unreadable_records.py.
"""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, cast

import apsw
import pytest
from click.testing import CliRunner

import litequeue
from damage import bombs
from litequeue import ANY, JobState, Maintenance, NewJob, RecordError, StorageCorrupt, UsageError
from litequeue.cli import litequeue as command
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from litequeue import Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

MEMORY_BYTES = 2**29
"""Of addresses, for the whole process, which has some 100 MB without doing anything."""


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _plant(path: str, sql: str, value: bytes, job_id: UUID) -> None:
    connection = apsw.Connection(path)
    connection.execute(sql, (value, job_id.bytes)).fetchall()
    assert connection.changes() == 1
    connection.close()


def _run(path: str, *words: str) -> str:
    """Run the command, which must work; return what it prints, having made sure that no terminal obeys it."""
    result = CliRunner().invoke(command, ["--db", path, *words])
    assert result.exit_code in (0, 3), result
    assert all(line.isprintable() for line in (result.stdout + result.stderr).split("\n")), result.stdout
    return result.stdout


def _commands(path: str, job_id: UUID) -> None:
    """Run every command that reads records."""
    _run(path, "jobs", "ls", "--all-scopes")
    json.loads(_run(path, "jobs", "ls", "--all-scopes", "--json"))
    _run(path, "jobs", "show", str(job_id))
    json.loads(_run(path, "jobs", "show", str(job_id), "--json"))
    _run(path, "stats", "--all-scopes")
    _run(path, "maintain", "--once")


def _with_bombs_as_payloads(_parent: Parent, path: str) -> list[str]:
    """Let every bomb be a payload, among good jobs; return what was wrong."""
    wrong = []
    values = {**bombs.UNREADABLE, **bombs.HUGE, **bombs.READABLE}
    _bound_memory()
    for name, value in values.items():
        with litequeue.open(path, durability="normal") as queue:
            before, bad, after = (made.job_id for made in queue.enqueue_many(NewJob("work", n) for n in range(3)))
            _plant(path, "UPDATE litequeue_body SET payload = ? WHERE job_id = ?", bombs.VERSION + value, bad)
            listed = next(job for job in queue.list(limit=1000) if job.job_id == bad)
            if [_reads(job, "payload") for job in (queue.get(bad), listed)] != [name in bombs.READABLE] * 2:
                wrong.append(f"{name}: its payload reads, or does not")
            _commands(path, bad)
            leases = queue.lease_many(3)
            if [lease.job_id for lease in leases] != [before, bad, after]:
                wrong.append(f"{name}: leased {leases}")
            if (leases[0].payload, leases[2].payload) != (0, 2):
                wrong.append(f"{name}: its neighbours have other payloads")
            if _reads(leases[1], "payload") != (name in bombs.READABLE):
                wrong.append(f"{name}: its payload reads in a lease, or does not")
            leases[0].complete()
            leases[1].fail("cannot be read", retryable=False)
            leases[2].complete()
    return wrong


def _reads(record: litequeue.Job | litequeue.Lease, value: str) -> bool:
    """Tell whether a value reads; anything but a `RecordError` is raised."""
    try:
        getattr(record, value)
    except RecordError:
        return False
    return True


def test_a_bomb_as_a_payload_harms_its_own_job_alone(path: str, processes: Children) -> None:
    """It lists, it is shown, its neighbours are leased in order, and nobody believes the sizes it claims (§6, V3)."""
    assert processes.run(_with_bombs_as_payloads, path) == []


def _with_bombs_as_results(_parent: Parent, path: str) -> list[str]:
    """Let every bomb be a result; return what was wrong."""
    wrong = []
    _bound_memory()
    values = {**bombs.UNREADABLE, **bombs.HUGE, **bombs.READABLE}
    for name, value in values.items():
        with litequeue.open(path, durability="normal") as queue:
            queue.enqueue("work", name)
            (lease,) = queue.lease_many(1)
            lease.complete("done")
            _plant(
                path, "UPDATE litequeue_outcome SET result = ? WHERE job_id = ?", bombs.VERSION + value, lease.job_id
            )
            job = queue.get(lease.job_id)
            if job.payload != name or _reads(job, "result") != (name in bombs.READABLE):
                wrong.append(name)
            _commands(path, lease.job_id)
            queue.retry(lease.job_id)
            (again,) = queue.lease_many(1)
            again.complete("done again")
            if queue.get(lease.job_id).result != "done again":
                wrong.append(f"{name}: is still there")
    return wrong


def test_a_bomb_as_a_result_is_an_error_of_the_result_alone(path: str, processes: Children) -> None:
    """The payload still reads, and another run replaces it (§6)."""
    assert processes.run(_with_bombs_as_results, path) == []


def _with_bombs_as_logs(_parent: Parent, path: str) -> list[str]:
    """Let every bomb, and every odd run of events, be a job's log; return what was wrong."""
    wrong = []
    _bound_memory()
    values: Mapping[str, bytes] = {**bombs.UNREADABLE, **bombs.HUGE, **bombs.READABLE, **bombs.EVENTS}
    clock = FakeClock()
    with litequeue.open(path, durability="normal", clock=clock) as queue:
        for name, value in values.items():
            bad, good = (made.job_id for made in queue.enqueue_many(NewJob("work", name) for _ in range(2)))
            _plant(path, "UPDATE litequeue_job SET events = ? WHERE job_id = ?", value, bad)
            _reads(queue.get(bad), "events")
            leases = queue.lease_many(2)
            if [lease.job_id for lease in leases] != [bad, good]:
                wrong.append(f"{name}: leased {leases}")
            leases[0].note("half")
            leases[0].fail("boom")
            leases[1].complete()
            clock.advance(20)
            Maintenance(queue).run_once()
            (again,) = queue.lease_many(1)
            again.complete()
            if queue.get(bad).state is not JobState.COMPLETED:
                wrong.append(f"{name}: is not completed")
            _reads(queue.get(bad), "events")
            wrong += [name for event in queue.get(good).events if event.at != clock.wall_us() and event.at < 0]
            queue.list(scope=ANY, limit=1000)
            json.loads(_run(path, "jobs", "show", str(bad), "--json"))
            _run(path, "jobs", "show", str(bad))
    return wrong


def test_a_bomb_as_an_event_log_does_not_stop_its_job(path: str, processes: Children) -> None:
    """It is leased, failed, promoted and completed as any other; its neighbours too (§6, G5)."""
    assert processes.run(_with_bombs_as_logs, path) == []


@pytest.mark.parametrize("value", [b"", b"\xff" * 5000, bombs.HUGE["lists nested 100,000 deep"]])
def test_a_continuation_is_bytes_whatever_they_are(path: str, value: bytes) -> None:
    """Nobody decodes them; a lease begins without, as always (V3, V5)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        (lease,) = queue.lease_many(1)
        lease.checkpoint(b"half")
        _plant(path, "UPDATE litequeue_continuation SET data = ? WHERE job_id = ?", value, lease.job_id)
        assert queue.get(lease.job_id).continuation == value
        json.loads(_run(path, "jobs", "show", str(lease.job_id), "--json"))
        lease.release()
        (again,) = queue.lease_many(1)
        assert again.continuation is None


# --- values that SQLite takes and Python does not: planted without STRICT's checks


def _without_checks(path: str, *statements: str) -> None:
    """Change rows behind the tables' own checks, as a flipped bit does."""
    connection = apsw.Connection(path)
    connection.execute("PRAGMA ignore_check_constraints = ON").fetchall()
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def test_two_payloads_that_have_changed_places_go_to_nobody(path: str) -> None:
    """A payload whose row has another job's id is not handed out as that job's: both die, named (V3, G2)."""
    with litequeue.open(path) as queue:
        made = [queue.enqueue("work", name).job_id for name in ("first", "second", "third")]
        first, second = (job_id.bytes.hex() for job_id in made[:2])
        _without_checks(
            path,
            f"UPDATE litequeue_body SET job_id = x'00' WHERE job_id = x'{first}'",
            f"UPDATE litequeue_body SET job_id = x'{first}' WHERE job_id = x'{second}'",
            f"UPDATE litequeue_body SET job_id = x'{second}' WHERE job_id = x'00'",
        )
        assert [lease.payload for lease in queue.lease_many(3)] == ["third"]
        assert queue.stats().counts[JobState.DEAD] == 2
        for job in queue.list(JobState.DEAD):
            assert "no payload" in (job.last_error or "")
            assert not _reads(job, "payload")


SETTINGS = {
    "text for a duration": ("lease_ttl", "'soon'"),
    "a duration beyond every number": ("lease_ttl", "9e999"),
    "a duration beyond 64 bits": ("lease_ttl", "1e300"),
    "bytes for a duration": ("backoff_base", "x'ff'"),
    "text for a count": ("max_attempts", "'many'"),
    "bytes for a count": ("max_payload", "x'00'"),
    "nothing for a duration": ("reaper_interval", "NULL"),
}


def _fail_one(queue: Queue) -> None:
    job_id = queue.enqueue("work").job_id
    for lease in queue.lease_many(1000):
        if lease.job_id == job_id:
            lease.fail("boom")


_USES: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue("work"),
    "lease": lambda queue: queue.lease_many(5),
    "settings": lambda queue: queue.settings("work"),
    "maintenance": lambda queue: Maintenance(queue).run_once(),
    "list": lambda queue: queue.list(scope=ANY),
    "stats": lambda queue: queue.stats(),
    "reaper_interval": lambda queue: queue.reaper_interval(),
    "fail": _fail_one,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_is_none_is_damage_in_the_packages_words(path: str, setting: str) -> None:
    """Outside and inside `transaction()`: works, or is `StorageCorrupt`, until the setting is set anew (§5, §6)."""
    name, value = SETTINGS[setting]
    with litequeue.open(path) as queue:
        queue.enqueue("work")
        for lease in queue.lease_many(1):
            lease.fail("boom")
    _without_checks(
        path,
        f"INSERT INTO litequeue_setting (name, value) VALUES ('{name}', {value})",
        "UPDATE litequeue_meta SET settings_version = settings_version + 1",
    )
    refused = 0
    with litequeue.open(path) as queue:
        for use in _USES.values():
            refused += not _is_whole(use, queue)
            refused += not _is_whole(_inside, queue)
        assert refused, "nobody noticed"
        queue.set(name, litequeue.open(path + "2").settings()[name])
        for use in _USES.values():
            use(queue)


def _inside(queue: Queue) -> None:
    with queue.transaction() as tx:
        tx.enqueue("work")
        tx.lease_many(2)
        tx.settings("work")
        tx.list(scope=ANY)
        tx.prune()


def _is_whole(use: Callable[[Queue], object], queue: Queue) -> bool:
    """Tell whether a verb works; anything but `StorageCorrupt` is raised."""
    try:
        use(queue)
    except StorageCorrupt:
        return False
    return True


ROWS = {
    "a state that there is not": "UPDATE litequeue_job SET state = 9",
    "no version of the settings": "DELETE FROM litequeue_meta",
    "no clock": "DELETE FROM litequeue_host",
    "a clock at the end of time": "UPDATE litequeue_host SET lease_offset = 9223372036854775807",
    "attempts at the end of numbers": "UPDATE litequeue_job SET attempts = 9223372036854775807",
    "a time at the end of numbers": "UPDATE litequeue_job SET created_at = 9223372036854775807",
    "a generation at the end of numbers": "UPDATE litequeue_job SET lease_generation = 9223372036854775807",
    "an id of one byte": "UPDATE litequeue_job SET job_id = x'01'",
    "a kind that is no UTF-8": "UPDATE litequeue_job SET kind = CAST(x'fffe' AS TEXT)",
    "a scope that is no UTF-8": "UPDATE litequeue_job SET scope = CAST(x'ff' AS TEXT)",
    "a kind with a NUL": "UPDATE litequeue_job SET kind = CAST(x'610062' AS TEXT)",
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("is_open", [True, False], ids=["while it is open", "before it is opened"])
def test_a_row_that_no_queue_writes_is_damage_in_the_packages_words(path: str, row: str, *, is_open: bool) -> None:
    """Every verb works, or raises an error of the contract's tree; so does every verb of a transaction (§6, G11)."""
    queue = litequeue.open(path)
    queue.enqueue("work")
    if not is_open:
        queue.close()
    _without_checks(path, ROWS[row])
    try:
        if not is_open:
            queue = litequeue.open(path)
        for use in _USES.values():
            _is_named(use, queue)
            _is_named(_inside, queue)
    except litequeue.LiteQueueError:
        assert not is_open
    finally:
        queue.close()
    for words in ("stats", "jobs ls --all-scopes", "jobs ls --all-scopes --json", "maintain --once", "enqueue work"):
        result = CliRunner().invoke(command, ["--db", path, *words.split()])
        assert result.exit_code in (0, 1, 3), result
        assert result.exception is None or isinstance(result.exception, SystemExit), result


def _is_named(use: Callable[[Queue], object], queue: Queue) -> None:
    """Use a verb; what is not an error of the package is raised, and so is one that blames the caller."""
    try:
        use(queue)
    except UsageError:
        raise
    except litequeue.LiteQueueError:
        pass


def _without_strict(path: str, statement: str) -> None:
    """Change rows as STRICT tables forbid it, and leave the schema as it was."""
    was = _rewrite_schema(path, "UPDATE sqlite_schema SET sql = replace(sql, 'ROWID, STRICT', 'ROWID')")
    connection = apsw.Connection(path)
    connection.execute(statement).fetchall()
    assert connection.changes() >= 1
    connection.close()
    _rewrite_schema(path, "UPDATE sqlite_schema SET sql = ?2 WHERE rowid = ?1", was)


def _rewrite_schema(path: str, sql: str, many: Sequence[tuple[int, str]] = ()) -> list[tuple[int, str]]:
    connection = apsw.Connection(path)
    was = connection.execute("SELECT rowid, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    connection.execute("PRAGMA writable_schema = ON").fetchall()
    if many:
        connection.executemany(sql, many)
    else:
        connection.execute(sql)
    connection.close()
    return cast("list[tuple[int, str]]", was)


TYPES = {
    "a kind": "UPDATE litequeue_job SET kind = x'6162'",
    "a scope": "UPDATE litequeue_job SET scope = x'6162'",
    "a priority": "UPDATE litequeue_job SET priority = 'high'",
    "a time": "UPDATE litequeue_job SET created_at = 'now'",
    "an id": "UPDATE litequeue_job SET job_id = 'me'",
    "a log": "UPDATE litequeue_job SET events = 'log'",
    "a payload": "UPDATE litequeue_body SET payload = 'text'",
    "attempts": "UPDATE litequeue_job SET attempts = x'01'",
    "the kind of a setting": "INSERT INTO litequeue_kind_setting VALUES (x'6162', 'lease_ttl', 5)",
    "the name of a setting": "INSERT INTO litequeue_setting VALUES (x'6162', 5)",
}


@pytest.mark.parametrize("what", TYPES)
def test_a_column_of_another_type_is_damage_in_the_packages_words(path: str, what: str) -> None:
    """A flipped bit makes bytes of a text: each verb and each command says so, or goes on without it (§6, G11)."""
    with litequeue.open(path) as queue:
        queue.enqueue("work")
    _without_strict(path, TYPES[what])
    with litequeue.open(path) as queue:
        for use in _USES.values():
            _is_named(use, queue)
            _is_named(_inside, queue)
    for words in (
        "stats",
        "jobs ls --all-scopes",
        "jobs ls --all-scopes --json",
        "settings get",
        "settings get --json",
    ):
        result = CliRunner().invoke(command, ["--db", path, *words.split()])
        assert result.exit_code in (0, 1), result
        assert result.exception is None or isinstance(result.exception, SystemExit), result
