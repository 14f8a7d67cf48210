"""What the benchmark makes of a run besides: the page with its tables, and whom it measures at which durability."""

from __future__ import annotations

from pathlib import Path

import pytest

from benching import document, running, runs
from benching.registry import workloads
from benching.runs import Run
from benching.tables import Table
from benching.workload import Scale

PAGE = Path(__file__).parent.parent.parent / "docs" / "performance.md"
TABLES: dict[str, Table] = {
    "Enqueue, one by one": [{"subject": "ours", "× bare": 2.5}, {"subject": "bare", "× bare": None}],
    "Goals": [{"goal": "fast", "": "reached"}],
}


def _run(workload: str, commit: str = "abc") -> Run:
    return Run(
        f"python tools/bench.py {workload}",
        7,
        {"rounds": 5},
        is_short=False,
        taken={"commit": commit},
        surroundings={"cpu": "fast"},
        samples=[{"workload": workload}],
    )


def test_a_table_stands_between_its_markers() -> None:
    """What a person wrote stays, and what a run wrote before goes."""
    page = "Before.\n<!-- bench: enqueue -->\nold\n<!-- end -->\nAfter.\n"
    written = document.written(page, TABLES, [_run("enqueue")])
    assert written == (
        "Before.\n<!-- bench: enqueue -->\n\n"
        "| subject | × bare |\n| --- | --- |\n| ours | 2.5 |\n| bare |  |\n\n<!-- end -->\nAfter.\n"
    )
    assert document.written(written, TABLES, [_run("enqueue")]) == written


def test_a_page_never_mixes_runs() -> None:
    """A table that these runs do not have is gone: what stands there would be of a run that the page does not name."""
    page = "<!-- bench: growth -->\nold\n<!-- end -->\n<!-- bench: left out -->\nold\n<!-- end -->\n"
    written = document.written(page, TABLES, [_run("enqueue")])
    assert "old" not in written
    assert "Not measured." in written


def test_every_run_stands_on_the_page_once() -> None:
    """Each with its command and its commit, and each table says which of them it is of; what all share once."""
    page = "".join(f"<!-- bench: {name} -->\n<!-- end -->\n" for name in ("runs", "enqueue", "goals"))
    written = document.written(page, TABLES, [_run("growth"), _run("enqueue", "def")])
    assert (
        "1. `python tools/bench.py growth`: commit `abc`\n2. `python tools/bench.py enqueue`: commit `def`" in written
    )
    assert written.count("cpu fast") == written.count("seed 7") == 1
    assert "Of run 2.\n\n| subject" in written
    assert written.count("Of run") == 1


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("", "it has no markers"),
        ("<!-- bench: runs -->\n<!-- end --><!-- bench: nonsense -->\n<!-- end -->", "no table is called nonsense"),
        ("<!-- bench: goals -->\n<!-- end -->", "it has no place for the runs"),
    ],
)
def test_a_page_that_would_not_name_its_runs_is_refused(page: str, why: str) -> None:
    """Before anything is measured for it."""
    assert document.unfit(page) == why


def test_the_page_has_a_place_for_every_table() -> None:
    """No marker that nothing fills, and no table without a place."""
    page = PAGE.read_text(encoding="utf-8")
    assert document.unfit(page) is None
    tables = [part.name for workload in workloads() for part in workload.parts()]
    named = ["runs", "subjects", "goals", "left out", *tables]
    assert [name for name in named if f"<!-- bench: {name} -->" not in page] == []


def test_no_table_is_too_wide_to_read() -> None:
    """A page has room for about a dozen columns; what every table has besides are five at most."""
    parts = [part for workload in workloads() for part in workload.parts()]
    shown = {part.name: sum(1 + column.is_shown_spread for column in part.columns) for part in parts}
    assert {name: columns for name, columns in shown.items() if columns > 8} == {}


def test_a_command_is_told_without_the_places_of_files() -> None:
    """They are those of one machine, and change nothing of what is measured."""
    given = ["drain", "--json", "/a/b.json", "--rounds", "3", "--plots=/a", "--document", "/a/p.md", "--peers=huey"]
    assert runs.shown(given) == "python tools/bench.py drain --rounds 3 --peers=huey"


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    """Also in the company of others, in the order in which they were asked for."""
    kept = [_run("growth"), _run("enqueue")]
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for run, path in zip(kept, paths, strict=True):
        runs.write(run, path)
    assert runs.read(paths) == kept
    assert sorted(tmp_path.iterdir()) == paths


def test_a_workload_is_not_shown_from_two_runs(tmp_path: Path) -> None:
    """A ratio is taken within a round, and rounds of two runs have nothing in common."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        runs.write(_run("enqueue"), path)
    with pytest.raises(runs.NoRun, match=r"enqueue was measured in .*a.json and in .*b.json"):
        runs.read(paths)


def test_peers_take_turns_in_the_first_rounds_only() -> None:
    """Beside ours and the floor, which go on; what is counted for the bar is what is done."""
    (wake_up,) = (workload for workload in workloads() if workload.name == "wake-up")
    (step,) = running.steps([wake_up], ["ours", "bare"], ["huey"], Scale(), rounds=5)
    assert [len(step.at(number)) for number in range(5)] == [3, 3, 3, 2, 2]
    assert step.turns() == 13


def test_every_subject_of_a_cell_gets_the_same() -> None:
    """Own subjects where the workload has them, peers where the cell has them, with the same numbers (issue 4)."""
    todo = running.steps(workloads(), ["ours", "bare"], ["peer"], Scale(), rounds=5)
    assert {subject.name for step in todo for subject in step.subjects} == {"ours", "bare", "peer"}
    assert {step.rounds for step in todo if not step.cell.is_once} == {5}
    names = [(step.cell.workload, step.cell.name, step.cell.durability) for step in todo]
    assert len(names) == len(set(names))
