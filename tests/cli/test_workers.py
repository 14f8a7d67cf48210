"""`workers`: who works on the file, alive or dead, and on what."""

from __future__ import annotations

import os
import platform
import re
from typing import TYPE_CHECKING, cast

import pytest

from litequeue import NewJob

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.cli.conftest import Cli


def test_workers_are_listed_with_what_they_run(cli: Cli, queue: Queue) -> None:
    """A line for each, and one for each of its jobs, with how far it has come (issue 8)."""
    queue.enqueue("mail:send")
    queue.enqueue("ingest", scope="acme")
    queue.lease_many(1)
    (lease,) = queue.lease_many(1, scope="acme", worker_id="w")
    lease.checkpoint(b"", progress=0.25, note="page\x1b[2J 3")
    heading, worker, mail, ingest = re.sub(r"\d+ s ago", "now", cli.done("workers")).splitlines()
    assert heading.split() == ["HOLDER", "PID", "HOST", "SINCE", "STATE", "RUNNING", "KINDS"]
    assert worker.split() == ["1", str(os.getpid()), platform.node(), "now", "alive", "2", "ingest,", "mail:send"]
    assert mail.split()[1:] == ["mail:send", "now"]
    assert ingest.split() == [str(lease.job_id), "ingest", "now", "in", "acme", "25%", "page\\u001b[2J", "3"]
    job = queue.get(lease.job_id)
    (found,) = cast("list[dict[str, object]]", cli.json("workers"))
    jobs = cast("list[dict[str, object]]", found.pop("jobs"))
    assert found == {
        "holder": job.holder,
        "pid": os.getpid(),
        "host": platform.node(),
        "since": queue.workers()[0].since,
        "is_alive": True,
        "running": 2,
        "kinds": ["ingest", "mail:send"],
    }
    assert [one["kind"] for one in jobs] == ["mail:send", "ingest"]
    assert jobs[1] == {
        "job_id": str(lease.job_id),
        "scope": "acme",
        "kind": "ingest",
        "worker_id": "w",
        "leased_at": job.leased_at,
        "lease_deadline": pytest.approx(job.lease_deadline, abs=1000),  # two clocks, read one after the other
        "progress": 0.25,
        "note": "page\x1b[2J 3",
    }


def test_the_dead_are_marked_and_long_lists_are_cut(cli: Cli, queue: Queue) -> None:
    """Ten jobs of each are shown, and how many more there are (issue 8)."""
    queue.enqueue_many(NewJob("work") for _ in range(12))
    queue.lease_many(12)
    queue._store.holdings.presence.release()  # as the kernel does when the process has died
    _, worker, *jobs, more = cli.done("workers").splitlines()
    assert worker.split()[-3:] == ["dead", "12", "work"]
    assert (len(jobs), more) == (10, "  and 2 more")


def test_where_nobody_works_there_is_no_line(cli: Cli) -> None:
    """Status 0; in JSON an empty list (§9)."""
    cli.done("init")
    assert cli.done("workers") == ""
    assert cli.json("workers") == []
