"""What an examination of a file comes to: findings, each with a code that scripts may rely on.

Owns: the records and how they read as a line. Invariants: a problem is something that no queue writes, or that keeps it
from working; a warning is worth somebody's look; a fact is neither. Leaves out: what is looked at (`sqlite/examining`)
and what is mended (`doctoring`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    """A promise is broken, or the file cannot be used."""
    WARNING = "warning"
    """Worth a look: something waits, something grows, a clock is odd."""
    FACT = "fact"
    """How the file is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an examination found, however many jobs it concerns."""

    code: str
    """Stable, as `job.lease`; what stands before the dot is what was looked at."""
    severity: Severity
    text: str
    """One clear line."""
    count: int = 1
    """How many jobs, rows or files."""
    examples: tuple[str, ...] = ()
    """A few of the jobs, by id."""
    mendable: bool = False
    """Whether mending takes it away, or tries to, without losing anything."""

    def __str__(self) -> str:
        """Return the line, with the count and the examples."""
        counted = f" ({self.count:,})" if self.count > 1 else ""
        shown = f": {', '.join(self.examples)}" if self.examples else ""
        return f"{self.text}{counted}{shown}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What an examination found, the worst first, and what was mended before it."""

    path: str
    findings: tuple[Finding, ...]
    mended: tuple[str, ...] = ()
    """What `fix` did, a line each; the findings are those that remain."""

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are problems; a file without any is healthy."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.PROBLEM)

    @property
    def is_healthy(self) -> bool:
        """Whether there is no problem; warnings and facts are allowed."""
        return not self.problems
