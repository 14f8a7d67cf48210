"""Tasks: functions that are enqueued by calling for them.

Owns: the decorated function, what its jobs carry (`[args, kwargs]`; by hand also a map of keyword arguments, or
nothing), and the options with which they are enqueued.
Invariants: a call that does not fit the function is refused when it is enqueued, and a job that does not fit it is dead
at its first run, because it never will; a task stays the function that it was when it is called. Leaves out: where and
when tasks run (`handlers`).
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Generic, ParamSpec, Protocol, TypeVar, cast

from litequeue import codec
from litequeue.errors import UsageError
from litequeue.lease import Duration, Lease
from litequeue.model import NewJob, OnConflict, OnParentFailure, Scope
from litequeue.sqlite.verbs import JobId
from litequeue.worker.handlers import AnyCall, AnyTask, Handler, Permanent, check_function, fits, is_async, signature_of
from litequeue.worker.outcomes import Misfit

if TYPE_CHECKING:
    from litequeue.aio import AsyncLease

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_FORMS = "[args, kwargs], a map of keyword arguments, or null for none"
_CONNECTIONS = ("cursor", "get_bind", "dialect")
"""One of these has whatever `litequeue.dbapi` takes: of a DB-API, Django, a session and a connection of SQLAlchemy."""
_DBAPI_HINT = "in its transaction enqueues litequeue.dbapi.enqueue_many(connection, [task.new_job(…)])"


class Target(Protocol[T_co]):
    """Where a job may be put: a queue, an open transaction, or an asynchronous queue."""

    def enqueue(
        self,
        kind: str,
        payload: object = None,
        *,
        scope: Scope | None = None,
        priority: int = 100,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        expires: Duration | datetime | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        job_id: JobId | None = None,
        after: Iterable[JobId] = (),
        on_parent_failure: OnParentFailure = "cancel",
    ) -> T_co:
        """See `Queue.enqueue`."""
        ...


class TaskOptions(Generic[P]):
    """A task with options for the jobs that are enqueued by it; made by `Task.options`."""

    def __init__(
        self,
        check: Callable[[tuple[object, ...], Mapping[str, object]], None],
        signature: inspect.Signature | None,
        template: NewJob,
    ) -> None:
        self._check = check
        self._signature = signature
        self._template = template

    def enqueue(self, target: Target[T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Enqueue a job that calls the task with these arguments; `target` is a queue or an open transaction.

        It answers as the target's own `enqueue` does: one of `litequeue.aio` is to be awaited.

        Raises:
            UsageError: the arguments do not fit the function.
            PayloadError: the arguments cannot be stored.
        """
        if not hasattr(target, "enqueue"):
            wanted = "a queue or an open transaction, before the task's own arguments"
            hint = _DBAPI_HINT if any(hasattr(target, name) for name in _CONNECTIONS) else ""
            raise UsageError.of("target", target, wanted, hint)
        self._check(args, kwargs)
        job = self._template
        return target.enqueue(
            job.kind,
            self._payload(args, kwargs),
            scope=job.scope,
            priority=job.priority,
            delay=job.delay,
            run_at=job.run_at,
            expires=job.expires,
            max_attempts=job.max_attempts,
            idempotency_key=job.idempotency_key,
            on_conflict=job.on_conflict,
            job_id=job.job_id,
            after=job.after,
            on_parent_failure=job.on_parent_failure,
        )

    def new_job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return the job, to be enqueued with others: by `enqueue_many`, or as `then` of a completion.

        Raises:
            UsageError: the arguments do not fit the function.
        """
        self._check(args, kwargs)
        return replace(self._template, payload=self._payload(args, kwargs))

    def _payload(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> codec.Arguments:
        return codec.Arguments([list(args), kwargs], partial(_named, self._signature, args, kwargs))


class Task(AnyTask, Generic[P, R_co]):
    """A function whose calls can be enqueued; made by `Tasks.task`.

    Called, it is the function itself, run here and now; an asynchronous one is to be awaited. `enqueue` puts a job into
    a queue instead, which a worker runs. The arguments travel as msgpack: a tuple arrives as a list.
    """

    kind: str
    """The kind of its jobs."""
    function: Callable[P, R_co]
    """What was decorated."""
    __name__: str
    __qualname__: str

    def __init__(
        self,
        template: NewJob,
        function: Callable[P, R_co],
        timeout: Duration | None = None,
        permanent: Permanent = (),
        short_retry: Duration | None = None,
    ) -> None:
        _check_task(function)
        self.__name__ = self.__qualname__ = template.kind  # a partial has neither
        functools.update_wrapper(cast("Callable[P, R_co]", self), function, updated=())
        self.kind = template.kind
        self.function = function
        self._template = template
        self._handling = (timeout, permanent, short_retry)
        self._signature = signature_of(function)
        self._declared: TaskOptions[P] = TaskOptions(self._check, self._signature, template)
        run = self._run_async if is_async(function) else self._run
        self._handler = Handler(run, timeout, permanent, short_retry)

    def __repr__(self) -> str:
        return f"<Task {self.kind} {_shown(self.function)}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    def enqueue(self, target: Target[T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Enqueue a job that calls the function with these arguments; `target` is a queue or an open transaction.

        It answers as the target's own `enqueue` does: one of `litequeue.aio` is to be awaited.

        Raises:
            UsageError: the arguments do not fit the function.
            PayloadError: the arguments cannot be stored.
        """
        return self._declared.enqueue(target, *args, **kwargs)

    def new_job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return the job, to be enqueued with others: by `enqueue_many`, or as `then` of a completion.

        Raises:
            UsageError: the arguments do not fit the function.
        """
        return self._declared.new_job(*args, **kwargs)

    def options(
        self,
        *,
        scope: Scope | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        expires: Duration | datetime | None = None,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        job_id: JobId | None = None,
        after: Iterable[JobId] = (),
        on_parent_failure: OnParentFailure = "cancel",
    ) -> TaskOptions[P]:
        """Say how a job is enqueued, as in `send.options(delay=5).enqueue(q, "a@b.c")`; see `Queue.enqueue`.

        `priority`, `expires` and `max_attempts` are the task's own unless given here.

        Raises:
            UsageError: an argument out of its bounds.
        """
        own = self._template
        template = NewJob(
            self.kind,
            scope=scope,
            priority=own.priority if priority is None else priority,
            delay=delay,
            run_at=run_at,
            expires=own.expires if expires is None else expires,
            max_attempts=own.max_attempts if max_attempts is None else max_attempts,
            idempotency_key=idempotency_key,
            on_conflict=on_conflict,
            job_id=job_id,
            after=after,
            on_parent_failure=on_parent_failure,
        )
        return TaskOptions(self._check, self._signature, template)

    @property
    def handler(self) -> Handler:
        """How a worker runs it."""
        return self._handler

    def named(self, payload: object) -> dict[str, object]:
        """Return what the payload of a job gives the function, by the names of its parameters; for tests and tools.

        Raises:
            UsageError: it is no payload of a task, or one that does not fit the function.
        """
        try:
            args, kwargs = _arguments(payload)
            return _named(self._signature, tuple(args), kwargs)
        except (Misfit, TypeError) as exc:
            raise UsageError(f"{_shown(self.function)} cannot be called with this payload: {exc}") from None

    def __reduce__(self) -> str | tuple[object, ...]:
        """Travel to another process by name, for the name of a decorated function is its task.

        One that has no name of its own (`tasks.task("a")(function)`, say) travels as what it was made of.
        """
        if _found(self.__module__, self.__qualname__) is self:
            return self.__qualname__
        return Task, (self._template, self.function, *self._handling)

    def _check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if self._signature is None:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as exc:
            unknown = _unknown(self._signature, kwargs, str(exc))
            raise UsageError(f"{_shown(self.function)} cannot be called with these arguments: {exc}{unknown}") from None

    def _run(self, lease: Lease) -> object:
        args, kwargs = _arguments(lease.payload)
        try:
            return cast("AnyCall", self.function)(*args, **kwargs)
        except TypeError as exc:
            self._discard_misfit(exc, args, kwargs)
            raise

    async def _run_async(self, lease: AsyncLease) -> object:
        args, kwargs = _arguments(lease.payload)
        try:
            coroutine = cast("AnyCall", self.function)(*args, **kwargs)
            return await cast("Awaitable[object]", coroutine)
        except TypeError as exc:
            self._discard_misfit(exc, args, kwargs)
            raise

    def _discard_misfit(self, exc: TypeError, args: list[object], kwargs: Mapping[str, object]) -> None:
        """Give up a job whose arguments the function does not take: it has changed since, or was called elsewhere.

        Asked only after a `TypeError`, so that good jobs pay nothing for it; and it was a misfit only if the function
        itself, beneath its decorators, was never entered.
        """
        inner = inspect.unwrap(self.function)
        if _is_in(inner, exc):
            return
        if not fits(self.function, args, kwargs) or str(exc).startswith(f"{getattr(inner, '__qualname__', None)}() "):
            raise Misfit(f"the job's arguments do not fit {_shown(self.function)}: {exc}") from exc


class Tasks(Mapping[str, AnyTask]):
    """The tasks of an application, by kind: give them to a `Worker`, alone or within a mapping of handlers.

    tasks = litequeue.Tasks()

    @tasks.task("mail:send", max_attempts=3)
    def send(to: str) -> None: ...

    send.enqueue(q, "a@b.c")
    """

    def __init__(self) -> None:
        self._by_kind: dict[str, AnyTask] = {}

    def __repr__(self) -> str:
        return f"<Tasks {', '.join(self._by_kind)}>" if self._by_kind else "<Tasks: none>"

    def __getitem__(self, kind: str) -> AnyTask:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)

    def task(
        self,
        kind: str,
        *,
        priority: int = 100,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        permanent: Permanent = (),
        short_retry: Duration | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Decorate a plain or asynchronous function, so that its calls can be enqueued as jobs of this kind.

        `priority`, `expires` and `max_attempts` are those of its jobs (see `Queue.enqueue`). `timeout`, `permanent` and
        `short_retry` say how a worker treats its runs (see `Handler`); what is left out is as the worker says.

        Raises:
            UsageError: an argument out of its bounds, a kind that another task has, or something that is no function.
        """
        given: object = kind
        if not isinstance(given, str):
            raise UsageError.of("kind", given, 'the kind of the jobs, as in @tasks.task("mail:send")')
        if given.endswith(":"):
            raise UsageError.of("kind", given, "a kind; one that ends in ':' is a prefix")
        template = NewJob(kind, priority=priority, expires=expires, max_attempts=max_attempts)

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            task = Task(template, function, timeout, permanent, short_retry)
            self._add((task,))
            return task

        return decorate

    def include(self, *others: Tasks) -> None:
        """Take the tasks that others have by now; all of them or none.

        Raises:
            UsageError: a kind that another task has.
        """
        for other in others:
            if not isinstance(other, Tasks):
                raise UsageError.of("others", other, "Tasks")
        self._add(task for other in others for task in other.values())

    def _add(self, more: Iterable[AnyTask]) -> None:
        by_kind = self._by_kind.copy()
        for task in more:
            there = by_kind.setdefault(task.kind, task)
            if there is not task:
                raise UsageError(f"two tasks have the kind {task.kind!r}: {there} and {task}", argument="kind")
        self._by_kind = by_kind


