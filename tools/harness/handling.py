"""One job before the checker: what its handlers did, against what the queue was told of it.

Owns: the rules for workers that run handlers, which tell when they begin, what they do, and what they come to.
Invariant: a process that was killed has done nothing after its last line, and everything before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations
from typing import NamedTuple

from harness.found import Run
from harness.history import Handled, Taken, Word, family
from harness.job_case import JobCase
from harness.journal import Outcome
from harness.promises import Rule

ENDS = frozenset({"complete", "fail", "release"})
_MEANS = {
    "completed": {"completed"},
    "failed": {"failed"},
    "retried": {"failed"},
    "dead": {"failed"},
    "discarded": {"failed"},
    "snoozed": {"released"},
    "released": {"released"},
    "settled": {"completed", "failed", "released"},
}
"""What a worker may say of a run, by the event's name, and how the run must have ended then."""


_GAP_NS = 100_000_000
"""Between what is one step in a process, which may have been stopped or killed within it, on a busy machine."""


class Outside(NamedTuple):
    """What somebody else has done to the processes of workers, by the names of their journals."""

    killed: Collection[str] = ()
    """Killed; whoever is not among them has ended by itself."""
    stopped: Collection[str] = ()
    """Stopped for a while."""
    unstorable: Collection[str] = ()
    """Kinds of jobs whose results the queue does not take: it refuses such an end, whatever becomes of its commit."""


UNDISTURBED = Outside()


class Handling:
    """The handlers' runs of one job."""

    def __init__(self, case: JobCase, outside: Outside) -> None:
        self._case = case
        self._life = case.life
        self._outside = outside
        self._histories = case.histories
        self._handled = sorted(case.history.handled, key=lambda one: one.began_at)
        self._ends = [word for word in case.words if word.verb in ENDS]

    def judge(self) -> None:
        """Hold the runs against every rule."""
        self._overlaps()
        self._completed_when_done()
        self._answers()
        self._events()
        self._left()

    # --- one at a time

    def _overlaps(self) -> None:
        for earlier, later in combinations(self._handled, 2):
            if earlier.generation == later.generation:
                self._case.breach(Rule.OVERLAP, f"lease {earlier.generation} was handled twice")
            elif later.began_at < self._at_work_until(earlier):
                # Who was stopped between the lease and the handler begins with it when it is another's already.
                self._overlap(earlier, later, min(earlier, later, key=lambda one: one.generation))

    def _overlap(self, earlier: Handled, later: Handled, stale: Handled) -> None:
        """Hold it against the end of the lease that was taken first."""
        run = self._life.of(stale.generation)
        if run is not None and not _has_lapsed(run) and not self._was_cut_off(stale):
            both = f"the handler of lease {later.generation} began while that of lease {earlier.generation} was at work"
            self._case.breach(Rule.OVERLAP, f"{both} (lease {stale.generation}: {run.end} {run.end_detail})")

    def _at_work_until(self, one: Handled) -> int:
        """Return until when it certainly worked under its lease: its end, or what ended its lease in its process."""
        last = self._histories.last_line_at.get(one.session, 0) if one.ended_at is None else one.ended_at
        own = [word.asked_at for word in self._said(one) if word.session[0] == one.session[0]]
        return min([last, *own])

    def _was_cut_off(self, one: Handled) -> bool:
        """Tell whether its worker died between its word for a process that it had stopped, and the end of that.

        The process goes on then, until it finds that its job is not its own any more, as it does at once.
        """
        return any(
            self._last_line_at(word.session[0]) < word.asked_at + _GAP_NS
            for word in self._said(one)
            if word.session[0] != one.session[0]
        )

    def _last_line_at(self, journal: str) -> int:
        return max((at for session, at in self._histories.last_line_at.items() if session[0] == journal), default=0)

    # --- what came of it

    def _completed_when_done(self) -> None:
        for word in self._ends:
            if word.verb != "complete" or word.outcome is not Outcome.DONE:
                continue
            runs = [one for one in self._handled if one.generation == word.generation]
            if not any(_is_done_by(one, word) for one in runs):
                self._case.breach(Rule.HANDLED, f"lease {word.generation} was completed before its handler was done")
            heard_at = word.heard_at or 0
            if not any(one.generation == word.generation and one.at <= heard_at for one in self._case.history.effects):
                self._case.breach(Rule.HANDLED, f"lease {word.generation} was completed without its side effect")

    def _answers(self) -> None:
        for one in self._handled:
            run = self._life.of(one.generation)
            if run is None or run.end not in {"completed", "failed", "released"}:
                continue  # nobody said anything of it that stands: see `_left`
            if one.ended_at is None or "itself" in one.came or self._was_over(one, one.ended_at):
                continue
            allowed = {*one.came, "released"} if "failed" in one.came else {*one.came}
            if run.end not in allowed:
                came = " or ".join(one.came)
                self._case.breach(Rule.ANSWERED, f"the handler of lease {one.generation} {came}, its run was {run.end}")
            elif run.end == "completed" and self._case.job.result != one.result:
                self._case.breach(Rule.RESULT, f"its result is not what the handler of lease {one.generation} returned")

    def _was_over(self, one: Handled, ended_at: int) -> bool:
        """Tell whether its lease was ended for it before its process could hand in what it came to."""
        for word in self._said(one):
            is_anothers = word.session[0] != one.session[0]
            had_no_time = one.session[0] in self._outside.stopped or word.asked_at < ended_at + _GAP_NS
            if word.asked_at < ended_at or (is_anothers and had_no_time):
                return True
        return False

    def _said(self, one: Handled) -> Iterator[Word]:
        """Return the words that ended its lease, or may have."""
        for word in self._ends:
            is_of_it = word.generation == one.generation and word.asked_at >= one.began_at
            if is_of_it and word.outcome is not Outcome.NOTHING:
                yield word

    def _events(self) -> None:
        for event in self._case.history.events:
            run = self._life.of(event.generation)
            means = _MEANS.get(event.what)
            if run is not None and means is not None and run.end not in means:
                self._case.breach(Rule.TOLD, f"lease {event.generation} was told to be {event.what}, it is {run.end}")

    # --- in the end

    def _left(self) -> None:
        for taken in self._case.history.leases:
            ended_at_us = self._histories.worked.get(family(taken.session))
            if ended_at_us is None or taken.session[0] in self._outside.killed:
                continue
            run = self._life.of(taken.generation)
            if run is None or (self._may_be_killed(taken) and run.end == "reaped"):
                continue
            is_reaped = run.end == "reaped" and (run.end_detail != "lease expired" or run.ended_at > ended_at_us)
            if run.end is None or is_reaped:
                how = "leased" if run.end is None else f"reaped ({run.end_detail})"
                self._case.breach(Rule.LEFT, f"lease {taken.generation} of {taken.session[0]} was left {how}")

    def _may_be_killed(self, taken: Taken) -> bool:
        """Tell whether it was of a process that its worker may kill unsettled: where the file is busy for long."""
        name = family(taken.session)
        return taken.session[0] != name and name in self._histories.found_busy


def _has_lapsed(run: Run) -> bool:
    """Tell whether a lease was lost under its holder: the clock or an operator took it."""
    return run.end == "cancelled" or (run.end, run.end_detail) == ("reaped", "lease expired")


def _is_done_by(one: Handled, word: Word) -> bool:
    """Tell whether a completion came after a handler's end, or from within it."""
    if one.ended_at is not None and one.ended_at <= (word.heard_at or 0):
        return True
    return word.session == one.session and one.began_at <= word.asked_at
