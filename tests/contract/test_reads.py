"""Pure reads: one job, pages of jobs, counts; each from one moment, and none waits for a writer (V13)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast
from uuid import UUID, uuid4

import pytest

from litequeue import ANY, SYSTEM, Job, JobNotFound, JobState, NewJob, UsageError

if TYPE_CHECKING:
    from litequeue import Queue
    from litequeue.model import Scope
    from litequeue.testing import FakeClock
    from tests.conftest import JobIn, MakeQueue

SECOND = 1_000_000


def pages(queue: Queue, limit: int, **filters: object) -> list[list[Job]]:
    """Read page after page until there is none."""
    found: list[list[Job]] = []
    after: Job | None = None
    while page := queue.list(limit=limit, after=after, **filters):  # type: ignore[arg-type]
        found.append(page)
        assert len(found) < 1000, "the pages have no end"
        after = page[-1]
    return found


@pytest.mark.parametrize("state", list(JobState))
def test_get_and_list_show_the_same_record_in_every_state(queue: Queue, job_in: JobIn, state: JobState) -> None:
    """All fields of §2, wherever the job stands (V13)."""
    job_id = job_in(state, key="k")
    job = queue.get(job_id)
    assert job.state is state
    assert (job.job_id, job.kind, job.payload, job.idempotency_key) == (job_id, "work", "first", "k")
    assert queue.list() == queue.list(state) == [job]
    assert queue.list(next(other for other in JobState if other is not state)) == []


def test_an_unknown_job_is_not_found(queue: Queue) -> None:
    """`JobNotFound` names the id (V13, §9)."""
    unknown = uuid4()
    with pytest.raises(JobNotFound) as error:
        queue.get(unknown)
    assert error.value.job_id == unknown


def test_ids_are_found_by_their_beginning(queue: Queue) -> None:
    """In their order, up to the limit, in every scope and state; the bounds of a range are in it (V13)."""
    ids = [UUID(f"abcd{rest}") for rest in ("0" * 28, "0" * 27 + "1", "7" + "f" * 27, "f" * 28)]
    others = [UUID("abcc" + "f" * 28), UUID("abce" + "0" * 28)]
    for job_id in (*others, *ids):
        queue.enqueue("work", job_id=job_id, scope="other" if job_id == ids[1] else None)
    queue.cancel(ids[0])
    assert queue.find("abcd") == queue.find("ABCD") == queue.find("ab-cd") == ids
    assert queue.find("abcd0") == ids[:2]
    assert queue.find(ids[0].hex) == [ids[0]]
    assert queue.find(ids[2].hex[:-1]) == [ids[2]]
    assert queue.find("abcd", limit=3) == ids[:3]
    assert queue.find("abcf") == []
    assert queue.find("abcd", state=JobState.PENDING) == ids[1:]
    assert queue.find("abcd", state=JobState.PENDING, limit=2) == ids[1:3]
    assert queue.find("abcd", state=JobState.CANCELLED) == ids[:1]
    assert queue.find("abcd7", state=JobState.CANCELLED) == []
    with pytest.raises(UsageError, match="state"):
        queue.find("abcd", state=cast("JobState", 6.5))
    with queue.transaction() as tx:
        made = tx.enqueue("work", job_id="abcd8000-0000-7000-8000-000000000000").job_id
        assert tx.find("abcd8") == [made]
        assert queue.find("abcd8") == []


@pytest.mark.parametrize("beginning", ["abc", "", "abcg", "a" * 33, 7, None, b"abcd"])
def test_a_beginning_has_4_to_32_hex_digits(queue: Queue, beginning: str) -> None:
    """Anything else is a `UsageError` that says so (§6)."""
    with pytest.raises(UsageError, match="4 to 32 hex digits"):
        queue.find(beginning)


def test_a_page_holds_at_most_its_limit_and_goes_on_after_its_last_job(queue: Queue) -> None:
    """Every job is on exactly one page, in the order of state, priority and enqueueing (V13)."""
    queue.enqueue_many(NewJob("work", n, priority=n % 3, delay=60 if n % 5 == 0 else None) for n in range(50))
    everything = queue.list(limit=1000)
    assert [(job.state, job.priority, job.created_at) for job in everything] == sorted(
        (job.state, job.priority, job.created_at) for job in everything
    )
    for limit in (1, 7, 49, 50, 51):
        found = pages(queue, limit)
        assert [job for page in found for job in page] == everything
        assert all(len(page) == limit for page in found[:-1])


def test_pages_go_on_from_the_place_of_a_job_that_has_moved_or_is_gone(queue: Queue) -> None:
    """A page goes on from the key that its last job had then, so nobody is shown twice or left out (V13)."""
    queue.enqueue_many(NewJob("work", n) for n in range(6))
    queue.set("cancelled_retention", 0)
    first = queue.list(JobState.PENDING, limit=2)
    queue.cancel(first[-1].job_id)
    queue.enqueue("work", 6)
    rest = queue.list(JobState.PENDING, after=first[-1])
    assert [job.payload for job in first + rest] == list(range(7))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("ingest", ["ingest"]),
        ("ingest:", ["ingest:", "ingest:pdf", "ingest:pdf:big"]),
        ("ingest:pdf", ["ingest:pdf"]),
        ("ingest:pdf:", ["ingest:pdf:big"]),
        ("ing", []),
        ("%", []),
    ],
)
def test_a_list_may_be_of_a_kind_or_a_prefix(queue: Queue, kind: str, found: list[str]) -> None:
    """The same filter as a lease takes: exact, or a prefix that ends in `:` (V13, §2)."""
    queue.enqueue_many(
        NewJob(name) for name in ("ingest", "ingest:", "ingest:pdf", "ingest:pdf:big", "ingester:pdf", "embed")
    )
    assert [job.kind for job in queue.list(kind=kind)] == found
    assert [job.kind for page in pages(queue, 1, kind=kind) for job in page] == found


def test_a_rare_kind_is_found_behind_many_others(queue: Queue) -> None:
    """The limit counts what matches, not what is looked at (V13)."""
    queue.enqueue_many(NewJob("common") for _ in range(300))
    queue.enqueue("rare")
    assert [job.kind for job in queue.list(kind="rare", limit=1)] == ["rare"]


@pytest.mark.parametrize(
    ("scope", "found"),
    [(None, ["ours"]), ("default", ["ours"]), ("tenant", ["theirs"]), (SYSTEM, ["system"]), ("none", [])],
)
def test_a_list_is_of_one_scope(queue: Queue, scope: Scope | None, found: list[str]) -> None:
    """The handle's own unless another one is named (V13)."""
    queue.enqueue_many([NewJob("ours"), NewJob("theirs", scope="tenant"), NewJob("system", scope=SYSTEM)])
    assert [job.kind for job in queue.list(scope=scope)] == found
    assert queue.stats(scope).total == len(found)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_any_lists_all_scopes_with_system_first(queue: Queue, limit: int) -> None:
    """`ANY` goes through the scopes in order, page by page; `SYSTEM` comes back as the object (V13, §2)."""
    queue.enqueue_many(NewJob(kind, scope=scope) for kind in "ab" for scope in ("z", "b", SYSTEM, "é", "B"))
    found = [job for page in pages(queue, limit, scope=ANY) for job in page]
    assert [(job.scope, job.kind) for job in found] == [
        (scope, kind) for scope in (SYSTEM, "B", "b", "z", "é") for kind in "ab"
    ]


