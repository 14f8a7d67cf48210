"""The checker of the fault harnesses: it lets a good story pass and names what is wrong with each bad one.

Every rule has a story that breaks it. The journals are real files, written line by line in the order in which things
are to have happened; the jobs of the file are made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.found import live_through
from harness.history import gather
from harness.journal import SUFFIX, digest
from harness.promises import Rule
from harness.story import FAR_US, A, B, Story, job, new, rules


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Give an empty story."""
    return Story(tmp_path)


DONE = ("enqueued", "leased alice", "completed")
TWICE = ("enqueued", "leased alice", "reaped lease expired", "promoted", "leased bob", "completed")


def test_a_good_story_passes(story: Story) -> None:
    """A run, a repeated run after a reap with the late word refused, a failure, a release, a cancel: nothing to say."""
    for name in ("one", "two", "three", "four", "five"):
        story.enqueue(name)
    story.lease("one", 1)
    story.word("extend", "one", 1)
    story.word("complete", "one", 1)
    story.lease("two", 1, deadline_us=1)
    story.lease("two", 2, B)
    story.refused("complete", "two", 1)
    story.word("complete", "two", 2, B)
    story.lease("three", 1)
    story.word("fail", "three", 1)
    story.lease("four", 1)
    story.word("release", "four", 1)
    story.lease("four", 2, B)
    story.word("complete", "four", 2, B)
    findings = story.judge(
        job("one", "completed", "enqueued", "leased alice", "extended once", "completed"),
        job("two", "completed", *TWICE),
        job("three", "dead", "enqueued", "leased alice", "failed oh", "dead not retryable"),
        job("four", "completed", "enqueued", "leased alice", "released", "leased bob", "completed"),
        job("five", "cancelled", "enqueued", "cancelled"),
        is_fifo=False,
    )
    assert findings.breaches == []
    assert (findings.leases, findings.repeated_jobs, findings.repeated_runs) == (6, 2, 1)
    assert findings.calls["complete refused"] == 1


def test_two_holders_of_one_generation_are_found(story: Story) -> None:
    """The same (job, generation) in two journals is a double lease (G1)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.lease("one", 1, B)
    story.word("complete", "one", 1)
    assert Rule.ONE_HOLDER in rules(story.judge(job("one", "completed", *DONE)))


def test_a_lease_that_begins_while_another_holds_on_is_found(story: Story) -> None:
    """The log has two leases with no end between them (G1)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.lease("one", 2, B)
    story.word("complete", "one", 2, B)
    found = story.judge(job("one", "completed", "enqueued", "leased alice", "leased bob", "completed"))
    assert rules(found) == {Rule.LOG}


def test_a_generation_that_goes_back_is_found(story: Story) -> None:
    """A lease that begins after a later generation was given out (G1)."""
    story.enqueue("one")
    story.lease("one", 2, B)
    story.lease("one", 1)
    story.word("complete", "one", 2, B)
    assert Rule.GENERATIONS in rules(story.judge(job("one", "completed", *TWICE)))


def test_a_generation_that_the_log_does_not_count_is_found(story: Story) -> None:
    """Two leases in the log and the token at 3: it was moved without a lease (G1)."""
    story.enqueue("one")
    story.lease("one", 2)
    story.lease("one", 3, B)
    story.word("complete", "one", 3, B)
    assert Rule.GENERATIONS in rules(story.judge(job("one", "completed", *TWICE, generation=3)))


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "extend", "checkpoint", "note"])
def test_a_stale_word_that_was_obeyed_is_found(story: Story, verb: str) -> None:
    """Whatever the holder of an earlier lease says after the next one was given out must be refused (G1)."""
    story.enqueue("one")
    story.lease("one", 1, deadline_us=1)
    story.lease("one", 2, B)
    story.word(verb, "one", 1)
    story.word("complete", "one", 2, B)
    assert Rule.STALE in rules(story.judge(job("one", "completed", *TWICE)))


def test_a_word_of_somebody_who_never_had_the_lease_is_found(story: Story) -> None:
    """Another worker's word that is obeyed (G1)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.word("complete", "one", 1, B)
    assert Rule.STALE in rules(story.judge(job("one", "completed", *DONE)))


def test_two_accepted_completions_are_found(story: Story) -> None:
    """One run, two completions (G3)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.word("complete", "one", 1)
    story.word("complete", "one", 1)
    assert Rule.ONE_COMPLETION in rules(story.judge(job("one", "completed", *DONE)))


