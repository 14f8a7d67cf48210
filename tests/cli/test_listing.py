"""`jobs ls` and `jobs show`: what a person reads, and what a program does."""

from __future__ import annotations

import re
import time
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest

from litequeue import ANY, SYSTEM, Job, JobState, NewJob, Transition

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litequeue import Queue
    from tests.cli.conftest import Cli

SECOND = 1_000_000
FIELDS = {field.name.removeprefix("encoded_") for field in fields(Job)} - {"decoder"}
"""The names of a job's record (contract §2)."""


def ids(listing: object) -> list[str]:
    """Return the ids of a listing in JSON."""
    return [cast("dict[str, str]", job)["job_id"] for job in cast("list[object]", listing)]


@pytest.fixture
def in_every_state(queue: Queue) -> dict[JobState, UUID]:
    """Give a job in each state, and return their ids."""
    made = dict.fromkeys(JobState, queue.enqueue("work").job_id)
    for state in (JobState.COMPLETED, JobState.RETRYABLE, JobState.DEAD, JobState.LEASED):
        made[state] = queue.enqueue("work", priority=1).job_id
        lease = queue.lease_next(worker_id="ada")
        assert lease is not None
        assert lease.job_id == made[state]
        if state is JobState.COMPLETED:
            lease.complete({"pages": 3})
        elif state is not JobState.LEASED:
            lease.fail("first line\nsecond line", retryable=state is JobState.RETRYABLE)
    made[JobState.SCHEDULED] = queue.enqueue("work", delay=60).job_id
    made[JobState.CANCELLED] = queue.enqueue("work").job_id
    queue.cancel(made[JobState.CANCELLED])
    made[JobState.WAITING] = queue.enqueue("work", after=[made[JobState.SCHEDULED]]).job_id
    return made


def test_the_listing_has_a_line_for_each_job_in_the_order_of_states(
    cli: Cli, in_every_state: dict[JobState, UUID]
) -> None:
    """Id, state, kind, priority, attempts, and what matters in that state (V13)."""
    heading, *lines = cli.done("jobs", "ls").splitlines()
    assert heading.split() == ["JOB", "STATE", "KIND", "PRIORITY", "ATTEMPTS", "CREATED", "ABOUT"]
    assert [line.split()[:2] for line in lines] == [[str(in_every_state[s]), s.name.lower()] for s in JobState]
    about = {state: line[heading.index("ABOUT") :] for state, line in zip(JobState, lines, strict=True)}
    ago = r"(now|\d+ s ago)"
    assert about[JobState.PENDING] == ""
    assert re.fullmatch(r"held by ada, lapses in \d+ (s|min)", about[JobState.LEASED])
    assert re.fullmatch(ago, about[JobState.COMPLETED])
    assert re.fullmatch(r"due in \d+ s, first line", about[JobState.RETRYABLE])
    assert re.fullmatch(f"{ago}, first line", about[JobState.DEAD])
    assert re.fullmatch(r"due in \d+ s", about[JobState.SCHEDULED])
    assert re.fullmatch(ago, about[JobState.CANCELLED])
    assert about[JobState.WAITING] == "waits for 1 job"


@pytest.mark.parametrize("state", JobState)
def test_a_listing_may_be_of_one_state(cli: Cli, in_every_state: dict[JobState, UUID], state: JobState) -> None:
    """`--state` takes the names of all states (V13, §3)."""
    assert ids(cli.json("jobs", "ls", "--state", state.name.lower())) == [str(in_every_state[state])]


def test_an_empty_listing_is_done_and_an_empty_list(cli: Cli) -> None:
    """Nothing on standard output, status 0; in JSON an empty list (§9)."""
    cli.done("init")
    assert cli.done("jobs", "ls") == ""
    assert cli.json("jobs", "ls") == []


def test_a_listing_is_of_one_scope_unless_all_are_asked_for(cli: Cli, queue: Queue) -> None:
    """The default scope by default; `--scope`, `--system`, `--all-scopes` with a column for it (V13)."""
    made = {scope: str(queue.enqueue("work", scope=scope).job_id) for scope in ("default", "acme", SYSTEM)}
    assert ids(cli.json("jobs", "ls")) == [made["default"]]
    assert ids(cli.json("jobs", "ls", "--scope", "acme")) == [made["acme"]]
    assert ids(cli.json("jobs", "ls", "--system")) == [made[SYSTEM]]
    assert ids(cli.json("jobs", "ls", "--all-scopes")) == [made[SYSTEM], made["acme"], made["default"]]
    lines = cli.done("jobs", "ls", "--all-scopes").splitlines()
    assert [line.split()[1] for line in lines] == ["SCOPE", "(system)", "acme", "default"]
    line = cli("jobs", "ls", "--all-scopes", "--scope", "acme").line_of_failure(2)
    assert line == "--all-scopes excludes --scope and --system"


