"""Pure reads (V13): one job, a page of jobs, counts.

Invariant: each is one statement or one snapshot, and none takes the write lock, so a job that moves meanwhile is never
"not found" and never counted twice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple
from uuid import UUID

from litequeue import codec
from litequeue.arguments import ID_DIGITS, RESERVED_PREFIX, OwnScope
from litequeue.errors import JobNotFound, StorageCorrupt
from litequeue.limits import ALL_KINDS
from litequeue.model import Job, JobState, Scope, Stats, public_scope
from litequeue.sqlite import chaining, upkeep
from litequeue.sqlite.admission import Admission
from litequeue.sqlite.leasing import prefix_end, ready_kinds
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.rows import Row, Values
from litequeue.sqlite.statements import SQL
from litequeue.sqlite.turns import ready_scopes

Place = tuple[str, int, int, int, bytes]
"""A job's full key: where a page goes on after."""

_BEFORE_ALL = (-1, -1, b"")
_FIELDS = [field.name for field in fields(Job)][3:-1]
"""The fields of a record between those that need converting and the decoder."""
_NULL = type(None)
_TEXT, _MAYBE_TEXT, _WHOLE, _MAYBE_WHOLE = (str,), (str, _NULL), (int,), (int, _NULL)
_BYTES, _MAYBE_BYTES = (bytes,), (bytes, _NULL)
_TYPES: tuple[tuple[type, ...], ...] = (
    _BYTES,
    _TEXT,
    *(_WHOLE,) * 3,
    _TEXT,
    *(_WHOLE,) * 2,
    _MAYBE_WHOLE,
    _WHOLE,
    _MAYBE_TEXT,
    *(_MAYBE_WHOLE,) * 3,
    *(_WHOLE,) * 2,
    *(_MAYBE_WHOLE,) * 4,
    *(_MAYBE_TEXT,) * 2,
    _MAYBE_BYTES,
    (float, _NULL),
    _MAYBE_TEXT,
    *(_MAYBE_BYTES,) * 2,
    _BYTES,
)
"""What the columns of the part `record` may be, in their order; the tables are STRICT."""
_sound_types: set[tuple[type, ...]] = set()
"""Combinations that have been seen and are good: the usual look costs half a microsecond."""


class Page(NamedTuple):
    """What to list, checked; `None` is everything."""

    scope: str | None
    state: JobState | None
    kind: str | None
    limit: int
    after: Place | None


def get(reader: Reader, job_id: UUID) -> Job:
    """Return a job.

    Raises:
        JobNotFound: there is none.
    """
    found = reader.one(SQL.record, job_id.bytes)
    if found is None:
        raise JobNotFound(job_id)
    return job(reader, found)


def ids_that_begin(reader: Reader, digits: str, state: JobState | None, limit: int) -> list[UUID]:
    """Return the ids that begin with some hex digits, in order: those of all jobs, or of the jobs in a state."""
    bounds = [bytes.fromhex(digits.ljust(ID_DIGITS, rest)) for rest in "0f"]
    if state is None:
        found = reader.all(SQL.ids_between, *bounds, limit)
    else:
        found = reader.all(SQL.ids_between_in_state, *bounds, state, limit)
    return [UUID(bytes=job_id) for (job_id,) in found]


def jobs(reader: Reader, page: Page) -> list[Job]:
    """Return the next jobs in key order: scope, state, priority, `created_at`, id."""
    kinds = kind_range(page.kind)
    found: list[Job] = []
    for scope, state in _groups(reader, page):
        after = _BEFORE_ALL
        if page.after is not None and page.after[:2] == (scope, state):
            after = page.after[2:]
        rows = reader.all(SQL.records, scope, state, *after, *kinds, page.limit - len(found))
        found += [job(reader, row) for row in rows]
        if len(found) == page.limit:
            break
    return found


def kind_range(kind: str | None) -> tuple[str | None, str | None, str | None]:
    """Return a kind filter as statements take it: the kind, and from where to where it goes when it is a prefix."""
    return (kind, kind, prefix_end(kind)) if kind is not None and kind.endswith(":") else (kind, None, None)


def scopes(reader: Reader) -> list[Scope]:
    """Return the scopes that have jobs, in their order; a name of the queue's own can be given back to it."""
    names = upkeep.scopes(reader)
    return [OwnScope(name) if name.startswith(RESERVED_PREFIX) else public_scope(name) for name in names]


def held_back(reader: Reader, job_id: UUID) -> list[str]:
    """Say what keeps a ready job from being leased now; nothing when nothing does, or it is not ready.

    Raises:
        JobNotFound: there is none.
    """
    found = reader.one(SQL.row_by_id, job_id.bytes)
    if found is None:
        raise JobNotFound(job_id)
    row = Row(*found)
    if row.state != JobState.PENDING or not reader.settings.is_restricted:
        return []
    return list(Admission(reader).objections(row.kind, row.scope))


