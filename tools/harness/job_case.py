"""One job before the checker: what the journals tell of it against what the file holds.

Owns: every rule that concerns one job alone. Invariant: what a truncated log no longer says is not held against it.
Leaves out: what concerns several jobs or the file as a whole (`checker`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness import found as finding
from harness.found import FoundJob, Run, live_through
from harness.history import Histories, JobHistory, Session, Taken, Word, family
from harness.journal import Outcome
from harness.promises import Breach, Rule

_END_OF = {"complete": "completed", "fail": "failed", "release": "released"}
_PROLONGS = frozenset({"extend", "checkpoint"})
_SHOWN = 8


class JobCase:
    """One job, its history and its log."""

    def __init__(self, job: FoundJob, history: JobHistory, histories: Histories, breaches: list[Breach]) -> None:
        self.job = job
        self.history = history
        self.life = live_through(job)
        self.unheard: list[Run | None] = []
        """Leases that nobody was told of; `None` when the log no longer says whose."""
        self.unknown: Counter[str] = Counter()
        """How words of unknown outcome ended."""
        self.histories = histories
        self._breaches = breaches
        self._taken = sorted(history.leases)
        self.words = sorted(history.words, key=lambda word: word.asked_at)

    def judge(self) -> None:
        """Hold the job against every rule."""
        self._log()
        self._attempts()
        self._leases()
        self._what_was_said()
        self._who_ended_runs()
        self._completions()

    def breach(self, rule: Rule, what: str) -> None:
        """Say that a rule was broken."""
        self._breaches.append(Breach(rule, f"job {self.job.job_id} ({self.job.kind}): {what}"))

    def _log(self) -> None:
        job, life = self.job, self.life
        if not job.events or job.payload == finding.UNREADABLE:
            self.breach(Rule.LOG, "it has no readable log")
        for wrong in life.wrong:
            self.breach(Rule.LOG, f"{wrong} ({self._shown()})")
        if not life.wrong and job.state not in life.states:
            self.breach(Rule.LOG, f"it is {job.state}, its log ends otherwise ({self._shown()})")
        seen = len(life.runs)
        if not seen <= job.generation <= seen + life.dropped:
            self.breach(Rule.GENERATIONS, f"generation {job.generation}, its log has {seen} leases")

    def _attempts(self) -> None:
        job, life = self.job, self.life
        if job.attempts > job.most_attempts:
            self.breach(Rule.ATTEMPTS, f"{job.attempts} of {job.most_attempts} attempts")
        for name, counted, stored in (("attempts", life.attempts, job.attempts), ("reaps", life.reaps, job.reaps)):
            if counted is not None and counted != stored:
                self.breach(Rule.ATTEMPTS, f"{name} {stored}, its log says {counted} ({self._shown()})")
        last = job.events[-1] if job.events else None
        is_spent = last is not None and last.transition == "dead" and last.detail.endswith("attempts")
        if is_spent and job.attempts != job.most_attempts:
            self.breach(Rule.ATTEMPTS, f"it died after {job.attempts} of {job.most_attempts} attempts")

    def _leases(self) -> None:
        earliest_later: int | None = None
        for index in range(len(self._taken) - 1, -1, -1):
            one = self._taken[index]
            following = self._taken[index + 1] if index + 1 < len(self._taken) else None
            if following is not None and following.generation == one.generation:
                both = f"{one.session} and {following.session}"
                self.breach(Rule.ONE_HOLDER, f"generation {one.generation} was given to {both}")
            if earliest_later is not None and earliest_later < one.asked_at:
                self.breach(Rule.GENERATIONS, f"generation {one.generation} was leased after a later one")
            earliest_later = one.heard_at if earliest_later is None else min(earliest_later, one.heard_at)
            self._lease(one, following)
        heard = {one.generation for one in self._taken}
        runs = (self.life.of(one) for one in range(1, self.job.generation + 1) if one not in heard)
        self.unheard = [None if run is None or run.worker is None else run for run in runs]

    def _lease(self, one: Taken, following: Taken | None) -> None:
        if one.generation > self.job.generation:
            found = self.job.generation
            self.breach(Rule.TRUTH, f"lease {one.generation} was acknowledged, the file knows {found}")
        run = self.life.of(one.generation)
        if run is None:
            return
        if run.worker not in {None, one.worker}:
            self.breach(Rule.TRUTH, f"lease {one.generation} went to {one.worker}, its log says {run.worker}")
        if run.reaps_before and one.together > 1:
            others = one.together - 1
            self.breach(
                Rule.ALONE, f"lease {one.generation}, after {run.reaps_before} reaps, came with {others} others"
            )
        if run.end == "reaped" and following is not None and following.generation == one.generation + 1:
            self._reap(one, following, run)

    def _reap(self, one: Taken, following: Taken, run: Run) -> None:
        """Hold a reap against the deadline, or against the life of its holder; the next lease came after it."""
        if run.end_detail == "lease expired":
            deadline_us = self._deadline_us(one)
            if deadline_us is not None and following.heard_at // 1000 < deadline_us:
                early_us = deadline_us - following.heard_at // 1000
                self.breach(Rule.EARLY, f"lease {one.generation} was reaped {early_us} µs too early, at least")
        elif one.session not in self.histories.closed:
            lived_until = self.histories.last_line_at.get(one.session, 0)
            if lived_until > following.heard_at:
                self.breach(Rule.EARLY, f"lease {one.generation} ended as “{run.end_detail}”, but its holder lives")

    def _deadline_us(self, one: Taken) -> int | None:
        """Return when a lease was to lapse, as its holder knew it; `None` when it did not know.

        Of words that were said at the same time nobody knows which was the last.
        """
        said = [
            word
            for word in self.words
            if word.generation == one.generation and word.verb in _PROLONGS and word.outcome is not Outcome.NOTHING
        ]
        if not said:
            return one.deadline_us
        last = [word for word in said if word.heard_at is None or word.heard_at >= said[-1].asked_at]
        known = [word.deadline_us for word in last if word.outcome is Outcome.DONE and word.deadline_us is not None]
        return min(known) if len(known) == len(last) else None

    def _what_was_said(self) -> None:
        ended: dict[int, Word] = {}
        refused: dict[int, Word] = {}
        for word in self.words:
            match word.outcome:
                case Outcome.NOTHING:
                    refused.setdefault(word.generation, word)
                    if self.job.state == "leased" and word.generation == self.job.generation:
                        self.breach(Rule.TRUTH, f"a word of lease {word.generation} was refused, and it still holds")
                case Outcome.UNKNOWN:
                    self._said_perhaps(word)
                case Outcome.DONE:
                    self._obeyed(word, ended.get(word.generation), refused.get(word.generation))
                    if word.verb in _END_OF:
                        ended.setdefault(word.generation, word)

    def _said_perhaps(self, word: Word) -> None:
        run = self.life.of(word.generation)
        if run is not None and word.verb in _END_OF:
            self.unknown[f"{word.verb} {'happened' if run.end == _END_OF[word.verb] else 'did not'}"] += 1

    def _obeyed(self, word: Word, ended: Word | None, refused: Word | None) -> None:
        """Hold an accepted word against what everyone knew before it was said, and against the log."""
        said = f"{word.verb} of lease {word.generation} was accepted"
        later = [one for one in self._taken if one.generation > word.generation and one.heard_at < word.asked_at]
        if later:
            self.breach(Rule.STALE, f"{said} after lease {later[0].generation} had been given out")
        if not any(one.generation == word.generation and _may_speak(word, one) for one in self._taken):
            self.breach(Rule.STALE, f"{said}, but {word.session} had never leased it")
        if ended is not None and (word.verb in _END_OF or (ended.heard_at or 0) < word.asked_at):
            self.breach(Rule.ONE_COMPLETION, f"{said} after its {ended.verb} had been")
        if refused is not None and (refused.heard_at or 0) < word.asked_at:
            self.breach(Rule.TRUTH, f"{said} after another word of it had been refused")
        run = self.life.of(word.generation)
        if word.verb in _END_OF and run is not None and run.end != _END_OF[word.verb]:
            self.breach(Rule.STALE if run.end else Rule.TRUTH, f"{said}, its log says {run.end}")

    def _who_ended_runs(self) -> None:
        """Find who ended each run; a reap and a cancel are nobody's word."""
        said = _ends(word for word in self.words if word.outcome is not Outcome.NOTHING)
        holders = {one.generation: one.session for one in self._taken}
        for run in self.life.runs:
            if run.end not in _END_OF.values() or (run.generation, run.end) in said:
                continue
            if run.end == "released" and self._may_have_closed(holders.get(run.generation)):
                continue
            self.breach(Rule.ONE_COMPLETION, f"lease {run.generation} was {run.end}, but nobody said so")

    def _may_have_closed(self, session: Session | None) -> bool:
        """Tell whether a handle may have given the lease back as it closed; an unheard lease is anybody's."""
        return bool(self.histories.closed) if session is None else session in self.histories.closed

    def _completions(self) -> None:
        job = self.job
        ends = [word for word in self.words if word.verb == "complete" and word.outcome is not Outcome.NOTHING]
        known = [word for word in ends if word.outcome is Outcome.DONE]
        if len(known) > 1 + self.history.anew:
            self.breach(Rule.ONE_COMPLETION, f"it was completed {len(known)} times")
        if known and not self.history.anew:
            if job.state != "completed":
                self.breach(Rule.TRUTH, f"it was completed and is {job.state}")
            if known[-1].generation != job.generation:
                stale = known[-1].generation
                self.breach(Rule.STALE, f"it was completed by lease {stale}; the latest is {job.generation}")
        if job.state == "completed":
            mine = [word for word in ends if word.generation == job.generation]
            certain = [word for word in mine if word.outcome is Outcome.DONE]
            if job.result not in {word.result for word in certain or mine}:
                self.breach(Rule.RESULT, "its result is none that its last lease gave")

    def _shown(self) -> str:
        return " ".join(line.transition for line in self.job.events[-_SHOWN:])


def _may_speak(word: Word, taken: Taken) -> bool:
    """Tell whether a word is its holder's: of the same handle, or of the worker whose process the holder is."""
    return word.session == taken.session or word.session[0] == family(taken.session)


def _ends(words: Iterable[Word]) -> set[tuple[int, str]]:
    return {(word.generation, _END_OF[word.verb]) for word in words if word.verb in _END_OF}
