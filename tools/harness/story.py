"""Stories for the tests of the checker: journals, told line by line, and jobs that are made up.

Owns: the words in which a test tells them. Invariant: the journals are real files, written in the order in which things
are to have happened.
"""

from __future__ import annotations

import time
from pathlib import Path

from harness.checker import Findings, judge
from harness.found import FoundJob, Line
from harness.handling import UNDISTURBED, Outside
from harness.history import gather
from harness.journal import SUFFIX, Journal, digest
from harness.promises import Rule
from harness.restrictions import UNRESTRICTED, Restrictions

A, B = "alice", "bob"
FAR_US = 10**15
"""A deadline that never comes."""


class Story:
    """Journals, told in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ahead_ns = 0
        """How much later it is by now, besides the time that the telling takes."""
        self._journals: dict[str, tuple[Journal, int]] = {}

    def call(self, who: str, verb: str, inside: int | None = None, **asked: object) -> int:
        """Begin a call; without an answer its outcome stays unknown."""
        journal, session = self._journal(who)
        return journal.call(session, verb, asked, inside)

    def note(self, who: str, noted: str, **told: object) -> None:
        """Note something that is no call."""
        journal, session = self._journal(who)
        journal.note(session, noted, told)

    def got(self, who: str, number: int, **heard: object) -> None:
        """Answer a call."""
        self._journals[who][0].got(number, heard)

    def raised(self, who: str, number: int, error: str, *, is_unknown: bool = False, **heard: object) -> None:
        """Answer a call with an error."""
        self._journals[who][0].raised(number, error, "", heard, is_unknown=is_unknown)

    def enqueue(self, job_id: str, who: str = A) -> None:
        """Enqueue a job, acknowledged."""
        number = self.call(who, "enqueue", jobs=[new(job_id)])
        self.got(who, number, jobs=[[job_id, True]])

    def lease(self, job_id: str, generation: int, who: str = A, deadline_us: int = FAR_US) -> None:
        """Lease a job, acknowledged."""
        number = self.call(who, "lease", limit=1, worker=who)
        self.got(who, number, leases=[[job_id, generation, generation, deadline_us]])

    def word(self, verb: str, job_id: str, generation: int, who: str = A, inside: int | None = None) -> None:
        """Say something of a lease, accepted."""
        self.got(who, self.ask(verb, job_id, generation, who, inside))

    def refused(self, verb: str, job_id: str, generation: int, who: str = A) -> None:
        """Say something of a lease, refused."""
        number = self.ask(verb, job_id, generation, who)
        self.raised(who, number, "LeaseConflict", conflicts=[[job_id, generation]])

    def ask(self, verb: str, job_id: str, generation: int, who: str = A, inside: int | None = None) -> int:
        """Say something of a lease, and hear nothing."""
        results = {"results": [digest(None)]} if verb == "complete" else {}
        return self.call(who, verb, inside, leases=[[job_id, generation]], **results)

    # --- what handlers tell

    def begin(self, job_id: str, generation: int, who: str = A) -> int:
        """Let a handler begin, and leave its side effect."""
        number = self.call(who, "handle", leases=[[job_id, generation]])
        self.note(who, "effect", leases=[[job_id, generation]], what="done")
        return number

    def end(self, number: int, who: str = A, came: str = "completed") -> None:
        """Let a handler end."""
        self.got(who, number, came=[came], result=digest(None))

    def handle(self, job_id: str, generation: int, who: str = A, came: str = "completed") -> None:
        """Let a handler begin and end."""
        self.end(self.begin(job_id, generation, who), who, came)

    def event(self, what: str, job_id: str, generation: int, who: str = A) -> None:
        """Let a worker tell its user something."""
        self.note(who, "event", leases=[[job_id, generation]], what=what)

    def end_in_order(self, who: str = A, wall_us: int = 0) -> None:
        """Let a worker end."""
        self.note(who, "worked", wall_us=wall_us)

    def judge(
        self,
        *jobs: FoundJob,
        is_drained: bool = True,
        is_fifo: bool = False,
        outside: Outside = UNDISTURBED,
        restrictions: Restrictions = UNRESTRICTED,
    ) -> Findings:
        """End the story: this is what is in the file, and what was imposed on it."""
        for journal, _ in self._journals.values():
            journal.close()
        histories = gather(self.folder.glob(f"*{SUFFIX}"))
        return judge(
            histories, jobs, is_drained=is_drained, is_fifo=is_fifo, outside=outside, restrictions=restrictions
        )

    def _journal(self, who: str) -> tuple[Journal, int]:
        if who not in self._journals:
            journal = Journal(self.folder / f"{who}{SUFFIX}", lambda: time.monotonic_ns() + self.ahead_ns)
            self._journals[who] = journal, journal.open_session(who)
        return self._journals[who]


def new(job_id: str | None, payload: object = None) -> list[str | None]:
    """Write a new job as the journal does."""
    return [job_id, "default", "work", digest(payload), None, "return"]


def job(job_id: str, state: str, *transitions: str, generation: int | None = None, most: int = 5) -> FoundJob:
    """Make a job whose log says this; `leased alice` is a lease by alice."""
    lines = [Line(at, *(text.split(" ", 1) if " " in text else (text, ""))) for at, text in enumerate(transitions)]
    leases = sum(line.transition == "leased" for line in lines)
    reaps = sum(line.transition == "reaped" for line in lines)
    attempts = leases - sum(line.transition == "released" for line in lines)
    return FoundJob(
        job_id,
        "default",
        "work",
        state,
        100,
        1,
        leases if generation is None else generation,
        attempts,
        reaps,
        most,
        None,
        digest(None),
        digest(None),
        tuple(lines),
    )


def rules(findings: Findings) -> set[Rule]:
    """Return the rules that were broken."""
    return {breach.rule for breach in findings.breaches}
