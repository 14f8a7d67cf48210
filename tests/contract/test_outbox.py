"""Outboxes: messages commit with the caller's rows, and are delivered in the order of their keys (§2, V14, G2, G4)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litequeue import (
    ANY,
    DuplicateJob,
    InvalidTransition,
    JobNotFound,
    JobState,
    Lease,
    LeaseConflict,
    NewJob,
    Outbox,
    PayloadError,
    UsageError,
)
from litequeue.sqlite.examining import problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue
    from litequeue.testing import FakeClock
    from tests.conftest import MakeQueue

SCOPE = "litequeue:outbox:mail"
UNKNOWN = "01900000-0000-7000-8000-000000000001"


class Undo(Exception):
    """What a test raises to leave a transaction."""


@pytest.fixture
def outbox(queue: Queue) -> Iterator[Outbox]:
    """Give an outbox on a fresh queue; whatever a test does, the examination finds nothing wrong with it."""
    yield Outbox(queue, "mail")
    assert problems(queue.path) == []


def put(queue: Queue, outbox: Outbox, *messages: tuple[str | None, object]) -> list[UUID]:
    """Put messages in one transaction, each with its key."""
    with queue.transaction() as tx:
        return [outbox.put(tx, body, key=key) for key, body in messages]


def held(queue: Queue, outbox: Outbox, limit: int = 100) -> list[Lease]:
    """Lease what can be delivered now, as a worker of the outbox does."""
    return queue.lease_many(limit, [outbox.kind], scope=outbox._scope)


def bodies(leases: list[Lease]) -> list[object]:
    """Return what these messages say."""
    return [lease.payload["message"] for lease in leases if isinstance(lease.payload, dict)]


def delivered(queue: Queue, outbox: Outbox) -> list[object]:
    """Deliver all, one after the other; return what they said, in order."""
    said: list[object] = []
    while leases := held(queue, outbox, 1):
        said += bodies(leases)
        leases[0].complete()
    return said


# --- both or neither


def test_a_message_commits_with_the_rows_that_it_tells_of(queue: Queue, make_queue: MakeQueue, outbox: Outbox) -> None:
    """Nobody can deliver it before the commit, and a rollback leaves neither (V14, G2)."""
    other = make_queue()
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER)")
        outbox.put(tx, "placed", key="order 1")
        assert other.stats(ANY).total == 0
    assert delivered(other, outbox) == ["placed"]
    with suppress(Undo), queue.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (1)")
        outbox.put(tx, "never", key="order 1")
        outbox.put(tx, "never", key=None)
        raise Undo
    assert delivered(other, outbox) == []
    put(queue, outbox, ("order 1", "first"))
    with suppress(Undo), queue.transaction() as tx:
        outbox.put(tx, "never", key="order 1")
        raise Undo
    assert (delivered(queue, outbox), outbox.waiting()) == (["first"], 0)


def test_a_job_s_own_transaction_takes_messages_too(queue: Queue, outbox: Outbox) -> None:
    """The job's completion, its writes and the message are one commit (V14, G3)."""
    queue.enqueue("order")
    lease = queue.lease_next()
    assert lease is not None
    with suppress(Undo), lease.transaction() as tx:
        outbox.put(tx, "never", key=None)
        raise Undo
    with lease.transaction() as tx:
        outbox.put(tx, "done", key=None)
    queue.enqueue("order")
    with queue.lease_in_transaction() as (tx, _):
        outbox.put(tx, "done too", key=None)
    assert delivered(queue, outbox) == ["done", "done too"]


def test_nothing_else_reaches_the_messages(queue: Queue, outbox: Outbox) -> None:
    """No scope that a caller can name, and no lease of all scopes (§2, V12)."""
    put(queue, outbox, ("a", 1), (None, 2))
    queue.enqueue_many(NewJob(kind, scope=scope) for kind in ("outbox:mail", "work") for scope in ("first", "zulu"))
    assert queue.scope == "default"
    for kinds in (None, ["outbox:"], ["outbox:mail"]):
        with queue.transaction() as tx:
            found = tx.lease_many(10, kinds, scope=ANY)
            assert {lease.scope for lease in found} == {"first", "zulu"}
            tx.release_many(found)
    queue.complete_many(queue.lease_many(10, scope=ANY))
    assert queue.lease_next(scope=ANY) is None
    assert queue.wait(0, scope=ANY) is False
    with pytest.raises(UsageError, match="reserved"):
        queue.enqueue("work", scope=SCOPE)
    with pytest.raises(UsageError, match="reserved"):
        queue.lease_next(scope=SCOPE)
    assert sorted(map(str, delivered(queue, outbox))) == ["1", "2"]


# --- order


