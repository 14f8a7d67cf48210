"""Tasks: functions whose calls are enqueued (issue 5, handlers).

Owns the promises that a task stays its function, that a call which does not fit is refused at once, and that a job
which does not fit is dead at its first run. Leaves out types (test_worker_typing) and other processes
(test_worker_spawning).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

import pytest

import litequeue
from litequeue import SYSTEM, Discard, Handler, JobState, PayloadError, RecordError, Task, Tasks, UsageError
from litequeue.settlement import Completed, Failed
from litequeue.worker.handlers import Handlers
from litequeue.worker.outcomes import settlement_of, settlement_of_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue import Lease, Queue
    from litequeue.settlement import Settlement

P = ParamSpec("P")
R = TypeVar("R")

tasks = Tasks()


@tasks.task("mail:send", max_attempts=3, priority=7, expires=60)
def send(to: str, *subjects: str, urgent: bool = False) -> str:
    """Send a mail."""
    return f"{to} {subjects} {urgent}"


@tasks.task("mail:fetch", timeout=30, permanent=LookupError, short_retry=2)
async def fetch(box: str, limit: int = 10) -> list[str]:
    """Fetch mails."""
    await asyncio.sleep(0)
    return [box] * limit


def plain(to: str) -> str:
    """Send a mail."""
    return to


def awaited(handler: Handler, lease: Lease) -> object:
    """Run a job to its end."""
    returned = handler.call(lease)
    return asyncio.run(returned) if inspect.iscoroutine(returned) else returned


def ran(lease: Lease) -> Settlement:
    """Run a job as a worker does; return what it came to."""
    handler = Handlers(tasks).find(lease.kind)
    try:
        returned = awaited(handler, lease)
    except BaseException as exc:  # noqa: BLE001 - as an executor does
        return settlement_of_error(lease, handler, exc)
    return settlement_of(lease, handler, returned)


def leased(queue: Queue) -> Lease:
    """Lease the only job."""
    (lease,) = queue.lease_many(1)
    return lease


# --- a task is its function


def test_a_task_is_called_as_its_function() -> None:
    """With the same arguments, names and result; an asynchronous one is awaited (issue 5)."""
    assert send("a@b.c", "x", urgent=True) == "a@b.c ('x',) True"
    assert asyncio.run(fetch("in", limit=2)) == ["in", "in"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'to'"):
        send()  # type: ignore[call-arg]


def test_a_task_looks_like_its_function() -> None:
    """For `help`, documentation and whoever inspects it."""
    assert (send.__name__, send.__qualname__, send.__doc__, send.__module__) == (
        "send",
        "send",
        "Send a mail.",
        plain.__module__,
    )
    assert inspect.signature(send) == inspect.signature(send.function)
    assert (send.kind, isinstance(send, Task)) == ("mail:send", True)
    assert repr(send) == "<Task mail:send send(to, *subjects, urgent=False)>"


def test_what_a_function_carries_does_not_hide_what_a_task_does(queue: Queue) -> None:
    """Attributes of the function stay its own."""

    def odd(to: str) -> str:
        return to

    vars(odd).update(kind="other", enqueue=None, function=None)
    task = Tasks().task("odd")(odd)
    assert task.kind == "odd"
    assert task.enqueue(queue, "x").created


# --- enqueue


def test_a_call_is_enqueued_as_its_arguments(queue: Queue) -> None:
    """The payload is `[args, kwargs]`, what was left out is not in it; the task's own options hold (issue 5)."""
    made = send.enqueue(queue, "a@b.c", "x", urgent=True)
    job = queue.get(made.job_id)
    assert made.created
    assert (job.kind, job.payload) == ("mail:send", [["a@b.c", "x"], {"urgent": True}])
    assert (job.max_attempts, job.priority) == (3, 7)
    assert job.expires_at == job.created_at + 60_000_000
    assert queue.get(fetch.enqueue(queue, "in").job_id).payload == [["in"], {}]


def test_a_call_is_enqueued_in_the_callers_transaction(queue: Queue) -> None:
    """Nothing is there when that is rolled back (V14)."""
    with queue.transaction() as tx:
        made = send.enqueue(tx, "a@b.c")
    assert queue.get(made.job_id).state is JobState.PENDING

    def failing() -> None:
        with queue.transaction() as tx:
            assert send.options(priority=1).enqueue(tx, "a@b.c").created
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert queue.stats().total == 1