def test_a_retried_job_may_be_completed_again(story: Story) -> None:
    """An operator's `retry` starts a new run (V10)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.word("complete", "one", 1)
    story.got(B, story.call(B, "retry", job="one"))
    story.lease("one", 2, B)
    story.word("complete", "one", 2, B)
    found = replace(job("one", "completed", *DONE, "retried was completed", "leased bob", "completed"), attempts=1)
    assert story.judge(found).breaches == []


def test_a_run_that_nobody_ended_is_found(story: Story) -> None:
    """The log says completed; the holder's only word raised, so it says that it did nothing (G11)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.raised(A, story.ask("complete", "one", 1), "QueueBusy")
    assert Rule.ONE_COMPLETION in rules(story.judge(job("one", "completed", *DONE)))


def test_a_lost_job_is_found(story: Story) -> None:
    """An acknowledged enqueue that is not in the file (G2)."""
    story.enqueue("one")
    assert rules(story.judge()) == {Rule.TRUTH}


def test_a_lost_follower_is_found(story: Story) -> None:
    """A job of `then` whose id nobody was told is known by its payload (V6, G2)."""
    story.enqueue("one")
    story.lease("one", 1)
    number = story.call(A, "complete", leases=[["one", 1]], results=[digest(None)], jobs=[new(None, "next")])
    story.got(A, number)
    assert rules(story.judge(job("one", "completed", *DONE))) == {Rule.TRUTH}


def test_a_lost_lease_is_found(story: Story) -> None:
    """A lease that was acknowledged and of which the file knows nothing (G11)."""
    story.enqueue("one")
    story.lease("one", 1)
    assert rules(story.judge(job("one", "pending", "enqueued"), is_drained=False)) == {Rule.TRUTH}


def test_a_lost_completion_is_found(story: Story) -> None:
    """A completion that was acknowledged, and the job was reaped all the same (G2)."""
    story.enqueue("one")
    story.lease("one", 1, deadline_us=1)
    story.word("complete", "one", 1)
    story.lease("one", 2, B)
    story.word("complete", "one", 2, B)
    assert {Rule.STALE, Rule.ONE_COMPLETION} <= rules(story.judge(job("one", "completed", *TWICE)))


def test_a_job_from_nowhere_is_found(story: Story) -> None:
    """A job that nobody enqueued, and one whose enqueue raised (G11)."""
    story.raised(A, story.call(A, "enqueue", jobs=[new("one")]), "QueueFull")
    found = story.judge(job("one", "pending", "enqueued"), job("two", "pending", "enqueued"), is_drained=False)
    assert [breach.rule for breach in found.breaches] == [Rule.FROM_NOWHERE, Rule.FROM_NOWHERE]


def test_a_lease_from_nowhere_is_found(story: Story) -> None:
    """A lease in the log that nobody was given, and no call has an unknown outcome (G11)."""
    story.enqueue("one")
    assert Rule.FROM_NOWHERE in rules(story.judge(job("one", "dead", "enqueued", "leased bob", "reaped", "dead")))


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_may_be_either(story: Story, happened: bool) -> None:
    """Callers that were killed inside enqueue, lease and complete, or were told OutcomeUnknown (G11)."""
    story.call("killed", "enqueue", jobs=[new("one")])
    story.enqueue("two")
    story.lease("two", 1)
    story.raised(A, story.ask("complete", "two", 1), "OutcomeUnknown", is_unknown=True)
    story.enqueue("three", B)
    story.call("carol", "lease", limit=1, worker="carol")
    if happened:
        found = story.judge(
            job("one", "pending", "enqueued"),
            job("two", "completed", *DONE),
            job("three", "leased", "enqueued", "leased carol"),
            is_drained=False,
        )
        assert found.unknown == {"enqueue happened": 1, "complete happened": 1, "lease happened": 1}
    else:
        found = story.judge(
            job("two", "retryable", "enqueued", "leased alice", "reaped lease expired"),
            job("three", "pending", "enqueued"),
            is_drained=False,
        )
        assert found.unknown == {"enqueue did not": 1, "complete did not": 1}
    assert found.breaches == []