def test_messages_of_a_key_come_one_after_the_other_and_keys_side_by_side(queue: Queue, outbox: Outbox) -> None:
    """The next one is ready in the commit that ends the one before it, behind those of other keys (G4)."""
    put(queue, outbox, ("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), (None, "x"), (None, "y"))
    leases = held(queue, outbox)
    assert bodies(leases) == ["a1", "b1", "x", "y"]
    assert held(queue, outbox) == []
    leases[0].complete()
    assert bodies(held(queue, outbox)) == ["a2"]
    queue.complete_many(leases[1:])
    assert bodies(held(queue, outbox)) == ["b2"]


def test_the_order_is_that_of_the_commits_whatever_the_clock_does(
    queue: Queue, make_queue: MakeQueue, clock: FakeClock, outbox: Outbox
) -> None:
    """Through any handle, and also when the wall clock steps back (G4)."""
    for n in range(10):
        handle = make_queue() if n % 3 == 0 else queue
        put(handle, Outbox(handle, "mail"), ("a", n))
        clock.step_wall(-100)
    assert delivered(queue, outbox) == list(range(10))


def test_a_message_that_waits_out_its_back_off_holds_its_key_back(
    queue: Queue, clock: FakeClock, outbox: Outbox
) -> None:
    """So does one that was reaped or given back; others go on (V7, V8, G4)."""
    queue.set("backoff_base", 10, "outbox:mail")
    put(queue, outbox, ("a", "a1"), ("a", "a2"), ("b", "b1"))
    first, other = held(queue, outbox)
    first.fail("the line is down")
    other.complete()
    assert held(queue, outbox) == []
    clock.advance(11)
    (again,) = held(queue, outbox)
    assert (bodies([again]), again.attempts, again.job_id) == (["a1"], 2, first.job_id)
    clock.advance(301)
    queue.reap_expired()
    assert held(queue, outbox) == []
    clock.advance(41)
    (third,) = held(queue, outbox)
    third.release()
    assert delivered(queue, outbox) == ["a1", "a2"]
    with pytest.raises(LeaseConflict):
        again.complete()


def test_a_delivery_that_is_undone_lets_nothing_follow(queue: Queue, outbox: Outbox) -> None:
    """What comes next is part of the commit that ends the message before it (V14, G7)."""
    put(queue, outbox, ("a", "a1"), ("a", "a2"))
    (first,) = held(queue, outbox)
    with suppress(Undo), queue.transaction() as tx:
        tx.complete(first)
        assert bodies(tx.lease_many(1, scope=outbox._scope)) == ["a2"]
        raise Undo
    assert (held(queue, outbox), outbox.waiting()) == ([], 1)
    first.complete()
    assert delivered(queue, outbox) == ["a2"]


# --- the dead, and what an operator does


def test_a_dead_message_blocks_its_key_until_it_is_retried(queue: Queue, outbox: Outbox) -> None:
    """By no other way do later ones come before it; it is found, and says why (V7, V10, G6)."""
    first, _, _ = put(queue, outbox, ("a", "a1"), ("a", "a2"), ("b", "b1"))
    held(queue, outbox, 1)[0].fail("no such address", retryable=False)
    assert delivered(queue, outbox) == ["b1"]
    put(queue, outbox, ("a", "a3"))
    assert delivered(queue, outbox) == []
    (dead,) = outbox.dead()
    assert (dead.job_id, dead.payload, dead.last_error) == (first, {"key": "a", "message": "a1"}, "no such address")
    outbox.retry(first)
    assert delivered(queue, outbox) == ["a1", "a2", "a3"]
    assert outbox.dead() == []


def test_the_dead_are_told_of_page_by_page(queue: Queue, outbox: Outbox) -> None:
    """The last message of a page leads to the next one, there and in a list of everything (V13)."""
    queue.enqueue("work")
    ids = put(queue, outbox, *((None, number) for number in range(5)))
    for lease in held(queue, outbox):
        lease.fail("no such address", retryable=False)
    found, last = [], None
    while page := outbox.dead(limit=2, after=last):
        found += [job.job_id for job in page]
        last = page[-1]
    assert found == ids
    first, *others = queue.list(scope=ANY, limit=100)
    assert queue.list(scope=ANY, limit=100, after=first) == others
    assert queue.list(scope=ANY, limit=100, after=others[0]) == others[1:]


@pytest.mark.parametrize("state", ["dead", "ready", "held", "waiting out its back-off", "behind another"])
def test_a_discarded_message_is_never_delivered_and_its_key_goes_on(queue: Queue, outbox: Outbox, state: str) -> None:
    """Whatever it was doing; a handler that has it is refused when it says that it is done (V9, G1)."""
    first, second, _ = put(queue, outbox, ("a", "a1"), ("a", "a2"), ("a", "a3"))
    leases = [] if state in ("ready", "behind another") else held(queue, outbox)
    if state in ("dead", "waiting out its back-off"):
        leases[0].fail("boom", retryable=state != "dead", delay=60)
    outbox.discard(second if state == "behind another" else first)
    if state == "held":
        with pytest.raises(LeaseConflict):
            leases[0].complete()
    assert delivered(queue, outbox) == (["a1", "a3"] if state == "behind another" else ["a2", "a3"])
    assert outbox.waiting() == 0


def test_what_is_delivered_or_unknown_cannot_be_discarded_or_retried(queue: Queue, outbox: Outbox) -> None:
    """Each is told for what it is, and nothing changes (V9, V10)."""
    (message,) = put(queue, outbox, ("a", "a1"))
    delivered(queue, outbox)
    with pytest.raises(InvalidTransition, match="completed"):
        outbox.discard(message)
    job_id = queue.enqueue("work").job_id
    for unknown in (job_id, UNKNOWN):
        with pytest.raises(JobNotFound):
            outbox.discard(unknown)
        with pytest.raises(JobNotFound):
            outbox.retry(unknown)
    (waiting,) = put(queue, Outbox(queue, "other"), ("a", "a1"))
    with pytest.raises(JobNotFound):
        outbox.discard(waiting)
    assert queue.get(job_id).state is JobState.PENDING


@pytest.mark.parametrize("way", ["cancelled", "pruned", "kept for no time"])
def test_however_a_message_goes_the_next_one_comes(queue: Queue, clock: FakeClock, outbox: Outbox, way: str) -> None:
    """Nothing strands those behind it (V9, V11, G5)."""
    first, _ = put(queue, outbox, ("a", "a1"), ("a", "a2"))
    if way == "cancelled":
        queue.cancel(first)
    else:
        queue.set("dead_retention", 0 if way == "kept for no time" else 60)
        queue.set("completed_retention", 0)
        held(queue, outbox)[0].fail("boom", retryable=False)
        clock.advance(61)
        queue.prune()
    assert delivered(queue, outbox) == ["a2"]


# --- ids


def test_a_message_is_put_once_whatever_it_is_doing(queue: Queue, outbox: Outbox) -> None:
    """By its id, as long as the outbox has it or remembers that it was delivered; the first one counts (V1)."""
    ids = [f"01900000-0000-7000-8000-00000000000{n}" for n in range(3)]
    keys = ["a", "a", None]

    def put_again() -> list[bool]:
        with queue.transaction() as tx:
            found = [tx.put_message("mail", n, key=key, message_id=ids[n]) for n, key in enumerate(keys)]
            assert [str(put.job_id) for put in found] == ids
            return [put.created for put in found]

    assert put_again() == [True, True, True]
    assert put_again() == [False, False, False]
    leases = held(queue, outbox)
    assert put_again() == [False, False, False]
    leases[0].fail("boom", retryable=False)
    assert put_again() == [False, False, False]
    outbox.retry(ids[0])
    leases[1].complete()
    assert delivered(queue, outbox) == [0, 1]
    assert put_again() == [False, False, False]
    assert delivered(queue, outbox) == []


def test_an_id_belongs_to_one_thing_only(queue: Queue, outbox: Outbox) -> None:
    """A job's is refused to a message, a message's to a job, also while that waits (V1, §6)."""
    job_id = queue.enqueue("work").job_id
    _, waiting = put(queue, outbox, ("a", "a1"), ("a", "a2"))
    for other, taken in (("mail", job_id), ("other", waiting)):
        with queue.transaction() as tx, pytest.raises(DuplicateJob):
            Outbox(queue, other).put(tx, 1, key="a", message_id=taken)
    with pytest.raises(DuplicateJob):
        queue.enqueue("work", job_id=waiting)
    assert delivered(queue, outbox) == ["a1", "a2"]


# --- bad input


def test_bad_input_is_told_and_nothing_is_put(queue: Queue, make_queue: MakeQueue, outbox: Outbox) -> None:
    """With the argument, its value and the bounds (§6)."""
    for name in ("", "x" * 201, "a\n", 1):
        with pytest.raises(UsageError, match="name"):
            Outbox(queue, name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="queue"):
        Outbox("app.queue", "mail")  # type: ignore[arg-type]
    with queue.transaction() as tx:
        for key in ("", "x" * 256, 1):
            with pytest.raises(UsageError, match="key"):
                outbox.put(tx, 1, key=key)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="message_id"):
            outbox.put(tx, 1, key=None, message_id="one")
        with pytest.raises(PayloadError):
            outbox.put(tx, object(), key=None)
        with pytest.raises(PayloadError, match="max_payload"):
            outbox.put(tx, b"x" * 2_000_000, key="a")
    with pytest.raises(UsageError, match="tx"):
        outbox.put(queue, 1, key="a")  # type: ignore[arg-type]
    elsewhere = make_queue(path=_beside(queue))
    with elsewhere.transaction() as tx, pytest.raises(UsageError, match="tx"):
        outbox.put(tx, 1, key="a")
    assert (outbox.waiting(), outbox.stats().total) == (0, 0)


def _beside(queue: Queue) -> Path:
    return Path(queue.path).with_name("other.db")
