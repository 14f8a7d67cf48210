"""`pause`, `resume` and `pauses`: from a shell (V15)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import ANY, SYSTEM

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli

PLACES: list[tuple[list[str], str | None, object]] = [
    (["--kind", "mail:"], "mail:", ANY),
    (["--scope", "one"], None, "one"),
    (["--system", "--kind", "report"], "report", SYSTEM),
    (["--all-scopes"], None, ANY),
]

SCOPES: dict[object, str] = {"one": "one", SYSTEM: "(system)"}


@pytest.mark.parametrize(("words", "kind", "scope"), PLACES)
def test_a_pause_is_given_and_taken_back(
    cli: Cli, queue: Queue, words: list[str], kind: str | None, scope: object
) -> None:
    """With the same words; a pause that is there already is no error, one that is not is nothing to do (V15, §9)."""
    told = f"{kind or 'every kind'} in {'all scopes' if scope is ANY else f'scope {SCOPES[scope]}'}"
    assert cli.done("pause", *words) == f"paused {told}\n"
    cli.done("pause", *words)
    assert [(pause.kind, pause.scope) for pause in queue.pauses()] == [(kind, scope)]
    assert cli.done("resume", *words) == f"resumed {told}\n"
    assert queue.pauses() == []
    again = cli("resume", *words)
    assert (again.status, again.out) == (3, "")
    assert again.only_complaint() == f"there is no pause of {told}: `pauses` lists those that there are"


def test_pauses_are_listed(cli: Cli, queue: Queue) -> None:
    """A heading and a line each; in JSON a list (V15)."""
    assert cli.done("pauses") == ""
    assert cli.json("pauses") == []
    queue.pause("mail:")
    queue.pause(scope="one")
    queue.pause("report", scope=SYSTEM)
    lines = [line.split()[:2] for line in cli.done("pauses").splitlines()]
    assert lines == [["SCOPE", "KIND"], ["(all)", "mail:"], ["(system)", "report"], ["one", "(all)"]]
    told = cli.json("pauses")
    assert isinstance(told, list)
    assert [(one["scope"], one["all_scopes"], one["kind"]) for one in told if isinstance(one, dict)] == [
        (None, True, "mail:"),
        (None, False, "report"),
        ("one", False, None),
    ]


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--all-scopes"),
        (["--all-scopes", "--scope", "one"], "exclude"),
        (["--kind", ""], "--kind must be"),
        (["--scope", "litequeue:all"], "reserved"),
    ],
)
def test_a_pause_of_nothing_is_wrong_usage(cli: Cli, verb: str, words: list[str], said: str) -> None:
    """One line that says what is wrong (§6, §9)."""
    cli.done("init")
    assert said in cli(verb, *words).line_of_failure(2)