def test_half_a_commit_is_found(story: Story) -> None:
    """Two jobs of one call of unknown outcome, one of them is there (G7)."""
    story.call(A, "enqueue", jobs=[new("one"), new("two")])
    assert rules(story.judge(job("one", "pending", "enqueued"), is_drained=False)) == {Rule.WHOLE}


@pytest.mark.parametrize("follower", [True, False])
def test_a_follower_without_its_completion_is_found(story: Story, follower: bool) -> None:
    """A transaction of unknown outcome that completed and enqueued: both or neither (G3)."""
    story.enqueue("one", B)
    story.lease("one", 1)
    number = story.call(A, "transaction")
    story.word("complete", "one", 1, inside=number)
    part = story.call(A, "enqueue", number, jobs=[new("two")])
    story.got(A, part, jobs=[["two", True]])
    log = ("enqueued", "leased alice", "reaped lease expired") if follower else DONE
    jobs = [job("one", "retryable" if follower else "completed", *log)]
    if follower:
        jobs.append(job("two", "pending", "enqueued"))
    assert rules(story.judge(*jobs, is_drained=False)) == {Rule.WHOLE}


def test_a_follower_may_be_that_of_another_run(story: Story) -> None:
    """Two runs of one job were killed inside the same completion; the second one's happened, with its follower (G3)."""
    story.enqueue("one")
    for generation, who in ((1, A), (2, B)):
        story.lease("one", generation, who, deadline_us=1)
        asked = {"leases": [["one", generation]], "results": [digest(None)], "jobs": [new(None, "next")]}
        story.call(who, "complete", None, **asked)
    follower = replace(job("two", "pending", "enqueued"), payload=digest("next"))
    assert story.judge(job("one", "completed", *TWICE), follower, is_drained=False).breaches == []


def test_what_a_rolled_back_transaction_did_must_not_be_there(story: Story) -> None:
    """An enqueue inside a transaction that raised (V14)."""
    number = story.call(A, "transaction")
    story.got(A, story.call(A, "enqueue", number, jobs=[new("one")]), jobs=[["one", True]])
    story.raised(A, number, "ValueError")
    assert rules(story.judge(job("one", "pending", "enqueued"), is_drained=False)) == {Rule.FROM_NOWHERE}


def test_another_payload_or_result_is_found(story: Story) -> None:
    """What is stored is what was given (G2)."""
    for name in ("one", "two"):
        story.enqueue(name)
        story.lease(name, 1)
        story.word("complete", name, 1)
    found = story.judge(
        replace(job("one", "completed", *DONE), payload=digest("another")),
        replace(job("two", "completed", *DONE), result=digest("another")),
    )
    assert [breach.rule for breach in found.breaches] == [Rule.RESULT, Rule.RESULT]


@pytest.mark.parametrize("state", ["pending", "leased", "retryable", "scheduled"])
def test_a_stranded_job_is_found(story: Story, state: str) -> None:
    """After the drain every job has ended (G5)."""
    story.enqueue("one")
    assert Rule.DRAINED in rules(story.judge(job("one", state, "enqueued")))


def test_attempts_beyond_the_limit_are_found(story: Story) -> None:
    """Three leases where two are allowed (G6)."""
    story.enqueue("one")
    for generation in (1, 2, 3):
        story.lease("one", generation, deadline_us=1)
    again = ("leased alice", "reaped lease expired", "promoted")
    log = ("enqueued", *again, *again, "leased alice", "reaped lease expired", "dead 3 of 2 attempts")
    assert rules(story.judge(job("one", "dead", *log, most=2))) == {Rule.ATTEMPTS}


def test_attempts_that_the_log_does_not_bear_out_are_found(story: Story) -> None:
    """A lease that was not counted (G6)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.word("complete", "one", 1)
    assert rules(story.judge(replace(job("one", "completed", *DONE), attempts=0))) == {Rule.ATTEMPTS}


def test_a_death_before_the_last_attempt_is_found(story: Story) -> None:
    """Dead for its attempts after one of five (G6)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.word("fail", "one", 1)
    log = ("enqueued", "leased alice", "failed oh", "dead 1 of 5 attempts")
    assert rules(story.judge(job("one", "dead", *log))) == {Rule.ATTEMPTS}


