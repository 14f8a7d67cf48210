"""Histograms: what is observed is counted once, by whatever thread, and not by a forked child again (metrics)."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from litequeue.histogram import Histogram


def test_an_observation_is_in_every_bucket_that_it_is_not_above() -> None:
    """A bound belongs to its bucket, and what is above all bounds is counted all the same."""
    histogram = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 1.5, 5.0, 7.0):
        histogram.observe(value)
    assert histogram.observed() == ([(1.0, 2), (5.0, 4)], 5, 15.0)


def test_a_new_one_is_empty() -> None:
    """With every bucket at 0, so that rates begin there."""
    assert Histogram((1.0,)).observed() == ([(1.0, 0)], 0, 0)


def test_many_threads_lose_nothing() -> None:
    """Each counts for itself: there is no lock, and no update of another's count."""
    histogram = Histogram((1.0,))
    together = threading.Barrier(8)

    def count() -> None:
        together.wait()
        for _ in range(5_000):
            histogram.observe(0.5)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert histogram.observed().observations == 40_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_begins_with_nothing() -> None:
    """What its parent has seen is told by its parent."""
    histogram = Histogram((1.0,))
    histogram.observe(0.5)
    child = os.fork()
    if child == 0:
        histogram.observe(0.5)
        os._exit(histogram.observed().observations)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert histogram.observed().observations == 1
