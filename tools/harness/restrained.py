"""Everything that was imposed on a file besides its jobs, before the checker: the rules for it, brought together.

Owns: what these rules need to know of all jobs, gathered while each is looked at. Leaves out: the rules themselves
(`admitted`, `fired`, `fairness`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from harness import admitted, fairness, fired
from harness.admitted import Admitted, Leased, leases
from harness.fairness import Fairness
from harness.fired import Fired
from harness.found import FoundJob, Life
from harness.promises import Breach
from harness.restrictions import Restrictions


class Restrained:
    """The jobs of a file, held against its restrictions."""

    def __init__(self, restrictions: Restrictions, breaches: list[Breach], figures: Counter[str]) -> None:
        if restrictions.any:
            figures.update({"limits set": len(restrictions.limits), "pauses": len(restrictions.paused)})
            figures.update(dict.fromkeys((*admitted.FIGURES, fired.BOUNDARIES, fairness.WAITS), 0))
        self._restrictions = restrictions
        self._admitted = Admitted(restrictions, breaches, figures)
        self._fired = Fired(restrictions, breaches, figures)
        self._fairness = Fairness(restrictions, breaches, figures)
        self._leased: list[Leased] = []

    def add(self, job: FoundJob, life: Life) -> None:
        """Take note of a job."""
        self._leased += leases(job, life)
        if job.kind in self._restrictions.scheduled_kinds:
            self._fired.add(job)
        if self._restrictions.weights is not None:
            self._fairness.add(job, life)

    def judge(self, of_one_scope: Collection[str]) -> None:
        """Judge, when every job has been added."""
        self._leased.sort()
        self._admitted.judge(self._leased)
        self._fired.judge()
        if self._restrictions.weights is not None:
            self._fairness.judge(self._leased, of_one_scope)