def test_a_kind_is_exact_or_a_prefix_with_a_colon(cli: Cli, queue: Queue) -> None:
    """`--kind` is the library's filter (V13)."""
    made = [str(queue.enqueue(kind).job_id) for kind in ("ingest:pdf", "ingest:txt", "ingest")]
    assert ids(cli.json("jobs", "ls", "--kind", "ingest:")) == made[:2]
    assert ids(cli.json("jobs", "ls", "--kind", "ingest")) == made[2:]


def test_pages_go_on_after_a_job_and_say_so(cli: Cli, queue: Queue) -> None:
    """`--limit` and `--after ID` walk through everything once, across scopes and states (V13)."""
    queue.enqueue_many(NewJob("work", scope=scope, delay=delay) for scope in ("a", "b") for delay in (None, 9) * 5)
    wanted = [str(job.job_id) for job in queue.list(scope=ANY)]
    found: list[str] = []
    after: list[str] = []
    while page := ids(cli.json("jobs", "ls", "--all-scopes", "--limit", 7, *after)):
        found += page
        after = ["--after", page[-1]]
    assert found == wanted
    full = cli("jobs", "ls", "--all-scopes", "--limit", 7)
    assert (full.status, len(full.out.splitlines())) == (0, 8)
    assert full.only_complaint() == f"there may be more: --after {wanted[6]}"
    assert cli("jobs", "ls", "--all-scopes", "--limit", 21).err == ""


def test_going_on_after_a_job_that_is_gone_is_an_error(cli: Cli) -> None:
    """An id that is not there, and one that is no id (§6, §9)."""
    cli.done("init")
    unknown = "0190a0c5-7b5e-7000-8000-000000000001"
    assert cli("jobs", "ls", "--after", unknown).line_of_failure(1) == f"no job {unknown}"
    assert cli("jobs", "ls", "--after", "seven").status == 2


def test_one_job_is_shown_with_every_field_that_holds_something(cli: Cli, queue: Queue) -> None:
    """Each field of contract §2 has a line of its own, unless there is nothing to tell (issue 8)."""
    job_id = queue.enqueue("ingest:pdf", {"path": "é.pdf"}, idempotency_key="k", expires=90).job_id
    lease = queue.lease_next(worker_id="ada")
    assert lease is not None
    lease.checkpoint(b"\x00half", progress=0.5, note="halfway")
    shown = cli.done("jobs", "show", job_id)
    labels = re.findall(r"^(\w+)", shown, flags=re.MULTILINE)
    absent = {"reaps", "max_attempts", "not_before", "finished_at", "last_error", "result", "beats"}
    assert set(labels) == FIELDS - absent
    assert len(labels) == len(FIELDS - absent)
    values = dict(re.findall(r"^(\w+) +(.+)$", shown, flags=re.MULTILINE))
    assert values["state"] == "leased"
    assert values["worker_id"] == "ada"
    assert values["idempotency_key"] == "k"
    assert values["payload"] == '{"path": "é.pdf"}'
    assert values["continuation"] == '{"$bytes": "AGhhbGY="}'
    assert (values["progress"], values["note"], values["checkpoints"]) == ("50%", "halfway", "1")


def test_what_is_asked_for_most_comes_first(cli: Cli, queue: Queue) -> None:
    """State, kind, and how many attempts of how many: the job's own number or that of its kind (issue 8, V13)."""
    queue.set("max_attempts", 7, "mail:")
    for most, told in ((None, "0 of 7"), (2, "0 of 2")):
        job_id = queue.enqueue("mail:send", max_attempts=most).job_id
        lines = [line.split(maxsplit=1) for line in cli.done("jobs", "show", job_id).splitlines()[:4]]
        assert lines == [["job_id", str(job_id)], ["state", "pending"], ["kind", "mail:send"], ["attempts", told]]


def test_what_is_empty_but_there_is_shown(cli: Cli, queue: Queue) -> None:
    """A result of 0 or nothing at all, a payload of null, progress of 0; not what nobody has given (issue 8)."""
    job_id = queue.enqueue("work", scope=SYSTEM).job_id
    plain = cli.done("jobs", "show", job_id)
    assert re.findall(r"^(\w+)", plain, flags=re.MULTILINE) == [
        *("job_id", "state", "kind", "attempts", "scope", "priority", "created_at", "payload", "events")
    ]
    (lease,) = queue.lease_many(1, scope=SYSTEM)
    lease.checkpoint(b"", progress=0)
    running = cli.done("jobs", "show", job_id)
    assert re.search(r"^progress +0%$", running, flags=re.MULTILINE)
    assert "continuation" not in running
    lease.complete(0)
    shown = cli.done("jobs", "show", job_id)
    assert re.search(r"^result +0$", shown, flags=re.MULTILINE)
    assert re.search(r"^scope +\(system\)$", shown, flags=re.MULTILINE)
    assert re.search(r"^payload +null$", shown, flags=re.MULTILINE)


