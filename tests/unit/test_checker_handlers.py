"""The checker and workers that run handlers: what they did, what they said of it, and what is in the file.

Every rule has a story that breaks it, beside one that does not (`harness.handling`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.handling import Outside
from harness.journal import digest
from harness.promises import Rule
from harness.story import A, B, Story, job, rules

DONE = ("enqueued", "leased alice", "completed")
TWICE = ("enqueued", "leased alice", "reaped lease expired", "promoted", "leased bob", "completed")
CHILD = f"{A}.4711"
"""A process of alice's."""


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Give an empty story."""
    return Story(tmp_path)


def exchange(story: Story, who: str, *words: tuple[str, str, int], refused: tuple[str, ...] = ()) -> None:
    """Let a worker settle in one commit, in which the words of some jobs are refused."""
    whole = story.call(who, "exchange")
    numbers = [story.ask(verb, job_id, generation, who, whole) for verb, job_id, generation in words]
    for number, (_, job_id, generation) in zip(numbers, words, strict=True):
        if job_id in refused:
            story.raised(who, number, "LeaseConflict", conflicts=[[job_id, generation]])
        else:
            story.got(who, number)
    story.got(who, whole)


def test_a_worker_that_does_everything_right_passes(story: Story) -> None:
    """Runs, a retake in the same commit, a refused outcome, a process killed for its time, an orderly end."""
    for name in ("one", "two", "three", "four"):
        story.enqueue(name)
        story.lease(name, 1, CHILD if name == "four" else A, deadline_us=1)
    story.handle("one", 1)
    story.handle("two", 1, came="failed")
    late = story.begin("three", 1)
    exchange(story, A, ("complete", "one", 1), ("fail", "two", 1))
    story.event("completed", "one", 1)
    story.event("retried", "two", 1)
    story.lease("two", 2)
    story.handle("two", 2)
    exchange(story, A, ("complete", "two", 2))
    story.lease("three", 2, B)
    story.handle("three", 2, B)
    exchange(story, B, ("complete", "three", 2))
    story.end(late)
    exchange(story, A, ("complete", "three", 1), refused=("three",))
    story.begin("four", 1, CHILD)
    exchange(story, A, ("fail", "four", 1))
    story.event("failed", "four", 1)
    story.end_in_order(wall_us=10)
    retaken = job("two", "completed", "enqueued", "leased alice", "failed oh", "leased alice", "completed")
    at = retaken.events[2].at
    found = story.judge(
        job("one", "completed", *DONE),
        replace(retaken, events=(*retaken.events[:3], retaken.events[3]._replace(at=at), retaken.events[4])),
        job("three", "completed", *TWICE),
        job("four", "dead", "enqueued", f"leased {CHILD}", "failed oh", "dead not retryable"),
    )
    assert found.breaches == []
    assert found.calls["complete refused"] == 1


@pytest.mark.parametrize("end", ["failed", "released", "reaped worker died"])
def test_two_handlers_at_work_on_one_job_are_found(story: Story, end: str) -> None:
    """The first goes on while the second begins, though its job was settled for it, or it was declared dead (G1)."""
    story.enqueue("one")
    story.lease("one", 1, CHILD)
    first = story.begin("one", 1, CHILD)
    if end != "reaped worker died":
        exchange(story, A, ("fail" if end == "failed" else "release", "one", 1))
        story.ahead_ns = 10**9
        story.event(end, "one", 1)
    story.lease("one", 2, B)
    story.begin("one", 2, B)
    story.end(first, CHILD, "failed")
    log = ("enqueued", f"leased {CHILD}", end, *(() if end == "released" else ("promoted",)), "leased bob")
    assert Rule.OVERLAP in rules(story.judge(job("one", "leased", *log), is_drained=False))


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_a_worker_may_die_between_its_word_for_a_process_and_the_end_of_that(story: Story, is_cut_off: bool) -> None:
    """The process goes on for a moment, as nobody is there to kill it; else it should have been killed (G1)."""
    story.enqueue("one")
    story.lease("one", 1, CHILD)
    first = story.begin("one", 1, CHILD)
    exchange(story, A, ("release", "one", 1))
    story.ahead_ns = 10**9
    if not is_cut_off:
        story.event("released", "one", 1)
    story.lease("one", 2, B)
    story.begin("one", 2, B)
    story.end(first, CHILD, "failed")
    log = ("enqueued", f"leased {CHILD}", "released", "leased bob")
    found = story.judge(job("one", "leased", *log), is_drained=False)
    assert (Rule.OVERLAP in rules(found)) is not is_cut_off


@pytest.mark.parametrize("is_dead", [True, False])
def test_who_was_killed_was_at_work_until_his_last_line(story: Story, is_dead: bool) -> None:
    """A handler that never ended does not work on when its process is gone, but as long as that speaks (G1)."""
    story.enqueue("one")
    story.enqueue("other")
    story.lease("one", 1)
    story.begin("one", 1)
    story.lease("one", 2, B)
    story.begin("one", 2, B)
    if not is_dead:
        story.lease("other", 1)
    log = ("enqueued", "leased alice", "reaped worker died", "promoted", "leased bob")
    found = story.judge(job("one", "leased", *log), job("other", "pending", "enqueued"), is_drained=False)
    assert (Rule.OVERLAP in rules(found)) is not is_dead


def test_a_handler_whose_lease_has_lapsed_may_work_on(story: Story) -> None:
    """A stopped worker's: nobody can stop it in time, so its outcome must be refused, which other rules see to (G1)."""
    story.enqueue("one")
    story.lease("one", 1, deadline_us=1)
    first = story.begin("one", 1)
    story.lease("one", 2, B)
    story.begin("one", 2, B)
    story.end(first)
    log = ("enqueued", "leased alice", "reaped lease expired", "promoted", "leased bob")
    assert rules(story.judge(job("one", "leased", *log), is_drained=False)) == set()


