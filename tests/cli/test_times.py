"""Times and colours as a person reads them: distances in units that suit them, colours on a terminal only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from litequeue.cli import litequeue as command
from litequeue.cli.times import Times

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli

NOW = 1_700_000_000_123_456
SECOND, MINUTE, HOUR, DAY = (1_000_000 * size for size in (1, 60, 3600, 86_400))
TIMES = Times(NOW, is_utc=True)


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (0, "now"),
        (SECOND - 1, "now"),
        (SECOND, "1 s"),
        (MINUTE - 1, "59 s"),
        (MINUTE, "1 min"),
        (90 * MINUTE - 1, "89 min"),
        (90 * MINUTE, "1 h"),
        (36 * HOUR - 1, "35 h"),
        (36 * HOUR, "1 d"),
        (400 * DAY, "400 d"),
        (4000 * DAY, "4,000 d"),
    ],
)
def test_a_distance_is_told_in_its_largest_unit(distance: int, text: str) -> None:
    """Before now and after it, rounded down (issue 8)."""
    assert TIMES.distance(NOW - distance) == (text if text == "now" else f"{text} ago")
    assert TIMES.distance(NOW + distance) == (text if text == "now" else f"in {text}")


def test_a_full_time_has_its_zone_and_its_distance() -> None:
    """To the µs; a listing's is to the second, with the zone in the heading (issue 8)."""
    assert TIMES.full(NOW - 3 * MINUTE) == "2023-11-14 22:10:20.123456Z (3 min ago)"
    assert TIMES.short(NOW) == "2023-11-14 22:13:20"


@pytest.mark.parametrize("moment", [2**62, -(2**62)])
def test_a_time_beyond_the_calendar_is_shown_as_it_is_stored(moment: int) -> None:
    """A damaged file may hold any number: no traceback (§6)."""
    assert TIMES.full(moment) == TIMES.short(moment) == str(moment)
    assert TIMES.distance(moment).endswith(" d") or TIMES.distance(moment).endswith(" d ago")


def test_no_time_is_a_dash() -> None:
    """In every form."""
    assert (TIMES.full(None), TIMES.short(None), TIMES.distance(None)) == ("-", "-", "-")


@pytest.mark.parametrize("words", [["jobs", "ls"], ["stats"]], ids=" ".join)
def test_colours_are_for_a_terminal_that_wants_them(
    cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """They take no room in a table; a pipe has none, nor has a terminal where NO_COLOR is set (issue 8)."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for retryable in (True, False):
        queue.enqueue("work")
        (lease,) = queue.lease_many(1)
        lease.fail("boom", retryable=retryable)

    def shown(*, is_terminal: bool) -> str:
        return CliRunner().invoke(command, ["--db", str(cli.path), *words, "--utc"], color=is_terminal).stdout

    coloured, plain = shown(is_terminal=True), shown(is_terminal=False)
    assert "\x1b[31mdead\x1b[0m" in coloured
    assert "\x1b[33mretryable\x1b[0m" in coloured
    assert "\x1b" not in plain
    columns = [[line.find(word) for word in ("work", "PRIORITY", "KIND")] for line in plain.splitlines()]
    assert columns == [
        [line.find(word) for word in ("work", "PRIORITY", "KIND")] for line in click.unstyle(coloured).splitlines()
    ]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(is_terminal=True)
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b[31mdead" in shown(is_terminal=True)
