"""What may be given as a handler, which one a kind has, and what is known of each (issue 5, handlers).

Owns the promise that what can never work is refused when it is given. Leaves out what an end means (outcomes).
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from litequeue import Handler, Lease, Tasks, UsageError, current_async_lease, current_lease
from litequeue.worker.handlers import Handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from litequeue import Queue
    from litequeue.aio import AsyncLease


def plain(lease: Lease) -> str:
    """Handle a job."""
    return lease.kind


async def asynchronous(lease: AsyncLease) -> str:
    """Handle a job, with awaits."""
    await asyncio.sleep(0)
    return lease.kind


class Counter:
    """A handler that remembers."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, lease: Lease) -> int:
        """Handle a job."""
        self.seen.append(lease.kind)
        return len(self.seen)

    def method(self, lease: Lease) -> str:
        """Handle a job."""
        return f"method {lease.kind}"

    @classmethod
    def of_class(cls, lease: Lease) -> str:
        """Handle a job."""
        return f"class {lease.kind}"

    @staticmethod
    def of_nobody(lease: Lease) -> str:
        """Handle a job."""
        return f"nobody {lease.kind}"


class Awaited:
    """An asynchronous callable object."""

    async def __call__(self, lease: AsyncLease) -> str:
        """Handle a job."""
        return lease.kind


def with_more(prefix: str, lease: Lease, *, suffix: str = "") -> str:
    """Handle a job, told more by a partial."""
    return prefix + lease.kind + suffix


async def awaited_with_more(prefix: str, lease: AsyncLease) -> str:
    """Handle a job, told more by a partial."""
    return prefix + lease.kind


def generator(lease: Lease) -> Iterator[str]:
    """Never run."""
    yield lease.kind


async def asynchronous_generator(lease: AsyncLease) -> AsyncIterator[str]:
    """Never run."""
    yield lease.kind


def no_argument() -> None:
    """Take no lease."""


def two_arguments(lease: Lease, more: str) -> str:
    """Take too much."""
    return lease.kind + more


def named_only(*, lease: Lease) -> str:
    """Take the lease by its name only, which is not how it comes."""
    return lease.kind


@pytest.fixture
def lease(queue: Queue) -> Lease:
    """Give the lease of a job of the kind `a:b`."""
    queue.enqueue("a:b")
    (lease,) = queue.lease_many(1)
    return lease


# --- what may be a handler


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (plain, "a:b"),
        (lambda lease: lease.kind, "a:b"),
        (Counter(), 1),
        (Counter().method, "method a:b"),
        (Counter.of_class, "class a:b"),
        (Counter.of_nobody, "nobody a:b"),
        (functools.partial(with_more, "x ", suffix=" y"), "x a:b y"),
        (functools.partial(functools.partial(with_more, suffix=" y"), "x "), "x a:b y"),
        (functools.lru_cache(plain), "a:b"),
    ],
)
def test_whatever_can_be_called_with_the_lease_is_a_handler(
    lease: Lease, function: Callable[[Lease], object], returned: object
) -> None:
    """Functions, lambdas, methods, callable objects, partials: `call` calls them (issue 5)."""
    handler = Handler(function)
    assert not handler.is_async
    assert handler.call(lease) == returned


@pytest.mark.parametrize(
    "function", [asynchronous, Awaited(), Awaited().__call__, functools.partial(awaited_with_more, "")]
)
def test_an_asynchronous_callable_is_known_and_called_as_one(
    lease: Lease, function: Callable[[AsyncLease], Awaitable[object]]
) -> None:
    """Functions, objects, methods and partials: `call` returns a coroutine, which has an `AsyncLease` (issue 5)."""
    handler = Handler(function)
    assert handler.is_async
    coroutine = handler.call(lease)
    assert asyncio.iscoroutine(coroutine)
    assert asyncio.run(coroutine) == "a:b"


