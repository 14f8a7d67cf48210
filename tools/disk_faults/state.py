"""What a queue file holds, told so that two runs of the same verb can be compared, and what is wrong with it.

Owns: the snapshot of every table that a verb writes, with what differs from run to run (ids, holders) named by what
does not, and the invariants of the tables to each other. Leaves out: the rows of live handles, which come and go with
any transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from uuid import UUID

import apsw

from litequeue import JobState, LiteQueueError, codec
from litequeue.model import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping

Values = tuple[object, ...]
State = dict[str, list[Values]]
"""Rows by table; a file without a queue's tables has none."""

_JOB_ID = "(SELECT scope || '/' || priority || '/' || created_at FROM litequeue_body b WHERE b.job_id = t.job_id)"
"""A job's place in its line: ids are partly random, places are not."""
_TABLES = {
    "job": "scope, state, priority, created_at, kind, attempts, reaps, max_attempts, lease_generation, worker_id, "
    "holder IS NOT NULL, leased_at, lease_deadline, beats, checkpoints, last_beat_at, not_before, expires_at, "
    "finished_at, idempotency_key, events",
    "body": "scope, priority, created_at, payload",
    "outcome": "result, last_error",
    "continuation": "data, progress, note",
    "rerun": "priority, not_before, expires_at, max_attempts, payload",
    "gate": "id, parents, missing, completed, dead, cancelled, on_parent_failure, not_before",
}
_OTHERS = {
    "meta": "SELECT schema_version FROM litequeue_meta",
    "host": "SELECT boot_id, lease_offset FROM litequeue_host",
    "setting": "SELECT name, value FROM litequeue_setting",
    "kind_setting": "SELECT kind, name, value FROM litequeue_kind_setting",
    "dependency": "SELECT gate, count(*) FROM litequeue_dependency GROUP BY gate",
    "notice": "SELECT id, gate, state FROM litequeue_notice",
}
_OWN_TABLE = "mine"
"""The table of the caller's own, in the verbs that have one."""

_WRONG = {
    "a job without its body": "SELECT count(*) FROM litequeue_job j LEFT JOIN litequeue_body b "
    "USING (job_id, scope, priority, created_at) WHERE b.job_id IS NULL",
    "a body without its job": "SELECT count(*) FROM litequeue_body b LEFT JOIN litequeue_job j "
    "USING (job_id, scope, priority, created_at) WHERE j.job_id IS NULL",
    "a job in two places": "SELECT count(*) - count(DISTINCT job_id) FROM litequeue_job",
    "an outcome without its job": "SELECT count(*) FROM litequeue_outcome "
    "WHERE job_id NOT IN (SELECT job_id FROM litequeue_job)",
    "a continuation without a lease": "SELECT count(*) FROM litequeue_continuation "
    "WHERE job_id NOT IN (SELECT job_id FROM litequeue_job WHERE state = 1)",
    "a kept trigger without a lease": "SELECT count(*) FROM litequeue_rerun "
    "WHERE job_id NOT IN (SELECT job_id FROM litequeue_job WHERE state = 1)",
    "a job that waits and misses none": "SELECT count(*) FROM litequeue_job AS j "
    "WHERE (state = 7) <> EXISTS (SELECT 1 FROM litequeue_gate AS g WHERE g.job_id = j.job_id AND g.missing > 0)",
    "a gate that misses others than it counts": "SELECT count(*) FROM litequeue_gate AS g WHERE missing > 0 "
    "AND missing <> (SELECT count(*) FROM litequeue_dependency AS d WHERE d.gate = g.id)",
    "a lease without a holder": "SELECT count(*) FROM litequeue_job "
    "WHERE (state = 1) <> (holder IS NOT NULL AND worker_id IS NOT NULL)",
    "more reaps than attempts": "SELECT count(*) FROM litequeue_job WHERE reaps > attempts",
    "more attempts than leases": "SELECT count(*) FROM litequeue_job WHERE attempts > lease_generation",
}
_LAST_EVENTS = {
    JobState.PENDING: {
        Transition.ENQUEUED,
        Transition.PROMOTED,
        Transition.RELEASED,
        Transition.RETRIED,
        Transition.REAPED,
    },
    JobState.LEASED: {Transition.LEASED, Transition.NOTE},
    JobState.COMPLETED: {Transition.COMPLETED},
    JobState.RETRYABLE: {Transition.FAILED, Transition.REAPED},
    JobState.DEAD: {Transition.DEAD, Transition.EXPIRED},
    JobState.SCHEDULED: {Transition.ENQUEUED, Transition.PROMOTED, Transition.RELEASED, Transition.RETRIED},
    JobState.CANCELLED: {Transition.CANCELLED},
    JobState.WAITING: {Transition.ENQUEUED},
}


