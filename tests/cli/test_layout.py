"""How listings fit a terminal: what gives way, what is put below, and that a file or a pipe gets everything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from litequeue import ANY
from litequeue.cli import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.cli.conftest import Cli

KIND = "ingest:invoices:extract-tables-from-scanned-pages"
SCOPE = "tenant-with-a-rather-long-name-0042"
ERROR = "ConnectionError: smtp.example.org:25: connection refused while sending the message to a@example.org"
NARROW, WIDE = 80, 120
LISTINGS = (
    ["jobs", "ls"],
    ["jobs", "ls", "--all-scopes"],
    ["dead", "ls"],
    ["dead", "ls", "--by-error"],
    ["kinds"],
    ["kinds", "--all-scopes"],
    ["scopes"],
    ["stats"],
    ["workers"],
    ["schedule", "ls"],
    ["pauses"],
    ["events", "--all-scopes", "--limit", "1000"],
)


@pytest.fixture
def crowded(queue: Queue) -> None:
    """Give jobs in every state, of a long kind, in a scope with a long name too, by a worker that tells much."""
    for scope in ("default", SCOPE):
        for retryable in (True, False):
            queue.enqueue(KIND, scope=scope, priority=1)
            queue.lease_many(1, scope=scope)[0].fail(f"{ERROR}\nTraceback", retryable=retryable)
        queue.enqueue(KIND, scope=scope)
        queue.lease_many(1, scope=scope)[0].complete()
        queue.enqueue(KIND, scope=scope, delay=90)
        queue.cancel(queue.enqueue(KIND, scope=scope).job_id)
        pending = queue.enqueue(KIND, {"path": "/archive/" + "x" * 90}, scope=scope).job_id
        queue.enqueue(KIND, scope=scope, after=[pending])
        queue.enqueue("mail:send", scope=scope, priority=0)
        (lease,) = queue.lease_many(1, scope=scope)
        lease.checkpoint(b"", progress=11 / 60, note="page 3 of 17 of the invoices")
    queue.pause(KIND, scope=SCOPE)
    queue.schedule("nightly-report-of-everything", "@every 1h", KIND, scope=SCOPE)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_no_line_of_a_listing_is_wider_than_the_terminal(
    cli: Cli, terminal: Callable[[int], None], words: list[str]
) -> None:
    """Nor is a number or an id cut for it; a pipe gets every kind and scope whole (issue 8)."""
    piped = cli.done(*words)
    ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", piped)
    for columns in (NARROW, WIDE):
        terminal(columns)
        shown = cli(*words).out
        assert max(map(len, shown.splitlines())) <= columns
        found = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", shown)
        assert found == ids
    assert KIND in piped or SCOPE in piped
    assert not re.search(r"\S…\S", piped)


@pytest.mark.usefixtures("crowded")
def test_a_narrow_terminal_has_what_matters_of_a_job_below_it(
    cli: Cli, queue: Queue, terminal: Callable[[int], None]
) -> None:
    """A kind keeps both its ends, and what no column has stands before what matters (issue 8)."""
    terminal(NARROW)
    heading, *lines = cli("jobs", "ls").out.splitlines()
    assert heading.split() == ["JOB", "STATE", "KIND", "CREATED"]
    pending, leased, about, *_ = lines
    assert pending.split()[1] == "pending"
    assert re.search(r"  ingest:inv\S*…\S*ed-pages  ", pending)
    assert leased.split()[1:3] == ["leased", "mail:send"]
    assert about.startswith("    priority 0, attempts 1, 18% page 3 of 17 of the invoices, held by ")
    assert about.endswith("…")
    terminal(WIDE)
    _, _, _, about, *_ = cli("jobs", "ls").out.splitlines()
    assert re.search(r"held by \S+, lapses in \d+ (s|min)$", about)
    terminal(300)
    assert len(cli("jobs", "ls").out.splitlines()) == 1 + len(queue.list())
    assert cli("jobs", "ls", "--state", "dead").out.splitlines()[1].endswith(ERROR)


@pytest.mark.usefixtures("crowded")
def test_headings_of_states_are_the_same_everywhere_and_short_where_it_is_narrow(
    cli: Cli, terminal: Callable[[int], None]
) -> None:
    """By their names, as options take them; on a narrow terminal as `top` has them (issue 8)."""
    names = ["pending", "leased", "completed", "retryable", "dead", "scheduled", "cancelled", "waiting"]
    headings = {"kinds": "KIND", "scopes": "SCOPE", "stats": "KIND"}
    for columns, states in ((None, names), (NARROW, [*names[:2], "done", "retry", "dead", "sched", "cancel", "wait"])):
        if columns is not None:
            terminal(columns)
        for command, first in headings.items():
            (heading,) = [line.split() for line in cli(command).out.splitlines() if line.startswith(f"{first} ")]
            assert heading[: 1 + len(states)] == [first, *states]


@pytest.mark.usefixtures("crowded")
def test_the_kind_of_a_running_job_gives_way_to_how_far_it_is(
    cli: Cli, queue: Queue, terminal: Callable[[int], None]
) -> None:
    """`workers` on a narrow terminal (issue 8)."""
    (lease,) = queue.lease_many(1)
    lease.checkpoint(b"", progress=0.5)
    terminal(NARROW)
    _, _, first, second, third = cli.done("workers").splitlines()
    assert re.search(r"  mail:send +(now|\d+ s ago) +18% page", first)
    assert "in tenant" in second
    assert re.search(r"  ing\S*…\S*ges +(now|\d+ s ago) +50%$", third)


@pytest.mark.usefixtures("crowded")
def test_what_a_terminal_would_break_goes_on_below_its_beginning(
    cli: Cli, queue: Queue, terminal: Callable[[int], None]
) -> None:
    """The values and the events of one job, none of which is cut (issue 8)."""
    terminal(NARROW)
    (dead,) = queue.list(queue.list(kind=KIND)[0].state, limit=1)
    lines = cli.done("jobs", "show", dead.job_id).splitlines()
    assert max(map(len, lines)) <= NARROW
    at = next(number for number, line in enumerate(lines) if line.startswith("payload"))
    below = [lines[at][18:]]
    for line in lines[at + 1 :]:
        if not line.startswith(" " * 18):
            break
        below.append(line[18:])
    assert len(below) > 1
    assert '"/archive/' + "x" * 90 in "".join(below)
    events = cli.done("jobs", "show", queue.list(scope=ANY, kind="mail:send")[0].job_id).partition("\nevents\n")[2]
    assert max(map(len, events.splitlines())) <= NARROW


def test_names_lose_their_middle_and_keep_eight_characters() -> None:
    """What tells two of them apart is at either end."""
    assert layout.elided("ingest:pdf", 10) == "ingest:pdf"
    assert layout.elided("ingest:pdf", 9) == "inge…:pdf"
    assert layout.elided("ingest:pdf", 2) == "inge…pdf"
