"""`outbox`: what could not be delivered, from a shell (V7, V9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from litequeue import Outbox

if TYPE_CHECKING:
    from uuid import UUID

    from litequeue import Queue
    from tests.cli.conftest import Cli

UNKNOWN = "01900000-0000-7000-8000-000000000001"


@pytest.fixture
def outbox(queue: Queue) -> Outbox:
    """Give an outbox."""
    return Outbox(queue, "mail")


@pytest.fixture
def dead(queue: Queue, outbox: Outbox) -> UUID:
    """Give the id of a dead message, behind which another one waits."""
    with queue.transaction() as tx:
        dead = outbox.put(tx, "first", key="one")
        outbox.put(tx, "second", key="one")
    (lease,) = queue.lease_many(1, scope=outbox._scope)
    lease.fail("no such address", retryable=False)
    return dead


def test_dead_messages_are_listed_with_what_went_wrong(cli: Cli, dead: UUID) -> None:
    """A heading and a line each, in JSON a list; nothing where there is none (§9)."""
    _, line = cli.done("outbox", "dead", "mail").splitlines()
    assert str(dead) in line
    assert "no such address" in line
    told = cli.json("outbox", "dead", "mail")
    assert isinstance(told, list)
    (one,) = told
    assert isinstance(one, dict)
    assert one["payload"] == {"key": "one", "message": "first"}
    assert cli.done("outbox", "dead", "other") == ""


def test_a_message_is_discarded_and_its_key_goes_on(cli: Cli, outbox: Outbox, dead: UUID) -> None:
    """What is refused is told, one by one, and does not stop the others (§9)."""
    outcome = cli("outbox", "discard", "mail", UNKNOWN, dead)
    assert outcome.status == 1
    assert UNKNOWN in outcome.err
    assert "1 message discarded, 1 refused" in outcome.out
    assert (outbox.dead(), outbox.waiting()) == ([], 0)


def test_a_message_is_named_by_the_beginning_of_its_id(cli: Cli, outbox: Outbox, dead: UUID) -> None:
    """As a job is; one that nobody has is told before anything is done (issue 8)."""
    assert "begins with ffff" in cli("outbox", "discard", "mail", str(dead), "ffff").line_of_failure(1)
    assert len(outbox.dead()) == 1
    assert cli.done("outbox", "discard", "mail", str(dead)[:8]) == "1 message discarded\n"
    assert outbox.dead() == []


def test_a_dead_message_is_tried_again_as_any_job(cli: Cli, outbox: Outbox, dead: UUID) -> None:
    """By its id (V10)."""
    cli.done("jobs", "retry", dead)
    assert (outbox.dead(), outbox.waiting()) == ([], 1)


def test_a_bad_name_is_told(cli: Cli, queue: Queue) -> None:  # noqa: ARG001 - makes the file
    """With the bounds (§6)."""
    assert "NAME must be" in cli("outbox", "dead", "").only_complaint()
