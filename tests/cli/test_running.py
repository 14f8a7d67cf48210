"""Commands that run until they are told to stop: what signals do, before, while and after the work is done."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading

import pytest

from litequeue import QueueBusy
from litequeue.cli import running
from litequeue.cli.running import OutputStuck, signals
from litequeue.worker.signals import SIGNALS

if sys.platform == "win32":
    pytest.skip("the signals here are POSIX", allow_module_level=True)


def test_each_signal_is_heeded_while_the_work_goes_on() -> None:
    """The first and the next ones, each at once, and the work's own answer comes back (§9)."""
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
    assert stops == ["told"] * len(SIGNALS)


def test_a_terminal_that_goes_says_one_word_to_stop() -> None:
    """The kernel and the shell both send SIGHUP; a second word would cut a drain short (V8)."""
    stops: list[str] = []
    with signals() as told:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        ended = threading.Event()

        def stop() -> None:
            stops.append("told")
            if len(stops) == 2:
                ended.set()

        told.heed(lambda: ended.wait(10), stop)
    assert stops == ["told", "told"]


def test_a_hangup_that_somebody_has_a_use_for_is_left_alone() -> None:
    """Ignored by nohup, or a handler of the application's own (G1)."""
    for use in (signal.SIG_IGN, lambda *_: None):
        signal.signal(signal.SIGHUP, use)
        with signals():
            assert signal.getsignal(signal.SIGHUP) is use


@pytest.mark.parametrize("is_helped", [True, False])
def test_what_only_shows_something_ends_though_its_output_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, *, is_helped: bool
) -> None:
    """It lets go of the output first; then the process ends with status 0, whatever is being written (issue 8)."""
    monkeypatch.setattr(running, "_PATIENCE_S", 0.02)
    taken, let_go = threading.Event(), threading.Event()

    def help_it() -> None:
        let_go.set()
        if is_helped:
            taken.set()

    with signals() as told:
        signal.raise_signal(signal.SIGTERM)
        with contextlib.nullcontext() if is_helped else pytest.raises(OutputStuck, match="0"):
            assert told.heed(lambda: taken.wait(10), lambda: None, help_it)
    assert let_go.is_set()
    taken.set()


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
