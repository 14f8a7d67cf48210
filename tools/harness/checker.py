"""Whether what the journals tell and what the file holds agree with the contract.

Owns: the run over all jobs, and the rules that concern several jobs or the file as a whole. Everything is decided from
the journals of all processes and the event logs of all jobs alone, without the package's own rules. Invariant: an
unknown outcome may be either, but only one of the two, and all of one commit the same. Leaves out: the rules of one job
(`job_case`), and the shape of the tables (`PRAGMA integrity_check`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import litequeue
from harness import found as finding
from harness.found import FoundJob, Run
from harness.handling import UNDISTURBED, Handling, Outside
from harness.history import Histories, JobHistory, Place, Whole, gather
from harness.job_case import JobCase
from harness.promises import Breach, Rule
from harness.restrained import Restrained
from harness.restrictions import UNRESTRICTED, Restrictions


@dataclass(slots=True)
class Findings:
    """What the checker found."""

    breaches: list[Breach] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    """By verb and outcome: `complete done`, `complete refused`, `enqueue unknown`, `lease raised QueueBusy` …"""
    jobs: Counter[str] = field(default_factory=Counter)
    """By state, at the end."""
    leases: int = 0
    """By the jobs' generations: those of killed callers are counted too."""
    repeated_jobs: int = 0
    """Leased more than once."""
    repeated_runs: int = 0
    """The same, but for what was given back in between."""
    unknown: Counter[str] = field(default_factory=Counter)
    """How unknown outcomes ended: `complete happened`, `enqueue did not` …"""
    restrained: Counter[str] = field(default_factory=Counter)
    """How often what restricts the leases was felt: places taken up, waits for a turn, boundaries fired …"""

    def count(self, *rules: Rule) -> int:
        """Return how often some rules were broken."""
        return sum(breach.rule in rules for breach in self.breaches)


def check(journals: Iterable[Path], path: Path, *, is_drained: bool = True, is_fifo: bool = False) -> Findings:
    """Check a queue file against the journals of every process that ever worked on it.

    Call it in a process that has not worked on the file. `is_drained`: no job may be waiting or leased. `is_fifo`: the
    jobs of each scope and priority had no delays and no kind filters, so they were first leased in order.
    """
    with litequeue.open(path, create=False) as queue:
        return judge(gather(journals), finding.read(queue), is_drained=is_drained, is_fifo=is_fifo)


def judge(
    histories: Histories,
    jobs: Iterable[FoundJob],
    *,
    is_drained: bool = True,
    is_fifo: bool = False,
    outside: Outside = UNDISTURBED,
    restrictions: Restrictions = UNRESTRICTED,
) -> Findings:
    """Check the jobs that were found against what the journals tell, and what was done to those who wrote them.

    `restrictions` is what was imposed on the file besides.
    """
    judging = _Judging(histories, outside, restrictions)
    for job in jobs:
        judging.job(job, is_drained=is_drained)
    judging.end(is_fifo=is_fifo)
    return judging.findings