def _check_task(function: object) -> None:
    check_function("task", function)
    name: object = getattr(function, "__qualname__", "")
    owner = name.rpartition(".")[0] if isinstance(name, str) else ""
    if not owner or owner.endswith("<locals>"):
        return
    signature = signature_of(function)
    if signature is not None and next(iter(signature.parameters), None) in {"self", "cls"}:
        raise UsageError.of("task", function, "a function: a method's jobs would have to carry its object")


def _arguments(payload: object) -> tuple[list[object], dict[str, object]]:
    match payload:
        case [list() as args, dict() as kwargs]:
            return args, kwargs
        case dict() as kwargs:
            return [], kwargs
        case None:
            return [], {}
        case _:
            raise Misfit(f"a task's payload is {_FORMS}, not {_clipped(payload)}")


def _named(
    signature: inspect.Signature | None, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments of a call by the names that its function has for them."""
    if signature is None:
        return {str(place): value for place, value in enumerate(args, 1)} | dict(kwargs)
    return signature.bind(*args, **kwargs).arguments


def _unknown(signature: inspect.Signature, kwargs: Mapping[str, object], told: str) -> str:
    """Name the keyword arguments that a function has no parameter for, unless they have been told of.

    Those that are options of a job come with where they belong.
    """
    takes = signature.parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values()):
        return ""
    strange = [name for name in kwargs if name not in takes]
    names = [repr(name) for name in strange if repr(name) not in told]
    unknown = f"; it has no {', '.join(names)}" if names else ""
    known = list(inspect.signature(Task.options).parameters)[1:]  # without `self`
    options = [f"{name}=…" for name in known if name in strange]
    return f"{unknown}; options go before: .options({', '.join(options)}).enqueue(…)" if options else unknown


def _is_in(function: object, exc: BaseException) -> bool:
    """Tell whether a function was being run when an exception was raised."""
    code = getattr(function, "__code__", None)
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(exc.__traceback__))


def _found(module: str, name: str) -> object:
    """Return what has this name in a module, or nothing."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _shown(function: object) -> str:
    """Return a function's name and the names of what it takes, for a message."""
    name = getattr(function, "__qualname__", None) or repr(function)
    signature = signature_of(function)
    if signature is None:
        return f"{name}(…)"
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return f"{name}{inspect.Signature(bare)}"


def _clipped(value: object) -> str:
    return repr(value)[:80]
