"""What the machine may ask of the queue, drawn by Hypothesis: few scopes, kinds, keys and times, so that they meet."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from litequeue import ANY, SYSTEM
from litequeue.model import OnConflict, OnParentFailure, Scope, SpecialScope

Verb = Literal["complete", "fail", "fail for good", "extend", "release", "checkpoint", "note"]

IDS = tuple(UUID(int=0xFEED << 100 | 4 << 76 | 2 << 62 | number) for number in range(1, 4))
NEVER = UUID(int=0xDEAD << 100 | 4 << 76 | 2 << 62)
"""An id that no job has."""
WORKERS = ("ann", "bob")


def fresh_id(number: int) -> UUID:
    """Return an id of its own, always the same: ids break ties, and a failure has to be repeatable."""
    return UUID(int=0xF00D << 112 | 4 << 76 | 2 << 62 | number)


class Enqueue(NamedTuple):
    """A job to enqueue; `run_in` is the distance of its date from now, in seconds."""

    kind: str
    scope: Scope | None
    priority: int
    delay: float | None
    run_in: int | None
    expires: float | None
    max_attempts: int | None
    key: str | None
    on_conflict: OnConflict
    job_id: UUID | None
    after: tuple[int, ...]
    """The jobs that were made so many jobs ago; -1 is a job that never was."""
    on_parent_failure: OnParentFailure


class Lease(NamedTuple):
    """A lease call; the worker `None` is the handle's own."""

    kinds: tuple[str, ...] | None
    scope: Scope | SpecialScope | None
    limit: int
    worker: str | None
    ttl: float | None


class Weigh(NamedTuple):
    """A change of the weight of a scope; `None` is the default."""

    scope: Scope
    weight: int | None


class Say(NamedTuple):
    """What holders say: with the leases so many calls ago, or for how many seconds."""

    verb: Verb
    ages: list[int]
    seconds: float | None
    then: Enqueue | None


class HandIn(NamedTuple):
    """How one run ended, with the lease so many calls ago; `within` is the longest pause that its worker waits out."""

    verb: Literal["complete", "complete badly", "fail", "fail for good", "release"]
    age: int
    seconds: float | None
    within: float
    then: Enqueue | None


class Exchange(NamedTuple):
    """Runs that ended, and a lease call of the same commit; its limit may be 0."""

    ends: list[HandIn]
    lease: Lease


class Operate(NamedTuple):
    """What an operator says of the jobs that were made so many jobs ago; -1 is a job that never was."""

    verb: Literal["cancel", "retry", "remove"]
    ages: list[int]


class Edit(NamedTuple):
    """What an operator changes of such jobs; `run_in` is the distance of the date from now, in seconds."""

    ages: list[int]
    priority: int | None
    delay: float | None
    run_in: int | None


class Set(NamedTuple):
    """A change of a setting."""

    name: str
    value: float | bool | str | None
    kind: str | None
    scope: Scope | SpecialScope | None = None


class Hold(NamedTuple):
    """A pause, or the end of one."""

    verb: Literal["pause", "resume"]
    kind: str | None
    scope: Scope | SpecialScope


Ask = Enqueue | Lease | Weigh | Say | Operate | Edit | Set | Hold

_kinds = st.sampled_from(("embed", "ingest:pdf", "ingest:txt", "ingest"))
_scopes = st.sampled_from((None, None, None, None, "other", SYSTEM))


def _enqueues(
    keys: st.SearchStrategy[str | None], ids: st.SearchStrategy[UUID | None], kinds: st.SearchStrategy[str] = _kinds
) -> st.SearchStrategy[Enqueue]:
    conflicts: tuple[OnConflict, ...] = ("return", "raise", "reset", "reset")
    policies: tuple[OnParentFailure, ...] = ("cancel", "run")
    return st.builds(
        Enqueue,
        kind=kinds,
        scope=_scopes,
        priority=st.sampled_from((100, 100, 7)),
        delay=st.sampled_from((None, None, None, None, None, 0, 0.5, 5, 3600)),
        run_in=st.sampled_from((None, None, None, None, -5, 5)),
        expires=st.sampled_from((None, None, None, None, None, None, None, 0, 3, 60)),
        max_attempts=st.sampled_from((None, None, 1, 2)),
        key=keys,
        on_conflict=st.sampled_from(conflicts),
        job_id=ids,
        after=st.sampled_from(((), (), (), (), (), (0,), (0,), (1,), (0, 1), (2, 5), (-1,))),
        on_parent_failure=st.sampled_from(policies),
    )