@pytest.mark.parametrize(
    "function",
    [
        *(no_argument, two_arguments, named_only, functools.partial(no_argument)),
        *(lambda: None, Counter, dict, "plain", None, 5),
        *(generator, asynchronous_generator, functools.partial(generator)),
        vars(Counter)["of_class"],
    ],
)
def test_what_can_never_work_is_refused_when_it_is_given(function: Callable[[Lease], object]) -> None:
    """A wrong number of arguments, a class, a generator, no function at all: `UsageError` naming it (§6)."""
    for make in (lambda: Handler(function), lambda: Handlers({"a": function})):
        with pytest.raises(UsageError, match=r"^(the handler of 'a'|handler) must be a function") as caught:
            make()
        assert caught.value.argument == "handler"
        assert caught.value.value is function


def test_a_builtin_that_does_not_tell_its_arguments_is_taken(lease: Lease) -> None:
    """Nothing is known against it (issue 5)."""
    assert Handler(print, timeout=1).call(lease) is None
    assert not Handler(vars).is_async


def test_a_wrapper_is_asked_for_its_own_arguments(lease: Lease) -> None:
    """A decorator that adds what its function needs makes a handler, though `functools.wraps` shows the function's."""

    @functools.wraps(two_arguments)
    def adding(given: Lease) -> str:
        return two_arguments(given, "!")

    assert Handler(adding).call(lease) == "a:b!"


# --- options


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "5", True, 3_153_600_001])
def test_a_timeout_is_more_than_no_time_and_finite(timeout: float) -> None:
    """`UsageError` naming it (§6)."""
    with pytest.raises(UsageError, match=r"^timeout must be seconds or a timedelta, more than 0"):
        Handler(plain, timeout=timeout)


@pytest.mark.parametrize("short_retry", [-1, 60.001, timedelta(minutes=2), float("nan"), "5"])
def test_a_short_retry_is_at_most_a_minute(short_retry: float) -> None:
    """`UsageError` naming it; 0 and 60 are within (issue 5, two-level retries)."""
    with pytest.raises(UsageError, match=r"^short_retry must be seconds or a timedelta, 0 or more and at most 60,"):
        Handler(plain, short_retry=short_retry)
    assert Handler(plain, short_retry=0).short_retry_s == 0
    assert Handler(plain, short_retry=timedelta(minutes=1)).short_retry_s == 60


@pytest.mark.parametrize("permanent", [int, [ValueError, int], "ValueError", None, [None], [[ValueError]], [Awaited()]])
def test_permanent_is_types_of_exceptions_or_predicates(permanent: type[BaseException]) -> None:
    """`UsageError` naming it; an asynchronous predicate would always seem to say yes (§6)."""
    with pytest.raises(UsageError, match=r"^permanent must be an exception type, a plain function"):
        Handler(plain, permanent=permanent)


def test_types_and_predicates_say_what_is_permanent(caplog: pytest.LogCaptureFixture) -> None:
    """One or a list; a subclass counts, a predicate is asked about an `Exception` only (issue 5)."""
    assert Handler(plain, permanent=LookupError).is_permanent(KeyError("x"))
    assert not Handler(plain, permanent=LookupError).is_permanent(ValueError("x"))
    assert not Handler(plain).is_permanent(ValueError("x"))
    both = Handler(plain, permanent=[SystemExit, lambda exc: "bad" in str(exc)])
    assert both.is_permanent(SystemExit())
    assert both.is_permanent(ValueError("bad input"))
    assert not both.is_permanent(ValueError("good"))
    assert not both.is_permanent(KeyboardInterrupt("bad"))
    assert Handler(plain, permanent=(item for item in [OSError, ValueError])).is_permanent(ValueError())
    assert caplog.records == []


