"""Commands that run until they are told to stop: what signals do, before, while and after the work is done."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from litequeue import QueueBusy
from litequeue.cli.running import signals

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the signals here are POSIX")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[list[object]]:
    """Give the handlers as they were before, and put them back."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield [*before]
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def test_each_signal_is_heeded_while_the_work_goes_on() -> None:
    """The first and the second, each at once, and the work's own answer comes back (§9)."""
    stops: list[str] = []
    came = threading.Event()

    def work() -> str:
        for number in SIGNALS:
            came.clear()
            signal.raise_signal(number)  # whatever thread raises it, the main one has the handler
            assert came.wait(10)
        return "done"

    def stop() -> None:
        stops.append("told")
        came.set()

    with signals() as told:
        assert told.heed(work, stop) == "done"
    assert stops == ["told", "told"]


def test_a_signal_before_the_work_is_heeded_as_it_begins() -> None:
    """It came while the file was opened (§9)."""
    stopped = threading.Event()
    with signals() as told:
        signal.raise_signal(signal.SIGTERM)
        told.heed(lambda: stopped.wait(10), stopped.set)
    assert stopped.is_set()


def test_an_error_of_the_work_is_raised_to_whoever_waits() -> None:
    """It is told as the command's own."""
    with signals() as told, pytest.raises(QueueBusy, match="as an example"):
        told.heed(_fail, _fail)


def test_once_it_is_told_to_end_further_signals_change_nothing() -> None:
    """A second Ctrl-C while it closes the file must neither kill it nor show a traceback (§9)."""
    with signals():
        signal.raise_signal(signal.SIGTERM)
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}


def test_a_command_that_ends_by_itself_leaves_signals_as_they_were(handlers: list[object]) -> None:
    """Whoever runs the command in a process of its own kind gets its handlers back after an error."""
    with pytest.raises(QueueBusy), signals():
        _fail()
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


def _fail() -> None:
    raise QueueBusy("as an example")
