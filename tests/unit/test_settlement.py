"""What a worker hands in is checked when it is made, so that no batch has a bad argument in it (§6; issue 5)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from litequeue import Completed, Failed, Lease, NewJob, Released, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give a lease."""
    queue.enqueue("work")
    (taken,) = queue.lease_many(1)
    return taken


BAD: list[tuple[Callable[[Lease], object], str]] = [
    (lambda _: Completed("lease"), "lease"),  # type: ignore[arg-type]
    (lambda lease: Completed(lease, then=3), "then"),  # type: ignore[arg-type]
    (lambda lease: Completed(lease, then=["next"]), "then"),  # type: ignore[list-item]
    (lambda _: Failed(None, "boom"), "lease"),  # type: ignore[arg-type]
    (lambda lease: Failed(lease, ValueError("boom")), "error"),  # type: ignore[arg-type]
    (lambda lease: Failed(lease, "boom", delay=-1), "delay"),
    (lambda lease: Failed(lease, "boom", delay=float("nan")), "delay"),
    (lambda lease: Failed(lease, "boom", retake_within=-1), "retake_within"),
    (lambda lease: Failed(lease, "boom", retake_within=float("inf")), "retake_within"),
    (lambda lease: Failed(lease, "boom", retake_within=31_536_001), "retake_within"),
    (lambda lease: Failed(lease, "boom", retake_within=True), "retake_within"),
    (lambda _: Released(3), "lease"),  # type: ignore[arg-type]
    (lambda lease: Released(lease, -0.1), "delay"),
]


@pytest.mark.parametrize(("make", "argument"), BAD)
def test_a_bad_argument_is_refused_by_name(lease: Lease, make: Callable[[Lease], object], argument: str) -> None:
    """Where it is made, not where it is handed in with others (§6)."""
    with pytest.raises(UsageError) as refusal:
        make(lease)
    assert refusal.value.argument == argument


def test_durations_are_seconds_or_timedeltas(lease: Lease) -> None:
    """As everywhere (§8)."""
    assert Released(lease).delay_us == 0
    assert Released(lease, timedelta(minutes=1)).delay_us == 60_000_000
    assert (Failed(lease, "boom").delay_us, Failed(lease, "boom", delay=0).delay_us) == (None, 0)
    assert Failed(lease, "boom", retake_within=timedelta(seconds=1.5)).retake_within_us == 1_500_000


def test_followers_may_come_from_a_generator(lease: Lease) -> None:
    """They are kept, so that a settlement can be handed in again."""
    assert Completed(lease, then=(NewJob("next", n) for n in range(2))).then == (NewJob("next", 0), NewJob("next", 1))


def test_an_error_is_cut_to_what_is_kept_of_it(lease: Lease) -> None:
    """8 KiB, at a character; what UTF-8 cannot hold is replaced (§2)."""
    assert Failed(lease, "é" * 10_000).error == "é" * 4096
    assert Failed(lease, "\ud800").error == "?"


def test_settlements_are_equal_when_they_say_the_same_of_the_same_lease(lease: Lease) -> None:
    """And never change."""
    assert Completed(lease, [1]) == Completed(lease, [1]) != Completed(lease, [2])
    assert Failed(lease, "boom", delay=1) == Failed(lease, "boom", delay=1) != Failed(lease, "boom")
    with pytest.raises(AttributeError):
        Released(lease).delay = 3  # type: ignore[misc]