def test_options_are_those_of_enqueue(queue: Queue) -> None:
    """Each reaches the job; those that are not given are the task's (issue 5)."""
    parameters = inspect.signature(litequeue.Queue.enqueue).parameters
    assert set(inspect.signature(Task.options).parameters) == set(parameters) - {"kind", "payload"}
    made = send.options(
        scope="tenant",
        delay=timedelta(seconds=5),
        max_attempts=9,
        idempotency_key="key",
        job_id="01977420-dc00-7000-8000-000000000001",
    ).enqueue(queue, "a@b.c")
    job = queue.get(made.job_id)
    assert str(made.job_id) == "01977420-dc00-7000-8000-000000000001"
    assert (job.scope, job.state, job.max_attempts, job.priority) == ("tenant", JobState.SCHEDULED, 9, 7)
    assert (job.idempotency_key, job.not_before) == ("key", job.created_at + 5_000_000)
    changed = send.options(scope=SYSTEM, priority=0, expires=5, run_at=datetime(2100, 1, 1, tzinfo=UTC))
    job = queue.get(changed.enqueue(queue, "a@b.c").job_id)
    assert (job.scope, job.priority, job.state) == (SYSTEM, 0, JobState.SCHEDULED)
    assert job.expires_at == job.created_at + 5_000_000


def test_options_serve_many_calls(queue: Queue) -> None:
    """They are no single job, and change nothing of the task."""
    later = send.options(delay=5, idempotency_key="once", on_conflict="reset")
    first, second = later.enqueue(queue, "first"), later.enqueue(queue, "second")
    assert (first.created, second.created, first.job_id) == (True, False, second.job_id)
    assert queue.get(first.job_id).payload == [["second"], {}]
    assert queue.get(send.enqueue(queue, "now").job_id).state is JobState.PENDING


def test_calls_are_made_into_jobs_for_a_batch_and_for_then(queue: Queue) -> None:
    """`new_job` goes into `enqueue_many`, and into the commit of a completion (V1, V6)."""
    results = queue.enqueue_many([send.new_job(f"{n}") for n in range(3)])
    assert [queue.get(made.job_id).payload for made in results] == [[[f"{n}"], {}] for n in range(3)]
    (lease,) = queue.lease_many(1)
    lease.complete(then=[fetch.options(priority=0).new_job("in", limit=1)])
    (follower,) = queue.lease_many(1)
    assert (follower.kind, follower.payload, follower.priority) == ("mail:fetch", [["in"], {"limit": 1}], 0)


