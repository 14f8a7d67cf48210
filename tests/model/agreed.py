"""The settings as the contract's §5 has them, and what follows from them: back-off and retention."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.records import CANCELLED, COMPLETED, DEAD, Entry, matches, microseconds

Setting = int | float | str | bool | None

DEFAULTS: dict[str, Setting] = {
    "lease_ttl": 300,
    "max_attempts": 5,
    "backoff_base": 10,
    "backoff_factor": 4,
    "backoff_cap": 3600,
    "completed_retention": 86400,
    "cancelled_retention": 86400,
    "dead_retention": None,
    "idempotency_window": 86400,
    "refuse_lapsed": False,
}
_RETENTIONS = {COMPLETED: "completed_retention", CANCELLED: "cancelled_retention", DEAD: "dead_retention"}


@dataclass
class Agreed:
    """What was set, by kind filter (`None` is the file) and name."""

    given: dict[tuple[str | None, str], Setting] = field(default_factory=dict)

    def copy(self) -> Agreed:
        """Return a twin."""
        return Agreed(dict(self.given))

    def value(self, name: str, kind: str = "") -> Setting:
        """Return what is in force: the longest filter that matches, else the file's, else the default."""
        mine = [f for f, other in self.given if other == name and f is not None and matches(f, kind)]
        if mine:
            return self.given[max(mine, key=len), name]
        return self.given.get((None, name), DEFAULTS[name])

    def duration(self, name: str, kind: str = "") -> int | None:
        """Return a setting in µs; `None` is forever."""
        return microseconds(self.value(name, kind))

    def cap(self, kind: str) -> int:
        """Return the longest back-off; a kind's own base lifts it to at least itself."""
        cap, base = self.duration("backoff_cap", kind) or 0, self.duration("backoff_base", kind) or 0
        has_own_base = any(f is not None and n == "backoff_base" and matches(f, kind) for f, n in self.given)
        return max(cap, base) if has_own_base else cap

    def backoff(self, job: Entry) -> int:
        """Return the pause after the present attempt, in µs."""
        base = self.duration("backoff_base", job.kind) or 0
        factor = self.value("backoff_factor", job.kind)
        assert isinstance(factor, (int, float))
        return min(self.cap(job.kind), round(base * factor ** (job.attempts - 1)))

    def retention(self, job: Entry) -> int | None:
        """Return how long a finished job stays, in µs; a completed key outlives its window (V2)."""
        kept = self.duration(_RETENTIONS[job.state], job.kind)
        if job.state is COMPLETED and job.key is not None and kept is not None:
            return max(kept, self.duration("idempotency_window") or 0)
        return kept
