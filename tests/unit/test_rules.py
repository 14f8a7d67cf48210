"""Where each verb leads a job: the decision functions of `rules`, with their edges (§3, V6 to V11)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from litequeue import JobState, Transition, rules
from litequeue.rules import Move

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_000_000_000
SECOND = 1_000_000
PENDING, LEASED, COMPLETED, RETRYABLE, DEAD, SCHEDULED, CANCELLED, WAITING = JobState


@dataclass(frozen=True)
class Facts:
    """A job, as far as decisions look at it: by default in its second attempt."""

    attempts: int = 2
    reaps: int = 0
    created_at: int = NOW - 500
    not_before: int | None = None
    expires_at: int | None = None


JOB = Facts()


def fail(job: Facts, *, max_attempts: int = 5, pause_us: int = 7, retryable: bool = True) -> Move:
    """Decide after a failure, by default one that is followed by another run."""
    return rules.fail(job, NOW, max_attempts=max_attempts, pause_us=pause_us, retryable=retryable, error="boom")


# --- the edges of time


@pytest.mark.parametrize(
    ("expires_at", "expected"), [(None, False), (0, True), (NOW - 1, True), (NOW, True), (NOW + 1, False)]
)
def test_a_job_is_too_late_from_its_expiry_on(expires_at: int | None, expected: bool) -> None:
    """It must have started by then: at that very microsecond it can no longer (§2, V11)."""
    assert rules.is_expired(replace(JOB, expires_at=expires_at), NOW) is expected


@pytest.mark.parametrize(("deadline", "expected"), [(NOW - 1, True), (NOW, True), (NOW + 1, False)])
def test_a_lease_lapses_at_its_deadline(deadline: int, expected: bool) -> None:
    """At that very microsecond, not one later (V3, V11)."""
    assert rules.is_lapsed(deadline, NOW) is expected


@pytest.mark.parametrize(
    ("not_before", "expected"),
    [(None, (PENDING, None)), (0, (PENDING, None)), (NOW, (PENDING, None)), (NOW + 1, (SCHEDULED, NOW + 1))],
)
def test_a_gate_in_the_past_is_none(not_before: int | None, expected: tuple[JobState, int | None]) -> None:
    """A delay of nothing, or a date that is over, is ready now; one to come is scheduled (V1, §3)."""
    assert rules.gate(not_before, NOW) == expected


@pytest.mark.parametrize(("reaps", "expected"), [(0, False), (1, True), (9, True)])
def test_a_job_that_was_reaped_is_leased_alone(reaps: int, expected: bool) -> None:
    """From the first reap on (V3, G6)."""
    assert rules.is_leased_alone(replace(JOB, reaps=reaps)) is expected


# --- the end of a run


def test_a_run_that_succeeded_is_completed() -> None:
    """Its counts stay, it has an end, and no gate (V6)."""
    assert rules.complete(JOB, NOW) == Move(
        COMPLETED, attempts=2, reaps=0, finished_at=NOW, events=((Transition.COMPLETED, ""),)
    )


def test_a_live_lease_may_finish_past_its_expiry() -> None:
    """It started in time (V11)."""
    assert rules.complete(replace(JOB, expires_at=NOW - 1), NOW).to is COMPLETED


@pytest.mark.parametrize("pause_us", [0, 1, 10 * SECOND])
def test_a_run_that_failed_waits_out_its_pause(pause_us: int) -> None:
    """Retryable, not before now + pause; the attempt counts, the reaps do not change (V7)."""
    assert fail(replace(JOB, reaps=1, expires_at=NOW + 1), pause_us=pause_us) == Move(
        RETRYABLE,
        attempts=2,
        reaps=1,
        not_before=NOW + pause_us,
        expires_at=NOW + 1,
        events=((Transition.FAILED, "boom"),),
        error="boom",
    )


@pytest.mark.parametrize(("attempts", "to"), [(1, RETRYABLE), (4, RETRYABLE), (5, DEAD), (6, DEAD)])
def test_the_last_attempt_is_the_one_that_reaches_the_maximum(attempts: int, to: JobState) -> None:
    """Exactly `max_attempts` leases, whether they failed or lapsed (V7, V11, G6)."""
    job = replace(JOB, attempts=attempts)
    assert fail(job, max_attempts=5).to is to
    assert rules.reap(job, NOW, cause=rules.LEASE_EXPIRED, max_attempts=5, pause_us=7).to is to


@pytest.mark.parametrize(
    ("pause_us", "within_us", "expires_at", "expected"),
    [
        (5, 5, None, True),
        (5, 4, None, False),
        (0, 1, None, True),
        (0, 0, None, False),
        (5, 0, None, False),
        (5, 9, NOW + 6, True),
        (5, 9, NOW + 5, False),
        (0, 9, NOW + 1, True),
    ],
)
def test_a_short_pause_is_waited_out_by_the_worker_unless_the_job_would_start_too_late(
    pause_us: int, within_us: int, expires_at: int | None, *, expected: bool
) -> None:
    """Up to the bound, never without one; a job may start until its expiry, not at it (V7, V11; issue 5)."""
    job = replace(JOB, expires_at=expires_at)
    assert rules.is_retaken(job, fail(job, pause_us=pause_us), NOW, within_us=within_us) == expected


@pytest.mark.parametrize(
    "move",
    [
        fail(replace(JOB, attempts=5), pause_us=0),
        fail(JOB, retryable=False),
        fail(replace(JOB, expires_at=NOW), pause_us=0),
        rules.complete(JOB, NOW),
        rules.release(JOB, NOW, delay_us=1),
    ],
)
def test_only_a_failed_run_that_has_another_is_retaken(move: Move) -> None:
    """Whoever dies, ends well or is given back has none (V6 to V8, G6)."""
    assert not rules.is_retaken(JOB, move, NOW, within_us=SECOND)


def test_a_job_may_have_a_single_attempt() -> None:
    """With a maximum of 1 the first failure is the end (V7)."""
    assert fail(replace(JOB, attempts=1), max_attempts=1).to is DEAD


def test_a_job_out_of_attempts_says_how_many_it_had() -> None:
    """The failure stands in the log before the death, and its error is kept (V7, §2)."""
    assert fail(replace(JOB, attempts=5)) == Move(
        DEAD,
        attempts=5,
        reaps=0,
        finished_at=NOW,
        events=((Transition.FAILED, "boom"), (Transition.DEAD, "5 of 5 attempts")),
        error="boom",
    )


@pytest.mark.parametrize("expires_at", [None, NOW - 1, NOW + 1])
def test_a_failure_for_good_is_the_end_at_once(expires_at: int | None) -> None:
    """Whatever attempts or time are left (V7)."""
    move = fail(replace(JOB, attempts=1, expires_at=expires_at), retryable=False)
    assert (move.to, move.attempts, move.finished_at, move.error) == (DEAD, 1, NOW, "boom")
    assert move.events == ((Transition.FAILED, "boom"), (Transition.DEAD, "not retryable"))


@pytest.mark.parametrize(("expires_at", "to"), [(NOW - 1, DEAD), (NOW, DEAD), (NOW + 1, RETRYABLE)])
def test_a_run_that_ends_badly_past_its_expiry_is_dead(expires_at: int, to: JobState) -> None:
    """It could not start again in time; what ended the run is still its error (V11)."""
    job = replace(JOB, expires_at=expires_at)
    failed, reaped = fail(job), rules.reap(job, NOW, cause=rules.LEASE_EXPIRED, max_attempts=5, pause_us=7)
    assert (failed.to, failed.error) == (to, "boom")
    assert (reaped.to, reaped.error) == (to, "lease expired")
    if to is DEAD:
        assert failed.events == ((Transition.FAILED, "boom"), (Transition.EXPIRED, ""))
        assert reaped.events == ((Transition.REAPED, "lease expired"), (Transition.EXPIRED, ""))


def test_a_lapse_counts_as_a_reap() -> None:
    """Beside its attempt, which was counted at the lease; `last_error` says what happened (V11, §2)."""
    assert rules.reap(replace(JOB, reaps=1), NOW, cause=rules.LEASE_EXPIRED, max_attempts=5, pause_us=7) == Move(
        RETRYABLE,
        attempts=2,
        reaps=2,
        not_before=NOW + 7,
        events=((Transition.REAPED, "lease expired"),),
        error="lease expired",
    )


@pytest.mark.parametrize("job", [replace(JOB, attempts=5), replace(JOB, expires_at=NOW)])
def test_the_lapse_that_kills_counts_too(job: Facts) -> None:
    """A dead job tells how many of its attempts were reaped (V11, §2)."""
    move = rules.reap(job, NOW, cause=rules.LEASE_EXPIRED, max_attempts=5, pause_us=7)
    assert (move.to, move.reaps) == (DEAD, 1)


# --- giving back


def test_a_released_job_is_ready_and_has_its_attempt_back() -> None:
    """As if it had not been leased; reaps of the past stay (V8)."""
    assert rules.release(replace(JOB, reaps=1, expires_at=NOW + 1), NOW, delay_us=0) == Move(
        PENDING, attempts=1, reaps=1, expires_at=NOW + 1, events=((Transition.RELEASED, ""),)
    )


@pytest.mark.parametrize(("delay_us", "said"), [(1, "in 1e-06 s"), (1_500_000, "in 1.5 s"), (60 * SECOND, "in 60 s")])
def test_a_job_released_with_a_delay_is_scheduled(delay_us: int, said: str) -> None:
    """Until now + delay, which the log says (V8)."""
    assert rules.release(JOB, NOW, delay_us=delay_us) == Move(
        SCHEDULED, attempts=1, reaps=0, not_before=NOW + delay_us, events=((Transition.RELEASED, said),)
    )


@pytest.mark.parametrize("delay_us", [0, 7])
@pytest.mark.parametrize(("expires_at", "to"), [(NOW - 1, DEAD), (NOW, DEAD)])
def test_a_job_released_too_late_to_start_again_is_dead(expires_at: int, to: JobState, delay_us: int) -> None:
    """With or without a delay; the attempt is given back all the same, and it is dead of its expiry (V8, V11)."""
    assert rules.release(replace(JOB, expires_at=expires_at), NOW, delay_us=delay_us) == Move(
        to,
        attempts=1,
        reaps=0,
        expires_at=expires_at,
        finished_at=NOW,
        events=((Transition.RELEASED, ""), (Transition.EXPIRED, "")),
        error="expired",
    )


# --- upkeep


def test_a_due_job_becomes_ready() -> None:
    """Its gate is gone, its counts and its expiry stay (V11)."""
    job = replace(JOB, reaps=1, not_before=NOW, expires_at=NOW + 1)
    assert rules.promote(job, NOW) == Move(
        PENDING, attempts=2, reaps=1, expires_at=NOW + 1, events=((Transition.PROMOTED, ""),)
    )


@pytest.mark.parametrize("decide", [rules.promote, rules.expire])
def test_a_waiting_job_that_is_too_late_is_dead(decide: Callable[[Facts, int], Move]) -> None:
    """Also when its gate and its expiry are over at once: it is not made ready first (V11, §3)."""
    assert decide(replace(JOB, reaps=1, not_before=NOW, expires_at=NOW), NOW) == Move(
        DEAD,
        attempts=2,
        reaps=1,
        expires_at=NOW,
        finished_at=NOW,
        events=((Transition.EXPIRED, ""),),
        error="expired",
    )


def test_a_record_that_cannot_be_read_is_buried_with_the_cause() -> None:
    """In the log and as its error (V3, §6)."""
    move = rules.bury(JOB, NOW, "payload version 9 is unknown")
    assert (move.to, move.error, move.finished_at) == (DEAD, "payload version 9 is unknown", NOW)
    assert move.events == ((Transition.DEAD, "payload version 9 is unknown"),)


# --- an operator's word


def test_a_cancelled_job_keeps_its_counts() -> None:
    """It has an end and no error: stopping a job is none (V9)."""
    assert rules.cancel(replace(JOB, reaps=1, not_before=NOW + 9), NOW) == Move(
        CANCELLED, attempts=2, reaps=1, finished_at=NOW, events=((Transition.CANCELLED, ""),)
    )


@pytest.mark.parametrize("state", [COMPLETED, DEAD, CANCELLED])
def test_a_job_that_has_ended_is_retried_anew(state: JobState) -> None:
    """Attempts and reaps 0, no expiry; the log says what it was (V10)."""
    assert rules.retry(replace(JOB, reaps=1, expires_at=NOW - 1), state) == Move(
        PENDING, attempts=0, reaps=0, events=((Transition.RETRIED, f"was {state.name.lower()}"),)
    )


@pytest.mark.parametrize("state", [RETRYABLE, SCHEDULED])
def test_a_gated_job_is_retried_now(state: JobState) -> None:
    """Without its gate, and with everything else as it was (V10)."""
    assert rules.retry(replace(JOB, reaps=1, not_before=NOW + 9, expires_at=NOW + 1), state) == Move(
        PENDING, attempts=2, reaps=1, expires_at=NOW + 1, events=((Transition.RETRIED, f"was {state.name.lower()}"),)
    )