def test_a_parameter_may_have_any_name(queue: Queue) -> None:
    """Also those that the methods of a task have for their own."""

    def odd(self: int, target: int, kind: int, payload: int, args: int, kwargs: int) -> int:  # noqa: PLR0917 - names
        return self + target + kind + payload + args + kwargs

    task = Tasks().task("odd")(odd)
    task.enqueue(queue, self=1, target=2, kind=3, payload=4, args=5, kwargs=6)
    task.options(delay=None).enqueue(queue, self=1, target=2, kind=3, payload=4, args=5, kwargs=6)
    assert task(self=1, target=2, kind=3, payload=4, args=5, kwargs=6) == 21
    assert [task.handler.call(lease) for lease in queue.lease_many(2)] == [21, 21]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda task, q: task.enqueue(q), "missing a required argument: 'to'"),
        (lambda task, q: task.enqueue(q, too="b"), "missing a required argument: 'to'; it has no 'too'"),
        (lambda task, q: task.enqueue(q, "a", too="b"), "got an unexpected keyword argument 'too'"),
        (
            lambda task, q: task.enqueue(q, "a", scope="b"),
            "got an unexpected keyword argument 'scope'; options go before: .options(scope=…).enqueue(…)",
        ),
        (
            lambda task, q: task.enqueue(q, delay=5),
            "missing a required argument: 'to'; it has no 'delay'; options go before: .options(delay=…).enqueue(…)",
        ),
        (lambda task, q: task.enqueue(q, "a", to="b"), "multiple values for argument 'to'"),
        (lambda task, q: task.options(delay=5).enqueue(q, urgent=True), "missing a required argument: 'to'"),
        (lambda task, _: task.new_job(), "missing a required argument: 'to'"),
        (lambda task, _: task.options(delay=5).new_job(), "missing a required argument: 'to'"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_at_once(
    queue: Queue, call: Callable[[object, Queue], object], why: str
) -> None:
    """`UsageError` says what the function takes and what is wrong; nothing is enqueued (issue 5)."""
    with pytest.raises(UsageError) as caught:
        call(send, queue)
    assert str(caught.value) == f"send(to, *subjects, urgent=False) cannot be called with these arguments: {why}"
    assert queue.stats().total == 0


@pytest.mark.parametrize("target", ["a@b.c", None, 5, {}, send, send.options()])
def test_a_forgotten_queue_is_told(target: Queue) -> None:
    """`UsageError`, rather than a missing attribute; a task is no queue, though it has an `enqueue` (§6)."""
    for call in (send, send.options(delay=5)):
        with pytest.raises(UsageError, match=r"^target must be a queue or an open transaction"):
            call.enqueue(target, "a@b.c")


def test_arguments_that_cannot_be_stored_are_told(queue: Queue) -> None:
    """As any payload, by the names that the function has for them; and what can be (§6)."""
    storable = "; storable: None, bool, int, float, str, bytes, aware datetimes, lists and dicts"
    with pytest.raises(PayloadError) as caught:
        send.enqueue(queue, {1})  # type: ignore[arg-type]
    assert str(caught.value) == f"payload cannot be stored: a value of type set in the argument 'to'{storable}"
    with pytest.raises(PayloadError, match=r"a value of type \w+ in the argument 'subjects\[0\]'; storable: "):
        queue.enqueue_many([send.new_job("a", Path("x"))])  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="a value of type set in the argument 'urgent'"):
        send.options(delay=5).enqueue(queue, "a", urgent=set())  # type: ignore[arg-type]
    named: Task[..., object] = Tasks().task("named")(lambda **options: options)
    with pytest.raises(PayloadError, match=r"a value of type set in the argument 'options.deep.x\[1\]'"):
        named.enqueue(queue, deep={"x": [0, set()]})
    assert queue.stats().total == 0


def test_a_job_of_a_task_travels_between_processes() -> None:
    """Its arguments are a plain list there."""
    job = pickle.loads(pickle.dumps(send.new_job("a", urgent=True)))  # noqa: S301 - our own
    assert job == send.new_job("a", urgent=True)
    assert type(job.payload) is list


def test_a_task_in_the_place_of_a_kind_is_told(queue: Queue) -> None:
    """The verbs of a queue take a kind; a task enqueues itself, and tells its kind for everything else (§6)."""
    calls: list[Callable[[str], object]] = [
        queue.enqueue,
        lambda kind: queue.schedule("tick", "@every 5m", kind),
        lambda kind: queue.set("concurrency", 2, kind),
        queue.settings,
        queue.pause,
        lambda kind: queue.list(kind=kind),
    ]
    told = r"^kind must be text, not <Task mail:send .*; to enqueue a task: send\.enq.*, and its kind is send\.kind$"
    for call in calls:
        with pytest.raises(UsageError, match=told):
            call(send)  # type: ignore[arg-type]
        call(send.kind)


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ([["x"], {"urgent": True}], "x () True"),
        ({"to": "x", "urgent": True}, "x () True"),
        ({"to": "x"}, "x () False"),
    ],
)
def test_a_job_may_be_written_by_hand(queue: Queue, payload: object, result: str) -> None:
    """A map is the keyword arguments: the form that JSON has for them (issue 5)."""
    queue.enqueue("mail:send", payload)
    lease = leased(queue)
    assert Handlers(tasks).find("mail:send").call(lease) == result


def test_a_job_without_arguments_may_be_written_by_hand(queue: Queue) -> None:
    """Nothing, or an empty map, for a function that needs none (issue 5)."""
    more = Tasks()
    task = more.task("tick")(lambda times=1: times)
    payloads: list[object] = [None, {}, [[], {}]]
    for payload in payloads:
        queue.enqueue("tick", payload)
        assert task.handler.call(queue.lease_next(["tick"]) or pytest.fail("nothing to lease")) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("priority", 256), ("delay", -1), ("expires", "5"), ("max_attempts", 0), ("scope", ""), ("on_conflict", "x")],
)
def test_bad_options_are_refused_when_they_are_given(name: str, value: object) -> None:
    """Before there is anything to enqueue (§6)."""
    options: Callable[..., object] = send.options
    with pytest.raises(UsageError) as caught:
        options(**{name: value})
    assert caught.value.argument == name


