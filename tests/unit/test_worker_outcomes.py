"""What the end of a run means for its job: values, verdicts and exceptions become one settlement (issue 5).

Owns the promise that every end has a settlement that can be stored, whatever exceptions do. Leaves out the queue's
part: see the tests of `exchange`.
"""

from __future__ import annotations

import asyncio
import pickle
import traceback
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from litequeue import Discard, Handler, Lease, PayloadError, RecordError, Retry, Snooze, UsageError, codec
from litequeue.settlement import Completed, Failed, Released
from litequeue.worker import errortext
from litequeue.worker.outcomes import Discarded, Snoozed, settlement_of, settlement_of_error, unstorable

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from litequeue.settlement import Settlement

MAX_BYTES = 8192


def work(lease: Lease) -> str:
    """Handle a job."""
    return lease.kind


HANDLER = Handler(work, short_retry=5, permanent=LookupError)


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give the lease of a job."""
    queue.enqueue("a")
    (lease,) = queue.lease_many(1)
    return lease


def caught(function: Callable[[], object]) -> BaseException:
    """Return what a function raises, with its traceback."""
    try:
        function()
    except BaseException as exc:  # noqa: BLE001 - that is what is wanted
        return exc
    raise AssertionError("it did not raise")


def raising(exc: BaseException) -> BaseException:
    """Return an exception that has been raised, from deep enough to have a traceback."""

    def inner() -> None:
        raise exc

    return caught(inner)


def settled(lease: Lease, exc: BaseException, handler: Handler = HANDLER) -> Failed:
    """Return what an exception leads to, where that is a failure."""
    settlement = settlement_of_error(lease, handler, exc)
    assert isinstance(settlement, Failed)
    assert settlement.lease is lease
    assert len(settlement.error.encode()) <= MAX_BYTES
    return settlement


# --- values


@pytest.mark.parametrize("value", [None, 0, False, "", "done", [1, 2], {"a": (1,)}, b"x"])
def test_a_returned_value_is_the_result(lease: Lease, value: object) -> None:
    """Whatever msgpack holds, `None` among it (issue 5)."""
    assert settlement_of(lease, HANDLER, value) == Completed(lease, value)


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**70, "\ud800", (n for n in range(3)), print, Retry])
def test_a_result_that_cannot_be_stored_fails_the_run_for_good(lease: Lease, value: object) -> None:
    """It would be the same at the next try; the error says what it was (issue 5)."""
    settlement = settlement_of(lease, HANDLER, value)
    assert isinstance(settlement, Failed)
    assert (settlement.retryable, settlement.retake_within) == (False, 0)
    assert settlement.error.startswith("PayloadError: result cannot be stored: ")


def test_a_result_that_the_queue_refuses_fails_the_run_in_the_same_way(lease: Lease) -> None:
    """A size is only known to be too large inside the transaction (§6)."""
    failed = unstorable(lease, PayloadError("the result has 2000000 bytes, max_payload is 1048576"))
    assert (failed.error, failed.retryable) == (
        "PayloadError: the result has 2000000 bytes, max_payload is 1048576",
        False,
    )


def test_a_value_returned_after_the_job_was_ended_is_warned_of(lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing can keep it; no value is no mistake."""
    lease.complete("the result")
    settlement_of(lease, HANDLER, None)
    assert caplog.messages == []
    settlement_of(lease, HANDLER, "another one")
    (told,) = caplog.messages
    assert f"the handler of job {lease.job_id} (a) has returned is not its result" in told


def test_a_coroutine_that_nobody_awaits_is_closed_and_told(lease: Lease) -> None:
    """A decorator around an asynchronous handler hides what it is; no warning of Python's comes late (issue 5)."""

    async def hidden() -> None:
        """Never run."""

    coroutine = hidden()
    settlement = settlement_of(lease, HANDLER, coroutine)
    assert isinstance(settlement, Failed)
    assert not settlement.retryable
    assert "nobody awaits" in settlement.error
    with pytest.raises(RuntimeError, match="cannot reuse"):
        coroutine.send(None)


