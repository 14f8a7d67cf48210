"""Work on many jobs: which ones are meant, in what steps, and what is told of them.

Invariant: what acts on many does so in bounded transactions, answers for each job that was refused, and takes up none
twice: a page goes on after the last key of the one before, and a job that comes back keeps its key. What removes jobs
asks first, or wants --yes where nobody could answer. Leaves out: what is done to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

import click

from litequeue import Job, JobNotFound, JobState, Queue, rules
from litequeue.arguments import matches
from litequeue.cli.failures import Failure, Interrupted, Misuse, fail_quietly, nothing_to_do
from litequeue.cli.ids import GivenId, given_id, whole_ids
from litequeue.cli.input import duration_option, kind_option, many_scopes, scope_options
from litequeue.cli.output import count_of, plain, scope_text, warn
from litequeue.cli.target import Target
from litequeue.cli.times import Times
from litequeue.model import ANY, Scope, SpecialScope
from litequeue.rules import Verb

P = ParamSpec("P")
R = TypeVar("R")

_STEP = 100
"""Jobs in one transaction, so that none holds the write lock for long."""


def older_than_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--older-than`."""
    told = "With --state: only those that ended so long ago or longer."
    return click.option("--older-than", metavar="DURATION", type=duration_option, help=told)(command)


def yes_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal to ask on.")(command)


@dataclass(frozen=True, slots=True)
class Which:
    """The jobs that are meant: those of some ids, or all in a state."""

    given: tuple[GivenId, ...]
    state: JobState | None
    kind: str | None
    scope: Scope | SpecialScope | None
    older_than_s: float | None = None
    among: JobState | None = None
    """Beginnings of ids are those of jobs in this state."""

    def steps(self, queue: Queue) -> Iterator[list[UUID]]:
        """Return their ids, as many at once as belong in one transaction.

        Raises:
            Failure: the beginning of an id is not unique; raised before the first step.
        """
        return (
            in_steps(whole_ids(queue, self.given, self.among))
            if self.state is None
            else self._of_state(queue, self.state)
        )

    def count(self, queue: Queue) -> int:
        """Count those that are there and may be removed."""
        if self.state is None:
            found = [_state_of(queue, job_id) for job_id in whole_ids(queue, self.given)]
            return sum(state is not None and rules.may_act(Verb.REMOVE, state) for state in found)
        if self.older_than_s is not None:
            return sum(map(len, self.steps(queue)))
        by_kind = queue.stats(self.scope).by_kind.items()
        of_kind = (counts for kind, counts in by_kind if self.kind is None or matches(self.kind, kind))
        return sum(counts.get(self.state, 0) for counts in of_kind)

    def told(self, queue: Queue, count: int) -> str:
        """Return so many of them in words."""
        number = count_of(count, "job")
        if self.state is None:
            return number
        kind = "" if self.kind is None else f" of {plain(self.kind)}"
        age = "" if self.older_than_s is None else f" that ended {self.older_than_s:g} s ago or longer"
        where = queue.scope if self.scope is None else self.scope
        place = "all scopes" if where is ANY else f"scope {scope_text(where)}"
        return f"{number}, every {self.state.name.lower()} one{kind} in {place}{age},"

    def _of_state(self, queue: Queue, state: JobState) -> Iterator[list[UUID]]:
        after: Job | None = None
        while page := queue.list(state, self.kind, self.scope, _STEP, after):
            after = page[-1]
            meant = [job.job_id for job in page if self._is_old_enough(job)]
            if meant:
                yield meant

    def _is_old_enough(self, job: Job) -> bool:
        if self.older_than_s is None:
            return True
        return (job.finished_at or 0) <= Times.now(utc=True).now_us - self.older_than_s * 1_000_000


