"""Surveys that take long are kept, and take a bounded part of each scrape (issue 8: more than 20 ms is cached)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue.metrics.pacing import Paced

if TYPE_CHECKING:
    from litequeue.sqlite.walks import Walk


class Time:
    """A clock that a test moves, and a survey whose steps take time by it."""

    def __init__(self, steps: int, step_s: float) -> None:
        self.now = 1000.0
        self.steps = steps
        self.step_s = step_s
        self.begun = 0
        self.paced = Paced(self._walk, lambda: self.now)

    def _walk(self) -> Walk[int]:
        self.begun += 1
        for _ in range(self.steps):
            self.now += self.step_s
            yield
        return self.begun


def test_what_is_cheap_is_asked_anew_each_time() -> None:
    """Up to 20 ms."""
    time = Time(2, 0.009)
    for number in (1, 2, 3):
        assert time.paced.refresh(time.now + 1)
        assert (time.paced.found, time.paced.age_s) == (number, 0)


def test_what_is_dear_is_kept_and_its_age_is_told() -> None:
    """It takes a hundredth of the time, however often it is asked for."""
    time = Time(10, 0.05)
    assert time.paced.refresh(time.now + 1)
    time.now += 49
    assert not time.paced.refresh(time.now + 1)
    assert (time.paced.found, time.begun) == (1, 1)
    assert time.paced.age_s == pytest.approx(49)
    time.now += 2
    assert time.paced.refresh(time.now + 1)
    assert time.paced.found == 2


def test_one_that_is_not_done_in_time_goes_on_at_the_next_scrape() -> None:
    """No scrape takes longer than its budget and a step; what was found before is told until then."""
    time = Time(10, 0.25)
    began_at = time.now
    assert not time.paced.refresh(time.now + 1)
    assert time.now - began_at == pytest.approx(1.0)
    assert time.paced.age_s > 1e9, "there is none yet"
    assert not time.paced.refresh(time.now + 1)
    assert time.paced.refresh(time.now + 1)
    assert time.begun == 1
    assert time.paced.found == 1
    time.now += 249
    assert not time.paced.refresh(time.now + 1), "what it took in all scrapes counts"
    assert time.begun == 1


def test_nothing_is_kept_for_longer_than_five_minutes() -> None:
    """However long it took: alerts go by it."""
    time = Time(10, 5)
    assert time.paced.refresh(time.now + 1_000)
    time.now += 299
    assert not time.paced.refresh(time.now + 1_000)
    time.now += 2
    assert time.paced.refresh(time.now + 1_000)


def test_a_budget_that_is_used_up_still_allows_a_step() -> None:
    """So that every survey comes to its end, whatever the others take."""
    time = Time(3, 0.3)
    for _ in range(3):
        assert not time.paced.refresh(time.now)
    assert time.paced.refresh(time.now)


def test_one_that_has_failed_begins_anew() -> None:
    """And raises what went wrong."""
    time = Time(1, 0.1)
    calls = []

    def walk() -> Walk[int]:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("gone")
        yield
        return 7

    paced = Paced(walk, lambda: time.now)
    with pytest.raises(OSError, match="gone"):
        paced.refresh(time.now + 1)
    assert paced.refresh(time.now + 1)
    assert paced.found == 7
