"""What holds for every decision of `rules`, whatever the job is, and what each writes into the log (§2, §3).

The single decisions stand in `test_rules` and `test_rules_repeats`, the matrix in `test_rules_matrix`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litequeue import JobState, rules
from litequeue.rules import Move, TriggerFate

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_000_000_000
SECOND = 1_000_000
PENDING, LEASED, COMPLETED, RETRYABLE, DEAD, SCHEDULED, CANCELLED, WAITING = JobState
ENDED = (COMPLETED, DEAD, CANCELLED)
GATED = (RETRYABLE, SCHEDULED)


@dataclass(frozen=True)
class Facts:
    """A job, as far as decisions look at it: by default in its second attempt."""

    attempts: int = 2
    reaps: int = 0
    created_at: int = NOW - 500
    not_before: int | None = None
    expires_at: int | None = None


TIMES = st.integers(NOW - 5, NOW + 5) | st.integers(0, 2 * NOW)
JOBS = st.builds(
    Facts,
    attempts=st.integers(1, 7),
    reaps=st.integers(0, 7),
    created_at=TIMES,
    not_before=st.none() | TIMES,
    expires_at=st.none() | TIMES,
)

# Every decision about a job, with its other arguments given; of five attempts in all.
DECISIONS: dict[str, Callable[[Facts, int], Move]] = {
    "complete": rules.complete,
    "fail": lambda job, now: rules.fail(job, now, max_attempts=5, pause_us=7, retryable=True, error="boom"),
    "fail for good": lambda job, now: rules.fail(job, now, max_attempts=5, pause_us=7, retryable=False, error="boom"),
    "reap": lambda job, now: rules.reap(job, now, cause=rules.LEASE_EXPIRED, max_attempts=5, pause_us=7),
    "release": lambda job, now: rules.release(job, now, delay_us=0),
    "snooze": lambda job, now: rules.release(job, now, delay_us=1_500_000),
    "promote": rules.promote,
    "expire": rules.expire,
    "bury": lambda job, now: rules.bury(job, now, "unreadable"),
    "cancel": rules.cancel,
    "retry anew": lambda job, _: rules.retry(job, DEAD),
    "retry now": lambda job, _: rules.retry(job, SCHEDULED),
}


@pytest.mark.parametrize("name", DECISIONS)
@pytest.mark.parametrize(("created_at", "finished_at"), [(NOW - 1, NOW), (NOW, NOW), (NOW + 7, NOW + 7)])
def test_no_job_finishes_before_it_was_created(name: str, created_at: int, finished_at: int) -> None:
    """Whatever ended it, also when the wall clock stepped back since; retention leans on it (§2)."""
    move = DECISIONS[name](Facts(created_at=created_at), NOW)
    assert move.finished_at == (finished_at if move.to in ENDED else None)


@settings(deadline=None)
@given(name=st.sampled_from(sorted(DECISIONS)), job=JOBS)
def test_a_move_is_whole(name: str, job: Facts) -> None:
    """An end where it ends and only there, a gate where it waits, an error where it went badly, an event (§2, §3)."""
    move = DECISIONS[name](job, NOW)
    assert move.to is not LEASED
    assert move.finished_at == (max(job.created_at, NOW) if move.to in ENDED else None)
    assert (move.not_before is not None) is (move.to in GATED)
    assert move.not_before is None or move.not_before >= NOW
    assert (move.error is not None) is (move.to in (RETRYABLE, DEAD))
    assert 1 <= len(move.events) <= 2


@settings(deadline=None)
@given(name=st.sampled_from(sorted(DECISIONS)), job=JOBS)
def test_only_some_decisions_touch_counts_and_expiry(name: str, job: Facts) -> None:
    """A release gives its attempt back, a reap is counted, a retry of what has ended starts anew (V8, V10, V11)."""
    move = DECISIONS[name](job, NOW)
    expected = {
        "release": (job.attempts - 1, job.reaps, job.expires_at),
        "snooze": (job.attempts - 1, job.reaps, job.expires_at),
        "reap": (job.attempts, job.reaps + 1, job.expires_at),
        "retry anew": (0, 0, None),
    }.get(name, (job.attempts, job.reaps, job.expires_at))
    assert (move.attempts, move.reaps, move.expires_at) == expected


@settings(deadline=None)
@given(name=st.sampled_from(["fail", "reap", "release", "snooze", "promote"]), job=JOBS)
def test_no_job_comes_back_that_could_not_start_in_time(name: str, job: Facts) -> None:
    """From its expiry on it is dead; before it, it is dead only of its last attempt (V7, V8, V11)."""
    is_late = job.expires_at is not None and job.expires_at <= NOW
    is_spent = name in ("fail", "reap") and job.attempts >= 5
    assert (DECISIONS[name](job, NOW).to is DEAD) is (is_late or is_spent)


@pytest.mark.parametrize(
    ("name", "job", "events"),
    [
        ("complete", Facts(), [("completed", "")]),
        ("fail", Facts(), [("failed", "boom")]),
        ("fail", Facts(attempts=5), [("failed", "boom"), ("dead", "5 of 5 attempts")]),
        ("fail", Facts(attempts=6), [("failed", "boom"), ("dead", "6 of 5 attempts")]),
        ("fail", Facts(attempts=5, expires_at=NOW), [("failed", "boom"), ("expired", "")]),
        ("fail for good", Facts(expires_at=NOW), [("failed", "boom"), ("dead", "not retryable")]),
        ("reap", Facts(), [("reaped", "lease expired")]),
        ("reap", Facts(attempts=5), [("reaped", "lease expired"), ("dead", "5 of 5 attempts")]),
        ("reap", Facts(expires_at=NOW), [("reaped", "lease expired"), ("expired", "")]),
        ("release", Facts(), [("released", "")]),
        ("snooze", Facts(), [("released", "in 1.5 s")]),
        ("snooze", Facts(expires_at=NOW), [("released", ""), ("expired", "")]),
        ("promote", Facts(), [("promoted", "")]),
        ("promote", Facts(expires_at=NOW), [("expired", "")]),
        ("expire", Facts(), [("expired", "")]),
        ("bury", Facts(), [("dead", "unreadable")]),
        ("cancel", Facts(), [("cancelled", "")]),
        ("retry anew", Facts(), [("retried", "was dead")]),
        ("retry now", Facts(), [("retried", "was scheduled")]),
    ],
)
def test_a_decision_says_in_the_log_what_happened(name: str, job: Facts, events: list[tuple[str, str]]) -> None:
    """What ended the run, then what that led to, with the numbers behind it (§2)."""
    assert list(DECISIONS[name](job, NOW).events) == events


@settings(deadline=None)
@given(
    name=st.sampled_from(["fail", "reap", "release", "snooze"]),
    job=JOBS,
    gate=st.none() | TIMES,
    expires_at=st.none() | TIMES,
)
def test_a_folded_trigger_runs_at_the_later_of_both_times(
    name: str, job: Facts, gate: int | None, expires_at: int | None
) -> None:
    """Never before its own time nor before the pause is over; counts, log and error are the run's (V2)."""
    move = DECISIONS[name](job, NOW)
    if rules.trigger_fate(move.to) is not TriggerFate.FOLD:
        assert move.to is DEAD
        return
    folded = rules.folded(move, gate, expires_at, NOW)
    latest = max(move.not_before or 0, gate or 0)
    assert folded.not_before == (latest if latest > NOW else None)
    assert folded.expires_at == expires_at
    if latest > NOW:
        assert folded.to is (RETRYABLE if move.to is RETRYABLE else SCHEDULED)
    else:
        assert folded.to is PENDING
    assert (folded.attempts, folded.reaps, folded.events, folded.error) == (
        move.attempts,
        move.reaps,
        move.events,
        move.error,
    )


@settings(deadline=None)
@given(set_at=TIMES, length=st.integers(0, 3600 * SECOND))
def test_a_gate_never_waits_longer_than_it_was_set_for(set_at: int, length: int) -> None:
    """Set in the past it stands; set at a time that is yet to come it is pulled in to its length from now (§5)."""
    gate = rules.pulled_in(set_at + length, set_at, NOW)
    assert gate == (None if set_at <= NOW else NOW + length)
