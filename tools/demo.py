"""The main job, on real input: hash every file of a folder, and lose nothing when a worker is killed.

    python tools/demo.py [FOLDER]

One job a file; four workers, each a process, hash them; one of them is killed with SIGKILL while it holds leases, and
the others take its jobs back and do them. At the end every digest is computed again and compared. Exits with 1 when a
file was not done, or its digest is wrong; a file that may not be read is a dead letter, and counted as one. It needs
nothing but Python: the environment is made when it is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    import litequeue

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = {b".git", b".venv", b"__pycache__", b".mypy_cache", b".ruff_cache", b".pytest_cache", b".hypothesis"}
KIND = "file:hash"
WORKERS = 4
CONCURRENCY = 8
"""How many files each worker has in hand at once."""
LOOK_S = 0.02
CHUNK_BYTES = 1 << 22
PAGE = 1000
PATIENCE_S = 60.0
"""Without any progress for so long, the demo gives up."""


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Hash every file of a folder through a queue, and kill a worker.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="the folder (default: the repository)")
    folder: Path = parser.parse_args().folder.resolve()
    if not folder.is_dir():
        parser.error(f"{folder} is {'not a folder' if folder.exists() else 'not there'}")
    files = sorted(files_of(folder))
    if not files:
        print(f"{folder} has no files: nothing to do")
        return 0
    with tempfile.TemporaryDirectory(prefix="litequeue-demo-") as place:
        return run(folder, files, Path(place) / "demo.queue")


def files_of(folder: Path) -> Iterator[bytes]:
    """Yield every ordinary file below a folder, by its relative path, but for what tools keep there (`.git`, caches).

    Paths are bytes, since a file's name need not be text.
    """
    for parent, folders, names in os.walk(os.fsencode(folder), onerror=say_unreadable):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - bytes
            if os.path.isfile(path) and not os.path.islink(path):  # noqa: PTH113, PTH114 - bytes
                yield os.path.relpath(path, os.fsencode(folder))


def say_unreadable(error: OSError) -> None:
    """Tell of a folder that cannot be looked into."""
    print(f"left out: {error}", file=sys.stderr)


def run(folder: Path, files: list[bytes], database: Path) -> int:
    """Enqueue, work, kill, recover, check; return the exit status."""
    import litequeue  # noqa: PLC0415 - exists once the environment is made

    with litequeue.open(database) as queue:
        queue.set("backoff_base", 0.2, kind=KIND)
        queue.enqueue_many(litequeue.NewJob(KIND, path) for path in files)
        print(f"{counted(len(files), 'file')} of {folder}, one job each; {WORKERS} workers, one of them to be killed")
        started = time.monotonic()
        killed_with = work_off(queue, folder, len(files))
        return report(queue, folder, files, killed_with, time.monotonic() - started)


def work_off(queue: litequeue.Queue, folder: Path, total: int) -> int:
    """Let the workers drain the queue and kill one on the way; return how many jobs it had in hand."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    victim = context.Process(target=sit, args=(queue.path, min(CONCURRENCY, total), theirs), daemon=True)
    victim.start()
    held: int = ours.recv()
    workers: list[BaseProcess] = [
        context.Process(target=work, args=(queue.path, folder), daemon=True) for _ in range(WORKERS - 1)
    ]
    for worker in workers:
        worker.start()
    try:
        follow(queue, victim, total)
    finally:
        victim.kill()
        for worker in workers:
            worker.terminate()  # SIGTERM: it finishes what it has in hand
        for worker in workers:
            worker.join()
    return held


def follow(queue: litequeue.Queue, victim: BaseProcess, total: int) -> None:
    """Show the drain until nothing is left to do; kill the victim when a quarter is done or nothing else is left."""
    import click  # noqa: PLC0415 - exists once the environment is made

    from litequeue import JobState  # noqa: PLC0415 - the same

    ended = 0
    moved_at = time.monotonic()
    with click.progressbar(length=total, label="hashing", file=sys.stderr) as bar:
        while ended < total:
            counts = queue.stats().counts
            now_ended = counts[JobState.COMPLETED] + counts[JobState.DEAD]
            if now_ended > ended:
                bar.update(now_ended - ended)
                ended, moved_at = now_ended, time.monotonic()
            is_idle = counts[JobState.PENDING] == 0
            if victim.exitcode is None and (ended * 4 >= total or is_idle):
                victim.kill()  # SIGKILL: no farewell, its leases stay behind
                victim.join()
            if time.monotonic() - moved_at > PATIENCE_S:
                print(f"\nno progress for {PATIENCE_S:g} s: giving up", file=sys.stderr)
                return
            time.sleep(LOOK_S)