class _Judging:
    def __init__(self, histories: Histories, outside: Outside, restrictions: Restrictions) -> None:
        self.findings = Findings(calls=histories.calls)
        self._restrained = Restrained(restrictions, self.findings.breaches, self.findings.restrained)
        self._is_restricted = restrictions.any
        self._scheduled = restrictions.scheduled_kinds
        self._histories = histories
        self._outside = outside
        self._seen: set[str] = set()
        self._unnamed: Counter[Place] = Counter()
        self._asked_ends = {(job_id, one) for whole in histories.wholes for job_id, one, _ in whole.ends}
        self._ends: dict[tuple[str, int], Run] = {}
        self._unheard: Counter[str | None] = Counter()
        self._first_leases: dict[tuple[str, int], list[tuple[int, int, str]]] = {}

    def job(self, job: FoundJob, *, is_drained: bool) -> None:
        """Judge one job, and note what the rules for all of them need."""
        findings = self.findings
        findings.jobs[job.state] += 1
        findings.leases += job.generation
        findings.repeated_jobs += job.generation > 1
        findings.repeated_runs += job.attempts > 1
        self._seen.add(job.job_id)
        history = self._histories.jobs.get(job.job_id) or JobHistory()
        case = JobCase(job, history, self._histories, findings.breaches)
        case.judge()
        if self._histories.has_handlers:
            Handling(case, self._outside).judge()
        if job.kind not in self._scheduled:
            self._origin(case)
        if self._is_restricted:
            self._restrained.add(job, case.life)
        if is_drained and job.state not in finding.ENDED:
            case.breach(Rule.DRAINED, f"it is {job.state}")
        findings.unknown += case.unknown
        self._unheard.update(None if run is None else run.worker for run in case.unheard)
        for run in case.life.runs:
            if (job.job_id, run.generation) in self._asked_ends and job.kind not in self._outside.unstorable:
                self._ends[job.job_id, run.generation] = run
        first = case.life.of(1)
        if first is not None:
            self._first_leases.setdefault((job.scope, job.priority), []).append((job.created_at, first.at, job.job_id))

    def end(self, *, is_fifo: bool) -> None:
        """Judge the file as a whole."""
        self._gone()
        self._unheard_leases()
        for whole in self._histories.wholes:
            self._whole(whole)
        if is_fifo:
            self._order()
        if self._is_restricted:
            self._restrained.judge(self._histories.of_one_scope)

    def _origin(self, case: JobCase) -> None:
        """Find who enqueued a job."""
        job, history = case.job, case.history
        place = (job.scope, job.kind, job.payload)
        if history.is_acknowledged or history.may_exist:
            if not history.is_acknowledged:
                self.findings.unknown["enqueue happened"] += 1
            if job.payload not in history.payloads and not self._histories.may[place]:
                case.breach(Rule.RESULT, "its payload is none that it was given")
            return
        self._unnamed[place] += 1
        known, possible = self._histories.must[place], self._histories.may[place]
        if self._unnamed[place] > known + possible:
            case.breach(Rule.FROM_NOWHERE, "nobody's enqueue made it, or one that raised")
        elif self._unnamed[place] > known:
            self.findings.unknown["enqueue happened"] += 1

    def _gone(self) -> None:
        """Find what was acknowledged and is not there."""
        for job_id, history in self._histories.jobs.items():
            if job_id in self._seen:
                continue
            if history.is_acknowledged or history.leases:
                self._breach(Rule.TRUTH, f"job {job_id} was acknowledged and is gone")
            elif history.may_exist:
                self.findings.unknown["enqueue did not"] += 1
        for place, count in self._histories.must.items():
            if self._unnamed[place] < count:
                found = self._unnamed[place]
                self._breach(Rule.TRUTH, f"{count} jobs {place} were acknowledged, {found} are there")

    def _unheard_leases(self) -> None:
        """Hold the leases that nobody was told of against the lease calls of unknown outcome."""
        asked = self._histories.unknown_leases
        for worker, count in self._unheard.items():
            self.findings.unknown["lease happened"] += count
            if worker is not None and count > asked[worker]:
                what = f"{count} leases of {worker} of which it never heard; {asked[worker]} are possible"
                self._breach(Rule.FROM_NOWHERE, what)
        if self._unheard.total() > asked.total():
            what = f"{self._unheard.total()} leases of which nobody heard; {asked.total()} are possible"
            self._breach(Rule.FROM_NOWHERE, what)

    def _whole(self, whole: Whole) -> None:
        happened: list[bool] = []
        for job_id, place in whole.jobs:
            if job_id is None and self._histories.may[place] > 1:
                continue  # a follower that several runs of a job wanted: whose it is, if it is there, nobody knows
            if job_id is None:
                happened.append(self._unnamed[place] > self._histories.must[place])
            elif self._histories.of(job_id).times_enqueued == 1:
                happened.append(job_id in self._seen)
        for job_id, generation, end in whole.ends:
            run = self._ends.get((job_id, generation))
            if run is None or (whole.is_loose and run.end != end and not _is_left(run)):
                continue  # another end had come first, so this one was refused, whatever became of the others
            happened.append(run.end == end)
        if len(set(happened)) > 1:
            self._breach(Rule.WHOLE, f"{whole.named}: {sum(happened)} of its {len(happened)} parts are in the file")

    def _order(self) -> None:
        for leases in self._first_leases.values():
            latest = (0, "")
            for _, at, job_id in sorted(leases):
                if at < latest[0]:
                    self._breach(Rule.ORDER, f"job {job_id} was leased before the older {latest[1]}")
                latest = max(latest, (at, job_id))

    def _breach(self, rule: Rule, what: str) -> None:
        self.findings.breaches.append(Breach(rule, what))


def _is_left(run: Run) -> bool:
    """Tell whether nobody has ended a run before its holder died."""
    return run.end is None or (run.end == "reaped" and run.end_detail != "lease expired")
