"""`work`: a worker as a process of its own, until it is told to stop.

Owns: the options, the exit status, and what is said at the beginning and at the end. Leaves out: the work (`worker`),
signals (`running`), the user's module (`loading`), the log (`work_log`) and the live line (`live`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from functools import partial

import click

import litequeue
from litequeue.cli import live
from litequeue.cli.commands import Command
from litequeue.cli.failures import GivenBack, nothing_to_do
from litequeue.cli.input import duration_option, many_scopes, scope_options
from litequeue.cli.loading import handlers_of
from litequeue.cli.output import count_of, scope_text
from litequeue.cli.running import signals
from litequeue.cli.target import Target, pass_target
from litequeue.cli.work_log import work_log
from litequeue.worker import Ending
from litequeue.worker.handlers import Handlers
from litequeue.worker.worker import Mode

MODES = ("threads", "processes", "asyncio")
_log = logging.getLogger("litequeue.cli")


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue work app.tasks:tasks
litequeue --db app.queue work app.tasks:tasks --mode processes --concurrency 2 --timeout 10m
litequeue --db app.queue work app.tasks:tasks --until-empty --quiet
""",
)
@click.argument("name", metavar="MODULE:OBJECT")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="threads",
    show_default=True,
    help="Where handlers run; asynchronous ones run in any.",
)
@click.option("--concurrency", metavar="N", type=int, default=4, show_default=True, help="Jobs at once; 1 to 1,000.")
@click.option(
    "--lease-ttl",
    metavar="DURATION",
    type=duration_option,
    help="Time without a sign of this process after which its jobs go to others.  [default: setting lease_ttl]",
)
@click.option(
    "--drain-timeout",
    metavar="DURATION",
    type=duration_option,
    default="30s",
    show_default=True,
    help="How long running jobs may take to end when it is told to stop.",
)
@click.option(
    "--short-retry",
    metavar="DURATION",
    type=duration_option,
    default="0s",
    show_default=True,
    help="A pause after a failure up to so long is waited out here; at most 60s.",
)
@click.option("--timeout", metavar="DURATION", type=duration_option, help="For one run of a job.  [default: none]")
@scope_options(many=True)
@click.option("--no-maintenance", is_flag=True, help="Leave the upkeep of the file to `litequeue maintain`.")
@click.option("--until-empty", is_flag=True, help="End when nothing is ready that may run now.")
@click.option("--quiet", is_flag=True, help="No live line, and in the log only warnings.")
@pass_target
def work(
    target: Target,
    *,
    name: str,
    mode: Mode,
    concurrency: int,
    lease_ttl: float | None,
    drain_timeout: float,
    short_retry: float,
    timeout: float | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
    no_maintenance: bool,
    until_empty: bool,
    quiet: bool,
) -> None:
    """Run the handlers of MODULE:OBJECT on jobs, until told to stop.

    MODULE is imported as Python does it, from the current folder too. OBJECT is a Tasks, a mapping of kinds, and of
    prefixes with a ':' at their end, to handlers, or a function that returns one of these. Only their kinds are leased.

    With --all-scopes every scope is served in turn, as many of its jobs in a row as its weight says (`weight`).

    The first SIGTERM or Ctrl-C drains it: nothing more is leased, and what runs may end within --drain-timeout. Then,
    or at the second one, the rest is given back at once, which costs its jobs no attempt. A terminal that is closed
    (SIGHUP) drains it too, unless nohup keeps it running.

    On a terminal the last row shows what runs, how many are done and failed, how many end in a second, and how many are
    ready and wait; above it come warnings. Anywhere else the log has a line for each end of a job. A module that sets
    up logging gets the log's records instead, in the loggers `litequeue.*`.

    Ends with status 0 when it has drained and nothing had to be given back, 1 after an error, 2 for wrong usage, 3 when
    with --until-empty there was nothing to do, and 4 when running jobs had to be given back; then it does not wait for
    what still runs, and calls no `atexit` functions.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    handlers = handlers_of(name)
    descriptor = None if quiet else live.terminal()
    tally = live.Tally()
    with signals() as told, target.queue() as queue:
        worker = litequeue.Worker(
            queue,
            handlers,
            concurrency=concurrency,
            mode=mode,
            lease_ttl=lease_ttl,
            drain_timeout=drain_timeout,
            scope=where,
            maintenance=not no_maintenance,
            short_retry=short_retry,
            timeout=timeout,
            on_event=None if descriptor is None else tally,
            until_empty=until_empty,
            imports=[name.partition(":")[0]],
        )
        stopping = _Stopping(worker)
        kinds = Handlers(handlers).kinds
        with contextlib.ExitStack() as stack:
            stack.enter_context(work_log(is_quiet=quiet, is_counted=descriptor is not None))
            if descriptor is not None:
                counter = stack.enter_context(queue.sibling())
                backlog = live.Backlog(partial(live.count_ready, counter, where, kinds))
                stack.enter_context(live.shown(descriptor, _Line(worker, stopping, tally, backlog)))
            scopes = scope_text(queue.scope if where is None else where)
            _log.info("working on %s, scope %s: %s", queue.path, scopes, ", ".join(kinds))
            ending = told.heed(worker.run, stopping)
            _log.info("ended: %s", _text(ending))
    if not ending.is_clean:
        raise GivenBack(f"{count_of(ending.interrupted, 'running job')} given back")
    if until_empty and not ending.total and not stopping.times:
        nothing_to_do()


class _Stopping:
    """Tells a worker to stop at each signal, and knows whether it has."""

    def __init__(self, worker: litequeue.Worker) -> None:
        self.times = 0
        self._worker = worker

    def __call__(self) -> None:
        self.times += 1
        self._worker.stop()


class _Line:
    """The live line of a worker."""

    def __init__(self, worker: litequeue.Worker, stopping: _Stopping, tally: live.Tally, backlog: live.Backlog) -> None:
        self._worker = worker
        self._stopping = stopping
        self._tally = tally
        self._rate = live.Rate()
        self._backlog = backlog

    def __call__(self) -> str:
        tally = self._tally
        rate = self._rate.per_second(tally.done + tally.failed)
        line = live.line(self._worker.running, tally, rate, self._backlog.latest())
        return f"stopping   {line}" if self._stopping.times else line


def _text(ending: Ending) -> str:
    counts = dataclasses.asdict(ending)
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
