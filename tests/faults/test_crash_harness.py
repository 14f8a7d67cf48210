"""`tools/crash.py` in its short form: some workers are killed and stopped, and no promise is broken.

And its teeth: each negative control has to end with the promise broken that it sabotages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

pytestmark = pytest.mark.slow

_RUNS = 4
"""In how many runs a negative control has to be found out; nearly always it is in the first."""
HARNESS = Path(__file__).parent.parent.parent / "tools" / "crash.py"


WAYS = ("outbox", "lease-in-transaction", "attach", "dbapi")
"""In which an application may commit its rows and its jobs together."""


def _run(*arguments: str) -> tuple[int, dict[str, object]]:
    """Run the harness in a process of its own; return its exit status and what it tells."""
    command = [sys.executable, str(HARNESS), "--json", "--seed", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.stdout, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return done.returncode, told


def _table(told: dict[str, object], title: str) -> list[dict[str, object]]:
    return cast("dict[str, list[dict[str, object]]]", told["tables"])[title]


def _is_found_out(promise: str, *arguments: str) -> bool:
    """Tell whether a sabotage is found in one of a few runs: what the kernel schedules may hide it from one of them."""
    for seed in range(1, _RUNS + 1):
        status, told = _run(*arguments, "--seed", str(seed))
        if told["broken"] and any(
            promise in cast("str", row["broken"]) for row in _table(told, "what the checker found")
        ):
            assert status == 1
            return True
    return False


def test_a_short_run_breaks_no_promise() -> None:
    """Kills at random and at named points, stops, and poison, on a file of each mode (G1, G2, G3, G5, G6, G7, G11)."""
    status, told = _run("--kills", "30")
    assert told["broken"] == []
    assert status == 0
    killed = _table(told, "processes killed")
    assert sum(cast("int", row[mode]) for row in killed for mode in ("full", "enqueue", "normal")) >= 30
    assert len(killed) > 5, "many points"
    figures = {row["figure"]: cast("int", row["normal"]) for row in _table(told, "what happened")}
    assert min(figures[name] for name in ("completed", "stopped, most past their lease", "leases")) > 0


@pytest.mark.parametrize(
    ("control", "kills", "promise"),
    [
        ("no-fence", "40", "nobody but the holder of the latest lease is obeyed (G1)"),
        ("early-acknowledgement", "25", "what was acknowledged is in the file"),
        ("double-lease", "25", "each generation has one holder (G1)"),
    ],
)
def test_a_sabotaged_queue_is_found_out(control: str, kills: str, promise: str) -> None:
    """A rule of the package is broken on purpose, in the workers: a run has to end with 1 and say which promise."""
    assert _is_found_out(promise, "--kills", kills, "--durability", "normal", "--control", control)


@pytest.mark.parametrize(("mode", "kills"), [("threads", "15"), ("asyncio", "15"), ("processes", "8")])
def test_real_workers_break_no_promise(mode: str, kills: str) -> None:
    """Workers are killed, stopped and asked to end, and so are their processes; handlers do all that they may (G1-G6).

    Nothing acknowledged is lost, no job is completed twice, and no two handlers work on one job under live leases.
    """
    status, told = _run("--kills", kills, "--workers-of", mode, "--durability", "normal")
    assert told["broken"] == []
    assert status == 0
    killed = _table(told, "processes killed")
    assert sum(cast("int", row[f"{mode}/normal"]) for row in killed) >= int(kills)
    figures = {row["figure"]: cast("int", row[f"{mode}/normal"]) for row in _table(told, "what happened")}
    assert min(figures[name] for name in ("completed", "stopped, most past their lease", "leases")) > 0


@pytest.mark.parametrize(
    ("control", "mode", "kills", "promise"),
    [
        ("no-fence", "threads", "25", "nobody but the holder of the latest lease is obeyed (G1)"),
        ("early-settlement", "asyncio", "15", "what a worker tells its user has been committed (G11)"),
        ("forgotten-outcome", "threads", "15", "what a handler came to is what the queue is told (V6, V7, V8)"),
        ("unstopped-release", "processes", "8", "no handler works on a job while another one does"),
    ],
)
def test_a_sabotaged_worker_is_found_out(control: str, mode: str, kills: str, promise: str) -> None:
    """A worker that is written wrong: a run has to end with 1 and say which promise is broken."""
    only = ("--workers-of", mode, "--durability", "normal")
    assert _is_found_out(promise, "--kills", kills, *only, "--control", control)


RESTRAINED = (
    "leases that took the last place of a limit",
    "pauses",
    "boundaries fired",
    "times that a scope with ready work waited while others were served",
)


def test_a_restricted_run_breaks_no_promise() -> None:
    """Limits, rates, pauses, schedules and turns hold while processes are killed and stopped (§5, V12, V15, G5, G10).

    And they were felt: otherwise the run would say nothing of them.
    """
    status, told = _run("--kills", "40", "--durability", "normal", "--restricted")
    assert told["broken"] == []
    assert status == 0
    figures = {row["figure"]: cast("int", row["normal"]) for row in _table(told, "what happened")}
    assert min(figures[name] for name in RESTRAINED) > 0


@pytest.mark.parametrize(("mode", "kills"), [("threads", "10"), ("asyncio", "10"), ("processes", "4")])
def test_restricted_workers_break_no_promise(mode: str, kills: str) -> None:
    """The same for real workers, most of which work for all scopes (§5, V12, V15, G5, G10)."""
    status, told = _run("--kills", kills, "--workers-of", mode, "--durability", "normal", "--restricted")
    assert told["broken"] == []
    assert status == 0
    figures = {row["figure"]: cast("int", row[f"{mode}/normal"]) for row in _table(told, "what happened")}
    assert figures["completed"] > 0


@pytest.mark.parametrize(
    ("control", "promise"),
    [
        ("uncounted", "no more jobs are leased at a time than a limit allows (§5)"),
        ("bottomless-bucket", "no more leases begin in any stretch of time than a rate allows (§5)"),
        ("deaf-to-pauses", "nothing is leased while it is paused (V15)"),
        ("double-fire", "each boundary of a schedule has one job"),
        ("first-scope", "a scope with ready work is served within the others' weights (V12, G10)"),
    ],
)
def test_a_queue_that_does_not_keep_to_its_restrictions_is_found_out(control: str, promise: str) -> None:
    """Each of the rules is broken on purpose: a run has to end with 1 and say which."""
    only = ("--durability", "normal", "--restricted")
    assert _is_found_out(promise, "--kills", "50", *only, "--control", control)


@pytest.mark.parametrize("way", WAYS)
def test_applications_and_workers_that_are_killed_break_no_promise(way: str) -> None:
    """A row and its job are both there or neither, and nothing is leased before the commit (V14, G2, G3, G4, G6)."""
    status, told = _run("--kills", "30", "--durability", "normal", "--applications", way)
    assert told["broken"] == []
    assert status == 0
    killed = _table(told, "processes killed")
    assert sum(cast("int", row[f"{way}/normal"]) for row in killed) >= 30
    figures = {row["figure"]: cast("int", row[f"{way}/normal"]) for row in _table(told, "what happened")}
    assert figures["done or delivered"] >= figures["orders"] > 0


@pytest.mark.parametrize(
    ("control", "way", "promise"),
    [
        *(("row-alone", way, "both in the file, or neither (V14)") for way in WAYS),
        *(("job-first", way, "nothing is leased before the commit of the row that it is about (V14)") for way in WAYS),
        ("lease-alone", "lease-in-transaction", "leaves no trace of the lease (V14, G6)"),
        ("keyless", "outbox", "the first deliveries of a key are in the order of its commits (G4)"),
        ("told-late", "outbox", "each message is delivered at least once (G3)"),
    ],
)
def test_an_application_that_is_written_wrong_is_found_out(control: str, way: str, promise: str) -> None:
    """Its rows and jobs commit apart, or what is done about them is: a run has to end with 1 and say so."""
    only = ("--durability", "normal", "--applications", way)
    assert _is_found_out(promise, "--kills", "40", *only, "--control", control)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--control", "early-settlement"),
        ("--control", "keyless", "--applications", "attach"),
        ("--control", "no-fence", "--applications"),
        ("--applications", "--restricted"),
        ("--control", "double-lease", "--workers-of", "threads"),
        ("--control", "uncounted"),
    ],
)
def test_a_control_that_does_not_apply_is_refused(arguments: tuple[str, ...]) -> None:
    """It would sabotage nothing, and so prove nothing."""
    command = [sys.executable, str(HARNESS), *arguments]
    assert subprocess.run(command, capture_output=True, check=False, timeout=110).returncode == 2