def test_a_job_whose_holder_has_died_says_so(cli: Cli, queue: Queue) -> None:
    """As `workers` does, until maintenance takes it back; not when it will lapse (issue 8)."""
    queue.enqueue("work")
    queue.lease_many(1, worker_id="ada")
    assert "held by ada, lapses in " in cli.done("jobs", "ls")
    job_id = queue.list()[0].job_id
    assert re.search(r"^worker_id +ada$", cli.done("jobs", "show", job_id), re.MULTILINE)
    queue._store.holdings.presence.release()  # as the kernel does when the process has died
    assert cli.done("jobs", "ls").endswith("  held by ada, which is dead\n")
    assert re.search(r"^worker_id +ada, which is dead$", cli.done("jobs", "show", job_id), re.MULTILINE)


def test_a_narrow_terminal_has_the_details_of_a_log_below_its_lines(
    cli: Cli, queue: Queue, terminal: Callable[[int], None]
) -> None:
    """Those that do not fit; here and in `events` (issue 8)."""
    job_id = queue.enqueue("work").job_id
    (lease,) = queue.lease_many(1, worker_id="w")
    lease.fail("b" * 60, retryable=False)
    wide = cli.done("jobs", "show", job_id).partition("\nevents\n")[2].splitlines()
    terminal(80)
    narrow = cli.done("jobs", "show", job_id).partition("\nevents\n")[2].splitlines()
    assert [line.split()[-1] for line in narrow] == ["enqueued", "w", "failed", "b" * 60, "retryable"]
    assert narrow[3] == f"    {'b' * 60}"
    assert [line.split()[-1] for line in wide] == ["enqueued", "w", "b" * 60, "retryable"]
    followed = cli.done("events").splitlines()
    assert followed[-3:-1] == [followed[-3].split("  ")[0] + f"  failed      {job_id}  work", f"    {'b' * 60}"]


def test_why_a_job_was_cancelled_is_listed(cli: Cli, queue: Queue) -> None:
    """When its log says so (issue 8)."""
    parent = queue.enqueue("parent").job_id
    queue.enqueue("child", after=[parent])
    queue.cancel(parent)
    queue.tell_waiting()
    lines = cli.done("jobs", "ls", "--state", "cancelled").splitlines()[1:]
    assert f"job {parent}, for which it waited, is cancelled" in lines[1]
    assert "waited" not in lines[0]


