"""Lease: what a holder gets, what a filter takes, and who is leased alone (V3)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from litequeue import SYSTEM, JobState, NewJob, Transition

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000


def kinds_leased(queue: Queue, kinds: list[str] | None, limit: int = 1000) -> list[str]:
    """Lease with a filter; return the kinds in lease order."""
    return [lease.kind for lease in queue.lease_many(limit, kinds)]


def test_a_lease_says_what_is_held_and_the_record_who_holds_it(queue: Queue, clock: FakeClock) -> None:
    """Generation +1, attempts +1, the deadline is now + ttl, no continuation, one event (V3, §2)."""
    job_id = queue.enqueue("mail:send", {"to": "a@b.c"}).job_id
    clock.advance(5)
    lease = queue.lease_next(worker_id="ada")
    assert lease is not None
    assert (lease.job_id, lease.kind, lease.payload) == (job_id, "mail:send", {"to": "a@b.c"})
    assert (lease.attempts, lease.lease_generation, lease.worker_id, lease.continuation) == (1, 1, "ada", None)
    job = queue.get(job_id)
    assert (job.state, job.attempts, job.lease_generation, job.worker_id) == (JobState.LEASED, 1, 1, "ada")
    assert (job.leased_at, job.lease_deadline) == (clock.wall_us(), clock.wall_us() + 300 * SECOND)
    assert isinstance(job.holder, int)
    assert job.events[-1] == (clock.wall_us(), Transition.LEASED, "ada")


def test_two_handles_are_two_holders(make_queue: MakeQueue) -> None:
    """`holder` and the default `worker_id` tell live handles apart (§2)."""
    first, second = make_queue(), make_queue()
    first.enqueue_many(NewJob("work") for _ in range(2))
    jobs = [queue.get(queue.lease_many(1)[0].job_id) for queue in (first, second)]
    assert len({job.holder for job in jobs}) == 2
    assert len({job.worker_id for job in jobs}) == 2


@pytest.mark.parametrize("ttl", [1.5, timedelta(seconds=1, milliseconds=500)])
def test_a_given_ttl_wins_over_the_settings(queue: Queue, clock: FakeClock, ttl: float | timedelta) -> None:
    """The deadline is now + the ttl given, in seconds or as a timedelta (V3)."""
    job_id = queue.enqueue("work").job_id
    queue.lease_next(ttl=ttl)
    assert queue.get(job_id).lease_deadline == clock.wall_us() + 1_500_000


def test_the_ttl_of_each_jobs_kind_counts_within_a_batch(queue: Queue, clock: FakeClock) -> None:
    """Without a ttl, each job of a batch has its own kind's (V3, §5)."""
    queue.set("lease_ttl", 60)
    queue.set("lease_ttl", 5, kind="quick:")
    ids = [queue.enqueue(kind).job_id for kind in ("slow", "quick:one")]
    queue.lease_many(2)
    assert [queue.get(job_id).lease_deadline for job_id in ids] == [
        clock.wall_us() + 60 * SECOND,
        clock.wall_us() + 5 * SECOND,
    ]


def test_an_empty_queue_answers_none_at_once(queue: Queue) -> None:
    """Nothing ready is `None`, or an empty batch, each time it is asked (V3, §9)."""
    assert [queue.lease_next() for _ in range(3)] == [None] * 3
    assert queue.lease_many(10) == []


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PENDING])
def test_only_a_pending_job_is_leased(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """In every other state it is passed over and stays as it is (V3, §3)."""
    job_id = job_in(state)
    before = queue.get(job_id)
    assert queue.lease_next() is None
    assert queue.lease_many(10, ["work"]) == []
    assert queue.get(job_id) == before


def test_the_generation_grows_at_every_lease_and_never_resets(queue: Queue, clock: FakeClock) -> None:
    """Through release, failure, lapse, retry and a second life of the same id (G1, V3)."""
    job_id = queue.enqueue("work", max_attempts=9).job_id
    generations = []
    for turn in range(6):
        (lease,) = queue.lease_many(1)
        generations.append(lease.lease_generation)
        match turn:
            case 0:
                lease.release()
            case 1:
                lease.fail("boom", delay=0)
            case 2:
                clock.advance(301)
                queue.reap_expired()
                clock.advance(3600)
            case 3:
                lease.fail("boom", retryable=False)
                queue.retry(job_id)
            case 4:
                queue.cancel(job_id)
                assert queue.enqueue("work", job_id=job_id).created
            case _:
                lease.complete()
    assert generations == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("kinds", "taken"),
    [
        (["ingest"], ["ingest"]),
        (["ingest:pdf"], ["ingest:pdf"]),
        (["ingest:"], ["ingest:", "ingest:pdf", "ingest:pdf:big", "ingest:é"]),
        (["ingest:pdf:"], ["ingest:pdf:big"]),
        (["ingester:"], ["ingester:pdf"]),
        (["ingest", "embed"], ["embed", "ingest"]),
        (["ingest:", "embed"], ["embed", "ingest:", "ingest:pdf", "ingest:pdf:big", "ingest:é"]),
        (["ingest:", "ingest:pdf", "ingest:pdf:"], ["ingest:", "ingest:pdf", "ingest:pdf:big", "ingest:é"]),
        (["ingest:pdf", "ingest:pdf"], ["ingest:pdf"]),
        (["Ingest:"], []),
        (["%"], ["%"]),
        (["_ngest:pdf"], []),
        (["*:"], []),
        (["nothing", "none:"], []),
        (["é:"], ["é:ü"]),
    ],
    ids=repr,
)
def test_a_filter_takes_exact_kinds_and_prefixes(queue: Queue, kinds: list[str], taken: list[str]) -> None:
    """A filter ending in `:` is a prefix, which no longer sibling matches; all others are exact (§2, V3)."""
    present = ["ingest", "ingest:", "ingest:pdf", "ingest:pdf:big", "ingest:é", "ingester", "ingester:pdf"]
    queue.enqueue_many(NewJob(kind) for kind in [*present, "ingest;x", "ingest-pdf", "embed", "embedded", "%", "é:ü"])
    assert sorted(kinds_leased(queue, kinds)) == sorted(taken)


