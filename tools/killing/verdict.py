"""What is left of a run: the checker's word, and what only this harness can know of its own jobs.

Owns: the end checks and the figures of one file. Invariant: it opens the file when every process that worked on it is
gone, and works on nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import litequeue
from harness import found as finding
from harness.checker import Findings, judge
from harness.handling import Outside
from harness.history import Histories, gather
from harness.journal import SUFFIX, Outcome
from harness.restrictions import UNRESTRICTED
from killing import operating, tasks
from killing.worker import Orders
from litequeue import ANY, Job, JobState
from litequeue.sqlite import examining

_LONGEST_S = 20.0
"""Without any progress: far beyond a lease, the waiting for a stopped process that has the lock, and a slow machine."""
_BEGINNINGS = 4
"""So many in a row may come to nothing, as they are killed before they have work."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one file."""

    findings: Findings
    longest_s: float
    """The longest time in which no job was leased or ended."""
    broken: list[str]


def judge_file(orders: Orders, slowest_start_s: float) -> Verdict:
    """Look at what the workers have left, who took so long at most to begin."""
    folder = orders.folder
    histories = gather(folder.glob(f"*{SUFFIX}"))
    broken: list[str] = []
    with litequeue.open(orders.queue, create=False) as queue:
        restrictions = operating.told(queue) if orders.is_restricted else UNRESTRICTED
        jobs = finding.read(queue)
        findings = judge(histories, jobs, outside=_outside(folder), restrictions=restrictions)
        broken += [str(breach) for breach in findings.breaches]
        with queue.transaction() as tx:
            broken += [f"integrity_check: {row[0]!s}" for row in tx.execute("PRAGMA integrity_check") if row != ("ok",)]
            rows = tx.execute("SELECT job_id, count(*) FROM side GROUP BY job_id")
        side = dict(cast("list[tuple[str, int]]", rows))
        for job in _jobs(queue):
            broken += _of_job(job, side.pop(str(job.job_id), 0))
        broken += [f"job {job_id} has {count} side rows and is not there" for job_id, count in side.items()]
    broken += examining.problems(str(orders.queue))
    longest_s = _longest_s(histories)
    if longest_s > _LONGEST_S + _BEGINNINGS * slowest_start_s:
        broken.append(f"nothing went on for {longest_s:.1f} s (G5, G10)")
    return Verdict(findings, longest_s, [f"{orders.title}: {what}" for what in broken])


def _outside(folder: Path) -> Outside:
    """Return what was done to them: they say themselves when they die at their point, or put themselves to sleep."""

    def named(*suffixes: str) -> set[str]:
        return {path.stem for suffix in suffixes for path in folder.glob(f"*.{suffix}")}

    return Outside(named("died", "struck"), named("asleep", "stopped"), {tasks.kind(tasks.UNPACKABLE)})


def _jobs(queue: litequeue.Queue) -> Iterator[Job]:
    last: Job | None = None
    while page := queue.list(scope=ANY, limit=1000, after=last):
        yield from page
        last = page[-1]


def _of_job(job: Job, side_rows: int) -> Iterator[str]:
    """Hold a job against what its task must lead to."""
    task = cast("tasks.Payload", job.payload)
    how = task["how"]
    named = f"job {job.job_id} ({how})"
    is_done = job.state is JobState.COMPLETED
    if how == tasks.POISON:
        counts = (job.attempts, job.reaps)
        if job.state is not JobState.DEAD or counts != (tasks.POISON_ATTEMPTS,) * 2:
            yield f"{named} is {job.state} after {counts} attempts and reaps (G6)"
    elif how in tasks.DEAD:
        if job.state is not JobState.DEAD:
            yield f"{named} is {job.state} (G6)"
    elif how == tasks.DOOMED and job.state is JobState.CANCELLED:
        pass
    elif not is_done:
        yield f"{named} is {job.state} after {job.attempts} attempts: {job.last_error} (G5, G6)"
    if is_done and job.result != tasks.work(task):
        yield f"{named} has the result {job.result!r} (G2)"
    if side_rows != (is_done and how in tasks.SIDE):
        yield f"{named} is {job.state} and has {side_rows} side rows (G3)"


def _longest_s(histories: Histories) -> float:
    """Return the longest time between two acknowledged leases or ends of leases, over all processes."""
    times = sorted(
        itertools.chain(
            (lease.heard_at for history in histories.jobs.values() for lease in history.leases),
            (
                word.heard_at
                for history in histories.jobs.values()
                for word in history.words
                if word.outcome is Outcome.DONE and word.heard_at is not None
            ),
        )
    )
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0) / 1e9
