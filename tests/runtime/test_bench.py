"""`tools/bench.py` in its short form: it runs, says what its figures belong to, and judges nothing by accident."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench
from benching import running, runs

BENCH = Path(__file__).parent.parent.parent / "tools" / "bench.py"


def _run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
def test_the_short_form_runs(tmp_path: Path) -> None:
    """Every workload gives a figure, and each figure says what the live connection had; an earlier run is shown as is.

    `ours` and `bare` at `full` and at `normal`: the pragmas are read back, and the floor's are the same (issue 4).
    """
    kept = tmp_path / "run.json"
    status, told = _run("--short", "--subjects=ours,bare", "--seed", "1", "--json", str(kept))
    assert status == 0
    assert told.startswith("short form: it runs, and the figures mean nothing\n")
    assert "Goals" not in told
    run: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    assert [sample for sample in run["samples"] if sample["failed"]] == []
    measured = [sample for sample in run["samples"] if sample["figures"]]
    from benching.registry import workloads  # noqa: PLC0415

    assert {sample["workload"] for sample in measured} >= {workload.name for workload in workloads()}
    for sample in measured:
        synchronous = {"normal": 1, "full": 2}[sample["durability"]]
        has = {"page_size": 2048, "journal_mode": "wal", "synchronous": synchronous}
        assert has.items() <= sample["has"].items()
    assert {"cpu", "cores", "kernel", "file system", "load"} <= run["surroundings"].keys()
    status, again = _run("--from", str(kept))
    assert (status, again) == (0, told)
    assert str(tmp_path) not in kept.read_text(encoding="utf-8")


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every workload that is whole is in the file; what was cut off is not."""
    kept = tmp_path / "run.json"

    def interrupted(*_: object) -> Iterator[running.Sample]:
        for workload in ("enqueue", "growth", "drain"):
            yield running.Sample(workload, "any", "full", "ours", is_peer=False, round=0, figures={}, has={})
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.main(["--json", str(kept)])
    (run,) = runs.read([kept])
    assert run.workloads() == ["enqueue", "growth"]