def which_jobs(
    given: tuple[GivenId, ...],
    state: str | None,
    kind: str | None,
    scope: str | None,
    *,
    system: bool,
    all_scopes: bool,
    older_than: float | None = None,
    among: JobState | None = None,
) -> Which:
    """Return the jobs that these options mean.

    Raises:
        Misuse: they are neither some ids nor a state.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    if bool(given) == (state is not None):
        raise Misuse("give the ids of jobs, or --state for all jobs in a state")
    if given and (kind is not None or all_scopes or where is not None or older_than is not None):
        raise Misuse("--kind, --older-than and scopes go with --state; an id needs none")
    return Which(given, None if state is None else JobState[state.upper()], kind, where, older_than, among)


class _Acting(Protocol):
    """A command on the jobs that are meant."""

    def __call__(self, *, which: Which, **more: object) -> None: ...


def which_options(states: Iterable[JobState]) -> Callable[[Callable[P, None]], Callable[[], None]]:
    """Add the ids and the options that say which jobs are meant; the command is given them as its `which`."""
    names = [state.name.lower() for state in states]

    def decorate(command: Callable[P, None]) -> Callable[[], None]:
        @wraps(command)
        def called(
            *,
            given: tuple[GivenId, ...],
            state: str | None,
            kind: str | None,
            scope: str | None,
            system: bool,
            all_scopes: bool,
            older_than: float | None = None,
            **more: object,
        ) -> None:
            which = which_jobs(given, state, kind, scope, system=system, all_scopes=all_scopes, older_than=older_than)
            cast("_Acting", command)(which=which, **more)

        options = scope_options(many=True)(called)
        options = kind_option("With --state: only this kind, or every kind that begins so ('area:').")(options)
        told = "Every job in this state, instead of ids."
        options = click.option("--state", type=click.Choice(names), help=told)(options)
        options = click.argument("given", metavar="[ID]...", nargs=-1, type=given_id)(options)
        return cast("Callable[[], None]", options)

    return decorate


def in_steps(job_ids: Sequence[UUID]) -> Iterator[list[UUID]]:
    """Return ids, as many at once as belong in one transaction."""
    for start in range(0, len(job_ids), _STEP):
        yield [*job_ids[start : start + _STEP]]


def act(steps: Iterable[list[UUID]], verb: Callable[[list[UUID]], Sequence[Exception]], done: str) -> None:
    """Apply a verb step by step; tell who was refused at once, and at the end, however it comes, how many were not."""
    tried = refused = 0
    try:
        for step in steps:
            refusals = verb(step)
            tried += len(step)
            refused += len(refusals)
            for refusal in refusals:
                warn(str(refusal))
    except BaseException:
        if tried:
            click.echo(_tally(tried, refused, done))
        raise
    click.echo(_tally(tried, refused, done))
    if refused:
        fail_quietly()
    if not tried:
        nothing_to_do()


def purge_many(target: Target, which: Which, *, yes: bool) -> None:
    """Remove jobs for good, once that is confirmed.

    Where there is none to be removed, nobody is asked.

    Raises:
        Misuse: there is nobody to confirm it.
        Failure: it was not confirmed.
        Interrupted: Ctrl-C was the answer.
    """
    with target.queue() as queue:
        count = 0 if yes else which.count(queue)
        if count:
            told = which.told(queue, count)
            if sys.stdin is None or not sys.stdin.isatty():
                raise Misuse(f"this would remove {told} for good: confirm it with --yes")
            if not _is_confirmed(f"Remove {told} for good?"):
                raise Failure("nothing was removed")
        act(which.steps(queue), queue.remove_many, "removed")


def _is_confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort as exc:
        click.echo(err=True)  # the question has no end of its line
        if isinstance(exc.__context__, KeyboardInterrupt):
            raise Interrupted("interrupted; nothing was removed") from exc
        return False


def _state_of(queue: Queue, job_id: UUID) -> JobState | None:
    try:
        return queue.get(job_id).state
    except JobNotFound:
        return None


def _tally(tried: int, refused: int, done: str) -> str:
    return f"{count_of(tried - refused, 'job')} {done}" + (f", {refused} refused" if refused else "")
