"""What the journals of all processes tell, job by job.

Owns: the gathering of calls into a history of each job, compact enough for some hundred thousand of them. Invariants:
a call that says that it did nothing is in no history; one whose outcome is unknown is, and is marked so. Leaves out:
whether any of it may be (`checker`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from harness import journal
from harness.journal import Call, Outcome, Told

Session = tuple[str, int]
"""A journal and one of its sessions: one queue handle of one process."""
Place = tuple[str, str, str]
"""Scope, kind and the payload's digest: how a job is known whose id nobody was told."""


class Taken(NamedTuple):
    """A lease that was acknowledged."""

    generation: int
    attempts: int
    deadline_us: int
    worker: str
    session: Session
    asked_at: int
    heard_at: int
    together: int
    """How many jobs the same call leased."""


class Word(NamedTuple):
    """What a holder said of its lease, and what it was told."""

    verb: str
    generation: int
    outcome: Outcome
    """NOTHING stands for a LeaseConflict; other refusals are no words."""
    session: Session
    asked_at: int
    heard_at: int | None
    result: str | None
    """The digest of a completion's result."""
    deadline_us: int | None


class Handled(NamedTuple):
    """A handler's run, from its first line to its last."""

    generation: int
    session: Session
    began_at: int
    ended_at: int | None
    """`None` when its process did not live to see it."""
    came: tuple[str, ...]
    """What it came to: how the queue may say that the run ended; `itself` when it said so by its own word."""
    result: str | None
    """The digest of what it returned."""


class Noted(NamedTuple):
    """Something noted of a lease: a side effect, or what a worker told its user."""

    what: str
    generation: int
    at: int


class _Asked(NamedTuple):
    """A job that was to be enqueued."""

    job_id: str | None
    place: Place
    key: str | None
    on_conflict: str
    is_new: bool
    """Whether it was made, or may have been."""


@dataclass(slots=True)
class JobHistory:
    """What was said of one job by its id."""

    is_acknowledged: bool = False
    may_exist: bool = False
    """An enqueue that named it has an unknown outcome."""
    times_enqueued: int = 0
    payloads: list[str] = field(default_factory=list)
    leases: list[Taken] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    handled: list[Handled] = field(default_factory=list)
    effects: list[Noted] = field(default_factory=list)
    events: list[Noted] = field(default_factory=list)
    """What its workers told their users."""
    anew: int = 0
    """How often an operator may have started a new run of it."""


@dataclass(slots=True)
class Whole:
    """A commit of unknown outcome: all of it is in the file, or nothing."""

    named: str
    """Where it stands in the journals."""
    jobs: list[tuple[str | None, Place]] = field(default_factory=list)
    """New jobs that no key keeps from being made."""
    ends: list[tuple[str, int, str]] = field(default_factory=list)
    """Job, generation and how its run would have ended."""
    is_loose: bool = False
    """Whether an end may have been refused by itself, as in an exchange."""


@dataclass(slots=True)
class Histories:
    """Everything that the journals tell."""

    jobs: dict[str, JobHistory] = field(default_factory=dict)
    must: Counter[Place] = field(default_factory=Counter)
    """Acknowledged jobs whose ids nobody was told (`then`)."""
    may: Counter[Place] = field(default_factory=Counter)
    """Jobs that may be in the file."""
    wholes: list[Whole] = field(default_factory=list)
    unknown_leases: Counter[str] = field(default_factory=Counter)
    """How many jobs each worker may have leased without hearing of it."""
    of_one_scope: set[str] = field(default_factory=set)
    """The workers that leased from one scope; nobody leases both so and from all of them under one name."""
    last_line_at: dict[Session, int] = field(default_factory=dict)
    closed: set[Session] = field(default_factory=set)
    exchanges: dict[str, list[int]] = field(default_factory=dict)
    """How long the exchanges of each family took, ns."""
    has_handlers: bool = False
    """Whether the jobs were worked on by handlers, which tell of it."""
    worked: dict[str, int] = field(default_factory=dict)
    """The families whose worker has ended in order, and when that was, in wall clock µs."""
    found_busy: set[str] = field(default_factory=set)
    """The families of which somebody has found the file busy."""
    calls: Counter[str] = field(default_factory=Counter)
    """By verb and outcome, as `complete done`."""
    unknown_jobs: int = 0

    def of(self, job_id: str) -> JobHistory:
        """Return a job's history, a new one if nothing was said of it yet."""
        found = self.jobs.get(job_id)
        if found is None:
            found = self.jobs[job_id] = JobHistory()
        return found


