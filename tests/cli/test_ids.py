"""Jobs named by the beginning of their id: as typed, in every command, and refused when it is not unique (§9)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litequeue import JobState

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli

FIRST = UUID("0190a0c5-7b5e-7000-8000-000000000001")
SECOND = UUID("0190a0c5-7b5e-7000-8000-0000000000a2")
OTHER = UUID("0190ffff-7b5e-7000-8000-000000000003")


@pytest.fixture
def three(queue: Queue) -> None:
    """Give two jobs whose ids differ at the end only, and one that is another from its fifth digit on."""
    for job_id in (FIRST, SECOND, OTHER):
        queue.enqueue("work", job_id=job_id)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    "typed",
    ["0190f", "0190F", "0190-ffff", "0190ffff-7b", str(OTHER)[:-1], OTHER.hex, str(OTHER).upper(), f" {OTHER} "],
)
def test_a_job_is_named_by_as_much_of_its_id_as_is_unique(cli: Cli, typed: str) -> None:
    """With dashes or without, in capitals or not, whole or not (§9)."""
    shown = cli.json("jobs", "show", typed)
    assert isinstance(shown, dict)
    assert shown["job_id"] == str(OTHER)


@pytest.mark.usefixtures("three")
def test_the_last_digit_may_tell_two_apart(cli: Cli, queue: Queue) -> None:
    """The range of a beginning ends where the next one begins: nothing of a neighbour is taken in (V13)."""
    assert cli.done("jobs", "cancel", str(SECOND)[:-1]) == "1 job cancelled\n"
    assert [queue.get(job_id).state for job_id in (FIRST, SECOND)] == [JobState.PENDING, JobState.CANCELLED]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("verb", ["show", "cancel", "retry"])
def test_a_beginning_of_several_ids_is_refused_with_some_of_them(cli: Cli, queue: Queue, verb: str) -> None:
    """One line, in the order of the ids; nothing is done to any of them, nor to the others of the line (§9)."""
    several = () if verb == "show" else (OTHER,)
    line = cli("jobs", verb, *several, "0190a0").line_of_failure(1)
    assert line == f"more than one job has an id that begins with 0190a0: {FIRST}, {SECOND}"
    queue.enqueue("work", job_id="0190a0c5-7b5e-7000-8000-0000000000b0")
    queue.enqueue("work", job_id="0190a0c5-7b5e-7000-8000-0000000000b1")
    line = cli("jobs", verb, "0190a0").line_of_failure(1)
    assert line.endswith(f": {FIRST}, {SECOND}, 0190a0c5-7b5e-7000-8000-0000000000b0, …")
    assert queue.stats().counts[JobState.PENDING] == 5


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("words", [["show"], ["cancel"], ["retry"], ["ls", "--after"]], ids=" ".join)
def test_a_beginning_of_no_id_is_an_error(cli: Cli, words: list[str]) -> None:
    """Status 1, as for a whole id that is not there (§9)."""
    assert cli("jobs", *words, "ffff0").line_of_failure(1) == "no job has an id that begins with ffff0"


@pytest.mark.usefixtures("three")
def test_a_page_goes_on_after_such_a_job(cli: Cli) -> None:
    """`--after` takes a beginning too (V13)."""
    listed = cli.json("jobs", "ls", "--after", str(SECOND)[:-1])
    assert isinstance(listed, list)
    assert [job["job_id"] for job in listed] == [str(OTHER)]


@pytest.mark.usefixtures("three")
def test_one_job_named_in_two_ways_is_one_job(cli: Cli) -> None:
    """The second name is no second cancel, which would be refused (V9)."""
    assert cli.done("jobs", "cancel", "0190f", OTHER, "0190-FF") == "1 job cancelled\n"


@pytest.mark.parametrize("typed", ["019", "01-9-", "seven", "0190g", f"{OTHER}0", "", "-", "0190٣"])
def test_what_is_no_beginning_of_an_id_is_wrong_usage(cli: Cli, typed: str) -> None:
    """Too short, too long or no hex digits: status 2, with what was typed and what is allowed, and no file (§6, §9)."""
    outcome = cli("jobs", "show", "--", typed)
    assert (outcome.status, outcome.out) == (2, "")
    assert f"{typed!r} is neither a job's id nor the beginning of one, 4 to 32 hex digits" in outcome.err
    assert not cli.path.exists()
