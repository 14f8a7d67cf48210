"""A job's narrow row, as every statement of the engine reads it.

Owns: the order of the columns that the part `row` of `statements.sql` names. Invariant: a row is read and acted upon
under the same write lock, or the write matches its key and generation and checks the count.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from litequeue.arguments import MAX_TEXT_CHARS
from litequeue.ids import stored_job_id

Key = tuple[str, int, int, int, bytes]
"""(scope, state, priority, created_at, job_id): where the row stands."""


NEXT_NAME = "\x01"
"""Below every character that a name may have: `name + NEXT_NAME` is the next possible name."""
AFTER_ALL_NAMES = "\U0010ffff" * (MAX_TEXT_CHARS + 1)
"""Above every name."""

Values = tuple[Any, ...]
"""A row as the database gives it, or the bindings of a statement: checked by STRICT tables, not by us."""


class Row(NamedTuple):
    """A row of `litequeue_job`, its log by size only."""

    scope: str
    state: int
    priority: int
    created_at: int
    job_id: bytes
    kind: str
    attempts: int
    reaps: int
    max_attempts: int | None
    lease_generation: int
    worker_id: str | None
    lease_deadline: int | None
    beats: int
    checkpoints: int
    last_beat_at: int | None
    not_before: int | None
    expires_at: int | None
    finished_at: int | None
    idempotency_key: str | None
    events_bytes: int
    may_have_outcome: bool = True
    """Whether an earlier run may have left something: only who completes a job asks."""

    @property
    def key(self) -> Key:
        """The full primary key."""
        return self[:5]

    @property
    def fence(self) -> tuple[str, int, int, bytes, str | None, int]:
        """What a lease of this row would have to match."""
        return (self.scope, self.priority, self.created_at, self.job_id, self.worker_id, self.lease_generation)

    @property
    def uuid(self) -> UUID:
        """The id as callers see it."""
        return stored_job_id(self.job_id)


ROW_COLUMNS = len(Row._fields) - 1
"""Those of the part `row`."""
