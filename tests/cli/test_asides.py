"""What listings say beside themselves on a terminal, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue.cli.asides import OTHER_SCOPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.cli.conftest import Cli

EMPTY = {
    "jobs ls": "no such job in scope default",
    "jobs ls --all-scopes": "no such job in any scope",
    "dead ls": "nothing is dead in scope default",
    "dead ls --by-error --kind mail:": "nothing of mail: is dead in scope default",
    "kinds --system": "no job in scope (system)",
    "scopes": "no scope has jobs",
    "workers": "nobody works on the file",
    "pauses": "nothing is paused",
    "schedule ls": "there is no schedule",
    "outbox dead orders": "no message of orders is dead",
    "weight": "every scope has the weight 1",
    "events": "nothing has happened in scope default",
}


@pytest.mark.parametrize("words", EMPTY)
def test_an_empty_listing_says_so_on_a_terminal(cli: Cli, terminal: Callable[[int], None], words: str) -> None:
    """On standard error; nothing on standard output, and status 0. A script hears nothing (§9, issue 8)."""
    cli.done("init")
    assert cli.done(*words.split()) == ""
    terminal(80)
    outcome = cli(*words.split())
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.only_complaint() == EMPTY[words]


@pytest.mark.parametrize("words", ["jobs ls", "kinds", "dead ls", "events"])
def test_what_is_in_other_scopes_is_not_forgotten(
    cli: Cli, queue: Queue, terminal: Callable[[int], None], words: str
) -> None:
    """Where the scope is the default one that nobody has chosen, or empty; as `stats` says it (issue 8)."""
    queue.enqueue("work", scope="acme")
    queue.lease_many(1, scope="acme")[0].fail("boom", retryable=False)
    terminal(80)
    assert cli(*words.split()).err.splitlines()[-1] == f"litequeue: {OTHER_SCOPES}"
    assert cli(*words.split(), "--system").err.splitlines()[-1] == f"litequeue: {OTHER_SCOPES}"
    assert cli(*words.split(), "--scope", "acme").err == ""
    assert cli(*words.split(), "--all-scopes").err == ""
    queue.enqueue("work")
    queue.lease_many(1)[0].fail("boom", retryable=False)
    assert cli(*words.split()).only_complaint() == OTHER_SCOPES
    assert cli(*words.split(), "--scope", "acme").err == ""
