"""What `tools/bench.py` is asked: names and workloads, and what is refused before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bench
from benching import asking, runs
from benching.runs import Run


@pytest.mark.parametrize(
    ("given", "workloads", "subjects", "peers"),
    [
        (["--subjects", "ours,bare", "wake-up"], ["wake-up"], ["ours", "bare"], None),
        (["--peers", "enqueue"], ["enqueue"], None, asking.PEERS),
        (
            ["--peers=huey,gigq", "enqueue-in-bulk", "file-size"],
            ["enqueue in bulk", "file size"],
            None,
            ["huey", "gigq"],
        ),
    ],
)
def test_no_option_swallows_a_workload(
    given: list[str], workloads: list[str], subjects: list[str] | None, peers: list[str] | None
) -> None:
    """Names of an option have commas between them; a workload is one word."""
    options = asking.read(asking.parser(), given)
    assert (options.workloads, options.subjects, options.peers) == (workloads, subjects, peers)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["nonsense"], "no such workload: 'nonsense' (there is enqueue, enqueue-in-bulk,"),
        (["--peers=ours"], "no such peer: 'ours'"),
        (["--subjects=ours,"], "no such subject: ''"),
        (["--size", "0"], "'0' is not a factor of more than 0"),
        (["--json", "nope/x.json"], "there is no folder nope"),
        (["--json", "."], "that is a folder"),
        (["--document", "nope.md"], "No such file"),
        (["--document", "page.md"], "it has no markers"),
        (["--plots", "nope/plots"], "there is no folder nope"),
        (["--plots", "page.md"], "that is no folder"),
        (["--from", "nope.json"], "nope.json: No such file"),
        (["--from", "page.md"], "page.md is not what `--json` writes"),
        (["--from", "list.json"], "list.json is not what `--json` writes"),
        (["--from", "short.json", "--plots", "plots"], "the figures of a short run mean nothing"),
        (["enqueue", "--from", "short.json", "--rounds", "3"], "it does not go with workloads, --rounds"),
        (["--short", "--plots", "plots"], "it does not go with --document, --plots or --strict"),
        (["--short", "--strict"], "it does not go with --document, --plots or --strict"),
    ],
)
def test_what_cannot_end_well_is_refused_first(
    given: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what is wrong, nothing is measured, and nothing has been written."""
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text("# A page\n", encoding="utf-8")
    Path("list.json").write_text("[]", encoding="utf-8")
    runs.write(Run("", 1, {}, is_short=True, taken={}, surroundings={}), Path("short.json"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as ended:
        bench.main(given)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err.splitlines()[-1]
    assert sorted(tmp_path.iterdir()) == before


def test_goals_are_judged_over_all_runs_that_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One workload a run: each has its goals, and a missed one of any of them ends a strict look with 1."""
    has = {"journal_mode": "wal", "synchronous": 1, "page_size": 2048, "sqlite": "3"}
    paths = []
    for workload in ("enqueue", "lease+complete"):
        samples = [
            {
                "workload": workload,
                "cell": "100 B",
                "durability": "normal",
                "subject": subject,
                "is_peer": False,
                "round": 0,
                "figures": {"us": us},
                "has": has,
                "unsupported": None,
                "failed": None,
            }
            for subject, us in (("ours", 2.5), ("bare", 1.0))
        ]
        paths.append(str(tmp_path / f"{workload}.json"))
        run = Run(workload, 1, {"rounds": 1}, is_short=False, taken={"commit": "a"}, surroundings={}, samples=samples)
        runs.write(run, Path(paths[-1]))
    assert bench.main(["--from", paths[0], "--strict"]) == 0
    assert bench.main(["--from", *paths, "--strict"]) == 1
    told = capsys.readouterr().out
    assert "enqueue, normal, × bare" in told
    assert "lease+complete, normal, × bare: 2.5, to reach ≤ 1.6" in told
    assert json.loads(Path(paths[0]).read_text(encoding="utf-8"))["seed"] == 1
