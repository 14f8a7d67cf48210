"""Files of earlier versions, made by the releases that wrote them, become files of this one when they are opened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
import make_fixture
from litequeue import ANY, JobState, NewJob, QueueBusy, QueueFull, SchemaMismatch
from litequeue.sqlite import filesystem, migrating, presence, tables
from litequeue.sqlite.examining import problems
from litequeue.sqlite.place import Place
from litequeue.sqlite.presence import Presence
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.faults import children

    Fingerprint = Callable[[], dict[str, str]]

EARLIER = range(1, tables.VERSION)
FILES = [(version, name) for version in EARLIER for name in make_fixture.NAMES]
_CHECK = "state BETWEEN 0 AND "


def next_version(*changes: tuple[str, str]) -> None:
    """Let this program be the one after itself: another check on the jobs, new columns, another index and view."""
    texts = {version: tables.text(version) for version in (*EARLIER, tables.VERSION)}
    after = texts[tables.VERSION]
    for old, new in (
        (_CHECK, "state >= 0 AND state BETWEEN 0 AND "),
        ("    since INTEGER NOT NULL,\n    sidecar", "    since INTEGER NOT NULL,\n    tag TEXT,\n    sidecar"),
        ("ON litequeue_job (scope, not_before)", "ON litequeue_job (scope, not_before, kind)"),
        ("    last_error TEXT", "    last_error TEXT,\n    weight INTEGER NOT NULL DEFAULT 7"),
        ("    kind,\n    priority,", "    kind,\n    priority AS urgency,"),
        *changes,
    ):
        assert after.count(old) == 1, old
        after = after.replace(old, new)
    tables.VERSION += 1
    texts[tables.VERSION] = after
    tables.text = lambda version=None: texts[version or tables.VERSION]
    tables.expected.cache_clear()


@pytest.fixture
def in_next_version() -> Iterator[None]:
    """Let the test be one of the version after this one, in which one table has gone and another come."""
    version, text = tables.VERSION, tables.text
    next_version(("CREATE TABLE litequeue_rerun", "CREATE TABLE litequeue_again"))
    yield
    tables.VERSION, tables.text = version, text
    tables.expected.cache_clear()


def _objects(path: Path) -> set[tuple[object, ...]]:
    return {row for row in _rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema") if "queue" in str(row[1])}


def _rows(path: Path, *statements: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        rows: list[tuple[object, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
    finally:
        connection.close()


def test_every_earlier_version_is_kept() -> None:
    """Its schema, by which it is known, and files that its own release has made."""
    assert sorted(int(kept.name) for kept in make_fixture.KEPT.iterdir()) == list(EARLIER)
    for version, name in FILES:
        assert "CREATE TABLE litequeue_job" in tables.text(version)
        assert (make_fixture.KEPT / str(version) / f"{name}.queue.gz").exists()


@pytest.mark.parametrize(("version", "name"), FILES)
def test_a_file_of_an_earlier_version_becomes_one_of_this(path: Path, version: int, name: str) -> None:
    """Every job, log, lease and setting is as its release told of it, and each table as in a new file (§6, G2)."""
    make_fixture.unpacked(version, name, path)
    with litequeue.open(path, clock=make_fixture.clock()) as queue:
        told = (make_fixture.KEPT / str(version) / f"{name}.json").read_text(encoding="utf-8")
        assert json.loads(make_fixture.told(queue)) == json.loads(told)
        if name != "empty":
            assert (queue.settings()["lease_ttl"], queue.settings("mail:any")["max_attempts"]) == (900, 3)
            with queue.transaction() as tx:
                assert tx.execute("SELECT count(*) FROM open_jobs JOIN orders ON hex(orders.job) = upper(job_id)") == [
                    (1,)
                ]
        queue._store.holdings.start_afresh(is_open=False)
    assert problems(str(path), make_fixture.clock()) == []
    assert sorted(left.name for left in path.parent.iterdir()) == [path.name, f"{path.name}-lock"]
    litequeue.open(new := path.with_name("new.queue"), clock=make_fixture.clock()).close()
    assert _objects(path) == _objects(new)
    for pragma in ("application_id", "auto_vacuum", "page_size", "journal_mode", "encoding"):
        assert _rows(path, f"PRAGMA {pragma}") == _rows(new, f"PRAGMA {pragma}")
    meta = "SELECT schema_version FROM litequeue_meta"
    assert _rows(path, meta) == _rows(new, meta) == [(tables.VERSION,)]


@pytest.mark.parametrize("name", ["closed", "killed"])
@pytest.mark.parametrize("version", EARLIER)
def test_what_an_earlier_version_left_goes_on(path: Path, version: int, name: str) -> None:
    """After a reboot the leases of its dead are reaped; kept triggers run; order, keys and limits hold (G4, G5)."""
    clock = make_fixture.clock()
    clock.reboot()
    with litequeue.open(make_fixture.unpacked(version, name, path), clock=clock) as queue:
        before = queue.stats(ANY).counts
        assert before[JobState.LEASED] == 4
        assert not queue.enqueue("soon", idempotency_key="once").created
        queue.set("concurrency", 2, kind="run")
        assert queue.reap_expired() == 4
        clock.advance(3600)
        first, second, third = (queue.lease_next(kinds=["run"]) for _ in range(3))
        assert first is not None
        assert second is not None
        assert ([first.payload, second.payload], third) == ([0, 1], None)
        queue.complete_many([first, second])
        while (lease := queue.lease_next(kinds=["run"])) is not None:
            lease.complete()
        runs = queue.list(kind="run", limit=100)
        assert [queue.get(job.job_id).payload for job in runs] == [0, 1, "newest", 3]  # it folds into the reaped run
        assert {job.state for job in runs} == {JobState.COMPLETED}
        pages = queue.lease_many(100, kinds=["index"])
        assert [lease.payload for lease in pages[:12]] == [{"page": n, "text": "x" * 40 * n} for n in range(12)]
        queue.complete_many(pages)
        while (lease := queue.lease_next(scope=ANY)) is not None:
            lease.complete()
        assert queue.put_message("mail", "first", key="one").created
        assert queue.schedule("tick", "@every 1h", "ticks") is not None
        queue.pause(kind="index")
        assert queue.enqueue("index") is not None
        assert queue.lease_next() is None
        clock.advance(31 * 86_400)
        litequeue.Maintenance(queue).run_once()
    assert problems(str(path), clock) == []


@pytest.mark.parametrize("version", EARLIER)
def test_an_earlier_file_that_was_tampered_with_is_left_as_it_is(
    path: Path, fingerprint: Fingerprint, version: int
) -> None:
    """`SchemaMismatch` names what differs from that version's tables; the file is not touched (§6)."""
    make_fixture.unpacked(version, "closed", path)
    _rows(path, "CREATE TRIGGER mine AFTER INSERT ON litequeue_job BEGIN DELETE FROM litequeue_body; END")
    before = fingerprint()
    with pytest.raises(SchemaMismatch) as caught:
        litequeue.open(path)
    assert "mine" in caught.value.found
    assert f"version {version}" in caught.value.expected
    assert fingerprint()[path.name] == before[path.name]


