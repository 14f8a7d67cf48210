"""`tools/contention.py` in its short form: nothing is lost or done twice, and with the gate nobody starves.

And its teeth: without the gate the least served process has too little, and a lease without a look is found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

import contention
from contending.cell import Shared, Turns, shared

_RUNS = 3
"""In how many runs a negative control has to be found out; nearly always it is in the first."""
HARNESS = Path(__file__).parent.parent.parent / "tools" / "contention.py"


def _run(*arguments: str) -> tuple[int, dict[str, object], list[dict[str, object]]]:
    """Run the harness in a process of its own; return its exit status, what it tells, and what was served."""
    command = [sys.executable, str(HARNESS), "--json", "--seed", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.stdout, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return done.returncode, told, cast("dict[str, list[dict[str, object]]]", told["tables"])["what was served"]


def _found_out(*arguments: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return what that run of a few tells which found a sabotage: scheduling may hide it from one of them."""
    for seed in range(1, _RUNS + 1):
        status, told, served = _run(*arguments, "--seed", str(seed))
        if status == 1:
            return told, served
    raise AssertionError(f"not found in {_RUNS} runs")


@pytest.mark.slow
def test_every_job_goes_to_one_of_many_processes() -> None:
    """With the gate and without it, while others enqueue and while they do not: 0 lost, 0 doubled (G1, G2)."""
    status, told, served = _run("--jobs", "600", "--processes", "2", "8", "--durability", "normal")
    assert told["broken"] == []
    assert status == 0
    assert [row["jobs done"] for row in served] == [600] * 8
    assert {(row["doubled"], row["lost"], row["left"]) for row in served} == {(0, 0, 0)}
    assert {(row["processes"], row["mode"], row["waiting"]) for row in served} == {
        (processes, mode, waiting)
        for processes in (2, 8)
        for mode in ("drain", "mixed")
        for waiting in ("gate", "busy timeout")
    }


FAIRNESS = ("--jobs", "10000", "--seconds", "5", "--durability", "full", "--mode", "drain")


@pytest.mark.slow
def test_with_the_gate_nobody_starves() -> None:
    """Eight processes for some seconds: the least served has a good part of what the most served has (G10)."""
    status, told, (row,) = _run(*FAIRNESS, "--gate", "on", "--processes", "8")
    assert told["broken"] == []
    assert status == 0
    assert cast("float", row["together, s"]) >= contention.LEAST_S, "long enough to be judged"


@pytest.mark.slow
def test_without_the_gate_somebody_starves() -> None:
    """SQLite's stock busy timeout, with many processes, does not give what the gate gives (DESIGN §3)."""
    told, _ = _found_out(*FAIRNESS, "--control", "gate-off", "--processes", "32")
    assert all("the least served had" in one for one in cast("list[str]", told["broken"]))


@pytest.mark.slow
def test_a_lease_without_a_look_is_found() -> None:
    """The head is read before the lock is taken: several processes get the same job, and the checker says so (G1)."""
    only = ("--processes", "4", "--durability", "normal", "--mode", "drain")
    _, (row,) = _found_out("--jobs", "300", *only, "--control", "double-lease")
    assert cast("int", row["doubled"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["threads", "asyncio", "processes"])
def test_every_job_goes_to_one_of_many_workers(mode: str) -> None:
    """Real workers, with handlers some of which last longer than a lease: 0 lost, 0 doubled, one run each (G1, V4)."""
    only = ("--durability", "normal", "--mode", mode)
    status, told, (row,) = _run("--jobs", "500", "--processes", "3", "--seconds", "60", *only)
    assert told["broken"] == []
    assert status == 0
    assert (row["jobs done"], row["left"], row["doubled"], row["lost"]) == (500, 0, 0, 0)


@pytest.mark.slow
def test_workers_whose_time_is_over_give_back_what_they_have_not_begun() -> None:
    """Others may lease that once more before their own time is over, and that is no fault (G1, G5)."""
    only = ("--processes", "4", "--durability", "full", "--mode", "processes")
    status, told, (row,) = _run("--jobs", "20000", "--seconds", "5", *only)
    assert told["broken"] == []
    assert status == 0
    assert cast("int", row["left"]) > 0


@pytest.mark.slow
def test_workers_that_do_not_extend_their_leases_are_found() -> None:
    """A handler outlasts its lease, and another worker has the job meanwhile (V4)."""
    only = ("--processes", "3", "--durability", "normal", "--mode", "threads")
    told, _ = _found_out("--jobs", "100", *only, "--control", "no-heartbeat")
    assert told["broken"] != []


def _served(*begun_at: int, ended_at: int) -> Turns:
    return Turns(begun_at, [1] * len(begun_at), ended_at, is_cut=False)


def test_shares_count_only_the_time_in_which_all_are_at_work() -> None:
    """What one did before the last had begun, or after the first had ended, is nobody's fault (G10)."""
    early = _served(1, 2, 10, 20, 30, 90, 91, 92, ended_at=100)
    late = _served(10, 15, 20, 25, 30, 35, ended_at=40)
    assert shared([early, late]) == Shared(0.5, 30 / 1e9)


def test_a_process_that_was_never_served_has_no_share() -> None:
    """It is the one who starved (G10)."""
    assert shared([_served(1, 2, 3, ended_at=10), _served(ended_at=10)]).least_to_most == 0
    assert shared([]).least_to_most == 0
