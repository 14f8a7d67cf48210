"""Handlers and tasks travel to another process by name (issue 5, `mode="processes"`).

Owns the proof with real processes that are started anew (`spawn`), where nothing is there but what is imported. The
modules that they import are written by the test: those of the suite have no name there.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
import subprocess
import sys
from textwrap import dedent
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

import litequeue
from litequeue import Handler, Lease, Tasks, UsageError
from litequeue.worker.handlers import Handlers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORK = '''
import functools
import os
import pickle

import litequeue

tasks = litequeue.Tasks()


@tasks.task("mail:send", max_attempts=3, timeout=5, permanent=[LookupError, lambda exc: "never" in str(exc)])
def send(to: str, *, subject: str = "") -> list[object]:
    """Send a mail."""
    return [to, subject, os.getpid(), str(litequeue.current_lease().job_id)]


@tasks.task("mail:fetch", permanent=ValueError)
async def fetch(box: str) -> list[object]:
    """Fetch mails."""
    return [box, os.getpid()]


def plain(lease: litequeue.Lease) -> list[object]:
    """Handle a job."""
    return [lease.kind, os.getpid()]


def told(prefix: str, lease: litequeue.Lease) -> list[object]:
    """Handle a job."""
    return [prefix + lease.kind, os.getpid()]


class Counter:
    """A callable object."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, lease: litequeue.Lease) -> list[object]:
        """Handle a job."""
        return [self.count, os.getpid()]

    def method(self, lease: litequeue.Lease) -> list[object]:
        """Handle a job."""
        return [-self.count, os.getpid()]


class Mailer:
    """Holds tasks."""

    @tasks.task("mail:static")
    @staticmethod
    def static(to: str) -> list[object]:
        """Send a mail."""
        return [to, os.getpid()]


def by_hand(to: str) -> list[object]:
    """Send a mail."""
    return [to, os.getpid()]


named = tasks.task("mail:by-hand", short_retry=3)(by_hand)
of_partial = tasks.task("mail:partial")(functools.partial(by_hand, "partial"))


def everything() -> dict[str, object]:
    """Return one handler of each sort."""
    return {
        **tasks,
        "plain": litequeue.Handler(plain, timeout=7, short_retry=2),
        "told": functools.partial(told, "told "),
        "object": Counter(5),
        "method": Counter(5).method,
    }