def test_a_reaped_job_that_is_leased_with_others_is_found(story: Story) -> None:
    """It may be what killed its holder: it must not take neighbours with it (V3, G6)."""
    for name in ("one", "two"):
        story.enqueue(name)
    story.lease("one", 1, deadline_us=1)
    number = story.call(B, "lease", limit=2, worker=B)
    story.got(B, number, leases=[["one", 2, 2, FAR_US], ["two", 1, 1, FAR_US]])
    for name, generation in (("one", 2), ("two", 1)):
        story.word("complete", name, generation, B)
    found = story.judge(job("one", "completed", *TWICE), job("two", "completed", "enqueued", "leased bob", "completed"))
    assert rules(found) == {Rule.ALONE}


def test_a_lease_that_was_reaped_before_its_deadline_is_found(story: Story) -> None:
    """The next lease was given out before the first could lapse (§8)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.lease("one", 2, B)
    story.word("complete", "one", 2, B)
    assert rules(story.judge(job("one", "completed", *TWICE))) == {Rule.EARLY}


def test_a_holder_that_was_declared_dead_and_lives_is_found(story: Story) -> None:
    """Reaped as dead, and its journal goes on (DESIGN §4)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.lease("one", 2, B)
    story.word("complete", "one", 2, B)
    log = ("enqueued", "leased alice", "reaped worker died", "promoted", "leased bob", "completed")
    story.refused("complete", "one", 1)
    assert rules(story.judge(job("one", "completed", *log))) == {Rule.EARLY}


def test_a_refusal_without_a_reason_is_found(story: Story) -> None:
    """Refused, and a later word of the same lease was accepted (G11)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.refused("extend", "one", 1)
    story.word("complete", "one", 1)
    assert rules(story.judge(job("one", "completed", *DONE))) == {Rule.TRUTH}


def test_leases_out_of_order_are_found(story: Story) -> None:
    """The younger job was first leased before the older one (G4)."""
    for name in ("old", "young"):
        story.enqueue(name)
        story.lease(name, 1)
        story.word("complete", name, 1)
    old = replace(job("old", "completed", *DONE), created_at=1)
    young = replace(job("young", "completed", *DONE), created_at=2)
    late = replace(old, events=(old.events[0], *(line._replace(at=line.at + 10) for line in old.events[1:])))
    assert rules(story.judge(late, young, is_fifo=True)) == {Rule.ORDER}


@pytest.mark.parametrize(
    ("state", "log"),
    [
        ("completed", ["enqueued", "completed"]),
        ("completed", [*DONE, "completed"]),
        ("completed", [*DONE, "leased alice", "completed"]),
        ("completed", ["enqueued", "leased alice", "reaped lease expired", "leased alice", "completed"]),
        ("dead", ["enqueued", "dead not retryable", "dead not retryable"]),
        ("pending", ["enqueued", "promoted", "promoted"]),
        ("leased", ["enqueued", "leased alice", "failed oh", "leased alice"]),  # not at the same time: no retake
        ("pending", ["enqueued", "retried was pending", "enqueued again"]),
        ("pending", [*DONE]),
        ("retryable", ["enqueued", "leased alice"]),
        ("pending", ["leased alice", "released"]),
    ],
)
def test_a_log_that_is_no_path_through_the_states_is_found(state: str, log: Sequence[str], story: Story) -> None:
    """Contract §3, written down anew: whatever the journals say, such a log is wrong."""
    assert Rule.LOG in rules(story.judge(job("one", state, *log), is_drained=False))


def test_a_truncated_log_counts_from_its_end() -> None:
    """The oldest events are gone; the generations of the others follow from the job's own (§2)."""
    log = ("enqueued", "truncated 40 events", "released", "leased alice", "reaped lease expired", "promoted")
    life = live_through(job("one", "pending", *log, "leased bob", generation=21))
    assert life.wrong == []
    assert [(run.generation, run.worker, run.end) for run in life.runs] == [
        (19, None, "released"),
        (20, "alice", "reaped"),
        (21, "bob", None),
    ]
    assert (life.attempts, life.dropped) == (None, 40)


def test_a_torn_last_line_is_none(story: Story) -> None:
    """Its writer was killed inside the write: the call before it has an unknown outcome (G11)."""
    story.call(A, "enqueue", jobs=[new("one")])
    path = story.folder / f"{A}{SUFFIX}"
    with path.open("ab") as file:
        file.write(b'{"n":3,"of":2,"hea')
    assert story.judge().breaches == []
    with path.open("ab") as file:
        file.write(b"\n{}\n")
    with pytest.raises(ValueError, match="line 3"):
        gather([path])