def family(session: Session) -> str:
    """Return whose it is: the worker itself, for its processes too, whose journals have its name before a dot."""
    return session[0].partition(".")[0]


_ENDS = {"complete": "completed", "fail": "failed", "release": "released"}


def gather(paths: Iterable[Path]) -> Histories:
    """Read journals, one after the other."""
    histories = Histories()
    for path in sorted(paths):
        told = Told()
        for call in journal.read(path, told):
            _add(histories, call)
        histories.last_line_at.update({(path.stem, session): at for session, at in told.last_line_at.items()})
    return histories


def _add(histories: Histories, call: Call) -> None:
    if call.verb == "exchange":  # what it settles may be refused one by one, a completion with its followers
        for part in call.parts:
            if "jobs" in part.asked:
                _add_whole(histories, part, (part,))
        _add_whole(histories, call, [part for part in call.parts if not part.asked.get("jobs")])
    elif call.verb == "transaction" or "jobs" in call.asked:
        _add_whole(histories, call, call.parts or (call,))
    for part in (call, *call.parts):
        _add_one(histories, part)


def _add_whole(histories: Histories, call: Call, parts: Sequence[Call]) -> None:
    """Add a commit, when nobody knows its outcome."""
    if call.outcome is not Outcome.UNKNOWN:
        return
    whole = Whole(f"{call.verb} {call.number} of {call.writer}", is_loose=call.verb == "exchange")
    for part in parts:
        _add_to_whole(whole, part)
    if len(whole.jobs) + len(whole.ends) > 1:
        histories.wholes.append(whole)


def _add_one(histories: Histories, call: Call) -> None:
    histories.calls[f"{call.verb} {_how(call)}"] += 1
    session = (call.writer, call.session)
    if call.error == "QueueBusy":
        histories.found_busy.add(family(session))
    match call.verb:
        case "lease":
            _add_leases(histories, call, session)
        case "close":
            histories.closed.add(session)
        case "retry" if call.outcome is not Outcome.NOTHING:
            histories.of(cast("str", call.asked["job"])).anew += 1
        case "enqueue":
            _add_jobs(histories, call)
        case "extend" | "checkpoint" | "note" | "complete" | "fail" | "release":
            _add_words(histories, call, session)
            if "jobs" in call.asked:
                _add_jobs(histories, call)
        case _:
            _add_of_handlers(histories, call, session)


def _how(call: Call) -> str:
    if call.outcome is Outcome.NOTHING:
        return "refused" if call.error == "LeaseConflict" else f"raised {call.error or 'with its transaction'}"
    return call.outcome.name.lower()


def _add_leases(histories: Histories, call: Call, session: Session) -> None:
    worker = cast("str", call.asked["worker"])
    if call.asked.get("is_any") is False and call.asked["limit"]:
        histories.of_one_scope.add(worker)
    if call.outcome is Outcome.UNKNOWN:
        histories.unknown_leases[worker] += cast("int", call.asked["limit"])
    if call.outcome is not Outcome.DONE or call.heard_at is None:
        return
    leases = cast("list[tuple[str, int, int, int]]", call.heard["leases"])
    for job_id, generation, attempts, deadline_us in leases:
        histories.of(job_id).leases.append(
            Taken(generation, attempts, deadline_us, worker, session, call.asked_at, call.heard_at, len(leases))
        )