def work(path: str, sent: bytes) -> None:
    """Run every job of a queue with the handlers that were sent, in the process that calls this."""
    import asyncio

    handlers = pickle.loads(sent)
    assert handlers.find("mail:fetch").is_permanent(ValueError())
    assert handlers.find("mail:send").is_permanent(ValueError("never"))  # a lambda, but a task's
    assert handlers.find("mail:send").is_permanent(AttributeError())
    assert handlers.find("mail:by-hand").short_retry_s == 3
    assert (handlers.find("plain").timeout_s, handlers.find("plain").short_retry_s) == (7, 2)
    with litequeue.open(path, create=False) as q:
        while (lease := q.lease_next(handlers.kinds)) is not None:
            handler = handlers.find(lease.kind)
            returned = handler.call(lease)
            lease.complete(asyncio.run(returned) if handler.is_async else returned)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Give the module that both processes import."""
    (tmp_path / "spawned_work.py").write_text(WORK, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("spawned_work")
    del sys.modules["spawned_work"]


@pytest.mark.slow
def test_every_sort_of_handler_runs_in_a_process_that_was_started_anew(module: ModuleType, tmp_path: Path) -> None:
    """Tasks by the names of their functions, functions, methods of objects, partials; with their options (issue 5)."""
    path = str(tmp_path / "queue.db")
    with litequeue.open(path, durability="normal") as q:
        jobs: dict[UUID, list[object]] = {
            module.send.enqueue(q, "a@b.c", subject="x").job_id: ["a@b.c", "x"],
            module.fetch.enqueue(q, "in").job_id: ["in"],
            module.Mailer.static.enqueue(q, "static").job_id: ["static"],
            module.named.enqueue(q, "hand").job_id: ["hand"],
            module.of_partial.enqueue(q).job_id: ["partial"],
            q.enqueue("plain").job_id: ["plain"],
            q.enqueue("told").job_id: ["told told"],
            q.enqueue("object").job_id: [5],
            q.enqueue("method").job_id: [-5],
        }
    child = multiprocessing.get_context("spawn").Process(
        target=module.work, args=(path, pickle.dumps(Handlers(module.everything(), permanent=AttributeError)))
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    with litequeue.open(path) as q:
        for job_id, expected in jobs.items():
            job = q.get(job_id)
            result = job.result
            assert isinstance(result, list), job
            assert result[: len(expected)] == expected
            assert child.pid in result
            if job.kind == "mail:send":
                assert result[-1] == str(job_id)


@pytest.mark.slow
def test_tasks_of_the_main_program_run_in_a_process_that_was_started_anew(tmp_path: Path) -> None:
    """There it is imported under another name (issue 5)."""
    program = tmp_path / "program.py"
    program.write_text(
        WORK
        + dedent('''

        def main() -> None:
            """Enqueue, and let a child work."""
            import multiprocessing
            import sys
            from litequeue.worker.handlers import Handlers

            path = sys.argv[1]
            with litequeue.open(path) as q:
                job_id = send.enqueue(q, "a@b.c").job_id
            sent = pickle.dumps(Handlers(everything(), permanent=AttributeError))
            child = multiprocessing.get_context("spawn").Process(target=work, args=(path, sent))
            child.start()
            child.join(60)
            with litequeue.open(path) as q:
                assert q.get(job_id).result[:3] == ["a@b.c", "", child.pid], q.get(job_id)


        if __name__ == "__main__":
            main()
        '''),
        encoding="utf-8",
    )
    command = [sys.executable, str(program), str(tmp_path / "queue.db")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_task_is_one_and_the_same_wherever_it_comes_out(module: ModuleType) -> None:
    """Found by name, never made again; one without a name of its own is made anew, equal in what it does."""
    assert pickle.loads(pickle.dumps(module.send)) is module.send  # noqa: S301 - our own
    assert pickle.loads(pickle.dumps(module.Mailer.static)) is module.Mailer.static  # noqa: S301 - our own
    tasks = pickle.loads(pickle.dumps(module.tasks))  # noqa: S301 - our own
    assert isinstance(tasks, Tasks)
    assert list(tasks) == list(module.tasks)
    assert tasks["mail:send"] is module.send
    again = pickle.loads(pickle.dumps(module.named))  # noqa: S301 - our own
    assert (again.kind, again.function, again.new_job("x")) == (
        "mail:by-hand",
        module.by_hand,
        module.named.new_job("x"),
    )
    assert again.handler.short_retry_s == 3


def local_handler() -> Handler:
    """Return what has no name in any module."""

    def inner(lease: Lease) -> str:
        return lease.kind

    return Handler(inner)


def local_task() -> Tasks:
    """Return a task whose function has no name in any module."""
    tasks = Tasks()

    @tasks.task("bad")
    def inner(to: str) -> str:
        return to

    assert inner("x") == "x"
    return tasks


@pytest.mark.parametrize(
    "bad",
    [
        {"bad": lambda lease: lease.kind},
        {"bad": local_handler()},
        {"bad": Handler(print, permanent=lambda exc: bool(exc))},  # noqa: PLW0108 - a lambda is what it is about
        local_task(),
    ],
    ids=["lambda", "local", "predicate", "task"],
)
def test_what_has_no_name_is_refused_with_its_kind(module: ModuleType, bad: dict[str, Handler]) -> None:
    """Before a process is started for it (issue 5)."""
    handlers = Handlers({"good": module.plain, **bad})
    with pytest.raises(UsageError, match=r"^the handler of 'bad' cannot be imported by another process: .*") as caught:
        handlers.check_travel()
    assert caught.value.argument == "handlers"


def test_what_a_worker_finds_permanent_travels_as_well(module: ModuleType) -> None:
    """So it needs a name, too (issue 5)."""
    Handlers(module.everything(), permanent=[ValueError, module.plain]).check_travel()
    with pytest.raises(UsageError, match=r"^what is permanent cannot be imported by another process: .*lambda"):
        Handlers(module.everything(), permanent=lambda exc: bool(exc.args)).check_travel()