def work(path: str, folder: Path) -> None:
    """Be a worker, until told to stop; whoever leads of all of them takes back what the dead held."""
    import litequeue  # noqa: PLC0415 - in the spawned process

    # Another try would not help an OSError: the file may not be read, or has gone.
    handler = litequeue.Handler(partial(hash_file, folder=folder), permanent=OSError)
    with litequeue.open(path, create=False) as queue:
        litequeue.Worker(queue, {KIND: handler}, concurrency=CONCURRENCY).run()


def hash_file(lease: litequeue.Lease, folder: Path) -> str:
    """Handle a job: return the digest of the file that it names."""
    relative = lease.payload
    assert isinstance(relative, bytes)  # noqa: S101 - for the type checker: `run` enqueued it
    with (folder / os.fsdecode(relative)).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sit(path: str, many: int, pipe: Connection) -> None:
    """Be the victim: a worker whose handlers never end; say so when they have begun."""
    import litequeue  # noqa: PLC0415 - in the spawned process

    def forever(_: litequeue.Lease) -> None:
        if begun.wait() == 0:
            pipe.send(many)
        pipe.recv()

    begun = threading.Barrier(many)
    with litequeue.open(path, create=False) as queue:
        litequeue.Worker(queue, {KIND: forever}, concurrency=many, maintenance=False).run()


def report(queue: litequeue.Queue, folder: Path, files: list[bytes], killed_with: int, seconds: float) -> int:
    """Print the closing table and what is wrong; return the exit status."""
    from litequeue import JobState  # noqa: PLC0415 - exists once the environment is made

    done: dict[bytes, object] = {}
    dead: dict[bytes, str | None] = {}
    leases = recovered = 0
    for job in jobs_of(queue):
        assert isinstance(job.payload, bytes)  # noqa: S101 - for the type checker: `run` enqueued it
        leases += job.lease_generation
        recovered += job.reaps > 0 and job.state.is_terminal
        if job.state is JobState.COMPLETED:
            done[job.payload] = job.result
        elif job.state is JobState.DEAD:
            dead[job.payload] = job.last_error
    problems = [f"not done: {os.fsdecode(path)}" for path in files if path not in done and path not in dead]
    problems += [f"dead: {os.fsdecode(path)}: {dead[path]}" for path in dead if digest_of(folder, path) is not None]
    problems += [f"wrong digest: {os.fsdecode(path)}" for path in done if done[path] != digest_of(folder, path)]
    if recovered < killed_with:
        problems.append(f"the killed worker held {killed_with} jobs, only {recovered} were recovered and ended")
    rows = {
        "jobs": len(files),
        "leases": leases,
        "recovered": recovered,
        "dead": len(dead),
        "jobs/s": f"{len(done) / seconds:.1f}",
    }
    print()
    for name, value in rows.items():
        print(f"{name:>10}  {value}")
    for problem in problems[:20]:
        print(f"WRONG: {problem}", file=sys.stderr)
    for path in list(dead)[:20] if not problems else []:
        print(f"a dead letter, as it should be: {dead[path]}")
    verdict = counted(len(problems), "problem") if problems else "every file was done and every digest is right"
    if dead and not problems:
        verdict = f"every file that may be read was done and every digest is right; {len(dead)} may not be read"
    print(f"\n{verdict} (one worker was killed with {counted(killed_with, 'lease')} in its hands)")
    return 1 if problems else 0


def jobs_of(queue: litequeue.Queue) -> Iterator[litequeue.Job]:
    """Yield every job of the queue, a page at a time."""
    page = queue.list(limit=PAGE)
    while page:
        yield from page
        page = queue.list(limit=PAGE, after=page[-1])


def counted(number: int, noun: str) -> str:
    """Return "1 file", "2 files"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def digest_of(folder: Path, relative: bytes) -> str | None:
    """Hash a file for the comparison, or return `None` when it cannot be read any more."""
    try:
        with (folder / os.fsdecode(relative)).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


if __name__ == "__main__":
    environment.ensure()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
