"""The whole matrix of states and verbs, and where each state may lead: contract §3, written out once more by hand.

The tables are literals, read off the contract and not off the code, so that a slip in `rules` is a difference here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest

from litequeue import JobState, rules
from litequeue.model import Edit
from litequeue.rules import Move, Verb

PENDING, LEASED, COMPLETED, RETRYABLE, DEAD, SCHEDULED, CANCELLED, WAITING = JobState

MATRIX = """
              PENDING  LEASED  COMPLETED  RETRYABLE  DEAD  SCHEDULED  CANCELLED  WAITING
lease         yes      -       -          -          -     -          -          -
extend        -        yes     -          -          -     -          -          -
checkpoint    -        yes     -          -          -     -          -          -
note          -        yes     -          -          -     -          -          -
complete      -        yes     -          -          -     -          -          -
fail          -        yes     -          -          -     -          -          -
release       -        yes     -          -          -     -          -          -
reap          -        yes     -          -          -     -          -          -
promote       -        -       -          yes        -     yes        -          yes
expire        yes      -       -          yes        -     yes        -          yes
cancel        yes      yes     -          yes        -     yes        -          yes
retry         -        -       yes        yes        yes   yes        yes        yes
edit          yes      -       -          yes        -     yes        -          yes
remove        -        -       yes        -          yes   -          yes        -
prune         -        -       yes        -          yes   -          yes        -
"""

LEADS_TO = {
    PENDING: {LEASED, SCHEDULED, DEAD, CANCELLED},
    LEASED: {COMPLETED, RETRYABLE, PENDING, SCHEDULED, DEAD, CANCELLED},
    COMPLETED: {PENDING},
    RETRYABLE: {PENDING, SCHEDULED, DEAD, CANCELLED},
    DEAD: {PENDING},
    SCHEDULED: {PENDING, DEAD, CANCELLED},
    CANCELLED: {PENDING},
    WAITING: {PENDING, SCHEDULED, DEAD, CANCELLED},
}
"""The contract's column "leaves to"; a job that is "gone" is in no state."""

_HEADER, *_ROWS = [line.split() for line in MATRIX.strip().splitlines()]
CELLS = [
    (verb, state, cell) for verb, *cells in _ROWS for state, cell in zip(_HEADER, cells, strict=True)
]  # ("lease", "PENDING", "yes") …
NOW = 1_000_000_000


@dataclass(frozen=True)
class Facts:
    """A job, as far as decisions look at it."""

    attempts: int
    reaps: int
    created_at: int
    not_before: int | None
    expires_at: int | None


SORTS = [
    Facts(attempts, reaps, NOW - 50, None, expires_at)
    for attempts, reaps, expires_at in product((1, 3), (0, 1), (None, NOW - 1, NOW, NOW + 1))
]


def test_the_table_is_complete() -> None:
    """Every verb that there is stands in it, with every state, in the order of the codes (§3)."""
    assert _HEADER == ["PENDING", "LEASED", "COMPLETED", "RETRYABLE", "DEAD", "SCHEDULED", "CANCELLED", "WAITING"]
    assert [state.name for state in JobState] == _HEADER
    assert [verb for verb, *_ in _ROWS] == [verb.value for verb in Verb]
    assert set(rules.ALLOWED) == set(Verb)
    assert {cell for *_, cell in CELLS} == {"yes", "-"}


@pytest.mark.parametrize(("verb", "state", "cell"), CELLS)
def test_a_verb_acts_in_exactly_the_states_of_the_table(verb: str, state: str, cell: str) -> None:
    """Every verb in every state: allowed, or refused (§3, §4)."""
    assert rules.may_act(Verb(verb), JobState[state]) is (cell == "yes")


def failures() -> list[Move]:
    """Return where failures lead, over all sorts of jobs."""
    return [
        rules.fail(job, NOW, max_attempts=3, pause_us=pause, retryable=retryable, error="boom")
        for job, pause, retryable in product(SORTS, (0, 5), (True, False))
    ]


def lapses() -> list[Move]:
    """Return where lapses lead, over all sorts of jobs."""
    return [
        rules.reap(job, NOW, cause=rules.LEASE_EXPIRED, max_attempts=3, pause_us=pause)
        for job, pause in product(SORTS, (0, 5))
    ]


def releases() -> list[Move]:
    """Return where releases lead, over all sorts of jobs."""
    return [rules.release(job, NOW, delay_us=delay) for job, delay in product(SORTS, (0, 5))]


def with_triggers(moves: list[Move]) -> set[JobState]:
    """Return where these lead, also when a trigger that `reset` kept folds into the run (V2)."""
    return {move.to for move in moves} | {
        rules.folded(move, gate, None, NOW).to
        for move in moves
        for gate in (None, NOW - 1, NOW + 1)
        if rules.trigger_fate(move.to) is rules.TriggerFate.FOLD
    }


def promotions(state: JobState) -> set[JobState]:
    """Return where a gate that opens leads: a time that has come, or the end of the last job that was waited for."""
    if state is WAITING:
        return {rules.let_go(job, NOW, not_before=gate).to for job in SORTS for gate in (None, NOW - 1, NOW + 1)}
    return {rules.promote(job, NOW).to for job in SORTS}


def edits(state: JobState) -> set[JobState]:
    """Return where else an edit leads that says when the job is due (V16)."""
    changes = (Edit(7, None, None), Edit(None, 0, None), Edit(None, 5, None), Edit(7, None, NOW - 1))
    gate = NOW + 9 if state in {RETRYABLE, SCHEDULED} else None
    return {rules.edit(state, 100, gate, change, NOW).to for change in changes} - {state}


def destinations(verb: Verb, state: JobState) -> set[JobState]:
    """Return every state that a verb leads to from this one, over all sorts of jobs."""
    return {
        Verb.LEASE: {LEASED},
        Verb.EXTEND: set(),
        Verb.CHECKPOINT: set(),
        Verb.NOTE: set(),
        Verb.COMPLETE: {rules.complete(job, NOW).to for job in SORTS},
        Verb.FAIL: with_triggers(failures()),
        Verb.RELEASE: with_triggers(releases()),
        Verb.REAP: with_triggers(lapses()),
        Verb.PROMOTE: promotions(state),
        Verb.EXPIRE: {rules.expire(job, NOW).to for job in SORTS},
        Verb.CANCEL: {rules.cancel(job, NOW).to for job in SORTS},
        Verb.RETRY: {rules.retry(job, state).to for job in SORTS},
        Verb.EDIT: edits(state),
        Verb.REMOVE: set(),
        Verb.PRUNE: set(),
    }[verb]


@pytest.mark.parametrize("state", JobState)
def test_a_state_leads_where_the_contract_says_and_nowhere_else(state: JobState) -> None:
    """Whatever the job's attempts, reaps and times are; every place that the contract names is reached (§3)."""
    reached = {to for verb in Verb if rules.may_act(verb, state) for to in destinations(verb, state)}
    assert reached == LEADS_TO[state]
