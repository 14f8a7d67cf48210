"""The whole files that are damaged: one closed cleanly, one left by a killed process, and logs that do not belong.

Owns their making, in processes of their own, so that the harness never has a queue file open. Invariants: every state
of contract §3 is in them, more than one scope and kind, keys, payloads on one page and on many; each payload names its
job, so that one which turns up in another's hands is seen.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

import litequeue
from damage import bombs
from litequeue import SYSTEM, JobState, NewJob
from litequeue.testing import FakeClock

KINDS = ("mail:send", "mail:bulk", "ingest:pdf", "embed", "tick")
SCOPES = ("default", "tenant-a", "tenant-b")
WALL_US = 1_750_000_000_000_000
ROUNDS = 4
"""Rounds of work in a file; each leaves jobs in every state."""
_JOBS_A_ROUND = 60
_LONG_CHARS = 6000


@dataclass(frozen=True, slots=True)
class Specimen:
    """A queue file as it lies on the disk, with what stands beside it."""

    name: str
    files: Mapping[str, bytes]
    """By the suffix to the file's name."""
    payloads: Mapping[str, int]
    """The number in each job's payload, by its id."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a run damages."""

    whole: Sequence[Specimen]
    logs: Mapping[str, bytes]
    """Write-ahead logs of another queue, or of an older state of one of these, by what they are."""


def make_all(folder: Path, seed: int) -> Made:
    """Make the specimens."""
    closed = _made(folder / "closed", seed, kill=False)
    older = _made(folder / "killed", seed + 1, kill=True)
    newer = _made(folder / "killed", seed + 2, kill=True)
    foreign = _made(folder / "foreign", seed + 3, kill=True)
    return Made(
        [Specimen("closed", *closed), Specimen("killed", *newer)],
        {"an older log": older[0]["-wal"], "a foreign log": foreign[0]["-wal"]},
    )


def _made(folder: Path, seed: int, *, kill: bool) -> tuple[dict[str, bytes], dict[str, int]]:
    """Let a process work on a queue file, and read what it leaves."""
    folder.mkdir(exist_ok=True)
    path = folder / "app.queue"
    command = [sys.executable, __file__, str(path), str(seed), str(int(kill))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, env=environment())
    if done.returncode != (-signal.SIGKILL if kill else 0):
        raise RuntimeError(f"a specimen was not made: exit status {done.returncode}")
    suffixes = ("", "-wal") if kill else ("",)
    return {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in suffixes}, json.loads(done.stdout)


def environment() -> dict[str, str]:
    """Return the environment of a child: it imports what this process imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def main(path: str, seed: str, kill: str) -> None:
    """Be the process that makes one."""
    draw = random.Random(int(seed))
    clock = FakeClock(wall_us=WALL_US + int(seed) % 1000)
    os.urandom = draw.randbytes  # so that a seed repeats the ids
    logging.getLogger("litequeue").setLevel(logging.ERROR)
    queue = litequeue.open(path, durability="normal", clock=clock)
    queue.set("lease_ttl", 60)
    queue.set("max_attempts", 3, kind="mail:")
    with queue.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, entry TEXT)")
    for number in range(ROUNDS):
        _round(queue, draw, clock, number * _JOBS_A_ROUND)
    _plant(queue, path)
    payloads = {}
    for job in queue.list(scope=litequeue.ANY, limit=10_000):
        if job.kind in KINDS and isinstance(job.payload, dict):
            payloads[str(job.job_id)] = job.payload["n"]
    print(json.dumps(payloads), flush=True)
    if int(kill):
        os.kill(os.getpid(), signal.SIGKILL)
    queue._store.holdings.leases.clear()  # noqa: SLF001 - leased jobs stay leased in the file
    queue.close()


def _plant(queue: litequeue.Queue, path: str) -> None:
    """Make jobs whose payload, result or log no queue writes, behind the queue's back."""
    connection = apsw.Connection(path)
    for value in [*bombs.UNREADABLE.values(), *bombs.READABLE.values()]:
        queue.enqueue("bomb", scope="bombs")
        (lease,) = queue.lease_many(1, scope="bombs")
        lease.complete("done")
        stored = bombs.VERSION + value
        connection.execute("UPDATE litequeue_outcome SET result = ? WHERE job_id = ?", (stored, lease.job_id.bytes))
        waiting = queue.enqueue("bomb").job_id.bytes
        connection.execute("UPDATE litequeue_body SET payload = ? WHERE job_id = ?", (stored, waiting))
    for log in [*bombs.EVENTS.values(), bombs.UNREADABLE["a list that claims 100 million items"]]:
        waiting = queue.enqueue("bomb").job_id.bytes
        connection.execute("UPDATE litequeue_job SET events = ? WHERE job_id = ?", (log, waiting))
    waiting = queue.enqueue("bomb").job_id.bytes
    connection.execute("UPDATE litequeue_body SET payload = ? WHERE job_id = ?", (bombs.UNKNOWN_VERSION, waiting))
    connection.close()


def _round(queue: litequeue.Queue, draw: random.Random, clock: FakeClock, first: int) -> None:
    """Enqueue jobs and bring some of them into each state."""
    jobs = [
        NewJob(
            draw.choice(KINDS),
            {"n": number, "pad": "x" * draw.choice([0, 30, 300, 3000, _LONG_CHARS])},
            scope=draw.choice([*SCOPES, SYSTEM]),
            priority=draw.choice([1, 100, 100, 200]),
            delay=draw.choice([None, None, None, 30, 5000]),
            expires=draw.choice([None, None, 40, 9000]),
            idempotency_key=f"key {number}" if number % 3 == 0 else None,
        )
        for number in range(first, first + _JOBS_A_ROUND)
    ]
    made = queue.enqueue_many(jobs)
    for scope in SCOPES:
        leases = queue.lease_many(8, scope=scope, worker_id="worker")
        for lease, ending in zip(leases, ["complete", "fail", "bury", "checkpoint", "release"] * 2, strict=False):
            match ending:
                case "complete":
                    lease.complete({"n": -1, "done": "y" * draw.choice([5, 2500])})
                case "fail":
                    lease.fail("boom " * draw.choice([1, 400]))
                case "bury":
                    lease.fail("never again", retryable=False)
                case "checkpoint":
                    lease.checkpoint(b"half" * draw.choice([1, 900]), progress=0.5, note="half")
                case _:
                    lease.note("not now")
                    lease.release()
    for enqueued in made[::9]:
        if not queue.get(enqueued.job_id).state.is_terminal:
            queue.cancel(enqueued.job_id)
    later = queue.enqueue("later", delay=5000).job_id
    queue.enqueue("after later", after=[later], on_parent_failure=draw.choice(["cancel", "run"]))
    clock.advance(1)
    missing = [state for state in JobState if not queue.list(state, scope=litequeue.ANY, limit=1)]
    if missing:
        raise RuntimeError(f"no job is {missing}")


if __name__ == "__main__":
    main(*sys.argv[1:])
