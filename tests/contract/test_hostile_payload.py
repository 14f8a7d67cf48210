"""Payloads that lie, raise or come without end: a named error each, or stored as what they hold (§6, G2)."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import pytest

from litequeue import NewJob, PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue import Queue


class _Long(list[int]):
    def __len__(self) -> int:
        return 5


class _Short(list[int]):
    def __len__(self) -> int:
        return 0


class _Raising(list[int]):
    def __len__(self) -> int:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("no")


class _Map(dict[str, int]):
    def __len__(self) -> int:
        return 7

    def items(self) -> NoReturn:
        raise RuntimeError("no")


class _Text(str):
    __slots__ = ()

    def __len__(self) -> int:
        return 3

    def encode(self, *_: object, **__: object) -> bytes:
        raise RuntimeError("no")

    def __str__(self) -> str:
        return "another"


class _Number(int):
    def __index__(self) -> int:
        raise RuntimeError("no")

    def __int__(self) -> int:
        return 9


class _Share(float):
    def __float__(self) -> float:
        return 9.0


class _Bytes(bytes):
    def __len__(self) -> int:
        return 100


class _Colour(StrEnum):
    RED = "red"


class _Level(IntEnum):
    HIGH = 3


class _Point(NamedTuple):
    x: int
    y: int


HELD: dict[str, tuple[object, object]] = {
    "a list that says it is longer": ([_Long([1, 2]), 3], [[1, 2], 3]),
    "a list that says it is empty": ([_Short([1, 2]), 3], [[1, 2], 3]),
    "a list that raises": ({"a": _Raising([1, 2])}, {"a": [1, 2]}),
    "a map that lies and raises": ([_Map(a=1), 3], [{"a": 1}, 3]),
    "a text that lies and raises": ([_Text("abcdef"), 3], ["abcdef", 3]),
    "a number that lies and raises": ([_Number(5), 3], [5, 3]),
    "a share that lies": ([_Share(0.5)], [0.5]),
    "bytes that lie": ([_Bytes(b"ab"), 3], [b"ab", 3]),
    "a text of an enum": ({_Colour.RED: _Level.HIGH}, {"red": 3}),
    "a named tuple": ([_Point(1, 2)], [[1, 2]]),
    "a tuple as a key": ({(1, (2, 3)): 1}, {(1, (2, 3)): 1}),
    "ordered": (OrderedDict(a=1), {"a": 1}),
    "with a default": (defaultdict(list, a=[1]), {"a": [1]}),
    "changeable bytes": ([bytearray(b"ab"), memoryview(b"cd")], [b"ab", b"cd"]),
    "the first and the last datetime": (
        [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
        [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
    ),
    "the ends of 64 bits": ([2**64 - 1, -(2**63)], [2**64 - 1, -(2**63)]),
}


@pytest.mark.parametrize("what", HELD)
def test_an_object_of_a_derived_class_is_stored_as_what_it_holds(queue: Queue, what: str) -> None:
    """Whatever its methods say: every payload that was taken can be read (§6, G2)."""
    given, held = HELD[what]
    job_id = queue.enqueue("work", given).job_id
    assert queue.get(job_id).payload == held
    lease = queue.lease_next()
    assert lease is not None
    lease.complete(given)
    assert queue.get(job_id).result == held


class _Zone(tzinfo):
    """A time zone whose methods raise."""

    def utcoffset(self, _: datetime | None) -> timedelta:
        raise RuntimeError("no such zone")

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None


class _Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        return 1


REFUSED: dict[str, object] = {
    "a time in a zone that raises": datetime(2025, 6, 15, tzinfo=_Zone()),
    "before the first day": [datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), object()],
    "an object that cannot be shown": [_Unshowable()],
    "a key that cannot be shown": {_Unshowable(): 1},
    "an iterator": iter([1]),
    "a generator": (number for number in range(3)),
    "an exception": ValueError("x"),
    "a class": int,
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_stored_is_a_payload_error_whatever_it_raises(queue: Queue, what: str) -> None:
    """As a payload and as a result; nothing stored, the lease still held (§6)."""
    queue.enqueue("held")
    (lease,) = queue.lease_many(1)
    with pytest.raises(PayloadError):
        queue.enqueue("work", REFUSED[what])
    with pytest.raises(PayloadError):
        lease.complete(REFUSED[what])
    assert queue.stats().total == 1
    lease.complete()


class _Stop(Exception):
    """What a caller's iterator raises."""


def test_an_iterator_that_raises_midway_stores_nothing(queue: Queue) -> None:
    """What it raises is the caller's own, and none of its jobs is in the file (V1, G11)."""

    def jobs() -> Iterator[NewJob]:
        yield NewJob("work")
        raise _Stop

    with pytest.raises(_Stop):
        queue.enqueue_many(jobs())
    with pytest.raises(_Stop), queue.transaction() as tx:
        tx.enqueue_many(jobs())
    assert queue.stats().total == 0


def test_an_iterator_that_enqueues_on_the_same_queue_is_no_deadlock(queue: Queue) -> None:
    """It is read to its end before the lock is taken (V1)."""

    def jobs() -> Iterator[NewJob]:
        for number in range(3):
            queue.enqueue("inner", number)
            yield NewJob("outer", number)

    assert len(queue.enqueue_many(jobs())) == 3
    assert [job.kind for job in queue.list()] == ["inner"] * 3 + ["outer"] * 3


def test_an_endless_iterator_is_its_callers_to_cut(queue: Queue) -> None:
    """All of a batch is encoded before the lock is taken, so nobody else waits for it; a slice bounds it (V1)."""
    endless = (NewJob("work", number) for number in itertools.count())
    assert len(queue.enqueue_many(itertools.islice(endless, 500))) == 500
    assert queue.stats().total == 500
