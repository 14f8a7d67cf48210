"""Every finding that an examination can come to, and the tally that counts them.

Owns: the codes, their severities and lines, and for what can be mended the reason why nothing is lost by it. Invariant:
a tally holds a fixed number of findings with a few examples each, however large the file is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from litequeue.diagnosis import Finding, Severity

_EXAMPLES = 3
_UUID_BYTES = 16
_PROBLEM, _WARNING, _FACT = Severity.PROBLEM, Severity.WARNING, Severity.FACT


class Sort(NamedTuple):
    """What a code stands for."""

    severity: Severity
    text: str
    safe_because: str | None = None
    """Why mending it loses nothing; `None` when it is not mended."""


CATALOGUE: dict[str, Sort] = {
    # --- the file
    "file.empty": Sort(_PROBLEM, "the file holds no queue yet"),
    "file.foreign": Sort(_PROBLEM, "the file is not a queue"),
    "file.unreadable": Sort(_PROBLEM, "a part of the file cannot be read"),
    "file.integrity": Sort(_PROBLEM, "SQLite finds the file damaged"),
    "file.index": Sort(
        _PROBLEM,
        "an index differs from its table",
        "an index holds nothing but copies of what stands in its table, from which it is made anew",
    ),
    "file.schema": Sort(_PROBLEM, "the queue's tables are not those of this version"),
    "file.earlier": Sort(
        _WARNING,
        "the file is of an earlier version, so its jobs were not looked at",
        "opening it as a queue moves its tables forward in one transaction, with all that they hold",
    ),
    "file.encoding": Sort(_PROBLEM, "the file's text is not UTF-8"),
    "file.journal": Sort(
        _WARNING,
        "the file is not in WAL mode",
        "opening it as a queue sets the mode; the content stays as it is",
    ),
    "file.application": Sort(_FACT, "the file belongs to an application that keeps a queue in it"),
    "file.vacuum": Sort(_FACT, "free pages are not given back to the file system"),
    "file.sqlite": Sort(_FACT, "read by"),
    "file.size": Sort(_FACT, "size"),
    "file.links": Sort(_PROBLEM, "the file has several names, and commits by one are lost to the others"),
    "host.rows": Sort(_PROBLEM, "the lease clock's row is missing, or there are several"),
    "host.boot": Sort(
        _FACT, "no program has opened the file since the machine started, or since it was copied: its leases lapse then"
    ),
    "setting.value": Sort(_PROBLEM, "a setting is out of its bounds"),
    "setting.unknown": Sort(_WARNING, "a setting is unknown to this version"),
    # --- each job
    "job.id": Sort(_PROBLEM, "a job's id is not 16 bytes"),
    "job.name": Sort(_PROBLEM, "a scope, kind, key or worker id is none that the queue accepts"),
    "job.priority": Sort(_PROBLEM, "a priority is outside 0 to 255"),
    "job.lease": Sort(_PROBLEM, "a lease's fields are missing, or stand on a job that is not leased"),
    "job.gate": Sort(_PROBLEM, "a gate is missing, or stands on a job that waits for none"),
    "job.finished": Sort(
        _PROBLEM, "finished_at is missing, stands on a job that is not finished, or is before created_at"
    ),
    "job.counts": Sort(_PROBLEM, "attempts, reaps and generation contradict each other"),
    "job.max_attempts": Sort(_PROBLEM, "max_attempts is out of its bounds"),
    "job.times": Sort(_PROBLEM, "a time is before 1970"),
    "job.events": Sort(_PROBLEM, "an event log cannot be read, or does not begin with the enqueue"),
    "job.last_event": Sort(_PROBLEM, "the last transition in the log does not lead to the job's state"),
    "job.payload": Sort(_PROBLEM, "a payload cannot be read"),
    "job.result": Sort(_PROBLEM, "a result cannot be read"),
    "job.values": Sort(_PROBLEM, "a value is of a type that no queue writes"),
    "job.spent": Sort(_WARNING, "a waiting job has had all its attempts, because the limit was lowered since"),
    # --- the tables to each other
    "job.body": Sort(_PROBLEM, "a job has no payload row with its scope, priority and created_at"),
    "job.twice": Sort(_PROBLEM, "a job stands in the table more than once"),
    "body.orphan": Sort(_PROBLEM, "a payload row belongs to no job"),
    "outcome.orphan": Sort(
        _PROBLEM,
        "a result or error belongs to no job",
        "nothing finds it without its job, and an id is never given out twice",
    ),
    "continuation.orphan": Sort(
        _PROBLEM,
        "a checkpoint belongs to no lease",
        "a checkpoint lives only as long as its lease, and there is none",
    ),
    "continuation.missing": Sort(_PROBLEM, "a lease has counted checkpoints, and there is none"),
    "continuation.progress": Sort(_PROBLEM, "a progress is outside 0 to 1"),
    "outbox.order": Sort(_PROBLEM, "a message of an outbox waits behind none, or is a job before its turn"),
    "outbox.missing": Sort(_PROBLEM, "the first message of a key has no job, so that those behind it stand still"),
    "gate.missing": Sort(_PROBLEM, "a job waits for others, and for which is not known: retry or cancel it"),
    "gate.lost": Sort(_PROBLEM, "a job waits for more others than are known, and so for ever: retry or cancel it"),
    "gate.state": Sort(_PROBLEM, "a job waits for others and misses none, or misses some and does not wait"),
    "gate.sum": Sort(_PROBLEM, "what a job has waited for and what it misses are not what it was to wait for"),
    "gate.orphan": Sort(_PROBLEM, "what a job waits for is known, and there is no such job"),
    "gate.count": Sort(
        _PROBLEM,
        "a job waits for fewer others than it misses, and would go too early",
        "what it misses is told by a row for each, from which it is counted anew",
    ),
    "dependency.orphan": Sort(
        _PROBLEM,
        "a job is missed by another one that does not wait",
        "what does not wait is told of no end, and nothing else looks at it",
    ),
    "dependency.lost": Sort(_PROBLEM, "a job waits for one that is not there, and so for ever: retry or cancel it"),
    "dependency.untold": Sort(
        _PROBLEM,
        "a job waits for one that has ended, and nobody will tell it",
        "it is told how that one has ended, as it would have been by whoever ended it",
    ),
    "rerun.orphan": Sort(_PROBLEM, "a trigger waits for the end of a run that is not running"),
    "slot.orphan": Sort(
        _PROBLEM,
        "a limit counts what is not leased, or not its own",
        "what a limit counts is told by the leased jobs, from which it is counted anew",
    ),
    "slot.missing": Sort(
        _PROBLEM,
        "a limit does not count a leased job of its own",
        "what a limit counts is told by the leased jobs, from which it is counted anew",
    ),
    # --- schedules
    "turn.values": Sort(_PROBLEM, "whose turn it is has a value that no queue writes"),
    "schedule.values": Sort(_PROBLEM, "a schedule has a value that no queue writes"),
    "schedule.payload": Sort(_PROBLEM, "the payload of a schedule cannot be read"),
    "schedule.foreign": Sort(_WARNING, "a schedule cannot be fired by a process like this one"),
    "schedule.late": Sort(
        _WARNING, "schedules are due and nobody fires them: no maintenance, no worker and no run_schedules"
    ),
    "schedule.count": Sort(_FACT, "schedules"),
    "lease.holder": Sort(_WARNING, "a live lease names a holder that is not registered"),
    # --- what waits
    "lease.lapsed": Sort(
        _WARNING,
        "leases have lapsed and nobody reaps them: no maintenance and no lease calls",
        "reaping is what maintenance and the next lease call would do as well",
    ),
    "lease.dead": Sort(
        _WARNING,
        "leases are held by processes that have died, and nobody reaps them: no maintenance",
        "reaping is what maintenance would do as well",
    ),
    "job.due": Sort(
        _WARNING,
        "jobs are due and nobody promotes them: no maintenance and no lease calls in their scope",
        "promoting is what maintenance and the next lease call would do as well",
    ),
    "job.overdue": Sort(
        _WARNING,
        "jobs are too late to start and nobody has buried them",
        "they die by their own expires_at, as maintenance and the next lease call would have it",
    ),
    "job.distant": Sort(
        _WARNING,
        "back-offs are longer than their cap: the wall clock has stepped back",
        "they are pulled in to their own length, as maintenance does",
    ),
    "job.count": Sort(_FACT, "jobs"),
    "job.dead": Sort(_FACT, "dead jobs"),
    "job.ready": Sort(_FACT, "the oldest ready job waits since"),
    # --- the clocks
    "clock.ahead": Sort(_WARNING, "times lie in the future of the wall clock: it has stepped back"),
    "lease.far": Sort(_WARNING, "a lease's deadline is more than a year away: no time to live is so long"),
    # --- beside the file
    "log.large": Sort(
        _WARNING,
        "the write-ahead log is large: a reader pins it, or nobody maintains the file",
        "what it holds is copied into the file before it is cut",
    ),
    "log.hot": Sort(
        _WARNING, "an interrupted transaction lies beside the file: the next program that opens it undoes it"
    ),
    "sidecar.kind": Sort(_PROBLEM, "a file beside it is a link, a folder or something else than a file"),
    "sidecar.access": Sort(_PROBLEM, "a file beside it cannot be opened by this user"),
    "sidecar.owner": Sort(_WARNING, "a file beside it belongs to somebody else than the file"),
    "sidecar.mode": Sort(_WARNING, "a file beside it has other permissions than the file"),
    "sidecar.held": Sort(
        _WARNING, "the write gate was not had within a second: a long transaction, or a stopped process, has it"
    ),
    "sidecar.leftover": Sort(_WARNING, "an interrupted backup or restore has left a file: remove it"),
    "file.unseen": Sort(_FACT, "nothing in the file was looked at, because of what lies beside it"),
    "disk.kind": Sort(_FACT, "file system"),
    "disk.breaks": Sort(_PROBLEM, "SQLite's locks do not hold on this file system"),
    "disk.unknown": Sort(_WARNING, "litequeue has not been tested on this file system"),
    "disk.full": Sort(
        _PROBLEM, "the disk is full, and SQLite needs a little of it to open the file: nothing in it was looked at"
    ),
    "disk.reserve": Sort(_WARNING, "the disk is nearly full: nothing more is enqueued"),
    "file.limit": Sort(_WARNING, "the file is nearly as large as max_bytes allows"),
}


@dataclass(slots=True)
class _Count:
    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


class Tally:
    """The findings so far."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}

    def add(self, code: str, detail: str = "", *, job_id: bytes | None = None, count: int = 1) -> None:
        """Count a finding; the first one's detail stays in its line."""
        sort = CATALOGUE[code]
        found = self._counts.get(code)
        if found is None:
            found = self._counts[code] = _Count(f"{sort.text}: {detail}" if detail else sort.text)
        found.count += count
        if job_id is not None and len(found.examples) < _EXAMPLES:
            found.examples.append(shown_id(job_id))

    def has(self, code: str) -> bool:
        """Tell whether this was found."""
        return code in self._counts

    def findings(self) -> list[Finding]:
        """Return what was found, the worst first, each severity in the order of the catalogue."""
        made = [
            Finding(
                code,
                sort.severity,
                self._counts[code].text,
                self._counts[code].count,
                tuple(self._counts[code].examples),
                sort.safe_because is not None,
            )
            for code, sort in CATALOGUE.items()
            if code in self._counts
        ]
        return sorted(made, key=lambda finding: list(Severity).index(finding.severity))


def shown_id(job_id: object) -> str:
    """Write an id, even one that is none."""
    if isinstance(job_id, bytes):
        return str(UUID(bytes=job_id)) if len(job_id) == _UUID_BYTES else f"x'{job_id[:20].hex()}'"
    return ascii(job_id)[:40]
