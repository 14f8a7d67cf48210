"""Where `fcntl` does not exist (Windows): the package imports, and its promises hold without the gate (DESIGN §3)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent

PLUGIN = """
import sys

sys.modules["fcntl"] = None  # whatever is imported from now on does not find it


def pytest_sessionfinish():
    from litequeue.sqlite import gate

    assert gate.fcntl is None, "the suite was to run without it"
"""


def _hide_fcntl() -> None:
    """Load the package anew in a process that has no `fcntl`."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "litequeue"]:
        del sys.modules[name]
    sys.modules["fcntl"] = None  # type: ignore[assignment] # how Python is told that there is no such module
    globals()["litequeue"] = __import__("litequeue")


def _work(parent: Parent, path: str) -> bool:
    """Do the main job without `fcntl`."""
    _hide_fcntl()
    parent.say("ready")
    parent.hear()
    with litequeue.open(path) as queue:
        queue.enqueue("work", 1)
        lease = queue.lease_next()
        assert lease is not None
        lease.complete()
        litequeue.Maintenance(queue).run_once()
    from litequeue.sqlite import gate  # noqa: PLC0415 - the one that was loaded without it

    return vars(gate)["fcntl"] is None


def test_the_package_works_without_fcntl(tmp_path: Path, processes: Children) -> None:
    """It imports, and a job is enqueued, leased and completed (issue "Repository")."""
    child = processes.start(_work, str(tmp_path / "app.queue"))
    assert child.hear() == "ready"
    child.say("go")
    assert child.result() is True


def test_processes_without_the_gate_create_and_use_a_file_at_once(tmp_path: Path, processes: Children) -> None:
    """Correctness rests on SQLite's own lock alone (DESIGN §3)."""
    path = str(tmp_path / "app.queue")
    children = [processes.start(_work, path) for _ in range(6)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say("go")
    for child in children:
        assert child.result() is True
    with litequeue.open(path, create=False) as queue:
        assert queue.stats().counts[litequeue.JobState.COMPLETED] == 6


@pytest.mark.timeout(600)
def test_the_contract_suite_passes_without_fcntl(tmp_path: Path) -> None:
    """Every promise of the contract suite holds with `fcntl` hidden (issue "done when")."""
    suite = ROOT / "tests" / "contract"
    if not list(suite.glob("test_*.py")):
        pytest.skip("there is no contract suite yet")
    (tmp_path / "hide_fcntl.py").write_text(PLUGIN, encoding="utf-8")
    quiet = ["-q", "-p", "no:cacheprovider", "--no-header", "--basetemp", str(tmp_path / "suite")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "hide_fcntl", "-n", "2", *quiet, str(suite)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "passed" in done.stdout