# --- declaring


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("priority", -1), ("expires", -1), ("max_attempts", 0), ("timeout", 0), ("short_retry", 61)),
        *(("permanent", int), ("kind", ""), ("kind", "mail:"), ("kind", None), ("kind", plain)),
    ],
)
def test_bad_declarations_are_refused(name: str, value: object) -> None:
    """`UsageError` naming the argument; so is a decorator without its kind (§6)."""
    declare: Callable[..., object] = Tasks().task
    with pytest.raises(UsageError) as caught:
        call_with(declare(**{"kind": "a", name: value}), plain)
    assert caught.value.argument == name


def call_with(function: object, argument: object) -> object:
    """Call what is known to be callable."""
    assert callable(function)
    return function(argument)


def no_task() -> Iterator[str]:
    """Yield, which nobody would ask for."""
    yield ""


class Mailer:
    """Something with methods."""

    def send(self, to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    @classmethod
    def of_class(cls, to: str) -> str:
        """Send a mail."""
        return f"{cls.__name__} {to}"

    @staticmethod
    def of_nobody(to: str) -> str:
        """Send a mail."""
        return f"nobody {to}"


@pytest.mark.parametrize(
    "function", [no_task, Mailer, Mailer.send, vars(Mailer)["of_class"], "send", None, send, functools.partial(no_task)]
)
def test_what_can_be_no_task_is_refused(function: Callable[[], object]) -> None:
    """Generators, classes, methods without an object, tasks themselves: `UsageError` naming it (§6)."""
    with pytest.raises(UsageError, match=r"^task must be a function"):
        Tasks().task("a")(function)


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (Mailer().send, "sent to x"),
        (Mailer.of_class, "Mailer x"),
        (Mailer.of_nobody, "nobody x"),
        (vars(Mailer)["of_nobody"], "nobody x"),
        (functools.partial(plain), "x"),
        (lambda to: to, "x"),
    ],
)
def test_methods_of_an_object_partials_and_lambdas_are_tasks(
    queue: Queue, function: Callable[[str], object], result: str
) -> None:
    """They have all that they need."""
    task = Tasks().task("a")(function)
    task.enqueue(queue, "x")
    assert task("x") == result
    assert task.handler.call(leased(queue)) == result
    assert repr(task).startswith("<Task a ")


def test_a_kind_has_one_task() -> None:
    """A second one is refused and the first one stays (issue 5)."""
    mine = Tasks()
    first = mine.task("a")(plain)
    with pytest.raises(UsageError, match=r"^two tasks have the kind 'a': <Task a plain\(to\)> and <Task a plain"):
        mine.task("a")(plain)
    assert dict(mine) == {"a": first}


def test_tasks_of_several_modules_are_put_together() -> None:
    """All of them or none; the same task twice is no conflict (issue 5)."""
    app, mails, others = Tasks(), Tasks(), Tasks()
    a, b, c = mails.task("a")(plain), others.task("b")(plain), others.task("c")(plain)
    app.include(mails, others)
    app.include(mails)
    assert dict(app) == {"a": a, "b": b, "c": c}
    assert (len(app), repr(app), list(mails)) == (3, "<Tasks a, b, c>", ["a"])
    clash, new = Tasks(), Tasks()
    new.task("d")(plain)
    clash.task("a")(plain)
    with pytest.raises(UsageError, match=r"^two tasks have the kind 'a'"):
        app.include(new, clash)
    assert list(app) == ["a", "b", "c"]
    with pytest.raises(UsageError, match=r"^others must be Tasks"):
        app.include({"a": a})  # type: ignore[arg-type]


# --- running