@pytest.mark.parametrize("error", [AttributeError, SystemExit, KeyboardInterrupt])
def test_a_predicate_that_raises_says_no_and_is_logged(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """The next one is asked; the outcome is never lost with it (issue 5)."""

    def broken(exc: Exception) -> bool:
        raise error(str(exc))

    assert not Handler(plain, permanent=broken).is_permanent(ValueError("x"))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("litequeue.worker", logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[0] is error
    assert Handler(plain, permanent=[broken, ValueError]).is_permanent(ValueError("x"))


def test_what_a_handler_leaves_out_is_as_the_worker_says() -> None:
    """Its own timeout and short retry go before the worker's; what is permanent adds up (issue 5)."""
    own = Handler(plain, timeout=5, permanent=KeyError, short_retry=0)
    found = Handlers({"a": own, "b": plain}, timeout=60, permanent=ValueError, short_retry=9)
    a, b = found.find("a"), found.find("b")
    assert (a.timeout_s, a.short_retry_s) == (5, 0)
    assert (b.timeout_s, b.short_retry_s) == (60, 9)
    assert a.is_permanent(KeyError())
    assert a.is_permanent(ValueError())
    assert not b.is_permanent(KeyError())
    assert (own.timeout_s, own.is_permanent(ValueError())) == (5, False)
    assert Handlers({"b": plain}).find("b").timeout_s is None


# --- which handler


def numbered(*filters: str) -> tuple[Handlers, dict[str, Handler]]:
    """Return handlers that can be told apart, by filter."""
    given = {name: Handler(lambda lease: lease.kind) for name in filters}
    found = Handlers(given)
    return found, {name: found.by_filter[name] for name in filters}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("mail", "mail"),
        ("mail:", "mail:"),
        ("mail:send", "mail:send"),
        ("mail:sent", "mail:"),
        ("mail:send:x", "mail:send:"),
        ("mail:send:", "mail:send:"),
        ("mail:send:x:y", "mail:send:"),
        ("mail::x", "mail:"),
        (":x", ":"),
    ],
)
def test_the_exact_kind_goes_before_a_prefix_and_a_longer_prefix_before_a_shorter(kind: str, name: str) -> None:
    """Whatever the order in which they were given (issue 5)."""
    filters = [":", "mail:", "mail:send:", "mail", "mail:send"]
    for order in (filters, filters[::-1]):
        found, by_name = numbered(*order)
        assert found.find(kind) is by_name[name]


@pytest.mark.parametrize("kind", ["mailer:send", "mail", "x:mail:send", "Mail:send"])
def test_a_kind_that_nothing_matches_has_no_handler(kind: str) -> None:
    """And says so (issue 5)."""
    found, _ = numbered("mail:", "other")
    with pytest.raises(LookupError, match="no handler for the kind"):
        found.find(kind)


def test_only_the_kinds_that_are_needed_are_asked_for() -> None:
    """What a prefix covers is not leased by a filter of its own: each costs a seek (G9)."""
    found, _ = numbered("a:b", "mail:send", "mail:", "mail:send:", "mail", "a:b:")
    assert found.kinds == ("a:b", "mail:", "mail", "a:b:")


@pytest.mark.parametrize("kinds", [{"": plain}, {"x" * 256: plain}, {"a\n": plain}, {5: plain}, {None: plain}])
def test_kinds_are_checked_as_those_of_a_lease(kinds: dict[str, Callable[[Lease], object]]) -> None:
    """`UsageError` naming the kind (§6)."""
    with pytest.raises(UsageError, match=r"^kinds must be"):
        Handlers(kinds)


@pytest.mark.parametrize("handlers", [{}, None, plain, [("a", plain)], "a"])
def test_handlers_are_a_mapping_of_one_at_least(handlers: dict[str, Callable[[Lease], object]]) -> None:
    """`UsageError` naming them (§6)."""
    with pytest.raises(UsageError, match=r"^handlers must be a mapping"):
        Handlers(handlers)


def test_a_bad_handler_is_told_by_its_kind() -> None:
    """Among many it is hard to find (§6)."""
    with pytest.raises(UsageError, match=r"^the handler of 'mail:' must be a function that can be called with one arg"):
        Handlers({"mail:": lambda: None})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match=r"^the handler of 'b' must be .* \(no class, no task\), not None$"):
        Handlers({"a": plain, "b": None})  # type: ignore[dict-item]


