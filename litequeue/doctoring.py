"""`doctor`: examine a queue file, whatever state it is in, and mend what can be mended without losing anything.

Invariants: without `fix` nothing is changed, made or migrated; with it every write is one of the queue's own
transactions, and only what `sqlite.findings` gives a reason for is written. Leaves out: what is looked at (`sqlite`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from litequeue import clock as clocks
from litequeue.clock import Clock
from litequeue.diagnosis import Diagnosis, Finding
from litequeue.errors import StorageCorrupt
from litequeue.queue import Queue
from litequeue.sqlite import examining, mending, opening, slots
from litequeue.sqlite.context import Context
from litequeue.sqlite.examining import Progress
from litequeue.sqlite.store import Store
from litequeue.upkeep import WAL_TRUNCATE_BYTES

_TIMEOUT_S = 10.0


def doctor(
    path: str | os.PathLike[str], *, fix: bool = False, clock: Clock | None = None, progress: Progress | None = None
) -> Diagnosis:
    """Examine a queue file; with `fix`, mend what loses nothing, and examine it again.

    Works on a file that is in use, and on a damaged or foreign one. Without `fix` nothing is changed. `progress` is
    called now and then with how many rows of how many have been looked at.

    Raises:
        CannotOpen: there is no such file, or no permission to read it (with `fix`: to write it).
        QueueBusy: a lock was not had within ten seconds; with `fix`, the file is of an earlier version and in use.
    """
    real_path = opening.real_path(path)
    the_clock = clocks.tried(clock)
    findings = _examined(real_path, the_clock, progress)
    mended: list[str] = []
    if fix and _may_mend(findings, "file.earlier"):
        _opened(real_path, the_clock).close(release=False)
        mended.append("moved its tables forward to this version")
        findings = _examined(real_path, the_clock, progress)
    wanted = {finding.code for finding in findings if finding.mendable}
    if fix and _may_mend(findings, *wanted):
        mended += _mend(real_path, the_clock, wanted, {finding.code for finding in findings})
        findings = _examined(real_path, the_clock, progress)
    return Diagnosis(real_path, findings, tuple(mended))


def _may_mend(findings: tuple[Finding, ...], *codes: str) -> bool:
    """Tell whether any of these was found, and nothing beside which the file is not written to."""
    found = {finding.code for finding in findings}
    return not found.isdisjoint(codes) and found.isdisjoint(mending.NEVER_BESIDE)


def _examined(path: str, clock: Clock, progress: Progress | None) -> tuple[Finding, ...]:
    return tuple(examining.examine_file(path, clock, WAL_TRUNCATE_BYTES, progress))


def _mend(path: str, clock: Clock, wanted: set[str], found: set[str]) -> list[str]:
    """Do what is wanted, as far as it can be done; return a line for each thing that was."""
    done: list[str] = []
    store = _opened(path, clock)
    with Queue(store, "default") as queue:  # its opening sets the journal mode by itself
        if "file.journal" in wanted:
            done.append("set the journal mode to WAL")
        if "file.index" in wanted and _has_reindexed(store):
            done.append("made the indexes of the jobs anew")
        if {"slot.orphan", "slot.missing"} & wanted:
            store.write(slots.count_anew, durable=True)
            done.append("counted anew what is leased within limits")
        steps: list[tuple[str, str, Callable[[], int]]] = [
            ("continuation.orphan", "removed checkpoints without a lease", _write(store, mending.remove_continuations)),
            ("lease.lapsed", "reaped lapsed leases", queue.reap_expired),
            ("lease.dead", "reaped leases of processes that have died", queue.reap_dead),
            ("job.distant", "pulled in back-offs", queue.pull_in),
            ("job.overdue", "buried jobs that were too late to start", queue.expire_overdue),
            ("job.due", "promoted due jobs", queue.promote_due),
            ("gate.count", "counted anew what jobs wait for", _write(store, mending.count_gates)),
            ("dependency.orphan", "removed what no job waits for", _write(store, mending.remove_dependencies)),
            ("dependency.untold", "noted ends that jobs wait for", _write(store, mending.tell_untold)),
            ("dependency.untold", "told jobs of ends that they wait for", queue.tell_waiting),
        ]
        if "job.body" not in found:  # else what has no payload row may still have its job
            remove = _write(store, mending.remove_outcomes)
            steps.append(("outcome.orphan", "removed results and errors without a job", remove))
        for code, what, step in steps:
            count = step() if code in wanted else 0
            if count:
                done.append(f"{what}: {count:,}")
        if "log.large" in wanted and queue.checkpoint_wal() == 0:
            done.append("copied the write-ahead log back and cut it")
    return done


def _opened(path: str, clock: Clock) -> Store:
    return Store(opening.resolve(path, create=False, allow_network=False), "full", _TIMEOUT_S, clock)


def _write(store: Store, work: Callable[[Context], int]) -> Callable[[], int]:
    return partial(store.write, work, durable=True)


def _has_reindexed(store: Store) -> bool:
    """Make the indexes anew; tell whether that was possible: two active jobs of one key keep it from being done."""
    try:
        store.write(mending.reindex, durable=True)
    except StorageCorrupt:
        return False
    return True
