"""What the package promises holds without the facilities that Windows and macOS lack (issue "Windows and macOS").

Broad parts of the suite run in processes that are told they are there. What is left out of these parts is comfort that
only the facility gives, by name, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import worlds

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


class Part(NamedTuple):
    """What runs in a world, and what of it cannot be had there."""

    has: dict[str, object]
    """What the modules of the package have found, as Python shows it."""
    tests: tuple[str, ...]
    without: tuple[str, ...]


NO_PRESENCE = (
    # Nobody is known to live but by a connection, which these handles are without.
    "tests/sqlite/test_restore.py::test_a_holder_without_a_connection_is_in_use_all_the_same",
    "tests/sqlite/test_restore.py::test_a_handle_that_a_fork_has_disconnected_is_in_use_all_the_same",
)
PARTS = {
    "windows": Part(
        {
            "facilities.PROC": worlds.NOWHERE,
            "flock.HAS_LOCKS": False,
            "ofd.HAS_LOCKS": False,
            "inotify.HAS_INOTIFY": False,
            "kqueue.HAS_KQUEUE": False,
            "clock.SystemClock().boot_id()": "windows-7",
        },
        (
            "tests/contract",
            "tests/faults/test_many_processes.py",
            "tests/faults/test_killed_processes.py::test_every_acknowledged_job_survives_kill_9[normal]",
            "tests/sqlite/test_backup.py",
            "tests/sqlite/test_restore.py",
            "tests/worker/test_processes.py::test_handlers_run_in_processes_of_their_own",
            "tests/worker/test_processes.py::test_a_handler_that_hears_nothing_is_killed_when_its_time_is_over",
            "tests/worker/test_processes.py::test_a_lost_lease_kills_the_process",
            "tests/worker/test_processes.py::test_a_drain_lets_processes_finish",
            "tests/worker/test_processes.py::test_processes_that_never_begin_end_the_worker",
            "tests/worker/test_leases.py::test_a_job_longer_than_its_lease_runs_once",
            "tests/worker/test_leases.py::test_a_lease_that_a_handler_ends_just_now_is_not_lost",
            "tests/worker/test_process_drains.py::test_a_locked_file_at_the_end_loses_no_attempt_and_no_outcome",
        ),
        (
            *NO_PRESENCE,
            # It counts on a bell.
            "tests/sqlite/test_restore.py::test_a_queue_is_replaced_in_its_place",
            # They take long, and nothing that is done in them depends on the platform.
            "tests/contract/test_earlier_versions.py",
            "tests/contract/test_fairness_bound.py",
        ),
    ),
    "macos": Part(
        {
            "facilities.PROC": worlds.NOWHERE,
            "flock.HAS_LOCKS": True,
            "ofd.HAS_LOCKS": False,
            "inotify.HAS_INOTIFY": False,
            "kqueue.HAS_KQUEUE": True,
            "clock.SystemClock().boot_id()": "0B8E1F0C-BOOT",
        },
        (
            "tests/cli/test_maintain.py",
            "tests/contract/test_lease.py",
            "tests/contract/test_lease_in_transaction.py",
            "tests/sqlite/test_backup.py",
            "tests/sqlite/test_gate.py",
            "tests/sqlite/test_restore.py",
            "tests/sqlite/test_results.py",
            "tests/sqlite/test_ringing.py",
            "tests/sqlite/test_waiter.py",
            "tests/sqlite/test_watching.py",
        ),
        (
            *NO_PRESENCE,
            # For kqueue a ring is a write.
            "tests/sqlite/test_ringing.py::test_a_ring_writes_nothing",
            "tests/sqlite/test_ringing.py::test_a_bell_that_comes_and_goes_is_rung_while_it_is_there",
        ),
    ),
}


def run(world: str, *command: str) -> str:
    """Run a command in a world; return what it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, worlds.VARIABLE: world, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.mark.parametrize("world", PARTS)
def test_the_package_finds_what_a_world_has(world: str) -> None:
    """Or the tests below would tell nothing; and a job is done there."""
    has = PARTS[world].has
    program = f"""
import litequeue, tempfile
from litequeue import clock, facilities
from litequeue.sqlite import flock, inotify, kqueue, ofd
with tempfile.TemporaryDirectory() as folder, litequeue.open(folder + "/app.queue") as queue:
    queue.enqueue("work", 1)
    lease = queue.lease_next()
    lease.complete()
    litequeue.Maintenance(queue).run_once()
print([{", ".join(has)}])
"""
    assert run(world, "-c", program).splitlines()[-1] == str(list(has.values()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("world", PARTS)
def test_what_is_promised_holds_in_a_world(world: str, tmp_path: Path) -> None:
    """One holder, nothing lost, and whoever waits is woken or looks (G1, G2, G5; DESIGN §3, §4)."""
    part = PARTS[world]
    quiet = ["-q", "-n", "2", "-p", "no:cacheprovider", "--no-header", f"--basetemp={tmp_path / 'suite'}"]
    left_out = [f"--deselect={name}" for name in part.without]
    assert "passed" in run(world, "-m", "pytest", *quiet, *left_out, *part.tests)
