"""Handlers: what runs the jobs of a kind.

Owns: the checks of what users give as handlers, and which handler a kind has. Invariants: what can never work is
refused when it is given, not when the first job comes; an exact kind goes before a prefix, a longer prefix before a
shorter one. Leaves out: where handlers run, and what their ends mean.
"""

from __future__ import annotations

import functools
import inspect
import logging
import pickle
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

from litequeue import arguments
from litequeue.errors import UsageError
from litequeue.lease import Duration, Lease
from litequeue.worker import current

if TYPE_CHECKING:
    from litequeue.aio import AsyncLease

MAX_SHORT_RETRY_S = 60

Function = Callable[[Lease], object]
AsyncFunction = Callable[["AsyncLease"], Awaitable[object]]
Predicate = Callable[[Exception], bool]
Permanent = type[BaseException] | Predicate | Iterable[type[BaseException] | Predicate]
"""Which exceptions leave no hope: types, or functions that tell."""

_PERMANENT_BOUNDS = "an exception type, a plain function that takes the exception, or a list of these"
_log = logging.getLogger("litequeue.worker")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that works on one job, and how it is treated.

    `function` takes the lease, and what it returns is the job's result; an asynchronous one takes an `AsyncLease`,
    whose verbs are coroutines. `timeout` is how long one run may take, in seconds; `permanent` are exception types, or
    predicates, after which the job is dead at once; a failure whose pause is at most `short_retry` seconds (0 to 60) is
    waited out inside the worker. What is left out is as the worker says.

    Raises:
        UsageError: a function that cannot be called with a lease, or an argument out of its bounds.
    """

    function: Function | AsyncFunction
    timeout: Duration | None = None
    permanent: Permanent = ()
    short_retry: Duration | None = None
    is_async: bool = field(init=False)
    """Whether `call` returns a coroutine."""
    timeout_s: float | None = field(init=False, repr=False)
    short_retry_s: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_function("handler", self.function)
        if not fits(self.function, (None,), {}):
            raise UsageError.of("handler", self.function, "a function that can be called with one argument, the lease")
        put = functools.partial(object.__setattr__, self)
        put("permanent", checked_permanent(self.permanent))
        put("is_async", is_async(self.function))
        put("timeout_s", checked_timeout_s(self.timeout))
        put("short_retry_s", checked_short_retry_s(self.short_retry))

    def call(self, lease: Lease) -> object:
        """Run the function; an asynchronous one as a coroutine, which this returns."""
        if self.is_async:
            return self._awaited(lease)
        token = current.begin(lease)
        try:
            return cast("Function", self.function)(lease)
        finally:
            current.end(token)

    def is_permanent(self, exc: BaseException) -> bool:
        """Tell whether the job is dead after this exception; a predicate that raises says no, and is logged."""
        return any(
            self._says(item, exc) for item in cast("tuple[type[BaseException] | Predicate, ...]", self.permanent)
        )

    def with_defaults(self, timeout: Duration | None, permanent: Permanent, short_retry: Duration | None) -> Handler:
        """Return this handler with what it leaves out as given here; what is permanent adds up."""
        return replace(
            self,
            timeout=timeout if self.timeout is None else self.timeout,
            permanent=(*checked_permanent(self.permanent), *checked_permanent(permanent)),
            short_retry=short_retry if self.short_retry is None else self.short_retry,
        )

    async def _awaited(self, lease: Lease) -> object:
        from litequeue.aio import AsyncLease  # noqa: PLC0415 - only who has such handlers pays for asyncio

        given = AsyncLease(lease)
        token = current.begin(lease, given)
        try:
            return await cast("AsyncFunction", self.function)(given)
        finally:
            current.end(token)

    def _says(self, item: type[BaseException] | Predicate, exc: BaseException) -> bool:
        try:
            if isinstance(item, type):
                return isinstance(exc, item)
            return isinstance(exc, Exception) and bool(item(exc))
        except BaseException:  # noqa: BLE001 - it is the user's code: whatever it raises, the outcome must be kept
            _log.exception("the predicate %r of what is permanent failed: the job will be tried again", item)
            return False


class AnyCall(Protocol):
    """A function that takes nobody knows what."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call it."""
        ...


class AnyTask(ABC):
    """A task, whatever its function takes: it brings a handler of its own."""

    kind: str
    """The kind of its jobs."""

    @property
    @abstractmethod
    def handler(self) -> Handler:
        """How a worker runs it."""

    @abstractmethod
    def named(self, payload: object) -> dict[str, object]:
        """Return what the payload of a job gives the function, by the names of its parameters."""


