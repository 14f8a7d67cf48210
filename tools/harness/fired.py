"""Whether schedules fired: each boundary has one job, or is among those that were skipped, and none has two.

Owns: the rule FIRED. A job says by its key for which boundary it was made. Invariant: everything is decided from the
jobs and the schedule's own row, without the package's words for either.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from harness.found import FoundJob
from harness.promises import Breach, Rule
from harness.restrictions import Restrictions, Scheduled

BOUNDARIES = "boundaries fired"
_KEY = re.compile(r"litequeue:schedule:.*:(\d+)")


class Fired:
    """The jobs of the schedules of a file."""

    def __init__(self, restrictions: Restrictions, breaches: list[Breach], figures: Counter[str]) -> None:
        self._schedules = restrictions.schedules
        self._breaches = breaches
        self._figures = figures
        self._jobs: dict[str, list[FoundJob]] = defaultdict(list)

    def add(self, job: FoundJob) -> None:
        """Take note of a job of a schedule's kind."""
        self._jobs[job.kind].append(job)

    def judge(self) -> None:
        """Hold the jobs of each schedule against its boundaries."""
        for schedule in self._schedules:
            jobs = self._jobs[schedule.kind]
            self._boundaries(schedule, jobs)
            for job in jobs:
                if job.payload != schedule.payload:
                    self._breach(Rule.RESULT, schedule, f"job {job.job_id} has another payload")
            if schedule.fired != len(jobs):
                self._breach(Rule.FIRED, schedule, f"it says that it fired {schedule.fired}, there are {len(jobs)}")

    def _boundaries(self, schedule: Scheduled, jobs: list[FoundJob]) -> None:
        found: Counter[int] = Counter()
        for job in jobs:
            named = _KEY.fullmatch(job.key or "")
            if named is None:
                self._breach(Rule.FROM_NOWHERE, schedule, f"job {job.job_id} is of no boundary")
                continue
            boundary = int(named[1])
            found[boundary] += 1
            if job.created_at < boundary:
                self._breach(Rule.FIRED, schedule, f"{boundary} was fired {boundary - job.created_at} µs too early")
        first = schedule.created_at + schedule.interval_us
        expected = range(first, schedule.upcoming, schedule.interval_us)
        self._figures[BOUNDARIES] += len(found)
        for boundary, count in sorted(found.items()):
            if count > 1:
                self._breach(Rule.FIRED, schedule, f"{boundary} was fired {count} times")
            if boundary not in expected:
                self._breach(Rule.FIRED, schedule, f"{boundary} is none of its boundaries")
        missing = len(expected) - sum(boundary in expected for boundary in found)
        if missing != schedule.skipped:
            self._breach(Rule.FIRED, schedule, f"{missing} boundaries have no job, {schedule.skipped} were skipped")

    def _breach(self, rule: Rule, schedule: Scheduled, what: str) -> None:
        self._breaches.append(Breach(rule, f"schedule {schedule.name}: {what}"))