@pytest.mark.parametrize("version", EARLIER)
def test_an_earlier_file_that_holds_what_no_queue_wrote_is_left_as_it_is(
    path: Path, in_next_version: None, version: int
) -> None:
    """What the new tables do not take is damage; nothing is half done, and no row is lost (§6)."""
    assert in_next_version is None
    make_fixture.unpacked(version, "closed", path)
    _rows(path, "PRAGMA ignore_check_constraints = 1", "UPDATE litequeue_job SET state = 9 WHERE kind = 'report'")
    rows = _rows(path, "SELECT * FROM litequeue_job")
    with pytest.raises(litequeue.StorageCorrupt):
        litequeue.open(path)
    assert _rows(path, "SELECT * FROM litequeue_job") == rows
    assert _objects(path) >= {tuple(thing) for thing in tables.expected(version) if thing.sort == "table"}


# --- who else has it open


def _have_it_open(parent: children.Parent, path: str) -> None:
    """Have a connection to the file that has read once, and is idle, until told to end."""
    connection = apsw.Connection(path)
    connection.execute("SELECT count(*) FROM litequeue_job").fetchall()
    parent.say("open")
    parent.hear()
    connection.close()


def _attend(parent: children.Parent, path: str) -> None:
    """Be a handle between a fork and its next verb: present, and without a connection."""
    attendance = Presence(Place(path, 0o600, create=False, has_presence=True))
    os.close(os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR, 0o600))
    attendance.attend()
    parent.say("attends")
    parent.hear()
    attendance.close()


