"""Enqueue in a transaction of `sqlite3`, SQLAlchemy or Django, in a process that never loads apsw.

    connection.execute("INSERT INTO orders VALUES (7)")
    litequeue.dbapi.enqueue(connection, "mail:receipt", {"order": 7})
    connection.commit()  # both or neither
    litequeue.dbapi.ring(connection)

The same statements and rules as everywhere (V1, V2, G4), on the caller's own DB-API connection, inside its transaction:
durability, waiting for the lock and the commit are the caller's. A connection may be one of the standard `sqlite3`
module, an SQLAlchemy `Session` or `Connection`, or a Django connection. Workers run in other processes: two SQLites in
one process destroy data, so a process that has the file open through `litequeue.open` is refused here, and the other
way round. This package imports neither apsw nor any of those libraries.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.dbapi import creating, writing
from litequeue.dbapi.bells import ring
from litequeue.lease import Duration
from litequeue.model import Enqueued, NewJob, OnConflict, OnParentFailure, Scope, placed, storable_scope
from litequeue.sqlite import enqueueing

__all__ = ["create_tables", "enqueue", "enqueue_many", "ring"]


def enqueue(
    connection: object,
    kind: str,
    payload: object = None,
    *,
    scope: Scope = "default",
    priority: int = 100,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    expires: Duration | datetime | None = None,
    max_attempts: int | None = None,
    idempotency_key: str | None = None,
    on_conflict: OnConflict = "return",
    job_id: UUID | str | None = None,
    after: Iterable[UUID | str] = (),
    on_parent_failure: OnParentFailure = "cancel",
    clock: Clock | None = None,
) -> Enqueued:
    """Put a job at the end of its line, in the connection's transaction; return its id and whether it is new (V1, V2).

    The arguments are those of `Queue.enqueue`. Nobody sees the job before the caller's COMMIT, and a rollback leaves
    nothing of it. The call takes the write lock, so the transaction is a write one from here on; where the connection
    begins transactions by itself (`sqlite3` by default), it begins one. A call that raises has done nothing and leaves
    the transaction as it was, unless SQLite itself gave that up (disk full, I/O error) and the error says so. `clock`
    replaces the system's, for tests.

    Raises:
        UsageError: an argument out of its bounds; a connection that is none of SQLite's, or not to a file, or that
            commits each statement by itself, only reads, or calls functions of the application's by the names of
            SQLite's; or this process has the file open through `litequeue.open`.
        StorageLost: the file at the connection's path is another one by now, or gone.
        PayloadError, DuplicateJob, JobNotFound, QueueFull: as `Queue.enqueue`.
        QueueBusy: the write lock was not had: roll the transaction back and do it again.
        NotAQueue: the file has no tables of a queue; `create_tables` makes them.
        SchemaMismatch: another version of the queue's tables, or changed ones.
    """
    the_clock = clocks.checked(clock)
    checked = placed(
        kind,
        scope,
        priority,
        delay,
        run_at,
        expires,
        max_attempts,
        idempotency_key,
        on_conflict,
        job_id,
        after,
        on_parent_failure,
    )
    encoded = [enqueueing.encode_one(checked, payload, storable_scope(scope))]
    return writing.write(connection, lambda c: enqueueing.enqueue(c, encoded), the_clock)[0]


def enqueue_many(
    connection: object, jobs: Iterable[NewJob], *, scope: Scope = "default", clock: Clock | None = None
) -> list[Enqueued]:
    """Enqueue jobs in the connection's transaction; return their results in order (V1).

    `scope` is that of the jobs that name none. Everything is encoded before the write lock is taken.

    Raises: as `enqueue`; then none of the jobs is stored.
    """
    the_clock = clocks.checked(clock)
    encoded = enqueueing.encode(jobs, storable_scope(scope))
    if not encoded:
        return []
    return writing.write(connection, lambda c: enqueueing.enqueue(c, encoded), the_clock)


def create_tables(connection: object) -> bool:
    """Make the queue's tables beside the application's own, unless they are there; tell whether they were made.

    In the connection's transaction when one is open, for migrations; otherwise in one of its own. Nothing else about
    the file is changed: the first `litequeue.open` turns on write-ahead logging.

    Raises:
        UsageError: a connection that is none of SQLite's, or not to a file; or this process has the file open through
            `litequeue.open`.
        NotAQueue: the file's text is not UTF-8.
        SchemaMismatch: there are tables of another version, or changed ones.
        QueueBusy: the write lock was not had; nothing was done.
    """
    return creating.create(connection)
