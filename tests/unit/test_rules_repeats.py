"""Repeated ids and keys, kept triggers, retention, and gates after a step of the clock (V1, V2, §5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pytest

from litequeue import JobState, Transition, rules
from litequeue.model import OnConflict
from litequeue.rules import Move, Repeat, TriggerFate

NOW = 1_000_000_000
DAY = 86_400_000_000
PENDING, LEASED, COMPLETED, RETRYABLE, DEAD, SCHEDULED, CANCELLED, WAITING = JobState


# --- an id or a key that is there already


@pytest.mark.parametrize(
    ("state", "repeat"),
    [
        (PENDING, Repeat.EXISTING),
        (LEASED, Repeat.EXISTING),
        (COMPLETED, Repeat.EXISTING),
        (RETRYABLE, Repeat.EXISTING),
        (DEAD, Repeat.REQUEUE),
        (SCHEDULED, Repeat.EXISTING),
        (CANCELLED, Repeat.REQUEUE),
        (WAITING, Repeat.EXISTING),
    ],
)
def test_the_same_id_again_is_the_same_job_unless_it_has_died(state: JobState, repeat: Repeat) -> None:
    """Active or completed: the same job; dead or cancelled: queued anew; another target: refused (V1)."""
    assert rules.repeat_of_id(state, same_target=True) is repeat
    assert rules.repeat_of_id(state, same_target=False) is Repeat.REFUSE


KEYS = """
           return    raise   reset