def test_a_handler_may_begin_late_with_a_lease_that_has_lapsed(story: Story) -> None:
    """Its worker was stopped between the lease and the handler: what it comes to is refused (G1)."""
    story.enqueue("one")
    story.lease("one", 1, deadline_us=1)
    story.lease("one", 2, B)
    story.begin("one", 2, B)
    late = story.begin("one", 1)
    story.end(late)
    story.refused("complete", "one", 1)
    story.lease("one", 3, B)
    log = ("enqueued", "leased alice", "reaped lease expired", "promoted", "leased bob", "released", "leased bob")
    story.word("release", "one", 2, B)
    assert Rule.OVERLAP not in rules(story.judge(job("one", "leased", *log), is_drained=False))


def test_a_handler_that_does_not_listen_may_work_on_when_its_worker_gives_the_job_back(story: Story) -> None:
    """A thread after the drain: what it says from then on is refused (the end of `Worker.run`)."""
    story.enqueue("one")
    story.lease("one", 1)
    deaf = story.begin("one", 1)
    exchange(story, A, ("release", "one", 1))
    story.lease("one", 2, B)
    story.begin("one", 2, B)
    story.refused("complete", "one", 1)
    story.end(deaf, came="failed")
    log = ("enqueued", "leased alice", "released", "leased bob")
    assert rules(story.judge(job("one", "leased", *log), is_drained=False)) == set()


def test_a_lease_that_is_handled_twice_is_found(story: Story) -> None:
    """One lease, one run (G1)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.handle("one", 1)
    story.handle("one", 1)
    story.word("complete", "one", 1)
    assert rules(story.judge(job("one", "completed", *DONE))) == {Rule.OVERLAP}


def test_a_completion_before_its_handler_is_done_is_found(story: Story) -> None:
    """A worker that says that it is done while it is not (G3)."""
    story.enqueue("one")
    story.lease("one", 1)
    exchange(story, A, ("complete", "one", 1))
    story.handle("one", 1)
    assert Rule.HANDLED in rules(story.judge(job("one", "completed", *DONE)))


def test_a_completion_from_within_its_handler_is_in_order(story: Story) -> None:
    """`lease.complete` in a handler that then goes on (V6)."""
    story.enqueue("one")
    story.lease("one", 1)
    number = story.begin("one", 1)
    story.word("complete", "one", 1)
    story.end(number, came="itself")
    assert story.judge(job("one", "completed", *DONE)).breaches == []


@pytest.mark.parametrize(("verb", "end"), [("release", "released"), ("fail", "failed")])
def test_an_outcome_that_was_not_told_is_found(story: Story, verb: str, end: str) -> None:
    """The handler is done, and its worker says otherwise: finished work is always acknowledged."""
    story.enqueue("one")
    story.lease("one", 1)
    story.handle("one", 1)
    exchange(story, A, (verb, "one", 1))
    found = story.judge(job("one", "retryable", "enqueued", "leased alice", end), is_drained=False)
    assert Rule.ANSWERED in rules(found)


def test_a_result_that_is_not_the_handlers_is_found(story: Story) -> None:
    """What it returned is what is stored (V6)."""
    story.enqueue("one")
    story.lease("one", 1)
    number = story.begin("one", 1)
    story.got(A, number, came=["completed"], result=digest("another"))
    exchange(story, A, ("complete", "one", 1))
    assert rules(story.judge(job("one", "completed", *DONE))) == {Rule.RESULT}


@pytest.mark.parametrize("event", ["completed", "snoozed", "settled"])
def test_an_event_that_is_not_so_is_found(story: Story, event: str) -> None:
    """A worker that tells its user what is not in the file (G11)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.begin("one", 1)
    story.event(event, "one", 1)
    found = story.judge(job("one", "retryable", "enqueued", "leased alice", "reaped worker died"), is_drained=False)
    assert rules(found) == {Rule.TOLD}