def test_tasks_that_nobody_has_defined_are_told() -> None:
    """The usual reason is a module that has not been imported (§6)."""
    with pytest.raises(UsageError, match=r"not <Tasks: none>; it has none: is the module that defines them imported\?"):
        Handlers(Tasks())


# --- the current lease


def test_a_running_handler_finds_its_lease_and_nobody_else_does(lease: Lease) -> None:
    """Also after it has raised (issue 5, `current_lease`)."""

    def failing(_: Lease) -> None:
        assert current_lease() is lease
        raise ValueError

    assert Handler(lambda _: current_lease()).call(lease) is lease
    with pytest.raises(ValueError, match=r"^$"):
        Handler(failing).call(lease)
    with pytest.raises(
        UsageError, match=r"inside a handler or a task .*; in a test run .* litequeue\.testing\.drain\(q, tasks\)$"
    ):
        current_lease()


def test_asynchronous_handlers_that_run_side_by_side_each_find_their_own_lease(queue: Queue) -> None:
    """Across their awaits, on one event loop (issue 5, `current_lease`)."""
    for _ in range(3):
        queue.enqueue("a")
    leases = queue.lease_many(3)

    async def run() -> list[object]:
        barrier = asyncio.Barrier(3)

        async def own(given: AsyncLease) -> bool:
            await barrier.wait()
            found = current_async_lease()
            await barrier.wait()
            return found is given is current_async_lease()

        handler = Handler(own)
        coroutines = [handler.call(lease) for lease in leases]
        return list(await asyncio.gather(*[item for item in coroutines if asyncio.iscoroutine(item)]))

    assert asyncio.run(run()) == [True, True, True]
    for call in (current_lease, current_async_lease):
        with pytest.raises(UsageError, match="only there inside"):
            call()


def test_an_asynchronous_handler_has_a_lease_whose_verbs_are_awaited(lease: Lease, queue: Queue) -> None:
    """On its loop the plain one, which would block it, is refused; in a thread of its own it is the right one."""

    async def handle(given: AsyncLease) -> bool:
        with pytest.raises(UsageError, match=r"call current_async_lease\(\)"):
            current_lease()
        await given.note("on the loop")
        await asyncio.to_thread(lambda: current_lease().note("in a thread"))
        return given.lease is lease

    coroutine = Handler(handle).call(lease)
    assert asyncio.iscoroutine(coroutine)
    assert asyncio.run(coroutine)
    assert [event.detail for event in queue.get(lease.job_id).events][-2:] == ["on the loop", "in a thread"]


def test_an_asynchronous_handler_may_be_closed_by_somebody_else(lease: Lease) -> None:
    """As the garbage collector does with one that its loop has left behind: in another context than it ran in."""

    async def handle(_: AsyncLease) -> None:
        await asyncio.Future()

    async def run() -> object:
        coroutine = Handler(handle).call(lease)
        assert asyncio.iscoroutine(coroutine)
        contextvars.copy_context().run(coroutine.send, None)
        return coroutine

    coroutine = asyncio.run(run())
    assert asyncio.iscoroutine(coroutine)
    coroutine.close()


def test_a_plain_handler_has_no_asynchronous_lease(lease: Lease) -> None:
    """Its verbs could not be awaited there; on somebody else's loop it has its plain one all the same."""

    def handle(given: Lease) -> bool:
        with pytest.raises(UsageError, match="inside an asynchronous handler"):
            current_async_lease()
        return current_lease() is given

    async def run() -> object:
        return Handler(handle).call(lease)

    assert Handler(handle).call(lease)
    assert asyncio.run(run())


@pytest.mark.slow
def test_nobody_pays_for_asyncio_who_does_not_use_it() -> None:
    """It makes up much of the time that an import takes."""
    program = "import sys, litequeue; litequeue.Handler(print); sys.exit('asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