plain = _enqueues(st.none(), st.none())
keyed = _enqueues(st.sampled_from(("k1", "k2")), st.none(), st.sampled_from(("embed", "ingest:pdf")))
named = _enqueues(st.sampled_from((None, None, "k1")), st.sampled_from(IDS))
enqueues = st.one_of(plain, keyed, named)
chains = st.lists(
    enqueues.flatmap(lambda ask: st.sampled_from((ask, ask._replace(after=(0,)), ask._replace(after=(0, 1))))),
    min_size=2,
    max_size=4,
)
leases = st.builds(
    Lease,
    kinds=st.sampled_from(
        (
            None,
            None,
            None,
            None,
            ("ingest:",),
            ("embed",),
            ("ingest:pdf", "embed"),
            ("ingest:", "ingest:pdf", "embed"),
            ("none",),
        )
    ),
    scope=st.one_of(_scopes, st.just(ANY)),
    limit=st.sampled_from((1, 1, 2, 5)),
    worker=st.sampled_from((None, *WORKERS)),
    ttl=st.sampled_from((None, None, 1, 1, 30)),
)
_seconds = st.sampled_from((None, None, 0.5, 5, 7200))
_recent = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5, 9))


def _says(verbs: tuple[Verb, ...], most: int, then: st.SearchStrategy[Enqueue | None]) -> st.SearchStrategy[Say]:
    ages = st.lists(_recent, min_size=min(most, 2), max_size=most, unique=True)
    return st.builds(Say, verb=st.sampled_from(verbs), ages=ages, seconds=_seconds, then=then)


ends = _says(("complete", "complete", "fail", "fail", "fail for good", "release"), 1, st.none() | plain)
writes = _says(("extend", "checkpoint", "note"), 1, st.none())
batches = _says(("complete", "fail", "fail for good", "extend", "release"), 4, st.none())
says = st.one_of(ends, ends, writes, batches)
runs: st.SearchStrategy[list[Say]] = st.lists(st.one_of(ends, ends, writes, batches), min_size=1, max_size=3)
exchanges = st.builds(
    Exchange,
    ends=st.lists(
        st.builds(
            HandIn,
            verb=st.sampled_from(
                ("complete", "complete", "complete badly", "fail", "fail", "fail", "fail for good", "release")
            ),
            age=_recent,
            seconds=_seconds,
            within=st.sampled_from((0, 1, 60, 60, 60)),
            then=st.none() | st.none() | plain | keyed,
        ),
        max_size=4,
    ),
    lease=leases.flatmap(lambda lease: st.sampled_from((lease, lease._replace(limit=0)))),
)
turns = st.lists(leases.map(lambda lease: lease._replace(scope=ANY)), min_size=1, max_size=4)
operates = st.builds(
    Operate,
    verb=st.sampled_from(("cancel", "cancel", "retry", "retry", "remove")),
    ages=st.lists(st.integers(-1, 9), min_size=1, max_size=3, unique=True),
)
edits = st.builds(
    Edit,
    ages=st.lists(st.integers(-1, 9), min_size=1, max_size=3, unique=True),
    priority=st.sampled_from((None, 7, 7, 100)),
    delay=st.sampled_from((None, None, None, 0, 5, 3600)),
    run_in=st.sampled_from((None, None, None, -5, 5)),
)
sets = st.sampled_from(
    (
        Set("max_attempts", 2, None),
        Set("max_attempts", 1, "ingest:"),
        Set("max_attempts", 3, "ingest:pdf"),
        Set("lease_ttl", 2, "ingest:"),
        Set("lease_ttl", 60, None),
        Set("backoff_base", 0, None),
        Set("backoff_base", 7200, "embed"),
        Set("backoff_cap", 2, "ingest:txt"),
        Set("backoff_cap", 20, None),
        Set("idempotency_window", 0, None),
        Set("idempotency_window", 60, None),
        Set("completed_retention", 0, None),
        Set("completed_retention", 5, "ingest:"),
        Set("completed_retention", None, "embed"),
        Set("cancelled_retention", 0, None),
        Set("dead_retention", 0, "ingest:"),
        Set("dead_retention", 60, None),
        Set("concurrency", 1, None),
        Set("concurrency", 2, "ingest:"),
        Set("concurrency", None, "ingest:pdf"),
        Set("concurrency", 1, "embed", ANY),
        Set("concurrency", 2, None, "other"),
        Set("rate", "1/5s", "embed"),
        Set("rate", "2/1s", "ingest:"),
        Set("rate", "3/1000s", None),
        Set("refuse_lapsed", value=True, kind=None),
        Set("refuse_lapsed", value=False, kind=None),
    )
)
restricts = sets.filter(lambda ask: ask.name in {"concurrency", "rate"})
weighs = st.builds(
    Weigh, scope=st.sampled_from(("default", "default", "other", SYSTEM)), weight=st.sampled_from((2, 3, None))
)
holds = st.builds(
    Hold,
    verb=st.sampled_from(("pause", "resume", "resume")),
    kind=st.sampled_from((None, "ingest:", "embed")),
    scope=st.sampled_from((ANY, ANY, "default", SYSTEM)),
)
steps: st.SearchStrategy[Ask] = st.one_of(
    enqueues, enqueues, leases, leases, says, says, operates, edits, sets, weighs, holds
)
"""For several things in a row, in a `transaction()` or out of one."""
