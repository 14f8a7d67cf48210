"""The harness of damaged files, in its short form: no promise is broken, and each sabotage is seen (§6, G1, G2)."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

import hostile
from damage import specimens, wounds
from harness import report

if TYPE_CHECKING:
    from pathlib import Path

    from damage.specimens import Made

pytestmark = pytest.mark.slow

SEED = 20_251
FLIPS = 40
FLIPS_OF_A_CONTROL = 8
"""Not every wound meets an error of SQLite's."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Give the files to damage; they are made once."""
    return specimens.make_all(tmp_path_factory.mktemp("specimens"), SEED)


def test_damaged_files_break_no_promise(made: Made, tmp_path: Path) -> None:
    """Flipped bits, bytes, sectors, cut files, foreign logs: works, or a named error, in each verb and command (§6)."""
    tally = hostile.run(made, tmp_path, SEED, FLIPS)
    assert tally.broken == []
    assert tally.by_wound.total() == FLIPS
    assert {stage for stage, _ in tally.by_stage} >= {"open", "lease", "complete", "get", "list", "command stats"}
    assert list(tmp_path.iterdir()) == []


def test_each_sabotage_of_the_package_or_of_the_process_is_found(made: Made, tmp_path: Path) -> None:
    """Each negative control has to fail."""
    passed = [
        name for name in hostile.CONTROLS if not hostile.run(made, tmp_path, SEED, FLIPS_OF_A_CONTROL, name).broken
    ]
    assert passed == []


def test_a_whole_file_passes_with_every_stage_working(made: Made, tmp_path: Path) -> None:
    """Without a wound the exercise meets no error that concerns a file, so that what it reports is the wound's."""
    whole = wounds.Wound("nothing", made.whole[1], "", 0, b"\0")
    tally = hostile.Tally()
    child = hostile.Child(None)
    try:
        hostile.trial(child, whole, tmp_path / "whole", tally)
    finally:
        child.end()
    assert tally.broken == []
    assert not tally.first_errors
    assert {outcome for _, outcome in tally.by_stage} <= {
        "worked",
        "RecordError",
        "DuplicateJob",
        "JobNotFound",
        "status 1",
    }


def test_a_seed_repeats_the_wounds(made: Made) -> None:
    """A broken promise can be seen again by its seed."""
    first, second = (
        [str(wounds.draw_wound(draw, made)) for _ in range(200)] for draw in (random.Random(7), random.Random(7))
    )
    assert first == second
    assert len(set(first)) > 150


def test_the_command_prints_its_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` gives one object with seed, size, figures and what was broken; the status tells the same."""
    assert hostile.main(["--seed", "3", "--flips", "1", "--json", "--control", "writes-beside"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["harness"], found["seed"], found["size"], found["control"]) == (
        "hostile",
        3,
        {"flips": 1},
        "writes-beside",
    )
    assert found["broken_count"] >= 1
    assert found["taken_with"].keys() == report.taken_with().keys()
