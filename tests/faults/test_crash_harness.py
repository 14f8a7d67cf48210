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

HARNESS = Path(__file__).parent.parent.parent / "tools" / "crash.py"


def _run(*arguments: str) -> tuple[int, dict[str, object]]:
    """Run the harness in a process of its own; return its exit status and what it tells."""
    command = [sys.executable, str(HARNESS), "--json", "--seed", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.stdout, done.stderr
    told: dict[str, object] = json.loads(done.stdout)
    return done.returncode, told


def _table(told: dict[str, object], title: str) -> list[dict[str, object]]:
    return cast("dict[str, list[dict[str, object]]]", told["tables"])[title]


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
    ("control", "promise"),
    [
        ("no-fence", "nobody but the holder of the latest lease is obeyed (G1)"),
        ("early-acknowledgement", "what was acknowledged is in the file"),
        ("double-lease", "each generation has one holder (G1)"),
    ],
)
def test_a_sabotaged_queue_is_found_out(control: str, promise: str) -> None:
    """A rule of the package is broken on purpose, in the workers: the run has to end with 1 and say which promise."""
    status, told = _run("--kills", "25", "--durability", "normal", "--control", control)
    assert status == 1
    assert any(promise in cast("str", row["broken"]) for row in _table(told, "what the checker found"))