def state_of(path: str) -> State:
    """Read a file's state, in one snapshot, through a connection of its own."""
    connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN")
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
        if "litequeue_meta" not in names:
            return {}
        state: State = {
            table: sorted(_rows(connection, f"SELECT {_JOB_ID}, {columns} FROM litequeue_{table} t"), key=repr)  # noqa: S608
            for table, columns in _TABLES.items()
        }
        for table, statement in _OTHERS.items():
            state[table] = _rows(connection, statement)
        if _OWN_TABLE in names:
            state[_OWN_TABLE] = _rows(connection, f"SELECT * FROM {_OWN_TABLE}")  # noqa: S608
        return state
    finally:
        connection.close()


def places(path: str) -> dict[UUID, str]:
    """Return the state of every job by its id, as another process sees it."""
    connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        rows = connection.execute("SELECT job_id, state FROM litequeue_job").fetchall()
    finally:
        connection.close()
    return {UUID(bytes=cast("bytes", job_id)): JobState(cast("int", state)).name for job_id, state in rows}


def problems(path: str) -> list[str]:
    """Say what is wrong with a file, whatever was done to it."""
    connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        checked = _rows(connection, "PRAGMA integrity_check")
        found = [] if checked == [("ok",)] else [f"damaged: {checked[0][0]}"]
        if not _rows(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'litequeue_meta'"):
            names = _rows(connection, "SELECT name FROM sqlite_schema")
            return found + ([f"half made: {names}"] if names else [])
        for what, question in _WRONG.items():
            count = _rows(connection, question)[0][0]
            if count:
                found.append(f"{count} × {what}")
        for job_id, number, events in _rows(connection, "SELECT job_id, state, events FROM litequeue_job"):
            found += _wrong_log(UUID(bytes=cast("bytes", job_id)), JobState(cast("int", number)), cast("bytes", events))
        return found
    finally:
        connection.close()


def difference(found: State, expected: State) -> str:
    """Say briefly how two states differ."""
    said = []
    for table in sorted({*found, *expected}):
        extra = [row for row in found.get(table, []) if row not in expected.get(table, [])]
        missing = [row for row in expected.get(table, []) if row not in found.get(table, [])]
        said += [f"{table} has {row}" for row in extra[:1]] + [f"{table} lacks {row}" for row in missing[:1]]
    return "; ".join(said)


def lay_out(folder: str, image: Mapping[str, bytes]) -> str:
    """Write the files of an image into a folder; return the path of the database."""
    path = f"{folder}/app.queue"
    for suffix, content in image.items():
        with open(path + suffix, "wb") as file:  # noqa: PTH123 - text, as SQLite wants it
            file.write(content)
    return path


def _wrong_log(job_id: UUID, state: JobState, events: bytes) -> list[str]:
    try:
        last = codec.decode_events(events, job_id)[-1].transition
    except (LiteQueueError, IndexError) as exc:
        return [f"the log of {job_id} cannot be read: {exc}"]
    return [] if last in _LAST_EVENTS[state] else [f"a {state} job whose log ends with {last}"]


def _rows(connection: apsw.Connection, statement: str) -> list[Values]:
    return cast("list[Values]", connection.execute(statement).fetchall())
