"""Rows out of their order: one flipped bit in a key, and what SQLite then takes for another row is nobody's (§6, G1).

Each key in the file is wounded in turn, whichever table or index it stands in: it becomes greater than its neighbours.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

import litequeue
from litequeue import Lease, LiteQueueError
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from litequeue import Queue

pytestmark = pytest.mark.slow

SCOPE = "tenant-a"
GREATER_SCOPE = "tenant/a"
KEY = "key {:02}"
_JOBS = 24
_SCHEDULED = range(8, 16)
_FIRST_ID = UUID("01977420-dc00-7000-8000-000000000100")


def _make(path: Path) -> list[UUID]:
    """Make a closed file of jobs with keys: with results, scheduled, and pending, as many of each; return their ids."""
    made = [UUID(int=_FIRST_ID.int + number) for number in range(_JOBS)]
    with litequeue.open(path, clock=FakeClock()) as queue:
        for number, job_id in enumerate(made):
            delay = 60 if number in _SCHEDULED else None
            queue.enqueue("work", number, scope=SCOPE, idempotency_key=KEY.format(number), delay=delay, job_id=job_id)
            if number < _SCHEDULED.start:
                (lease,) = queue.lease_many(1, scope=SCOPE)
                lease.complete(number)
    return made


def _occurrences(content: bytes, key: bytes) -> Iterator[int]:
    place = content.find(key)
    while place >= 0:
        yield place
        place = content.find(key, place + 1)


def _wounded(content: bytes, made: Sequence[UUID]) -> Iterator[bytes]:
    """Give the file with each of its keys made greater by one bit, one at a time."""
    greater = {SCOPE.encode(): GREATER_SCOPE.encode()}
    for job_id in made:
        bit = next(bit for bit in itertools.count(8) if not job_id.int >> bit & 1)
        greater[job_id.bytes] = UUID(int=job_id.int | 1 << bit).bytes
    for number in range(_JOBS):  # "key 02" becomes "key 0r"
        key = KEY.format(number).encode()
        greater[key] = key[:-1] + bytes([key[-1] | 0x40])
    for key, wounded in greater.items():
        for place in _occurrences(content, key):
            yield content[:place] + wounded + content[place + len(key) :]


def _read(queue: Queue, made: Sequence[UUID]) -> None:
    """Ask for each job by its id."""
    for number, job_id in enumerate(made):
        try:
            job = queue.get(job_id)
        except LiteQueueError:
            continue
        assert job.job_id == job_id
        with contextlib.suppress(LiteQueueError):
            assert job.payload == number
        assert job.result in (number, None)


def _repeat(queue: Queue, made: Sequence[UUID]) -> None:
    """Enqueue each active key again: it is answered by its own job, or a new one."""
    for number in range(_SCHEDULED.start, _JOBS):
        with contextlib.suppress(LiteQueueError):
            again = queue.enqueue("work", number, scope=SCOPE, idempotency_key=KEY.format(number))
            assert again.created or again.job_id == made[number]


def _reset(queue: Queue, made: Sequence[UUID]) -> None:
    """Trigger each scheduled key anew; its own job gets the payload, and no other."""
    expected = {job_id: number for number, job_id in enumerate(made)}
    for number in reversed(_SCHEDULED):
        key = KEY.format(number)
        with contextlib.suppress(LiteQueueError):
            again = queue.enqueue("work", -number, scope=SCOPE, idempotency_key=key, on_conflict="reset")
            assert again.created or again.job_id == made[number]
            expected[again.job_id] = -number
    for job_id, number in expected.items():
        with contextlib.suppress(LiteQueueError):
            assert queue.get(job_id).payload == number


def _lease(queue: Queue, made: Sequence[UUID]) -> None:
    """Lease until nothing is left, or it is an error, and see that no job is in two hands."""
    in_hand: dict[UUID, Lease] = {}
    with contextlib.suppress(LiteQueueError):
        queue.promote_due()
        while leases := queue.lease_many(3, scope=SCOPE):
            for lease in leases:
                assert lease.job_id not in in_hand
                in_hand[lease.job_id] = lease
                with contextlib.suppress(LiteQueueError):
                    assert lease.job_id not in made or lease.payload == made.index(lease.job_id)


@pytest.mark.parametrize(("use", "later_s"), [(_read, 0), (_repeat, 0), (_reset, 0), (_lease, 61)])
def test_a_row_out_of_order_is_not_taken_for_its_neighbour(
    tmp_path: Path, use: Callable[[Queue, Sequence[UUID]], None], later_s: int
) -> None:
    """By id and by key it is the job that was asked for, or an error of the contract's tree (§6, V2, V3)."""
    whole = tmp_path / "whole.queue"
    made = _make(whole)
    number = 0
    for number, content in enumerate(_wounded(whole.read_bytes(), made), 1):
        path = tmp_path / f"{number}.queue"
        path.write_bytes(content)
        clock = FakeClock()
        clock.advance(later_s)
        try:
            with litequeue.open(path, clock=clock) as queue:
                use(queue, made)
        except LiteQueueError:
            continue
    assert number > _JOBS * 6