# --- verdicts


def returned_or_raised(lease: Lease, verdict: Exception) -> list[Settlement]:
    """Return what a verdict leads to: returned, raised, and raised inside groups."""
    return [
        settlement_of(lease, HANDLER, verdict),
        settlement_of_error(lease, HANDLER, raising(verdict)),
        settlement_of_error(lease, HANDLER, ExceptionGroup("one", [verdict])),
        settlement_of_error(lease, HANDLER, BaseExceptionGroup("deep", [ExceptionGroup("one", [verdict])])),
    ]


def test_retry_fails_the_run_and_asks_for_its_own_pause(lease: Lease) -> None:
    """Returned or raised; a short pause may be waited out inside the worker (issue 5)."""
    for settlement in returned_or_raised(lease, Retry(3, "too busy")):
        assert settlement == Failed(lease, "too busy", delay=3, retake_within=5)
    for settlement in returned_or_raised(lease, Retry()):
        assert settlement == Failed(lease, "Retry", delay=None, retake_within=5)


def test_discard_ends_the_job_with_its_reason(lease: Lease) -> None:
    """Returned or raised (issue 5)."""
    for settlement in returned_or_raised(lease, Discard("no such user")):
        assert settlement == Discarded(lease, "no such user", retryable=False)
        assert isinstance(settlement, Failed)


def test_snooze_gives_the_job_back_for_a_while(lease: Lease) -> None:
    """Returned or raised; no failure, so no attempt (issue 5)."""
    for settlement in returned_or_raised(lease, Snooze(timedelta(minutes=1))):
        assert settlement == Snoozed(lease, timedelta(minutes=1))
        assert isinstance(settlement, Released)


def test_a_verdict_says_what_led_to_it(lease: Lease) -> None:
    """Below its reason stands the cause; without a reason the cause is it, unless it was left out on purpose."""

    def retry(reason: str, *, hidden: bool = False) -> None:
        try:
            raise OSError("refused")
        except OSError:
            if hidden:
                raise Retry(reason=reason) from None
            raise Retry(reason=reason)  # noqa: B904 - the context counts too

    told = settled(lease, caught(lambda: retry("later")))
    assert told.error.splitlines()[0] == "later"
    assert told.error.splitlines()[-1] == "OSError: refused"
    assert settled(lease, caught(lambda: retry(""))).error.splitlines()[0] == "OSError: refused"
    assert settled(lease, caught(lambda: retry("later", hidden=True))).error == "later"

    def discard() -> None:
        raise Discard("gone") from KeyError("x")

    assert settled(lease, caught(discard)).error == "gone\nKeyError: 'x'"


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "5", True, 10**12])
def test_a_verdict_with_a_bad_delay_is_refused_where_it_is_made(delay: float) -> None:
    """`UsageError` naming it (§6); inside a handler that fails the run."""
    with pytest.raises(UsageError, match=r"^delay must be seconds or a timedelta, 0 or more"):
        Retry(delay)
    with pytest.raises(UsageError, match=r"^delay must be seconds or a timedelta, more than 0"):
        Snooze(delay)


def test_a_snooze_takes_some_time() -> None:
    """A job that comes back at once, and whose attempts do not count, would spin for ever (§6)."""
    with pytest.raises(UsageError, match=r"^delay must be seconds or a timedelta, more than 0"):
        Snooze(0)
    assert Retry(0).delay == 0


@pytest.mark.parametrize("reason", [None, 5, b"x", ValueError("x")])
def test_a_reason_is_text(reason: str) -> None:
    """`UsageError` naming it (§6)."""
    for make in (lambda: Retry(reason=reason), lambda: Discard(reason)):
        with pytest.raises(UsageError, match=r"^reason must be text"):
            make()