def test_times_are_by_the_local_clock_or_in_utc(cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its zone, to the µs, and how far it is from now; a listing says it in its heading."""
    if not hasattr(time, "tzset"):
        pytest.skip("this platform cannot change the zone of a process")
    run_at = datetime(2999, 7, 1, 12, 0, 0, 1, tzinfo=UTC)
    job_id = queue.enqueue("work", run_at=run_at).job_id
    monkeypatch.setenv("TZ", "XYZ-05:30")  # POSIX counts west as positive
    time.tzset()
    try:
        here, utc = cli.done("jobs", "show", job_id), cli.done("jobs", "show", job_id, "--utc")
        listed = [cli.done("jobs", "ls", *option).splitlines() for option in ((), ("--utc",))]
        created = queue.get(job_id).created_at // SECOND
        moments = [time.strftime("%Y-%m-%d %H:%M:%S", convert(created)) for convert in (time.localtime, time.gmtime)]
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    assert re.search(r"^not_before +2999-07-01 17:30:00\.000001 \+05:30 \(in [\d,]+ d\)$", here, re.MULTILINE)
    assert re.search(r"^not_before +2999-07-01 12:00:00\.000001Z \(in [\d,]+ d\)$", utc, re.MULTILINE)
    assert ["  CREATED  " in listed[0][0], "  CREATED (UTC)  " in listed[1][0]] == [True, True]
    assert [moment in lines[1] for moment, lines in zip(moments, listed, strict=True)] == [True, True]


def test_the_event_log_is_shown_whole_and_in_order(cli: Cli, queue: Queue) -> None:
    """A line an event: when, what, and its detail (§2)."""
    job_id = queue.enqueue("work").job_id
    lease = queue.lease_next(worker_id="ada")
    assert lease is not None
    lease.note("read 10 pages")
    lease.fail("boom", retryable=False)
    queue.retry(job_id)
    _, _, log = cli.done("jobs", "show", job_id).partition("\nevents\n")
    job = queue.get(job_id)
    assert len(log.splitlines()) == len(job.events) >= 5
    for line, event in zip(log.splitlines(), job.events, strict=True):
        assert re.fullmatch(rf"  \S+ \S+ \S+ \((now|[^)]+ ago)\)  {event.transition} *{re.escape(event.detail)}", line)
    assert Transition.NOTE in [event.transition for event in job.events]


def test_an_error_of_several_lines_stays_readable(cli: Cli, queue: Queue) -> None:
    """A traceback in `last_error` keeps its lines, under its label (§2)."""
    job_id = queue.enqueue("work").job_id
    lease = queue.lease_next()
    assert lease is not None
    lease.fail("Traceback:\n\tfirst\nlast")
    label = " " * 18
    assert f"\nlast_error        Traceback:\n{label}    first\n{label}last\n" in cli.done("jobs", "show", job_id)


def test_what_a_job_says_cannot_steer_the_terminal(cli: Cli, queue: Queue) -> None:
    """Escape sequences, bidirectional marks and line ends in names, errors and payloads are shown, not obeyed."""
    job_id = queue.enqueue("work\u202eevil", {"t": "\u009b2J\u200e", "n": "a\nb"}).job_id
    lease = queue.lease_next()
    assert lease is not None
    lease.note("\x1b]0;title\x07")
    lease.fail("\x1b[31mred\r")
    for text in (cli.done("jobs", "ls"), cli.done("jobs", "show", job_id), cli.done("stats")):
        assert not set("\x1b\x07\r\u009b\u202e\u200e") & set(text)
        assert r"work\u202eevil" in text
    assert r"\u001b]0;title\u0007" in cli.done("jobs", "show", job_id)


def test_a_job_that_is_not_there_is_an_error(cli: Cli) -> None:
    """Status 1 and its id; what is no id is wrong usage (§6, §9)."""
    cli.done("init")
    unknown = "0190a0c5-7b5e-7000-8000-000000000001"
    assert cli("jobs", "show", unknown).line_of_failure(1) == f"no job {unknown}"
    assert cli("jobs", "show", "seven").status == 2


def test_json_has_the_names_and_units_of_the_record(cli: Cli, queue: Queue) -> None:
    """The fields of contract §2, times in µs, states by name; a listing has the same objects as `show`."""
    job_id = queue.enqueue("work", [1], idempotency_key="k").job_id
    lease = queue.lease_next(worker_id="ada")
    assert lease is not None
    lease.complete({"pages": 3})
    job = queue.get(job_id)
    shown = cli.json("jobs", "show", job_id)
    assert isinstance(shown, dict)
    assert shown == {
        **{name: getattr(job, name) for name in FIELDS},
        "job_id": str(job_id),
        "state": "completed",
        "events": [{"at": at, "transition": str(what), "detail": detail} for at, what, detail in job.events],
    }
    assert cli.json("jobs", "ls", "--state", "completed") == [shown]


def test_json_of_the_system_s_scope_has_no_name(cli: Cli, queue: Queue) -> None:
    """`SYSTEM` is null, because any text could be the name of another scope (§2)."""
    job_id = queue.enqueue("work", scope=SYSTEM).job_id
    shown = cli.json("jobs", "show", job_id)
    assert isinstance(shown, dict)
    assert shown["scope"] is None


def test_one_unreadable_job_does_not_hide_the_others(
    cli: Cli, queue: Queue, sql: Callable[[str], list[tuple[object, ...]]]
) -> None:
    """Listed and shown with the reason in the place of what cannot be read (§6)."""
    bad, good = (queue.enqueue("work", payload).job_id for payload in ("bad", "good"))
    sql(f"UPDATE litequeue_body SET payload = x'0900' WHERE job_id = x'{bad.hex}'")
    sql(f"UPDATE litequeue_job SET events = x'c1' WHERE job_id = x'{bad.hex}'")
    assert len(cli.done("jobs", "ls").splitlines()) == 3
    listed = cli.json("jobs", "ls")
    assert isinstance(listed, list)
    assert ids(listed) == [str(bad), str(good)]
    reason = f"job {bad}: payload version 9 is unknown (this program reads version 1)"
    assert listed[0]["payload"] == {"$unreadable": reason}
    assert set(listed[0]["events"]) == {"$unreadable"}
    assert listed[1]["payload"] == "good"
    shown = cli.done("jobs", "show", bad)
    assert reason in shown
    assert re.search(r"\nevents\n  job \S+: its event log cannot be read:", shown)