def test_a_worker_calls_the_function_with_what_was_enqueued(queue: Queue) -> None:
    """Its value is the result; `current_lease` is the job's (issue 5)."""
    send.enqueue(queue, "a@b.c", "x", urgent=True)
    assert ran(lease := leased(queue)) == Completed(lease, "a@b.c ('x',) True")
    fetch.enqueue(queue, "in", limit=2)
    assert ran(lease := leased(queue)) == Completed(lease, ["in", "in"])

    def whose() -> object:
        return litequeue.current_lease()

    task = Tasks().task("whose")(whose)
    task.enqueue(queue)
    assert task.handler.call(lease := leased(queue)) is lease
    with pytest.raises(UsageError, match="inside a handler or a task"):
        task()


def test_a_task_says_how_it_is_run() -> None:
    """In the decorator; the worker's word is for what is left out (issue 5)."""
    found = Handlers(tasks, timeout=60, short_retry=9)
    a, b = found.find("mail:fetch"), found.find("mail:send")
    assert (a.timeout_s, a.short_retry_s, a.is_async, a.is_permanent(KeyError())) == (30, 2, True, True)
    assert (b.timeout_s, b.short_retry_s, b.is_async, b.is_permanent(KeyError())) == (60, 9, False, False)
    assert found.kinds == ("mail:send", "mail:fetch")


def test_tasks_stand_beside_handlers(queue: Queue) -> None:
    """In one mapping; a task may serve another kind as well, its old name, say (issue 5)."""
    found = Handlers({**tasks, "mail:post": send, "ingest:": lambda lease: lease.kind})
    assert found.kinds == ("mail:send", "mail:fetch", "mail:post", "ingest:")
    queue.enqueue("mail:post", [["x"], {}])
    assert found.find("mail:post").call(leased(queue)) == "x () False"
    with pytest.raises(UsageError, match=r"\(no class, no task\), not <Task"):
        Handler(send)  # type: ignore[arg-type]


MISFITS = (
    "a task's payload is [args, kwargs], a map of keyword arguments, or null for none, not ",
    "the job's arguments do not fit send(to, ",
    "the job's arguments do not fit fetch(box, ",
)


@pytest.mark.parametrize(
    "payload",
    [
        *("x", 5, [], [[]], [["x"], {}, 3], [{}, ["x"]], ["x", {}], [["x"], []]),
        *(None, {}, {"too": "x"}, {5: 5}, {"to": "x", "box": "y"}),
        *([["x"], {5: 5}], [["x"], {"": 1}], [[], {}], [["x"], {"to": "y"}], [["x"], {"more": 1}]),
    ],
)
def test_a_payload_that_does_not_fit_is_dead_at_its_first_run(queue: Queue, payload: object) -> None:
    """It never will, so no attempt is wasted on it; the error says what was wrong (issue 5)."""
    for kind in ("mail:send", "mail:fetch"):
        queue.enqueue(kind, payload)
        settlement = ran(leased(queue))
        assert isinstance(settlement, Failed)
        assert not settlement.retryable
        assert settlement.error.startswith(MISFITS)