PENDING    EXISTING  REFUSE  RESET
LEASED     EXISTING  REFUSE  KEEP_TRIGGER
COMPLETED  EXISTING  REFUSE  NEW
RETRYABLE  EXISTING  REFUSE  RESET
SCHEDULED  EXISTING  REFUSE  RESET
WAITING    EXISTING  REFUSE  RESET
"""
_POLICIES, *_ROWS = [line.split() for line in KEYS.strip().splitlines()]


def test_the_table_of_keys_is_complete() -> None:
    """All policies, and all states in which a job has its key: a dead or cancelled one has freed it (V2)."""
    assert set(_POLICIES) == set(get_args(OnConflict))
    assert {row[0] for row in _ROWS} == {state.name for state in JobState} - {"DEAD", "CANCELLED"}


@pytest.mark.parametrize("row", _ROWS, ids=[row[0] for row in _ROWS])
def test_a_repeated_key_does_as_its_policy_says(row: list[str]) -> None:
    """For each state of the job that has the key (V2)."""
    state, *expected = row
    policies: tuple[OnConflict, ...] = ("return", "raise", "reset")
    assert [rules.repeat_of_key(JobState[state], policy).name for policy in policies] == expected


# --- the trigger that waits for the end of a run


@pytest.mark.parametrize(
    ("to", "fate"),
    [
        (COMPLETED, TriggerFate.NEW_JOB),
        (DEAD, TriggerFate.NEW_JOB),
        (RETRYABLE, TriggerFate.FOLD),
        (PENDING, TriggerFate.FOLD),
        (SCHEDULED, TriggerFate.FOLD),
        (CANCELLED, TriggerFate.DROP),
    ],
)
def test_a_kept_trigger_follows_the_end_of_the_run(to: JobState, fate: TriggerFate) -> None:
    """A new job when it completes or dies, folded in when it comes back, dropped when it is cancelled (V2)."""
    assert rules.trigger_fate(to) is fate


def failed(pause_us: int) -> Move:
    """Return the move of a run that failed."""
    events = ((Transition.FAILED, "boom"),)
    return Move(RETRYABLE, 2, 1, not_before=NOW + pause_us, expires_at=NOW + 90, events=events, error="boom")


def released(delay_us: int) -> Move:
    """Return the move of a run that was given back."""
    events = ((Transition.RELEASED, ""),)
    if delay_us:
        return Move(SCHEDULED, 1, 1, not_before=NOW + delay_us, expires_at=NOW + 90, events=events)
    return Move(PENDING, 1, 1, expires_at=NOW + 90, events=events)


@pytest.mark.parametrize(
    ("move", "gate", "to", "not_before"),
    [
        # The back-off is waited out, however soon the trigger wants to run.
        (failed(10), None, RETRYABLE, NOW + 10),
        (failed(10), NOW - 1, RETRYABLE, NOW + 10),
        (failed(10), NOW + 9, RETRYABLE, NOW + 10),
        (failed(10), NOW + 10, RETRYABLE, NOW + 10),
        # The trigger's own delay is kept, however short the back-off is.
        (failed(10), NOW + 11, RETRYABLE, NOW + 11),
        (failed(0), NOW + 1, RETRYABLE, NOW + 1),
        # No gate that is yet to come: ready.
        (failed(0), None, PENDING, None),
        (failed(0), NOW, PENDING, None),
        (released(0), None, PENDING, None),
        (released(0), NOW, PENDING, None),
        (released(0), NOW + 1, SCHEDULED, NOW + 1),
        (released(10), None, SCHEDULED, NOW + 10),
        (released(10), NOW + 9, SCHEDULED, NOW + 10),
        (released(10), NOW + 11, SCHEDULED, NOW + 11),
    ],
)
def test_a_folded_trigger_runs_at_the_later_of_both_times(
    move: Move, gate: int | None, to: JobState, not_before: int | None
) -> None:
    """Never before its own time nor before the back-off is over (V2)."""
    folded = rules.folded(move, gate, None, NOW)
    assert (folded.to, folded.not_before) == (to, not_before)


@pytest.mark.parametrize("move", [failed(10), failed(0), released(0), released(10)])
@pytest.mark.parametrize("expires_at", [None, NOW + 5])
def test_a_folded_trigger_brings_its_expiry_and_leaves_the_rest(move: Move, expires_at: int | None) -> None:
    """Its expiry counts, also when it has none; counts, log and error are those of the run (V2)."""
    folded = rules.folded(move, None, expires_at, NOW)
    assert folded.expires_at == expires_at
    assert (folded.attempts, folded.reaps, folded.events, folded.error, folded.finished_at) == (
        move.attempts,
        move.reaps,
        move.events,
        move.error,
        None,
    )


# --- gates that were set by another clock


@pytest.mark.parametrize(
    ("not_before", "set_at", "expected"),
    [
        (NOW + 10, NOW, None),  # set now
        (NOW + 10, NOW - 3600, None),  # set in the past: it has been waiting since
        (NOW + 110, NOW + 100, NOW + 10),  # set when the clock was 100 ahead
        (NOW + 3600, NOW + 1, NOW + 3599),  # by the least step
        (NOW + 100, NOW + 100, NOW),  # a pause of nothing
    ],
)
def test_a_gate_set_at_a_time_that_is_yet_to_come_is_pulled_in(
    not_before: int, set_at: int, expected: int | None
) -> None:
    """To its own length from now; one that was set in the past stands (§5)."""
    assert rules.pulled_in(not_before, set_at, NOW) == expected


# --- retention


@dataclass(frozen=True)
class Kept:
    """How long each end is kept."""

    completed_retention_us: int | None = 2 * DAY
    cancelled_retention_us: int | None = 3 * DAY
    dead_retention_us: int | None = None


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize(
    ("state", "own", "expected"),
    [
        (CANCELLED, Kept(), 3 * DAY),
        (CANCELLED, Kept(cancelled_retention_us=None), None),
        (CANCELLED, Kept(cancelled_retention_us=0), 0),
        (DEAD, Kept(), None),
        (DEAD, Kept(dead_retention_us=5), 5),
        (DEAD, Kept(dead_retention_us=0), 0),
    ],
)
def test_a_dead_or_cancelled_job_is_kept_its_own_time(
    state: JobState, own: Kept, expected: int | None, has_key: bool
) -> None:
    """A key changes nothing: it was freed at once (§5, V2)."""
    assert rules.retention_us(state, own, has_key=has_key, window_us=9 * DAY) == expected


@pytest.mark.parametrize(
    ("retention", "window", "without_key", "with_key"),
    [
        (2 * DAY, DAY, 2 * DAY, 2 * DAY),
        (DAY, DAY, DAY, DAY),
        (DAY - 1, DAY, DAY - 1, DAY),
        (0, DAY, 0, DAY),
        (0, 0, 0, 0),
        (2 * DAY, 0, 2 * DAY, 2 * DAY),
        (None, DAY, None, None),
        (None, 0, None, None),
    ],
)
def test_a_completed_job_with_a_key_outlives_its_window(
    retention: int | None, window: int, without_key: int | None, with_key: int | None
) -> None:
    """The longer of retention and window; forever stays forever (V2, §5)."""
    own = Kept(completed_retention_us=retention)
    assert rules.retention_us(COMPLETED, own, has_key=False, window_us=window) == without_key
    assert rules.retention_us(COMPLETED, own, has_key=True, window_us=window) == with_key