def test_any_may_be_filtered(queue: Queue) -> None:
    """State and kind hold in every scope (V13)."""
    queue.enqueue_many(
        NewJob(kind, scope=scope, delay=delay) for scope in "ab" for kind in ("x", "y:z") for delay in (None, 60)
    )
    found = queue.list(JobState.SCHEDULED, kind="y:", scope=ANY)
    assert [(job.scope, job.kind, job.state) for job in found] == [
        ("a", "y:z", JobState.SCHEDULED),
        ("b", "y:z", JobState.SCHEDULED),
    ]


def test_stats_of_an_empty_queue_are_all_there(queue: Queue) -> None:
    """Every state has its count, also 0 (V13)."""
    stats = queue.stats()
    assert dict(stats.counts) == dict.fromkeys(JobState, 0)
    assert (stats.total, dict(stats.by_kind)) == (0, {})
    assert (stats.oldest_ready_at, stats.next_due_at, stats.lapsed) == (None, None, 0)


def test_stats_count_each_state_and_kind(queue: Queue, job_in: JobIn) -> None:
    """One job in each state, and one of each kind in each state it has (V13)."""
    for state in JobState:
        job_in(state, kind=f"k{state.value}")
    queue.enqueue("k0", delay=5)
    stats = queue.stats()
    assert dict(stats.counts) == {state: 2 if state is JobState.SCHEDULED else 1 for state in JobState}
    assert dict(stats.by_kind["k0"]) == {JobState.PENDING: 1, JobState.SCHEDULED: 1}
    assert dict(stats.by_kind["k4"]) == {JobState.DEAD: 1}
    assert set(stats.by_kind) == {f"k{n}" for n in range(8)}


