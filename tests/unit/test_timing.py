"""How long a job waited and ran, by its event log (issue 8, metrics)."""

from __future__ import annotations

import pytest

from litequeue.model import Event, Transition
from litequeue.timing import Timing, timing

SHORT = {
    "E": Transition.ENQUEUED,
    "P": Transition.PROMOTED,
    "L": Transition.LEASED,
    "C": Transition.COMPLETED,
    "F": Transition.FAILED,
    "R": Transition.RELEASED,
    "X": Transition.REAPED,
    "D": Transition.DEAD,
    "A": Transition.RETRIED,
    "N": Transition.NOTE,
    "T": Transition.TRUNCATED,
}


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        ("E0", Timing(0, 0, None)),
        ("E0 L5 C9", Timing(0, 0, 5)),
        ("E0 P60 L65 C70", Timing(60, 60, 65)),  # a delay is no waiting, nor is it one for other jobs
        ("E0 P60 P90 L95 C99", Timing(90, 90, 95)),  # first for other jobs, then for its time
        ("E0 L5 F9 P49 L50 C60", Timing(0, 49, 50)),  # nor is a back-off
        ("E0 L5 F9 L9 C12", Timing(0, 9, 9)),  # taken again by the worker that had it
        ("E0 L5 X300 P310 L311 N320 C330", Timing(0, 310, 311)),
        ("E0 L5 R6 L9 C10", Timing(0, 6, 9)),
        ("E0 L5 D9 A1000 L1001 C1002", Timing(1000, 1000, 1001)),  # what lay between was nobody's wait
        ("E0 L5 D9 E1000 L1001 C1002", Timing(1000, 1000, 1001)),
        ("E0 Ereset70 L75 C80", Timing(0, 0, 75)),  # a reset keeps the place, and the wait goes on
        ("E0 T0 L75 C80", Timing(None, None, 75)),
        ("E0 T0 P70 L75 C80", Timing(70, 70, 75)),
        ("", Timing(None, None, None)),
    ],
)
def test_a_log_tells_since_when_a_job_was_ready(log: str, wanted: Timing) -> None:
    """From the enqueue, or the end of whatever delay was wanted, to the lease (metrics)."""
    events = []
    for word in log.split():
        name, detail = word[0], "reset" if "reset" in word else ""
        events.append(Event(int(word[1:].removeprefix("reset")), SHORT[name], detail))
    assert timing(events) == wanted


def test_a_wait_is_never_negative() -> None:
    """Though the wall clock has stepped back (§8)."""
    assert timing([Event(9, Transition.ENQUEUED, ""), Event(5, Transition.LEASED, "")]).wait_us == 0
    assert timing([Event(9, Transition.ENQUEUED, "")]).wait_us is None