def stats(reader: Reader, scope: str | None) -> Stats:
    """Count the jobs of a scope, or of every scope."""
    counts = dict.fromkeys(JobState, 0)
    by_kind: dict[str, dict[JobState, int]] = {}
    oldest: list[int] = []
    due: list[int] = []
    lapsed = 0
    for name in upkeep.scopes(reader) if scope is None else (scope,):
        for state, kind, count in reader.all(SQL.counts, name):
            if not isinstance(kind, str):
                raise StorageCorrupt(f"the kind of a job is damaged: it is stored as {type(kind).__name__}")
            counts[JobState(state)] += count
            of_kind = by_kind.setdefault(kind, {})
            of_kind[JobState(state)] = of_kind.get(JobState(state), 0) + count
        oldest += _value(reader, SQL.oldest_ready, name)
        due += _value(reader, SQL.next_due, name)
        lapsed += sum(_value(reader, SQL.lapsed_count, reader.lease_now, name))
    file_bytes, free_bytes = reader.all(SQL.file_size)[0]
    return Stats(
        counts=counts,
        by_kind=dict(sorted(by_kind.items())),
        oldest_ready_at=min(oldest, default=None),
        next_due_at=min(due, default=None),
        lapsed=lapsed,
        file_bytes=file_bytes,
        free_bytes=free_bytes,
        wal_bytes=_size(reader.connection.filename_wal),
    )


def may_lease(reader: Reader, scope: str | None, kinds: tuple[str, ...] | None) -> bool:
    """Tell whether a lease call could find or move anything, in a scope or in any: ready, due, lapsed, overdue jobs."""
    return _may_lease(reader, scope, kinds, _admission(reader))


def until_work(reader: Reader, scope: str | None, kinds: tuple[str, ...] | None) -> float:
    """Return in how many seconds a lease call may find something that nobody tells of: 0 is now, infinity is never."""
    admission = _admission(reader)
    if _may_lease(reader, scope, kinds, admission):
        return 0
    next_due = _value(reader, SQL.next_due_anywhere) if scope is None else _value(reader, SQL.next_due, scope)
    pauses_us = [at - reader.now for at in next_due]
    pauses_us += [at - reader.lease_now for at in _value(reader, SQL.next_lapse)]
    if admission is not None and admission.token_in_us is not None:
        pauses_us.append(admission.token_in_us)
    return min(pauses_us, default=math.inf) / 1_000_000


def _admission(reader: Reader) -> Admission | None:
    return Admission(reader) if reader.settings.is_restricted else None


def _may_lease(reader: Reader, scope: str | None, kinds: tuple[str, ...] | None, admission: Admission | None) -> bool:
    return (
        (_is_any_ready(reader, kinds, admission) if scope is None else _is_ready(reader, scope, kinds, admission))
        or upkeep.has_lapsed(reader)
        or upkeep.has_due(reader, scope)
        or upkeep.has_overdue(reader, scope)
        or chaining.is_behind(reader)
    )


def _is_any_ready(reader: Reader, kinds: tuple[str, ...] | None, admission: Admission | None) -> bool:
    """Tell whether in any scope a job is ready that limits and pauses let go."""
    return any(admission is None or _is_ready(reader, scope, kinds, admission) for scope in ready_scopes(reader, kinds))


def _is_ready(reader: Reader, scope: str, kinds: tuple[str, ...] | None, admission: Admission | None) -> bool:
    """Tell whether a job is ready that limits and pauses let go."""
    if admission is None and kinds is None:
        return reader.one(SQL.any_ready, scope) is not None
    if admission is not None and admission.is_closed(scope):
        return False
    return any(
        reader.all(SQL.heads_of_kind, scope, kind, 1) and (admission is None or admission.allows(kind, scope))
        for kind in ready_kinds(reader, scope, kinds or (ALL_KINDS,))
    )


def _groups(reader: Reader, page: Page) -> Iterator[tuple[str, JobState]]:
    """Walk the (scope, state) pairs of a page, in order, from the place it goes on after."""
    first = ("", -1) if page.after is None else page.after[:2]
    for scope in upkeep.scopes(reader) if page.scope is None else (page.scope,):
        for state in JobState if page.state is None else (page.state,):
            if (scope, state) >= first:
                yield scope, state


def job(reader: Reader, found: Values) -> Job:
    """Build a record: the columns of the part `record` stand in the order of its fields.

    Raises:
        StorageCorrupt: a column is of another type than its table says.
    """
    _check_types(found)
    job_id, scope, state, *rest = found
    values = dict(zip(_FIELDS, rest, strict=True))
    if values["lease_deadline"] is not None:
        values["lease_deadline"] += reader.now - reader.lease_now
    if values["encoded_payload"] is None:
        values["encoded_payload"] = b""
    return Job(
        job_id=UUID(bytes=job_id), scope=public_scope(scope), state=JobState(state), decoder=codec.DECODER, **values
    )


def _check_types(found: Values) -> None:
    """Refuse a record whose columns are of other types than its table says: one flipped bit makes bytes of a text.

    Raises:
        StorageCorrupt: one is.
    """
    types = tuple(map(type, found))
    if types in _sound_types:
        return
    for column, found_type, allowed in zip(fields(Job), types, _TYPES, strict=False):
        if found_type not in allowed:
            raise StorageCorrupt(f"the {column.name} of a job is damaged: it is stored as {found_type.__name__}")
    _sound_types.add(types)


def _value(reader: Reader, statement: str, *values: object) -> list[int]:
    """Return the one value of a statement, or nothing when it is NULL."""
    found = reader.one(statement, *values)
    if found is None or found[0] is None:
        return []
    if not isinstance(found[0], int):
        raise StorageCorrupt(f"a number of a job is damaged: it is stored as {type(found[0]).__name__}")
    return [found[0]]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
