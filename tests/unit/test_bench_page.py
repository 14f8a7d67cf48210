"""What the benchmark makes of a run besides: the page with its tables, and whom it measures at which durability."""

from __future__ import annotations

from pathlib import Path

from benching import document, running
from benching.registry import workloads
from benching.workload import Scale
from harness.report import Report

PAGE = Path(__file__).parent.parent.parent / "docs" / "performance.md"


def _report() -> Report:
    report = Report("bench", 7, {"rounds": 5}, taken={"commit": "abc"})
    report.add("Enqueue, one by one", [{"subject": "ours", "× bare": 2.5}, {"subject": "bare", "× bare": None}])
    return report


def test_a_table_stands_between_its_markers() -> None:
    """What a person wrote stays, what a run wrote before goes, and every table says where it comes from."""
    page = "Before.\n<!-- bench: enqueue -->\nold\n<!-- end -->\nAfter.\n"
    written = document.written(page, _report(), "python tools/bench.py")
    assert written == (
        "Before.\n<!-- bench: enqueue -->\n\n`python tools/bench.py`, seed 7, at commit `abc`:\n\n"
        "| subject | × bare |\n| --- | --- |\n| ours | 2.5 |\n| bare |  |\n\n<!-- end -->\nAfter.\n"
    )
    assert document.written(written, _report(), "python tools/bench.py") == written


def test_what_was_not_measured_stays() -> None:
    """A run of some workloads does not empty the tables of the others."""
    page = "<!-- bench: growth -->\nold\n<!-- end -->\n"
    assert document.written(page, _report(), "any") == page


def test_the_page_has_a_place_for_every_workload() -> None:
    """No marker that nothing fills, and no workload without a place."""
    page = PAGE.read_text(encoding="utf-8")
    assert document.unknown(page) == []
    assert [name for name in ("run", "subjects", "goals", "left out") if f"<!-- bench: {name} -->" not in page] == []
    assert [one.name for one in workloads() if f"<!-- bench: {one.name} -->" not in page] == []


def test_every_subject_of_a_cell_gets_the_same() -> None:
    """Own subjects where the workload has them, peers where the cell has them, with the same numbers (issue 4)."""
    todo = running.steps(workloads(), ["ours", "bare"], ["peer"], Scale(), rounds=5)
    assert {subject.name for step in todo for subject in step.subjects} == {"ours", "bare", "peer"}
    assert {step.rounds for step in todo if step.workload.name != "file size"} == {5}
    names = [(step.cell.workload, step.cell.name, step.cell.durability) for step in todo]
    assert len(names) == len(set(names))