@pytest.mark.slow
@pytest.mark.parametrize("work", [_have_it_open, _attend])
def test_a_file_that_an_earlier_program_has_open_is_not_moved(
    path: Path, processes: children.Children, fingerprint: Fingerprint, work: Callable[[children.Parent, str], None]
) -> None:
    """An idle one is enough: it would go on by its own rules. `QueueBusy` names it; afterwards it works (G1, §6)."""
    make_fixture.unpacked(1, "closed", path)
    child = processes.start(work, str(path))
    child.hear()
    before = fingerprint()
    with pytest.raises(QueueBusy, match="earlier version") as caught:
        litequeue.open(path, busy_timeout=0.1)
    assert work is _attend or f"(process {child.pid})" in str(caught.value)
    assert fingerprint()[path.name] == before[path.name]
    assert litequeue.doctor(path).is_healthy
    child.say("end")
    assert child.result() is None
    litequeue.open(path).close()


def test_a_connection_of_this_very_process_is_enough(path: Path) -> None:
    """Whoever uses the file beside the queue lets go of it first (§6)."""
    make_fixture.unpacked(1, "closed", path)
    connection = apsw.Connection(str(path))
    connection.execute("SELECT count(*) FROM orders").fetchall()
    with pytest.raises(QueueBusy, match=f"process {os.getpid()}"):
        litequeue.open(path, busy_timeout=0.1)
    assert connection.execute("SELECT schema_version FROM litequeue_meta").fetchall() == [(1,)]
    connection.close()
    litequeue.open(path).close()


def test_an_application_that_attaches_is_told_to_open_it_first(path: Path, fingerprint: Fingerprint) -> None:
    """Its own connection is in the way of what has to be alone (§6)."""
    make_fixture.unpacked(1, "closed", path)
    before = fingerprint()
    connection = apsw.Connection(str(path))
    with pytest.raises(SchemaMismatch, match=r"version 1, expected version 2, to which `litequeue\.open` moves it"):
        litequeue.attach(connection)
    connection.close()
    assert fingerprint()[path.name] == before[path.name]


def _open_at_once(parent: children.Parent, path: str) -> int:
    parent.say("ready")
    parent.hear()
    with litequeue.open(path, clock=make_fixture.clock(), busy_timeout=60) as queue:
        queue.enqueue("opened")
        return queue.stats(ANY).counts[JobState.LEASED]


@pytest.mark.slow
def test_many_that_open_it_at_once_move_it_once(path: Path, processes: children.Children) -> None:
    """One does it, the others find it done; each then works with it (§6)."""
    make_fixture.unpacked(1, "killed", path)
    started = [processes.start(_open_at_once, str(path)) for _ in range(4)]
    for child in started:
        child.hear()
    for child in started:
        child.say("go")
    assert [child.result() for child in started] == [4] * 4
    with litequeue.open(path, clock=make_fixture.clock()) as queue:
        assert len(queue.list(kind="opened")) == 4


def _keep_open(parent: children.Parent, path: str) -> None:
    with litequeue.open(path, clock=make_fixture.clock(), busy_timeout=60):
        parent.say("open")
        parent.hear()