Handling = Function | AsyncFunction | Handler | AnyTask


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of a worker by kind filter, out of functions, handlers and tasks; `Tasks` is such a mapping.

    `timeout`, `permanent` and `short_retry` are for those that do not say. They travel to another process as they were
    given, so that a task is found there by its name, with all that belongs to it.

    Raises:
        UsageError: no mapping, an empty one, a bad kind, or something that cannot be run.
    """

    given: Mapping[str, Handling]
    timeout: Duration | None = None
    permanent: Permanent = ()
    short_retry: Duration | None = None
    by_filter: Mapping[str, Handler] = field(init=False, repr=False)
    kinds: tuple[str, ...] = field(init=False)
    """What to lease: the filters, without those that a shorter prefix covers."""

    def __post_init__(self) -> None:
        given: object = self.given
        if not isinstance(given, Mapping):
            raise UsageError.of("handlers", given, "a mapping of kinds and prefixes to functions, or Tasks")
        filters = arguments.kind_filters(list(given)) if given else None
        if filters is None:
            bounds = "a mapping of at least one kind or prefix to a function, or Tasks"
            raise UsageError.of("handlers", given, bounds, "it has none: is the module that defines them imported?")
        put = functools.partial(object.__setattr__, self)
        put("given", {name: given[name] for name in filters})
        put("permanent", checked_permanent(self.permanent))
        defaults = self.timeout, self.permanent, self.short_retry
        put("by_filter", {name: _handler(name, given[name]).with_defaults(*defaults) for name in filters})
        known = frozenset(filters)
        put("kinds", tuple(name for name in filters if not _is_covered(name, known)))

    def __reduce__(self) -> tuple[object, ...]:
        return Handlers, (self.given, self.timeout, self.permanent, self.short_retry)

    def find(self, kind: str) -> Handler:
        """Return the handler of a kind: of the kind itself, or of its longest prefix.

        Raises:
            LookupError: there is none.
        """
        name = kind
        while (handler := self.by_filter.get(name)) is None:
            colon = name.rfind(":", 0, len(name) - 1)
            if colon < 0:
                raise LookupError(f"no handler for the kind {kind!r}")
            name = kind[: colon + 1]
        return handler

    def check_travel(self) -> None:
        """Check that they can go to another process, where they are found by the names of their functions.

        Raises:
            UsageError: one that has no name there: a lambda, say, or a function within a function.
        """
        parts = {f"the handler of {kind!r}": handler for kind, handler in self.given.items()}
        for name, part in {**parts, "what is permanent": self.permanent}.items():
            try:
                pickle.dumps(part)
            except Exception as exc:
                raise UsageError(f"{name} cannot be imported by another process: {exc}", argument="handlers") from exc


def check_function(argument: str, function: object) -> None:
    """Check that something can be called, once a job, to run it.

    Raises:
        UsageError: not callable, a class, or a generator function, whose body would never run.
    """
    if isinstance(function, (type, AnyTask)) or not callable(function):
        raise UsageError.of(argument, function, "a function or a callable object (no class, no task)")
    body = _body(function)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise UsageError.of(
            argument, function, "a function without `yield`: nobody would ask a generator for its items"
        )


def is_async(function: object) -> bool:
    """Tell whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(_body(function))


def fits(function: object, args: Iterable[object], kwargs: Mapping[str, object]) -> bool:
    """Tell whether a function can be called so, as far as is known: not every built-in one tells."""
    signature = signature_of(function)
    if signature is None:
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def signature_of(function: object) -> inspect.Signature | None:
    """Return what a function takes, if it tells.

    A decorator's wrapper is asked for itself, not for what it wraps: it may well add arguments, or take some away.
    """
    try:
        return inspect.signature(cast("AnyCall", function), follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def checked_timeout_s(timeout: Duration | None) -> float | None:
    """Check how long a run may take.

    Raises:
        UsageError: not more than 0 seconds.
    """
    return None if timeout is None else arguments.duration_us("timeout", timeout, positive=True) / 1_000_000


def checked_short_retry_s(short_retry: Duration | None) -> float:
    """Check how long a pause may be that is waited out inside a worker.

    Raises:
        UsageError: not 0 to 60 seconds.
    """
    if short_retry is None:
        return 0.0
    return arguments.duration_us("short_retry", short_retry, most_s=MAX_SHORT_RETRY_S) / 1_000_000


def checked_permanent(permanent: Permanent) -> tuple[type[BaseException] | Predicate, ...]:
    """Check what is permanent; one type or predicate may stand for a list of one.

    Raises:
        UsageError: something else, or an asynchronous predicate, whose answer would always be taken for a yes.
    """
    given: object = permanent
    is_list = isinstance(given, Iterable) and not isinstance(given, (type, str))
    items = tuple(given) if is_list and isinstance(given, Iterable) else (given,)
    for item in items:
        is_type = isinstance(item, type) and issubclass(item, BaseException)
        is_predicate = not isinstance(item, type) and callable(item) and not is_async(item)
        if not (is_type or is_predicate):
            raise UsageError.of("permanent", item, _PERMANENT_BOUNDS)
    return cast("tuple[type[BaseException] | Predicate, ...]", items)


def _body(function: object) -> object:
    """Return what runs at a call: the function in a partial, the `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004


def _handler(name: str, given: object) -> Handler:
    if isinstance(given, Handler):
        return given
    if isinstance(given, AnyTask):
        return given.handler
    try:
        return Handler(cast("Function", given))
    except UsageError as exc:
        message = f"the handler of {name!r}{str(exc).removeprefix('handler')}"
        raise UsageError(message, argument=exc.argument, value=given, bounds=exc.bounds) from None


def _is_covered(name: str, filters: Collection[str]) -> bool:
    """Tell whether a shorter prefix is among the filters."""
    return any(name[: at + 1] in filters for at, char in enumerate(name[:-1]) if char == ":")