@pytest.mark.parametrize(
    ("ends", "found_at", "is_found"),
    [
        ("reaped worker died", 2, True),
        ("reaped lease expired", 2, True),
        ("reaped lease expired", 1, False),
        ("cancelled", 2, False),
    ],
)
def test_a_lease_that_an_orderly_end_leaves_behind_is_found(
    story: Story, ends: str, found_at: int, is_found: bool
) -> None:
    """It was reaped after its worker had ended (V8); what lapsed or was cancelled before is another matter."""
    story.enqueue("one")
    story.lease("one", 1, deadline_us=1)
    story.begin("one", 1)
    story.end_in_order(wall_us=1)
    found = job("one", "cancelled" if ends == "cancelled" else "retryable", "enqueued", "leased alice", ends)
    moved = replace(found, events=(*found.events[:2], found.events[2]._replace(at=found_at)))
    assert rules(story.judge(moved, is_drained=False)) == ({Rule.LEFT} if is_found else set())


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_attempt_that_an_orderly_end_costs_is_found(story: Story, is_killed: bool) -> None:
    """A process that its own worker killed with a job in hand; not one that somebody else has killed (V8)."""
    story.enqueue("one")
    story.lease("one", 1, CHILD)
    story.begin("one", 1, CHILD)
    story.end_in_order()
    found = job("one", "retryable", "enqueued", f"leased {CHILD}", "reaped worker died")
    outside = Outside(killed=[CHILD] if is_killed else [])
    assert rules(story.judge(found, is_drained=False, outside=outside)) == (set() if is_killed else {Rule.LEFT})


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_process_that_is_done_and_then_spoken_for_is_found(story: Story, is_stopped: bool) -> None:
    """Its worker gives back what it had finished long before; unless it was stopped, and could not say so (V6)."""
    story.enqueue("one")
    story.lease("one", 1, CHILD)
    story.handle("one", 1, CHILD)
    story.ahead_ns = 10**9
    exchange(story, A, ("release", "one", 1))
    found = job("one", "pending", "enqueued", f"leased {CHILD}", "released")
    outside = Outside(stopped=[CHILD] if is_stopped else [])
    assert rules(story.judge(found, is_drained=False, outside=outside)) == (set() if is_stopped else {Rule.ANSWERED})


def test_a_stranger_may_not_speak_for_a_process_of_another_worker(story: Story) -> None:
    """Only its own worker settles for a process that it stops (G1)."""
    story.enqueue("one")
    story.lease("one", 1, CHILD)
    story.begin("one", 1, CHILD)
    exchange(story, B, ("fail", "one", 1))
    log = ("enqueued", f"leased {CHILD}", "failed oh")
    assert Rule.STALE in rules(story.judge(job("one", "retryable", *log), is_drained=False))


@pytest.mark.parametrize("refused", [True, False])
def test_half_an_exchange_is_found(story: Story, refused: bool) -> None:
    """Its worker was killed inside: one of two is completed. The other may only have been refused by itself (G7)."""
    for name in ("one", "two"):
        story.enqueue(name)
        story.lease(name, 1, deadline_us=1)
        story.handle(name, 1)
    whole = story.call(A, "exchange")
    for name in ("one", "two"):
        story.ask("complete", name, 1, A, whole)
    end = "reaped lease expired" if refused else "reaped worker died"
    found = story.judge(
        job("one", "completed", *DONE),
        job("two", "retryable", "enqueued", "leased alice", end),
        is_drained=False,
    )
    assert rules(found) == (set() if refused else {Rule.WHOLE})


@pytest.mark.parametrize("is_unstorable", [True, False])
def test_an_end_that_the_queue_does_not_take_says_nothing_of_its_exchange(story: Story, is_unstorable: bool) -> None:
    """One of two results is too large: it is refused by itself, and the worker dies before it hears of that (G3)."""
    for name in ("one", "two"):
        story.enqueue(name)
        story.lease(name, 1, deadline_us=1)
        story.handle(name, 1)
    whole = story.call(A, "exchange")
    for name in ("one", "two"):
        story.ask("complete", name, 1, A, whole)
    two = replace(job("two", "retryable", "enqueued", "leased alice", "reaped worker died"), kind="too:large")
    outside = Outside(unstorable=["too:large"] if is_unstorable else [])
    found = story.judge(job("one", "completed", *DONE), two, is_drained=False, outside=outside)
    assert (Rule.WHOLE in rules(found)) is not is_unstorable


def test_a_heartbeat_beside_a_completion_is_no_word_after_it(story: Story) -> None:
    """Both are asked at the same time, by two threads; the heartbeat's commit came first."""
    story.enqueue("one")
    story.lease("one", 1)
    story.handle("one", 1)
    ending = story.ask("complete", "one", 1)
    beating = story.ask("extend", "one", 1)
    story.got(A, ending)
    story.got(A, beating, deadlines=[1])
    assert story.judge(job("one", "completed", *DONE)).breaches == []


def test_a_lease_beside_a_failed_run_of_another_worker_is_no_retake(story: Story) -> None:
    """Only who waits a pause out himself leases a job that is not due (§3)."""
    story.enqueue("one")
    story.lease("one", 1)
    story.word("fail", "one", 1)
    story.lease("one", 2, B)
    story.word("complete", "one", 2, B)
    found = job("one", "completed", "enqueued", "leased alice", "failed oh", "leased bob", "completed")
    moved = replace(found, events=(*found.events[:3], found.events[3]._replace(at=2), found.events[4]))
    assert Rule.LOG in rules(story.judge(moved))