@pytest.mark.slow
@pytest.mark.parametrize(("room", "name"), [(presence, "is_attended"), (migrating, "move_forward")])
def test_who_finds_it_moved_meanwhile_goes_on(
    path: Path, processes: children.Children, monkeypatch: pytest.MonkeyPatch, room: ModuleType, name: str
) -> None:
    """A sees an earlier version; B moves it and keeps it open; A looks again before it says that it is in use."""
    make_fixture.unpacked(1, "closed", path)
    ours: Callable[..., bool] = getattr(room, name)
    moved: list[children.Child] = []

    def after_another(*arguments: object) -> bool:
        moved.append(processes.start(_keep_open, str(path)))
        moved[-1].hear()
        monkeypatch.undo()
        return ours(*arguments)

    monkeypatch.setattr(room, name, after_another)
    with litequeue.open(path, clock=make_fixture.clock(), busy_timeout=60) as queue:
        assert queue.stats(ANY).counts[JobState.LEASED] == 4
    (child,) = moved
    child.say("end")
    assert child.result() is None


# --- the steps, as the next version will need them


@pytest.mark.parametrize(("version", "name"), FILES)
def test_tables_that_differ_are_made_anew(path: Path, in_next_version: None, version: int, name: str) -> None:
    """With all that the old ones held; new columns have their defaults, and what is gone is gone (G2)."""
    assert in_next_version is None
    make_fixture.unpacked(version, name, path)
    old = path.with_name("old.queue")
    make_fixture.unpacked(version, name, old)
    litequeue.open(path, clock=make_fixture.clock()).close()
    assert _objects(path) == {tuple(thing) for thing in tables.expected(tables.VERSION)}
    for rows in ("SELECT * FROM litequeue_job", "SELECT job_id, result, last_error FROM litequeue_outcome"):
        assert _rows(path, rows) == _rows(old, rows)
    assert {row[0] for row in _rows(path, "SELECT weight FROM litequeue_outcome")} == (
        {7} if name != "empty" else set()
    )
    assert _rows(path, "PRAGMA integrity_check") == [("ok",)]
    left = _rows(path, "SELECT name FROM sqlite_schema WHERE name LIKE '%aside%' OR sql LIKE '%aside%'")
    assert left == []
    assert "litequeue_rerun" not in {row[1] for row in _objects(path)}
    if name != "empty":  # the application's own view is as it was written
        assert _rows(path, "SELECT count(*) FROM open_jobs") == _rows(old, "SELECT count(*) FROM open_jobs")


def test_an_id_of_a_holder_is_never_given_out_again(path: Path, in_next_version: None) -> None:
    """Also when the table that counts them is made anew, and the latest holders are gone from it (DESIGN §4)."""
    assert in_next_version is None
    make_fixture.unpacked(1, "closed", path)
    _rows(path, "UPDATE sqlite_sequence SET seq = 41 WHERE name = 'litequeue_holder'", "DELETE FROM litequeue_holder")
    with litequeue.open(path, clock=make_fixture.clock()) as queue:
        assert queue.lease_next(kinds=["index"]) is not None
        assert queue._store.holdings.holder_id == 42


def test_without_room_for_both_nothing_is_begun(
    path: Path, in_next_version: None, monkeypatch: pytest.MonkeyPatch, fingerprint: Fingerprint
) -> None:
    """`QueueFull` says how much it takes, before anything is written; a table that stays takes none (§6)."""
    assert in_next_version is None
    make_fixture.unpacked(1, "closed", path)
    before = fingerprint()
    monkeypatch.setattr(filesystem, "free_bytes", lambda _: 20_000)
    with pytest.raises(QueueFull, match="20,000"):
        litequeue.open(path)
    assert fingerprint()[path.name] == before[path.name]
    needed = migrating._TWICE * _pages(path, "litequeue_job", "litequeue_meta", "litequeue_outcome", "litequeue_holder")
    monkeypatch.setattr(filesystem, "free_bytes", lambda _: needed)
    litequeue.open(path, clock=FakeClock()).close()


def _pages(path: Path, *tables: str) -> int:
    names = ", ".join(f"'{table}'" for table in tables)
    sizes = f"SELECT sum(pgsize) FROM dbstat JOIN sqlite_schema s USING (name) WHERE s.tbl_name IN ({names})"
    return int(str(_rows(path, sizes)[0][0]))