def _add_words(histories: Histories, call: Call, session: Session) -> None:
    refused = {tuple(pair) for pair in cast("list[list[object]]", call.heard.get("conflicts", ()))}
    if call.outcome is Outcome.NOTHING and not refused:
        return
    leases = cast("list[tuple[str, int]]", call.asked["leases"])
    results = cast("list[str]", call.asked.get("results", ()))
    deadlines = cast("list[int]", call.heard.get("deadlines", ()))
    for index, (job_id, generation) in enumerate(leases):
        is_refused = (job_id, generation) in refused
        if call.outcome is Outcome.NOTHING and not is_refused:  # it went back with its transaction
            continue
        histories.of(job_id).words.append(
            Word(
                call.verb,
                generation,
                Outcome.NOTHING if is_refused else call.outcome,
                session,
                call.asked_at,
                call.heard_at,
                results[index] if results else None,
                deadlines[index] if deadlines else None,
            )
        )


def _add_of_handlers(histories: Histories, call: Call, session: Session) -> None:
    match call.verb:
        case "handle":
            _add_handled(histories, call, session)
        case "effect" | "event":
            _add_noted(histories, call)
        case "exchange" if call.heard_at is not None:
            histories.exchanges.setdefault(family(session), []).append(call.heard_at - call.asked_at)
        case "worked":
            histories.worked[family(session)] = cast("int", call.asked["wall_us"])
        case _:
            pass


def _add_handled(histories: Histories, call: Call, session: Session) -> None:
    histories.has_handlers = True
    ((job_id, generation),) = cast("list[tuple[str, int]]", call.asked["leases"])
    came = tuple(cast("list[str]", call.heard.get("came", ())))
    result = cast("str | None", call.heard.get("result"))
    handled = Handled(generation, session, call.asked_at, call.heard_at, came, result)
    histories.of(job_id).handled.append(handled)


def _add_noted(histories: Histories, call: Call) -> None:
    ((job_id, generation),) = cast("list[tuple[str, int]]", call.asked["leases"])
    history = histories.of(job_id)
    noted = history.effects if call.verb == "effect" else history.events
    noted.append(Noted(cast("str", call.asked["what"]), generation, call.asked_at))


def _add_jobs(histories: Histories, call: Call) -> None:
    if call.outcome is Outcome.NOTHING:
        return
    for job_id, place, _, on_conflict, is_new in _jobs(call):
        if on_conflict == "reset" or (job_id is None and call.outcome is Outcome.UNKNOWN):
            histories.may[place] += 1
        if call.outcome is Outcome.UNKNOWN:
            histories.unknown_jobs += 1
        if job_id is None:
            if call.outcome is Outcome.DONE:
                histories.must[place] += 1
            continue
        history = histories.of(job_id)
        history.payloads.append(place[2])
        history.times_enqueued += 1
        history.anew += is_new and history.times_enqueued > 1
        if call.outcome is Outcome.DONE:
            history.is_acknowledged = True
        else:
            history.may_exist = True


def _add_to_whole(whole: Whole, part: Call) -> None:
    if part.outcome is Outcome.NOTHING:
        return
    whole.jobs += [(job.job_id, job.place) for job in _jobs(part) if job.is_new and job.key is None]
    if part.verb in _ENDS:
        refused = {tuple(pair) for pair in cast("list[list[object]]", part.heard.get("conflicts", ()))}
        for job_id, generation in cast("list[tuple[str, int]]", part.asked["leases"]):
            if (job_id, generation) not in refused:
                whole.ends.append((job_id, generation, _ENDS[part.verb]))


def _jobs(call: Call) -> Iterator[_Asked]:
    """Return the jobs that a call enqueued, by the ids that it gave or was told."""
    heard = cast("list[tuple[str, bool]] | None", call.heard.get("jobs"))
    given = cast("list[tuple[str | None, str, str, str, str | None, str]]", call.asked.get("jobs", []))
    for index, (job_id, scope, kind, payload, key, on_conflict) in enumerate(given):
        told_id, is_new = (job_id, True) if heard is None else heard[index]
        yield _Asked(told_id, (scope, kind, payload), key, on_conflict, is_new)