@pytest.mark.parametrize("verdict", [Retry(5, "why"), Retry(), Discard("why"), Discard(), Snooze(2.5)])
def test_a_verdict_travels_between_processes(verdict: Exception) -> None:
    """As a pool of the handler's own would send it."""
    copy = pickle.loads(pickle.dumps(verdict))  # noqa: S301 - our own
    assert type(copy) is type(verdict)
    assert vars(copy) == vars(verdict)
    assert str(copy) == str(verdict)


# --- exceptions


class Custom(Exception):
    """An exception of the user's."""


@pytest.mark.parametrize(
    ("exc", "first_line"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (Custom("mine"), "Custom: mine"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError"),
        (ValueError("\n two\r\n  lines"), "ValueError: two"),
        (ValueError("half \ud800 a pair"), "ValueError: half ? a pair"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (StopIteration(7), "StopIteration: 7"),
        (StopAsyncIteration(), "StopAsyncIteration"),
        (MemoryError(), "MemoryError"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
)
def test_any_exception_fails_the_run_with_its_type_and_message(
    lease: Lease, exc: BaseException, first_line: str
) -> None:
    """On the first line, which the event log shows; below it the traceback, with the place (issue 5)."""
    failed = settled(lease, raising(exc), Handler(work, short_retry=5))
    assert (failed.retryable, failed.delay, failed.retake_within) == (True, None, 5)
    lines = failed.error.splitlines()
    assert lines[0] == first_line
    assert lines[1] == "Traceback (most recent call last):"
    assert "in inner" in failed.error
    codec.encode(failed.error)


def test_declared_exceptions_are_permanent(lease: Lease) -> None:
    """By type or by a predicate: dead at once, and never again in this worker (issue 5)."""
    failed = settled(lease, raising(KeyError("x")))
    assert (failed.retryable, failed.retake_within) == (False, 0)
    by_predicate = Handler(work, permanent=lambda exc: "never" in str(exc))
    assert not settled(lease, raising(ValueError("never")), by_predicate).retryable
    assert settled(lease, raising(ValueError("now")), by_predicate).retryable


def test_a_payload_that_cannot_be_read_is_permanent_and_another_jobs_is_not(lease: Lease) -> None:
    """A `RecordError` of this job is the same at each try; one of a job that the handler looked at may be mended."""
    assert not settled(lease, raising(RecordError("unreadable", job_id=lease.job_id))).retryable
    assert settled(lease, raising(RecordError("unreadable", job_id=uuid4()))).retryable
    assert settled(lease, raising(RecordError("unreadable"))).retryable


def test_a_group_is_permanent_when_all_in_it_are(lease: Lease) -> None:
    """One that may succeed next time is worth a try; the group's own type may be declared too (issue 5)."""
    gone, busy = KeyError("gone"), OSError("busy")
    assert not settled(lease, ExceptionGroup("all", [gone, ExceptionGroup("in", [IndexError()])])).retryable
    assert not settled(lease, ExceptionGroup("all", [gone, Discard("x")])).retryable
    assert settled(lease, ExceptionGroup("some", [gone, busy])).retryable
    assert settled(lease, ExceptionGroup("some", [Snooze(5), Retry(5)])).retryable
    assert not settled(lease, ExceptionGroup("some", [busy]), Handler(work, permanent=ExceptionGroup)).retryable


def test_a_group_shows_what_is_in_it(lease: Lease) -> None:
    """The first line its own message, below it those of the others (issue 5)."""
    error = settled(lease, raising(ExceptionGroup("two of them", [KeyError("gone"), OSError("busy")]))).error
    assert error.splitlines()[0] == "ExceptionGroup: two of them (2 sub-exceptions)"
    assert "KeyError: 'gone'" in error
    assert "OSError: busy" in error


# --- exceptions that resist


class Mute(Exception):
    """Its message cannot be had."""

    error: type[BaseException] = RuntimeError

    def __str__(self) -> str:
        raise self.error("no message")


class Exiting(Mute):
    """Its message ends the process."""

    error = SystemExit


class Disguised(type):
    """A class of classes that hides their names."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Nameless(Exception, metaclass=Disguised):
    """It has no name."""


class Noted(Exception):
    """Its notes are no list of text."""

    __notes__ = 5  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Mute, Exiting, Nameless, Noted], ids=["mute", "exiting", "nameless", "noted"])
def test_an_exception_whose_methods_raise_is_told_all_the_same(lease: Lease, kind: type[Exception]) -> None:
    """The outcome is never lost with it (issue 5)."""
    failed = settled(lease, raising(kind("x")))
    assert failed.retryable
    assert failed.error.splitlines()[0] in {
        "Mute: its message cannot be shown",
        "Exiting: its message cannot be shown",
        "Nameless: its message cannot be shown",
        "Noted: x",
    }


def test_a_traceback_that_cannot_be_made_is_left_out(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type and message stay (issue 5)."""

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(traceback, "TracebackException", broken)
    error = settled(lease, raising(ValueError("boom"))).error
    assert error == "ValueError: boom\n(its traceback cannot be shown: MemoryError)"


def test_a_very_long_message_leaves_room_for_the_place(lease: Lease) -> None:
    """Both the message's beginning and the innermost frame are kept, in 8 KiB (§2)."""
    error = settled(lease, raising(ValueError("é" * 1_000_000))).error
    first, *rest = error.splitlines()
    assert first.startswith("ValueError: ééé")
    assert len(first.encode()) <= 1024
    assert "in inner" in "\n".join(rest)
    assert "…" in rest[-1]


def test_of_a_deep_traceback_the_end_is_kept(lease: Lease) -> None:
    """The innermost frames tell where it happened (issue 5)."""

    def deep(levels: int) -> None:
        if levels:
            [deep, wider][levels % 2](levels - 1)
        raise ValueError("at the bottom")

    def wider(levels: int) -> None:
        deep(levels)

    def chained(links: int) -> None:
        try:
            deep(100) if links == 0 else chained(links - 1)
        except (ValueError, OSError) as exc:
            raise OSError(f"link {links}" + "x" * 5000) from exc

    exc = caught(lambda: chained(9))
    assert len(errortext.described(exc).encode()) <= MAX_BYTES
    failed = settled(lease, exc)
    lines = failed.error.splitlines()
    assert lines[0].startswith("OSError: link 9xxx")
    assert lines[1] == "…"
    assert lines[-1].startswith("OSError: link 9xxx")
    assert "in chained" in failed.error
    assert "at the bottom" not in failed.error
    assert len(failed.error.encode()) > MAX_BYTES - 1100  # not more than a piece was left out for the want of room


def test_of_many_frames_the_innermost_are_kept(lease: Lease) -> None:
    """However many there are outside of them (issue 5)."""

    def outer(levels: int) -> None:
        return outer_too(levels - 1) if levels else innermost()

    def outer_too(levels: int) -> None:
        return outer(levels - 1) if levels else innermost()

    def innermost() -> None:
        raise ValueError

    exc = caught(lambda: outer(100))
    assert "in innermost" in settled(lease, exc).error  # not on the line above, which is in the traceback


def test_an_endless_recursion_is_told_quickly(lease: Lease) -> None:
    """Only the innermost frames are looked at."""

    def endless() -> None:
        endless()

    error = settled(lease, caught(endless)).error
    assert error.startswith("RecursionError: maximum recursion depth exceeded")
    assert "in endless" in error


@pytest.mark.parametrize("character", ["x", "é", "€", "😀"])
@pytest.mark.parametrize("length", [100, 1000, 5000, 20_000])
def test_an_error_never_is_longer_than_what_is_stored(character: str, length: int) -> None:
    """And a whole number of characters (§2)."""
    exc = raising(ValueError(f"{character * 7}\n" * (length // 8)))
    exc.__cause__ = raising(OSError(character * length))
    for text in (errortext.described(exc), errortext.below(character * length, exc)):
        assert len(text.encode()) <= MAX_BYTES
        assert len(text.splitlines()[0].encode()) <= 1024
    assert len(errortext.summary(exc).encode()) <= 1024