# --- doctor, backup, restore


@pytest.mark.parametrize("name", make_fixture.NAMES)
def test_doctor_tells_the_version_and_moves_nothing(path: Path, fingerprint: Fingerprint, name: str) -> None:
    """A warning, for it is no damage; nothing is changed unless it is asked to mend (§6)."""
    make_fixture.unpacked(1, name, path)
    before = fingerprint()
    diagnosis = litequeue.doctor(path)
    assert fingerprint().items() >= before.items()
    assert _rows(path, "SELECT schema_version FROM litequeue_meta") == [(1,)]
    assert diagnosis.is_healthy
    said = {finding.code: str(finding) for finding in diagnosis.findings}
    assert f"schema version 1, which opening it moves to version {tables.VERSION}" in said["file.earlier"]
    assert "schema version 1" in said["file.sqlite"]
    mended = litequeue.doctor(path, fix=True, clock=make_fixture.clock())
    assert mended.mended == ("moved its tables forward to this version",)
    assert mended.is_healthy
    assert (
        f"schema version {tables.VERSION}" in {finding.code: str(finding) for finding in mended.findings}["file.sqlite"]
    )


def test_doctor_mends_in_one_go_what_it_could_not_see_before(path: Path) -> None:
    """What the rows of an earlier version hold is looked at once they are this version's."""
    make_fixture.unpacked(1, "closed", path)
    _rows(path, "INSERT INTO litequeue_outcome (job_id, last_error) VALUES (zeroblob(16), 'boom')")
    assert litequeue.doctor(path).is_healthy
    mended = litequeue.doctor(path, fix=True, clock=make_fixture.clock())
    assert mended.mended[0] == "moved its tables forward to this version"
    assert "removed results and errors without a job: 1" in mended.mended
    assert mended.is_healthy


def test_doctor_finds_an_earlier_file_that_was_tampered_with(path: Path) -> None:
    """It is a problem, whatever the version, and then nothing is moved."""
    make_fixture.unpacked(1, "closed", path)
    _rows(path, "CREATE INDEX mine ON litequeue_job (kind)")
    diagnosis = litequeue.doctor(path, fix=True)
    assert [finding.code for finding in diagnosis.problems] == ["file.schema"]
    assert diagnosis.mended == ()
    assert _rows(path, "SELECT schema_version FROM litequeue_meta") == [(1,)]


@pytest.mark.parametrize("name", make_fixture.NAMES)
def test_a_backup_of_an_earlier_version_is_restored_as_it_is(path: Path, fingerprint: Fingerprint, name: str) -> None:
    """The backup stays what it was; what is restored moves forward when it is opened, its leases lapsed (§6)."""
    backup = make_fixture.unpacked(1, name, path.with_name("backup.queue"))
    before = fingerprint()
    jobs = litequeue.restore(backup, path).jobs
    assert fingerprint().items() >= before.items()
    assert _rows(path, "SELECT schema_version FROM litequeue_meta") == [(1,)]
    with litequeue.open(path, clock=make_fixture.clock()) as queue:
        stats = queue.stats(ANY)
        assert (stats.total, stats.lapsed) == (jobs, stats.counts[JobState.LEASED])
        queue.backup(path.with_name("again.queue"))
    assert problems(str(path.with_name("again.queue"))) == []


def test_one_version_is_restored_over_another(path: Path) -> None:
    """An earlier one over this one, and the other way round (§6)."""
    earlier = make_fixture.unpacked(1, "closed", path.with_name("earlier.queue"))
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob("new") for _ in range(3))
        queue.backup(path.with_name("this.queue"))
    litequeue.restore(earlier, path, overwrite=True)
    assert _rows(path, "SELECT schema_version FROM litequeue_meta") == [(1,)]
    litequeue.restore(path.with_name("this.queue"), path, overwrite=True)
    with litequeue.open(path) as queue:
        assert queue.stats(ANY).total == 3
