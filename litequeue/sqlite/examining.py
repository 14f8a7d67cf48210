"""Looking a queue's tables over, without changing anything: integrity, every job, and the tables to each other.

Owns: the walk by key in pages. Invariants: each page is one short snapshot, so that the write-ahead log is not pinned
for as long as the walk takes, and what is compared with each other is read in the same one; memory does not grow with
the file; rows are read one by one, because a page of large payloads is large. Leaves out: what a row must be
(`invariants`), and what lies around the file (`surroundings`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from litequeue.clock import Clock, SystemClock
from litequeue.diagnosis import Finding, Severity
from litequeue.errors import CannotOpen, NotAQueue, SchemaMismatch, StorageCorrupt, UsageError
from litequeue.model import JobState
from litequeue.settings import MAX_WEIGHT, SPECS, Settings, check
from litequeue.sqlite import (
    examining_chains,
    examining_schedules,
    filesystem,
    invariants,
    schema,
    settings_table,
    tables,
)
from litequeue.sqlite.connection import pragma, why_not
from litequeue.sqlite.failures import translate
from litequeue.sqlite.findings import Tally
from litequeue.sqlite.invariants import Stored
from litequeue.sqlite.opening import size_of
from litequeue.sqlite.place import LOGS
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Values
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.surroundings import describe, look_around
from litequeue.sqlite.visiting import is_plain, visit
from litequeue.sqlite.waiting import Waiting

PAGE = 500
"""Rows in one snapshot: some ten milliseconds."""

Progress = Callable[[int, int], None]
"""Called with what has been done of how much."""

_MOST_COMPLAINTS = 20
_OF_AN_INDEX = re.compile(r"(missing from|wrong # of entries in|values differ from) index litequeue_\w+$")
_UNREADABLE = (apsw.Error, UnicodeDecodeError)


def problems(source: str | apsw.Connection, clock: Clock | None = None) -> list[str]:
    """Return a line for each way in which a queue file breaks the contract; a sound one has none.

    Integrity, schema, the invariants of every job and of the tables to each other; nothing that depends on time. A path
    must not be open in this process through anything but apsw; a connection is used as it is, in its own transaction if
    it has one open. Takes a few milliseconds for a small file.

    Raises:
        CannotOpen: there is no such file, or no permission to read it.
    """
    tally = Tally()
    if isinstance(source, apsw.Connection):
        examine(source, clock or SystemClock(), tally)
    else:
        _look_inside(source, clock or SystemClock(), tally, None)
    return [f"{finding.code}: {finding}" for finding in tally.findings() if finding.severity is Severity.PROBLEM]


def examine_file(path: str, clock: Clock, log_limit_bytes: int, progress: Progress | None = None) -> list[Finding]:
    """Look over a file, its rows and what lies around it; `log_limit_bytes` is what its log may grow to.

    Raises:
        CannotOpen: there is no such file, or no permission to read it.
        QueueBusy: a lock was not had.
    """
    reason_not = None if os.path.isfile(path) else why_not(path, create=False)
    if reason_not is not None:
        raise CannotOpen(path, reason_not)
    tally = Tally()
    look_around(path, tally, log_limit_bytes)  # before the look inside makes a log
    if not size_of(f"{path}-shm") and filesystem.is_full(os.path.dirname(path)):
        tally.add("disk.full")
    elif all(is_plain(path + suffix, or_absent=True) for suffix in LOGS):
        _look_inside(path, clock, tally, progress)
    else:
        tally.add("file.unseen")
    return tally.findings()


def examine(connection: apsw.Connection, clock: Clock, tally: Tally, progress: Progress | None = None) -> int | None:
    """Look everything over that a connection can see; what cannot be read is a finding as well.

    Returns the version of the queue's tables, `None` when there are none that can be looked at. The rows of an earlier
    version are not looked at: its statements are gone.

    Raises:
        apsw.BusyError: a lock was not had.
    """
    with _readable(tally, "the header"):
        _integrity(connection, tally)
    version = None
    with _readable(tally, "the schema"):
        version = _schema(connection, tally)
    if version == tables.VERSION:
        with _readable(tally, "the settings"):
            _settings(connection, tally)
        _Walk(connection, clock, tally, progress).run()
    return version


def _look_inside(path: str, clock: Clock, tally: Tally, progress: Progress | None) -> None:
    try:
        with visit(path) as connection:
            version = examine(connection, clock, tally, progress)
            with _readable(tally, "the sizes"):
                if version is not None:
                    describe(connection, tally, version)
    except NotAQueue as exc:
        tally.add("file.foreign", exc.reason)
    except StorageCorrupt as exc:
        tally.add("file.integrity", str(exc))
    except apsw.Error as exc:
        raise translate(exc, path) or exc from exc


class _Walk:
    """One walk over all rows."""

    def __init__(self, connection: apsw.Connection, clock: Clock, tally: Tally, progress: Progress | None) -> None:
        self._connection = connection
        self._clock = clock
        self._tally = tally
        self._progress = progress
        self._done = 0
        self._total = 0
        self._waiting = Waiting(tally, connection.filename)

    def run(self) -> None:
        """Walk over every table."""
        with _readable(self._tally, "the payloads"):
            self._total = 2 * Reader(self._connection, 0, 0, Settings()).all(SQL.body_count)[0][0]
        with _readable(self._tally, "the jobs"):
            self._jobs()
            self._waiting.finish()
        relations = (
            ("the payloads", SQL.examined_bodies, self._body),
            ("the outcomes", SQL.examined_outcomes, self._outcome),
            ("the checkpoints", SQL.examined_continuations, self._continuation),
            ("the kept triggers", SQL.examined_reruns, self._rerun),
        )
        for what, statement, look in relations:
            with _readable(self._tally, what):
                self._relation(statement, look)
        with _readable(self._tally, "the outboxes"):
            self._outboxes()
        with _readable(self._tally, "what limits count"):
            self._slots()

        with _readable(self._tally, "what jobs wait for"):
            self._chains()
        with _readable(self._tally, "the schedules"):
            self._schedules()

    def _jobs(self) -> None:
        after: tuple[object, ...] | None = ("", -1, -1, -1, b"")
        while after is not None:
            with _snapshot(self._connection):
                reader = self._reader()
                self._waiting.begin(reader)
                count, last = 0, after
                for found in self._connection.execute(SQL.examined_jobs, (*after, PAGE)):
                    job = Stored(*found)
                    self._job(reader, job)
                    count, last = count + 1, job.key
            after = last if count == PAGE else None
            self._advance(count)

    def _job(self, reader: Reader, job: Stored) -> None:
        tally = self._tally
        try:
            events = invariants.read_log(job)
            for code, detail in invariants.broken(job, events):
                tally.add(code, detail, job_id=job.job_id)
            if not job.has_body:
                tally.add("job.body", job_id=job.job_id)
            if job.checkpoints > 0 and not job.has_continuation:
                tally.add("continuation.missing", job_id=job.job_id)
            if job.state == JobState.WAITING and reader.one(SQL.gate_of_job, job.job_id) is None:
                tally.add("gate.missing", job_id=job.job_id)
            if job.state == JobState.LEASED:
                for pool in reader.settings.limits.pools(job.kind, job.scope):
                    if reader.one(SQL.slot_exists, pool.kind, pool.scope, job.job_id) is None:
                        tally.add("slot.missing", job_id=job.job_id)
            self._waiting.see(reader, job, events or [])
        except (AttributeError, TypeError, ValueError) as exc:  # the file holds what no table allows
            tally.add("job.values", str(exc), job_id=job.job_id)

    def _relation(self, statement: str, look: Callable[[bytes, int], None]) -> None:
        after: bytes | None = b""
        while after is not None:
            with _snapshot(self._connection):
                rows: list[Values] = self._connection.execute(statement, (after, PAGE)).fetchall()
            for job_id, count in rows:
                look(job_id, count)
            after = rows[-1][0] if len(rows) == PAGE else None
            if statement is SQL.examined_bodies:
                self._advance(len(rows))

    def _body(self, job_id: bytes, jobs: int) -> None:
        if jobs == 0:
            self._tally.add("body.orphan", job_id=job_id)
        elif jobs > 1:
            self._tally.add("job.twice", job_id=job_id)

    def _outcome(self, job_id: bytes, bodies: int) -> None:
        if not bodies:
            self._tally.add("outcome.orphan", job_id=job_id)

    def _continuation(self, job_id: bytes, leases: int) -> None:
        if not leases:
            self._tally.add("continuation.orphan", job_id=job_id)

    def _rerun(self, job_id: bytes, leases: int) -> None:
        if not leases:
            self._tally.add("rerun.orphan", job_id=job_id)

    def _outboxes(self) -> None:
        after: tuple[str, str, int] | None = ("", "", 0)
        while after is not None:
            with _snapshot(self._connection):
                rows: list[Values] = self._connection.execute(SQL.examined_outbox, (*after, PAGE)).fetchall()
            for *_, job_id, waits, is_behind, has_job in rows:
                if waits != is_behind or (waits and has_job):
                    self._tally.add("outbox.order", job_id=job_id)
                elif not waits and not has_job:
                    self._tally.add("outbox.missing", job_id=job_id)
            after = rows[-1][:3] if len(rows) == PAGE else None

    def _slots(self) -> None:
        after: tuple[str, str, bytes] | None = ("", "", b"")
        while after is not None:
            with _snapshot(self._connection):
                limits = self._reader().settings.limits
                rows: list[Values] = self._connection.execute(SQL.examined_slots, (*after, PAGE)).fetchall()
            for kind, counted_in, job_id, kind_of_job, scope in rows:
                pools = () if kind_of_job is None else limits.pools(kind_of_job, scope)
                if not any((pool.kind, pool.scope) == (kind, counted_in) for pool in pools):
                    self._tally.add("slot.orphan", job_id=job_id)
            after = rows[-1][:3] if len(rows) == PAGE else None

    def _chains(self) -> None:
        gate: int | None = 0
        while gate is not None:
            with _snapshot(self._connection):
                rows: list[Values] = self._connection.execute(SQL.examined_gates, (gate, PAGE)).fetchall()
            for found in rows:
                examining_chains.look_over_gate(found, self._tally)
            gate = rows[-1][0] if len(rows) == PAGE else None
        after: tuple[bytes, int] | None = (b"", 0)
        while after is not None:
            with _snapshot(self._connection):
                rows = self._connection.execute(SQL.examined_dependencies, (*after, PAGE)).fetchall()
            for found in rows:
                examining_chains.look_over_dependency(found, self._tally)
            after = rows[-1][:2] if len(rows) == PAGE else None

    def _schedules(self) -> None:
        after: str | None = ""
        total = 0
        while after is not None:
            with _snapshot(self._connection):
                reader = self._reader()
                rows: list[Values] = self._connection.execute(SQL.examined_schedules, (after, PAGE)).fetchall()
                for found in rows:
                    examining_schedules.look_over(reader, found, self._tally)
            total += len(rows)
            after = rows[-1][0] if len(rows) == PAGE else None
        if total:
            self._tally.add("schedule.count", f"{total:,}")

    def _reader(self) -> Reader:
        """Return what a page is held against: the time, the lease clock and the settings of its snapshot."""
        reader = Reader(self._connection, self._clock.wall_us(), 0, Settings())
        hosts = reader.all(SQL.hosts)
        self._waiting.is_booted = bool(hosts) and hosts[0][0] == self._clock.boot_id()
        lease_now = self._clock.monotonic_us() + hosts[0][1] if hosts else 0
        return Reader(self._connection, reader.now, lease_now, settings_table.read(reader))

    def _advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def _integrity(connection: apsw.Connection, tally: Tally) -> None:
    """Let SQLite check its own structures, its constraints and every index against its table."""
    if pragma(connection, "encoding") != "UTF-8":
        tally.add("file.encoding", str(pragma(connection, "encoding")))
    try:
        complaints = connection.execute(f"PRAGMA integrity_check({_MOST_COMPLAINTS})").fetchall()
    except apsw.CorruptError as exc:
        tally.add("file.integrity", str(exc))
        return
    for (said,) in complaints:
        if said != "ok":
            tally.add("file.index" if _OF_AN_INDEX.search(str(said)) else "file.integrity", " ".join(str(said).split()))


def _schema(connection: apsw.Connection, tally: Tally) -> int | None:
    """Hold the schema against that of its version; return the version, if there is a queue to look at."""
    path = connection.filename or "the file"
    version = None
    try:
        if schema.is_new(connection, path):
            tally.add("file.empty")
            return None
        version = schema.version_of(connection, path)
        if version != tables.VERSION:
            tally.add("file.earlier", f"schema version {version}, which opening it moves to version {tables.VERSION}")
        schema.check(connection, path, or_earlier=True)
    except (NotAQueue, StorageCorrupt) as exc:
        tally.add("file.foreign", exc.reason if isinstance(exc, NotAQueue) else str(exc))
        return None
    except SchemaMismatch as exc:
        tally.add("file.schema", f"found {exc.found}, expected {exc.expected}")
    return version


def _settings(connection: apsw.Connection, tally: Tally) -> None:
    """Check the rows that every process agrees on."""
    if len(connection.execute(SQL.hosts).fetchall()) != 1:
        tally.add("host.rows")
    own: list[Values] = connection.execute(SQL.settings).fetchall()
    by_kind: list[Values] = connection.execute(SQL.kind_settings).fetchall()
    by_scope: list[Values] = connection.execute(SQL.scope_settings).fetchall()
    rows = [(None, None, *row) for row in own] + [(None, *row) for row in by_kind]
    rows += [(scope, kind or None, name, value) for scope, kind, name, value in by_scope]
    for row in rows:
        _setting(tally, *row)
    weights: list[Values] = connection.execute(SQL.weights).fetchall()
    for scope, weight in weights:
        if not isinstance(scope, str) or not isinstance(weight, int) or not 1 < weight <= MAX_WEIGHT:
            tally.add("setting.value", f"the weight of {scope!r} is {weight!r}")
    turns: list[Values] = connection.execute(SQL.turns).fetchall()
    for scope, served in turns:
        if not isinstance(scope, str) or not isinstance(served, int) or not 0 < served <= MAX_WEIGHT:
            tally.add("turn.values", f"{scope!r} has been served {served!r}")


def _setting(tally: Tally, scope: str | None, kind: str | None, name: str, value: float | str | None) -> None:
    if name not in SPECS:
        tally.add("setting.unknown", name)
        return
    try:
        check(name, settings_table.loaded(name, value), kind, scope)
    except (UsageError, StorageCorrupt) as exc:
        tally.add("setting.value", str(exc))


@contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Read from one moment; from that of the caller's own transaction when there is one."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def _readable(tally: Tally, what: str) -> Iterator[None]:
    """Turn what keeps a part from being read into a finding."""
    try:
        yield
    except (apsw.BusyError, apsw.InterruptError):
        raise
    except apsw.NotADBError:
        tally.add("file.foreign", "it is not an SQLite database")
    except _UNREADABLE as exc:
        tally.add("file.unreadable", f"{what} ({exc})")