def test_overlapping_filters_keep_the_order_and_take_no_job_twice(queue: Queue) -> None:
    """A job that two filters match is leased once, in its place (V3, G4)."""
    queue.enqueue_many(NewJob(kind, n) for n, kind in enumerate(["b", "a:x", "c", "a:y", "a:x", "b"]))
    leases = queue.lease_many(10, ["a:", "b", "a:x", "a:"])
    assert [lease.payload for lease in leases] == [0, 1, 3, 4, 5]


def test_any_iterable_of_kinds_will_do(queue: Queue) -> None:
    """A filter may be a tuple, a set or a generator (V3)."""
    queue.enqueue_many(NewJob("a") for _ in range(3))
    assert queue.lease_next(("a",)) is not None
    assert queue.lease_next({"a"}) is not None
    assert queue.lease_next(kind for kind in "a") is not None


def test_a_prefix_over_hundreds_of_kinds_keeps_the_order(queue: Queue) -> None:
    """However many kinds a prefix matches, the oldest of the best priority comes first (V3, G4, G9)."""
    queue.enqueue_many(NewJob(f"many:{n * 7919 % 300:03}", n, priority=n % 2) for n in range(300))
    queue.enqueue_many(NewJob(f"other:{n}", priority=0) for n in range(20))
    first = queue.lease_next(["many:"])
    assert first is not None
    assert first.payload == 0
    rest = [lease.payload for lease in queue.lease_many(1000, ["many:"])]
    assert [0, *rest] == sorted(range(300), key=lambda n: (n % 2, n))


def test_a_batch_stops_at_its_limit(queue: Queue) -> None:
    """At most `limit`, from the head; the rest comes with the next call (V3)."""
    queue.enqueue_many(NewJob("work", n) for n in range(7))
    batches = [[lease.payload for lease in queue.lease_many(3)] for _ in range(4)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6], []]


def test_a_batch_of_filtered_kinds_stops_at_its_limit(queue: Queue) -> None:
    """The limit counts over all kinds together (V3)."""
    queue.enqueue_many(NewJob(f"k:{n % 4}", n) for n in range(12))
    assert [lease.payload for lease in queue.lease_many(5, ["k:1", "k:3", "k:0"])] == [0, 1, 3, 4, 5]


def test_a_lease_stays_within_its_scope(make_queue: MakeQueue) -> None:
    """A handle leases from its own scope, or from the one that it names; `SYSTEM` is one of them (V3, §2)."""
    queue = make_queue(scope="ours")
    queue.enqueue_many([NewJob("a", scope="theirs"), NewJob("b", scope=SYSTEM), NewJob("c", scope="our"), NewJob("d")])
    assert kinds_leased(queue, None) == ["d"]
    assert [lease.kind for lease in queue.lease_many(9, scope=SYSTEM)] == ["b"]
    assert [lease.kind for lease in queue.lease_many(9, ["a", "c"], scope="theirs")] == ["a"]


def test_a_job_that_was_reaped_is_leased_alone(queue: Queue, clock: FakeClock) -> None:
    """It never shares a batch, at the head or behind others, with and without a filter (V3)."""
    queue.set("backoff_base", 0)
    queue.enqueue_many(NewJob("a", n) for n in range(2))
    queue.enqueue("killer", priority=101)
    queue.enqueue_many(NewJob("a", n, priority=102) for n in range(2, 4))
    killer = queue.lease_next(["killer"])
    clock.advance(301)
    assert queue.reap_expired() == 1
    queue.promote_due()
    for kinds in (None, ["a", "killer"]):
        batches = []
        while batch := queue.lease_many(10, kinds):
            batches.append(batch)
        assert [[lease.payload for lease in batch] for batch in batches] == [[0, 1], [None], [2, 3]]
        assert killer is not None
        assert batches[1][0].job_id == killer.job_id
        for batch in batches:
            for lease in batch:
                lease.release()


def test_reaped_jobs_are_leased_one_by_one(queue: Queue, clock: FakeClock) -> None:
    """Of several that were reaped, each is alone (V3)."""
    queue.set("backoff_base", 0)
    queue.enqueue_many(NewJob("work") for _ in range(3))
    queue.lease_many(3)
    clock.advance(301)
    assert [len(queue.lease_many(10)) for _ in range(4)] == [1, 1, 1, 0]


def test_a_retried_job_is_as_good_as_new(queue: Queue, clock: FakeClock) -> None:
    """`retry` sets its reaps to 0, so it may share a batch again (V3, V10)."""
    first = queue.enqueue("work", max_attempts=1).job_id
    queue.lease_next()
    clock.advance(301)
    queue.reap_expired()
    assert queue.get(first).reaps == 1
    queue.retry(first)
    queue.enqueue("work")
    assert len(queue.lease_many(10)) == 2


def test_a_continuation_is_gone_at_the_next_lease(queue: Queue) -> None:
    """A new holder starts without the checkpoint of the last one (V3, §2)."""
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1)
    lease.checkpoint(b"half", progress=0.5, note="half")
    lease.release()
    (again,) = queue.lease_many(1)
    job = queue.get(job_id)
    assert again.continuation is None
    assert (job.continuation, job.progress, job.note, job.checkpoints, job.beats) == (None, None, None, 0, 0)
