"""Containers of one host that share a volume, as far as the kernel is concerned: process ids and hosts of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import litequeue
from litequeue.sqlite import ofd

APART = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--kill-child"]
YEAR_S = 31_536_000
WORKER = f"""
import sys
import litequeue

with litequeue.open(sys.argv[1]) as queue:
    print("waits", flush=True)
    assert queue.wait(60, ["work"])
    lease = queue.lease_next(["work"], ttl={YEAR_S})
    print(lease.worker_id, flush=True)
    sys.stdin.read()
"""


def _may_be_apart() -> bool:
    if not ofd.HAS_LOCKS or shutil.which(APART[0]) is None:
        return False
    return subprocess.run([*APART, "true"], check=False, capture_output=True, timeout=30).returncode == 0


@pytest.mark.slow
def test_a_worker_in_another_container_is_woken_and_missed(path: str, tmp_path: Path) -> None:
    """It is told of new work, seen to live, and its job comes back when it has died, long before its time (G5).

    Its process has the id 1, which here is another's, and always alive.
    """
    if not _may_be_apart():
        pytest.skip("this user may not make namespaces")
    words = [*APART, sys.executable, "-c", WORKER, path]
    with litequeue.open(path) as queue:
        container = subprocess.Popen(
            words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        try:
            assert container.stdout is not None
            assert container.stdout.readline() == "waits\n"
            job_id = queue.enqueue("work").job_id
            worker_id = container.stdout.readline().strip()
            assert queue.get(job_id).worker_id == worker_id
            assert ":1:" in worker_id
            assert [each.is_alive for each in queue.workers()] == [True]
            assert not queue.has_dead()
        finally:
            container.kill()
            container.communicate(timeout=60)
        end = time.monotonic() + 60
        while not queue.has_dead():  # its pipe is closed a moment before its lock is
            assert time.monotonic() < end
        assert queue.reap_dead() == 1
        assert queue.get(job_id).last_error == "worker died"