def test_stats_of_any_add_all_scopes_up(queue: Queue) -> None:
    """`ANY` counts the whole file (V13)."""
    queue.enqueue_many(NewJob("work", scope=scope) for scope in ("default", "a", "b", SYSTEM) for _ in range(2))
    assert (queue.stats().total, queue.stats(SYSTEM).total, queue.stats(ANY).total) == (2, 2, 8)
    assert dict(queue.stats(ANY).by_kind["work"]) == {JobState.PENDING: 8}


def test_stats_say_what_waits_and_since_when(queue: Queue, clock: FakeClock) -> None:
    """The oldest ready job, the next due one, and the leases that have lapsed unnoticed (V13)."""
    start = clock.wall_us()
    queue.enqueue("work", priority=1)
    queue.enqueue("work", priority=255)
    clock.advance(10)
    queue.enqueue("work", priority=0, delay=90)
    queue.enqueue("work", delay=30)
    queue.lease_next(ttl=5)
    queue.lease_next(ttl=500)
    queue.enqueue("work", priority=200)
    stats = queue.stats()
    assert stats.oldest_ready_at == start + 10 * SECOND
    assert stats.next_due_at == start + 40 * SECOND
    assert stats.lapsed == 0
    clock.advance(6)
    assert queue.stats().lapsed == 1
    assert queue.stats().counts[JobState.LEASED] == 2


def test_reads_change_nothing(queue: Queue, clock: FakeClock) -> None:
    """A due, lapsed or overdue job is shown as it stands; only maintenance and leases move it (V13)."""
    queue.enqueue("due", delay=1)
    queue.enqueue("overdue", expires=1)
    queue.enqueue("lapsed", priority=0)
    queue.lease_next()
    clock.advance(301)
    states = {job.kind: job.state for job in queue.list()}
    queue.stats(ANY)
    assert states == {"due": JobState.SCHEDULED, "overdue": JobState.PENDING, "lapsed": JobState.LEASED}
    assert {job.kind: queue.get(job.job_id).state for job in queue.list()} == states


def test_no_read_waits_for_a_writer(make_queue: MakeQueue) -> None:
    """Beside an open write transaction, another handle and another thread read without patience (V13)."""
    writer, reader = make_queue(), make_queue(busy_timeout=0)
    job_id = writer.enqueue("work").job_id
    seen: list[object] = []

    def read(queue: Queue) -> None:
        seen.append((queue.get(job_id).state, len(queue.list()), queue.stats().total, queue.settings()["lease_ttl"]))

    with writer.transaction() as tx:
        tx.cancel(job_id)
        for queue in (writer, reader):
            thread = threading.Thread(target=read, args=(queue,))
            thread.start()
            thread.join()
    assert seen == [(JobState.PENDING, 1, 1, 300)] * 2


def test_a_job_that_moves_is_never_reported_missing_or_twice(make_queue: MakeQueue) -> None:
    """Readers beside a job that runs through its states always see it, once (V13, G7; issue 2)."""
    mover, reader = make_queue(), make_queue()
    job_id = mover.enqueue("work", max_attempts=9).job_id
    done = threading.Event()
    odd: list[object] = []
    reads: list[JobState] = []

    def watch() -> None:
        while not done.is_set():
            try:
                reads.append(reader.get(job_id).state)
                if (total := reader.stats().total) != 1 or (listed := len(reader.list())) != 1:
                    odd.append((total, listed))
            except Exception as exc:  # noqa: BLE001 - the main thread reports whatever it was
                odd.append(exc)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(150):
        (lease,) = mover.lease_many(1)
        lease.fail("boom", delay=0)
        (lease,) = mover.lease_many(1)
        lease.release(0)
        (lease,) = mover.lease_many(1)
        lease.complete()
        mover.retry(job_id)
    done.set()
    watcher.join()
    assert odd == []
    assert reads