def test_a_payload_that_cannot_be_read_is_dead_at_its_first_run(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is broken for good (§6)."""
    send.enqueue(queue, "x")
    lease = leased(queue)

    def broken(_: bytes, job_id: object) -> None:
        assert job_id == lease.job_id
        raise RecordError("it cannot be read", job_id=lease.job_id)

    monkeypatch.setattr("litequeue.codec.decode", broken)
    settlement = ran(lease)
    assert isinstance(settlement, Failed)
    assert (settlement.retryable, settlement.error.splitlines()[0]) == (False, "RecordError: it cannot be read")


def wrapped(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function with what passes everything on."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return wrapper


def given_five(function: Callable[Concatenate[int, P], R]) -> Callable[P, R]:
    """Decorate a function with what gives it a first argument."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(5, *args, **kwargs)

    return wrapper


def failing_inside(to: str, *, helper: Callable[[], object] | None = None) -> object:
    """Make a mistake of its own: it calls a function with an argument too few."""
    return plain() if helper is None else to  # type: ignore[call-arg]


def failing_by_itself(to: str, *, depth: int = 1) -> object:
    """Make a mistake of its own: it calls itself with an argument too few."""
    return failing_by_itself() if depth else to  # type: ignore[call-arg]


class FailingObject:
    """A callable object that makes a mistake of its own."""

    def __call__(self, to: str) -> object:
        """Call itself with an argument too few."""
        return self() if to else to  # type: ignore[call-arg]


async def failing_inside_later(to: str) -> object:
    """Make a mistake of its own."""
    await asyncio.sleep(0)
    return failing_inside(to)


@pytest.mark.parametrize(
    "function",
    [
        *(failing_inside, failing_inside_later, wrapped(failing_inside), wrapped(wrapped(failing_inside))),
        *(failing_by_itself, wrapped(failing_by_itself), functools.partial(failing_by_itself), FailingObject()),
    ],
)
def test_a_mistake_inside_the_function_is_no_misfit(queue: Queue, function: Callable[[str], object]) -> None:
    """A `TypeError` of its own fails the attempt as any exception does (issue 5)."""
    task = Tasks().task("a")(function)
    task.enqueue(queue, "x")
    lease = leased(queue)
    handler = task.handler
    with pytest.raises(TypeError, match="missing 1 required positional argument") as caught:
        awaited(handler, lease)
    settlement = settlement_of_error(lease, handler, caught.value)
    assert isinstance(settlement, Failed)
    assert settlement.retryable


@pytest.mark.parametrize("function", [functools.partial(plain), FailingObject(), Mailer().send, wrapped(plain)])
def test_whatever_a_task_is_made_of_a_misfit_is_known(queue: Queue, function: Callable[[str], object]) -> None:
    """Python names what it calls in various ways (issue 5)."""
    queue.enqueue("a", [["x", "y"], {}])
    with pytest.raises(Discard, match="the job's arguments do not fit "):
        Tasks().task("a")(function).handler.call(leased(queue))


@pytest.mark.parametrize("function", [failing_inside, failing_inside_later])
def test_a_traceback_begins_in_the_users_own_function(queue: Queue, function: Callable[[str], object]) -> None:
    """What the worker and the event loop did before is left out; what the function called stays (issue 5)."""
    task = Tasks().task("a")(function)
    task.enqueue(queue, "x")
    lease = leased(queue)
    with pytest.raises(TypeError) as caught:
        awaited(task.handler, lease)
    settlement = settlement_of_error(lease, task.handler, caught.value)
    assert isinstance(settlement, Failed)
    lines = [line for line in settlement.error.splitlines() if line.startswith("  File ")]
    assert lines[0].endswith(f", in {function.__name__}")
    assert lines[-1].endswith(", in failing_inside")


def test_a_mistake_in_a_decorator_is_no_misfit(queue: Queue) -> None:
    """Nor does a function that a decorator gives more seem not to fit (issue 5)."""

    def odd(number: int, to: str) -> str:
        return f"{number} {to}"

    def broken(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*_: P.args, **__: P.kwargs) -> R:
            raise TypeError("of the decorator")

        return wrapper

    good, bad = Tasks().task("a")(given_five(odd)), Tasks().task("a")(broken(given_five(odd)))
    good.enqueue(queue, "x")
    lease = leased(queue)
    assert good.handler.call(lease) == "5 x"
    with pytest.raises(TypeError, match="of the decorator"):
        bad.handler.call(lease)


def test_a_misfit_beneath_a_decorator_is_one(queue: Queue) -> None:
    """The function itself was never entered, and Python says that it cannot be called so (issue 5)."""

    async def later(to: str) -> str:
        return to

    @functools.wraps(later)
    async def wrapper(*args: str, **kwargs: str) -> str:
        return await later(*args, **kwargs)

    queue.enqueue("a", [["x"], {"too": "y"}])
    lease = leased(queue)
    for function in (wrapped(wrapped(plain)), given_five(cast("Callable[[int], str]", plain))):
        with pytest.raises(Discard, match="the job's arguments do not fit plain"):
            Tasks().task("a")(function).handler.call(lease)
    handler = Tasks().task("a")(wrapper).handler
    with pytest.raises(Discard, match=r"do not fit .*later\(\*args, \*\*kwargs\): .*unexpected keyword argument 'too'"):
        awaited(handler, lease)


# --- copies


def test_a_copy_of_a_task_is_the_task() -> None:
    """There is one of a name."""
    assert copy.copy(Tasks().task("a")(functools.partial(plain))).kind == "a"
    handler = Handler(ran)
    assert copy.deepcopy(handler) == handler
