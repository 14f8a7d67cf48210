"""Makes the files of a schema version that `tests/earlier` keeps, with the very release that writes that version.

    git worktree add ../release TAG
    PYTHONPATH=../release .venv/bin/python tools/make_fixture.py tests/earlier/VERSION

To be run once for a version of the schema, before `schema.sql` moves on to the next one; the same change keeps that
release's `schema.sql` as `litequeue/sqlite/earlier/VERSION.sql`. Uses nothing but verbs that every release has, and a
clock that stands still. Makes `empty.queue.gz`; `closed.queue.gz`, which was closed in the ordinary way after a holder
had died; `killed.queue.gz` with `killed.queue-wal.gz`, whose last commits are only in the log because their writer was
killed; and beside each, in JSON, every job as that release itself tells of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import litequeue
from litequeue import ANY, SYSTEM, NewJob, Queue
from litequeue.testing import FakeClock

NAMES = ("empty", "closed", "killed")
KEPT = Path(__file__).resolve().parent.parent / "tests" / "earlier"
"""Where the files are kept, each version in a folder of its own."""
_SUFFIXES = ("", "-wal")
_FIELDS = (
    *("kind", "priority", "created_at", "leased_at", "finished_at", "attempts", "reaps", "max_attempts"),
    *("lease_generation", "worker_id", "beats", "checkpoints", "not_before", "expires_at", "idempotency_key"),
    *("payload", "continuation", "progress", "note", "result", "last_error"),
)
"""What is told of a job, beside its scope, its state and its log."""


def main() -> None:
    """Make all files of this release's version, or, as a child, die over one of them."""
    parser = argparse.ArgumentParser(description="Make the files of a version of the schema that the tests keep.")
    parser.add_argument("folder", type=Path, help="tests/earlier/VERSION")
    parser.add_argument("--die-over", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.die_over is not None:
        _die_over(options.die_over)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in NAMES:
            _make(Path(temporary) / f"{name}.queue", options.folder)
    print(f"made with {litequeue.__file__}")


def clock() -> FakeClock:
    """Return the clock of all that is made: whoever opens it with this one sees no lease lapsed."""
    made = FakeClock()
    made.advance(timedelta(days=1))
    return made


def told(queue: Queue) -> str:
    """Tell of every job by its id, in JSON."""
    found: dict[str, dict[str, object]] = {}
    for listed in queue.list(scope=ANY, limit=1000):
        job = queue.get(listed.job_id)
        fields = {name: getattr(job, name) for name in _FIELDS}
        events = [[event.at, str(event.transition), event.detail] for event in job.events]
        scope = None if job.scope is SYSTEM else str(job.scope)
        found[str(job.job_id)] = {**fields, "scope": scope, "state": job.state.name, "events": events}
    return json.dumps(found, indent=1, sort_keys=True, default=_plain)


def unpacked(version: int, name: str, path: Path) -> Path:
    """Lay one of the kept files out at a path; return the path."""
    for suffix in _SUFFIXES:
        packed = KEPT / str(version) / f"{name}.queue{suffix}.gz"
        if packed.exists():
            path.with_name(path.name + suffix).write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def _make(path: Path, folder: Path) -> None:
    if path.stem != "empty":
        subprocess.run([sys.executable, __file__, str(folder), "--die-over", str(path)], check=False)
    if path.stem != "killed":
        with litequeue.open(path, clock=clock()) as queue:
            queue.enqueue_many([NewJob("afterwards")] if path.stem == "closed" else [])
    for suffix in _SUFFIXES:
        made = path.with_name(path.name + suffix)
        if made.exists():
            folder.joinpath(f"{made.name}.gz").write_bytes(gzip.compress(made.read_bytes(), mtime=0))
    with litequeue.open(path, clock=clock()) as queue:
        folder.joinpath(f"{path.stem}.json").write_text(f"{told(queue)}\n", encoding="utf-8")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise TypeError(value)


def _die_over(path: Path) -> None:
    """Bring jobs into every state, some of them leased, and die."""
    time = FakeClock()
    queue = litequeue.open(path, clock=time)
    queue.set("lease_ttl", 900)
    queue.set("max_attempts", 3, kind="mail:")
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, job BLOB)")
        tx.execute("CREATE VIEW open_jobs AS SELECT * FROM litequeue_jobs WHERE state <> 'completed'")
        tx.execute("INSERT INTO orders (job) VALUES (?)", (tx.enqueue("mail:order", {"order": 1}).job_id.bytes,))
    queue.enqueue_many(NewJob("index", {"page": n, "text": "x" * 40 * n}, priority=90 + n) for n in range(12))
    queue.enqueue_many(NewJob("index", n, scope=scope) for scope in ("tenant-a", "tenant-b", SYSTEM) for n in range(3))
    queue.enqueue("report", [1, None, b"\x00\xff", 2.5], delay=timedelta(days=30), idempotency_key="monthly")
    queue.enqueue("soon", expires=timedelta(days=60), max_attempts=1, idempotency_key="once")
    queue.cancel(queue.enqueue("unwanted", idempotency_key="once").job_id)
    for number in range(3):
        queue.enqueue("mail:done", number, idempotency_key=f"done-{number}")
        queue.lease_many(1, kinds=["mail:done"])[0].complete({"sent": number} if number else None)
    time.advance(60)
    queue.enqueue("mail:again", "first")
    queue.lease_many(1, kinds=["mail:again"])[0].fail("boom", delay=timedelta(days=30))
    queue.enqueue("mail:dead", "first")
    queue.lease_many(1, kinds=["mail:dead"])[0].fail("x" * 300, retryable=False)
    time.advance(timedelta(days=1) - timedelta(seconds=60) - timedelta(seconds=5))
    queue.checkpoint_wal()  # the rest is in the log only
    for number in range(4):
        queue.enqueue("run", number, idempotency_key=f"run-{number}", max_attempts=9)
    leases = queue.lease_many(4, kinds=["run"], ttl=timedelta(days=2))
    leases[0].checkpoint(b"half\x00", progress=0.5, note="half")
    leases[1].extend()
    leases[1].note("still at it")
    queue.enqueue("run", "newest", idempotency_key="run-2", on_conflict="reset")
    time.advance(5)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
