"""Is what the real queue shows what the model says? Every field of every job, and what must hold of any queue.

Owns the differences, as readable lines, and the invariants that need no model: logs that only grow, generations that
never decrease, one active job for each key, the order of a listing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from uuid import UUID

from litequeue import Event, Job, Transition
from tests.model.records import ACTIVE, BEFORE_BOOT, LEASED, Entry, is_unnamed, scope_key
from tests.model.reference import Model

FIELDS = {
    "scope": "scope",
    "kind": "kind",
    "payload": "payload",
    "priority": "priority",
    "state": "state",
    "attempts": "attempts",
    "reaps": "reaps",
    "max_attempts": "max_attempts",
    "lease_generation": "generation",
    "worker_id": "worker",
    "leased_at": "leased_at",
    "beats": "beats",
    "checkpoints": "checkpoints",
    "last_beat_at": "last_beat_at",
    "not_before": "not_before",
    "expires_at": "expires_at",
    "finished_at": "finished_at",
    "idempotency_key": "key",
    "last_error": "last_error",
    "result": "result",
    "continuation": "continuation",
    "progress": "progress",
    "note": "note",
}
"""The field of `Job`, and of the model's `Entry`."""

Logs = Mapping[UUID, list[Event]]


def adopt(model: Model, seen: Mapping[UUID, Job]) -> dict[UUID, UUID]:
    """Learn what only the real queue could choose: new ids, and `created_at` within its range. Return the new ids."""
    named: dict[UUID, UUID] = {}
    for entry in [entry for entry in model.jobs.values() if is_unnamed(entry.job_id)]:
        alike = (job for job in seen.values() if job.job_id not in model.jobs and job.payload == entry.payload)
        found = next(alike, None)
        if found is not None:
            named[entry.job_id] = found.job_id
            del model.jobs[entry.job_id]
            entry.job_id = found.job_id
            model.jobs[entry.job_id] = entry
    for entry in model.jobs.values():
        real = seen.get(entry.job_id)
        if real is not None and entry.created[0] <= real.created_at <= entry.created[1]:
            entry.created = (real.created_at, real.created_at)
    return named


def differences(model: Model, seen: Mapping[UUID, Job]) -> list[str]:
    """Return a line for each thing that is not as the model has it."""
    lost = [f"{model.jobs[job_id]} is not in the queue" for job_id in model.jobs.keys() - seen.keys()]
    extra = [f"{seen[job_id]} is in the queue" for job_id in seen.keys() - model.jobs.keys()]
    both = model.jobs.keys() & seen.keys()
    return lost + extra + [line for job_id in both for line in _of_job(model, model.jobs[job_id], seen[job_id])]


def _of_job(model: Model, entry: Entry, real: Job) -> Iterator[str]:
    for of_job, of_entry in FIELDS.items():
        expected, found = getattr(entry, of_entry), getattr(real, of_job)
        if found != expected:
            yield f"{entry.job_id}: {of_job} is {found!r}, not {expected!r} (payload {entry.payload})"
    if not entry.created[0] <= real.created_at <= entry.created[1]:
        yield f"{entry.job_id}: created_at is {real.created_at}, not in {entry.created}"
    if (real.holder is not None) != (entry.state is LEASED):
        yield f"{entry.job_id}: holder is {real.holder} while {entry.state.name}"
    if entry.deadline is None or real.lease_deadline is None:
        if entry.deadline != real.lease_deadline:
            yield f"{entry.job_id}: lease_deadline is {real.lease_deadline}, not {entry.deadline}"
    elif entry.deadline < BEFORE_BOOT // 2:
        if real.lease_deadline > model.now:
            yield f"{entry.job_id}: a lease of an earlier boot has {real.lease_deadline - model.now} µs left"
    elif real.lease_deadline - model.now != entry.deadline - model.lease_now:
        left = entry.deadline - model.lease_now
        yield f"{entry.job_id}: the lease has {real.lease_deadline - model.now} µs left, not {left}"


def violations(jobs: list[Job], now: int, before: Mapping[UUID, Job], logs: Logs) -> list[str]:
    """Return a line for each broken invariant; `before` and `logs` are of the last look."""
    keys = Counter((job.scope, job.kind, job.idempotency_key) for job in jobs if job.state in ACTIVE)
    lines = [f"{key} is the key of {n} active jobs" for key, n in keys.items() if key[2] is not None and n > 1]
    order = [(scope_key(j.scope), int(j.state), j.priority, j.created_at, j.job_id.bytes) for j in jobs]
    if order != sorted(order):
        lines.append(f"the listing is out of order: {order}")
    for job in jobs:
        lines += _of_log(job, stored_events(job), now, before.get(job.job_id), logs.get(job.job_id, []))
    return lines


def stored_events(job: Job) -> list[Event]:
    """Return the log as it is in the file, without the count of a live lease's heartbeats."""
    return job.decoder.events(job.encoded_events, job.job_id)


def _of_log(job: Job, log: list[Event], now: int, before: Job | None, old: list[Event]) -> Iterator[str]:
    if log[: len(old)] != old:
        yield f"{job.job_id}: the log was rewritten: {old} became {log}"
    if log[0].transition is not Transition.ENQUEUED:
        yield f"{job.job_id}: the log does not begin with its enqueueing: {log}"
    leased = sum(event.transition is Transition.LEASED for event in log)
    if leased != job.lease_generation:
        yield f"{job.job_id}: generation {job.lease_generation}, but {leased} leases in {log}"
    if any(event.at != now for event in log[len(old) :]):
        yield f"{job.job_id}: an event is not of {now}: {log[len(old) :]}"
    if before is not None:
        if job.lease_generation < before.lease_generation:
            yield f"{job.job_id}: the generation fell from {before.lease_generation} to {job.lease_generation}"
        if (job.state, job.lease_generation) != (before.state, before.lease_generation) and len(log) == len(old):
            yield f"{job.job_id}: {before.state.name} became {job.state.name} without an event"
