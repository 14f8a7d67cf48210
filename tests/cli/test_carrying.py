"""`jobs export` and `jobs import`: jobs carried to another file, edited on the way, or put back."""

from __future__ import annotations

import json
import os
import signal
import tracemalloc
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

import litequeue
from litequeue import ANY, SYSTEM, Enqueued, Job, JobState, NewJob, Outbox, Queue
from litequeue.sqlite import exporting
from litequeue.sqlite.place import SIDECARS
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL
from litequeue.worker.signals import heard_by
from tests.cli.conftest import Cli
from tests.cli.test_lines import Arriving

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from uuid import UUID

    from apsw import SQLiteValue

Sql = Callable[[str], list[tuple[object, ...]]]
PAYLOAD = {
    "bytes": b"\x00\xff",
    "at": datetime(2031, 5, 4, 8, 0, 0, 5, tzinfo=UTC),
    "many": [1, 2.0, True, None, "é", 2**64 - 1, float("inf")],
    "map": {(1, b"k"): {"$bytes": "no bytes"}},
}
FIELDS = ("job_id", "scope", "kind", "payload", "priority", "max_attempts", "idempotency_key", "expires_at")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Queue]:
    """Give a second, empty queue."""
    with litequeue.open(tmp_path / "other.queue", durability="normal") as handle:
        yield handle


@pytest.fixture
def into(other: Queue) -> Cli:
    """Give the command on that one."""
    return Cli(other.path)  # type: ignore[arg-type] # it only needs the text


def carried(job: Job) -> dict[str, object]:
    """Return what is carried of a job."""
    return {name: getattr(job, name) for name in FIELDS}


def names_in(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return sorted(found.name for found in folder.iterdir())


def lines_of(text: str) -> list[dict[str, object]]:
    """Return exported lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_carried_is_all_that_an_enqueue_takes(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """Kind, payload, priority, due time, attempts, key, expiry, scope and id; not what has happened to it (issue 8)."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    made = queue.enqueue_many(
        [
            NewJob("plain", PAYLOAD),
            NewJob("mail:send", None, SYSTEM, 3, run_at=soon, expires=7200, max_attempts=2, idempotency_key="k"),
            NewJob("retried", [], "acme", expires=7200),
            NewJob("running", "x"),
        ]
    )
    (retried,) = queue.lease_many(1, scope="acme")
    retried.fail("boom", delay=1000)
    assert queue.lease_next(["running"]) is not None
    queue.enqueue("done")
    queue.lease_many(1, ["done"])[0].complete("result")
    text = cli.done("jobs", "export", "--all-scopes")
    assert text.isascii()
    assert [line["job_id"] for line in lines_of(text)] == [str(one.job_id) for one in made]
    assert into.done("jobs", "import", stdin=text) == "4 jobs imported\n"
    for one in made:
        before, after = queue.get(one.job_id), other.get(one.job_id)
        assert carried(after) == carried(before)
        assert after.encoded_payload == before.encoded_payload
        assert after.not_before == before.not_before
        assert (after.attempts, after.lease_generation, after.last_error, len(after.events)) == (0, 0, None, 1)
    states = [other.get(one.job_id).state for one in made]
    assert states == [JobState.PENDING, JobState.SCHEDULED, JobState.SCHEDULED, JobState.PENDING]


def test_a_line_says_what_there_is_and_nothing_else(cli: Cli, queue: Queue) -> None:
    """Short enough to be read and edited; times are µs since the epoch (§9)."""
    plain = queue.enqueue("plain", {"n": 1}).job_id
    assert lines_of(cli.done("jobs", "export")) == [
        {
            "job_id": str(plain),
            "state": "pending",
            "scope": "default",
            "kind": "plain",
            "payload": {"n": 1},
            "priority": 100,
            "created_at": queue.get(plain).created_at,
        }
    ]
    queue.lease_many(1)[0].fail("boom", retryable=False)
    (dead,) = lines_of(cli.done("jobs", "export", "--state", "dead"))
    assert (dead["state"], dead["attempts"], dead["last_error"]) == ("dead", 1, "boom")


def test_the_filters_are_those_of_a_listing(cli: Cli, queue: Queue) -> None:
    """State, kind or prefix, scope; without a state all that has not ended (issue 8)."""
    queue.enqueue("area:one")
    queue.enqueue("area:two", delay=60)
    queue.enqueue("other", scope="acme")
    queue.enqueue("done")
    queue.lease_many(1, ["done"])[0].complete()

    def kinds(*options: str) -> list[object]:
        return [line["kind"] for line in lines_of(cli.done("jobs", "export", *options))]

    assert kinds() == ["area:one", "area:two"]
    assert kinds("--all-scopes") == ["area:one", "area:two", "other"]
    assert kinds("--scope", "acme", "--kind", "other") == ["other"]
    assert kinds("--state", "scheduled") == kinds("--kind", "area:two") == ["area:two"]
    assert kinds("--kind", "area:") == ["area:one", "area:two"]
    assert kinds("--kind", "area") == []
    assert kinds("--state", "completed") == ["done"]


def test_an_import_that_is_repeated_changes_nothing(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """A job that is there is counted, whatever it does by then; a dead one is queued anew (V1)."""
    queue.enqueue_many(NewJob("work", n) for n in range(4))
    text = cli.done("jobs", "export")
    into.done("jobs", "import", stdin=text)
    leases = other.lease_many(3)
    leases[0].complete()
    leases[1].fail("boom", retryable=False)
    before = {job.job_id: job for job in other.list()}
    assert into.done("jobs", "import", stdin=text) == "1 job imported, 3 there already\n"
    after = {job.job_id: job for job in other.list()}
    assert after.pop(leases[1].job_id).state is JobState.PENDING
    assert before.pop(leases[1].job_id).state is JobState.DEAD
    assert {job.job_id: job.events for job in after.values()} == {job.job_id: job.events for job in before.values()}


def test_dead_letters_are_edited_and_put_back(cli: Cli, queue: Queue) -> None:
    """Into the file that they came from: the same jobs, with what was changed (issue 8, V1)."""
    job_id = queue.enqueue("mail:send", {"to": "typo@"}).job_id
    queue.lease_many(1)[0].fail("no such mailbox", retryable=False)
    (line,) = lines_of(cli.done("jobs", "export", "--state", "dead"))
    line |= {"payload": {"to": "right@example.org"}, "priority": 1}
    assert cli.done("jobs", "import", stdin=json.dumps(line)) == "1 job imported\n"
    job = queue.get(job_id)
    assert (job.state, job.payload, job.priority) == (JobState.PENDING, {"to": "right@example.org"}, 1)


def test_a_line_by_hand_needs_a_kind_only(cli: Cli, queue: Queue) -> None:
    """The rest is as an enqueue has it; a scope that is null is the system's (V1)."""
    text = '{"kind": "one"}\n\n{"kind": "two", "scope": null, "payload": [{"$bytes": "AP8="}]}\n'
    assert cli.done("jobs", "import", stdin=text) == "2 jobs imported\n"
    (one,) = queue.list()
    assert (one.kind, one.payload, one.priority, one.scope) == ("one", None, 100, "default")
    (two,) = queue.list(scope=SYSTEM)
    assert two.payload == [b"\x00\xff"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "it is no JSON object"),
        ("{", "not JSON: Expecting property name"),
        ("{}", "it has no kind"),
        ('{"kind": ""}', "kind"),
        ('{"kind": "a", "prority": 1}', "'prority' is nothing that a job is imported with"),
        ('{"kind": "a", "priority": 256}', "priority"),
        ('{"kind": "a", "priority": null}', "priority"),
        ('{"kind": "a", "job_id": "x"}', "job_id"),
        ('{"kind": "a", "scope": "litequeue:x"}', "scope"),
        ('{"kind": "a", "not_before": "now"}', "not_before must be µs since the epoch"),
        ('{"kind": "a", "expires_at": 1e30}', "expires_at must be µs since the epoch"),
        ('{"kind": "a", "expires_at": 999999999999999999999}', "expires_at must be µs since the epoch"),
        ('{"kind": "a", "payload": {"$bytes": "?"}}', "$bytes is written wrongly"),
        ('{"kind": "a", "payload": {"$datetime": "2031-05-04"}}', "payload cannot be stored: a naive datetime"),
        ('{"kind": "a", "payload": {"$msgpack": "?"}}', "$msgpack is written wrongly"),
        ('{"kind": "a", "payload": {"$msgpack": "wQ=="}}', "$msgpack: its payload cannot be decoded"),
        ('{"kind": "a", "payload": ' + "[" * 3000 + "]" * 3000 + "}", "nested too deep"),
        ('{"kind": "a", "after": ["0190a0c5-7b5e-7000-8000-00000000ffff"]}', "0190a0c5-7b5e-7000-8000-00000000ffff"),
        ('{"kind": "a", "after": 5}', "after"),
        ('{"kind": "b", "job_id": "0190a0c5-7b5e-7000-8000-000000000002"}', "job 0190a0c5-7b5e-7000-8000-000000000002"),
    ],
)
def test_a_line_that_is_refused_is_named_and_all_before_it_are_in(
    cli: Cli, queue: Queue, line: str, reason: str
) -> None:
    """Status 1 and one line; none after it is in the queue, and a repetition finds those before it (§6, §9)."""
    good = [f'{{"kind": "a", "job_id": "0190a0c5-7b5e-7000-8000-{n:012}"}}' for n in range(4)]
    text = "\n".join([*good[:3], line, good[3]])
    told = cli("jobs", "import", stdin=text).line_of_failure(1)
    assert told.startswith("line 4: ")
    assert reason in told
    assert told.endswith("; 3 jobs imported before it")
    assert len(queue.list(scope=ANY)) == 3
    assert cli("jobs", "import", stdin=text).line_of_failure(1).endswith("; 0 jobs imported, 3 there already before it")


def test_a_job_that_waits_is_carried_with_what_it_waits_for(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """With its delay, and what is to become of it; of what has ended nothing is said (issue 8)."""
    ended, open_one, late = (queue.enqueue("step", n).job_id for n in range(3))
    due = datetime(2031, 5, 4, tzinfo=UTC)
    last = queue.enqueue("last", run_at=due, after=[ended, open_one, late], on_parent_failure="run").job_id
    queue.lease_many(1)[0].complete()
    queue.tell_waiting()
    text = cli.done("jobs", "export")
    assert lines_of(text)[-1]["after"] == [str(open_one), str(late)]
    assert into.done("jobs", "import", stdin=text) == "3 jobs imported\n"
    assert other.get(last).state is JobState.WAITING
    assert set(other.dependencies(last).waits_for) == {open_one, late}
    other.cancel_many([open_one, late])
    other.tell_waiting()
    assert (other.get(last).state, other.get(last).not_before) == (JobState.SCHEDULED, int(due.timestamp() * 1e6))


def test_what_cannot_be_carried_is_said(cli: Cli, queue: Queue, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that cannot be read, and a job that waits for too many: a line each, status 1 (§6)."""
    monkeypatch.setattr(exporting, "MAX_PARENTS", 2)
    batch = queue.batch((NewJob("part", n) for n in range(3)), NewJob("last"))
    bad = batch.jobs[1].job_id
    sql(f"UPDATE litequeue_body SET payload = x'09' WHERE job_id = x'{bad.hex}'")
    outcome = cli("jobs", "export")
    assert outcome.status == 1
    assert {line["job_id"] for line in lines_of(outcome.out)} == {str(batch.jobs[n].job_id) for n in (0, 2)}
    told = sorted(outcome.err.splitlines())
    reasons = {batch.then.job_id: "it waits for more jobs than ", bad: f"job {bad}: payload version 9 is unknown"}
    assert len(told) == 2
    for line, job_id in zip(told, sorted(reasons), strict=True):
        assert line.startswith(f"litequeue: job {job_id} is left out: {reasons[job_id]}")


def graph_of(queue: Queue) -> dict[UUID, tuple[JobState, set[UUID]]]:
    """Return the state of each job, and what it waits for."""
    return {job.job_id: (job.state, set(queue.dependencies(job.job_id).waits_for)) for job in queue.list(scope=ANY)}


def test_what_waits_comes_after_what_it_waits_for(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """In whatever order the ids are, and through all scopes: the same graph in the other file (issue 8)."""
    ids = [f"{digit}0000000-0000-4000-8000-000000000001" for digit in "f741"]
    queue.enqueue("first", job_id=ids[0], scope="acme")
    queue.enqueue("second", job_id=ids[2], after=[ids[0]])
    queue.enqueue("third", job_id=ids[1], after=[ids[0], ids[2]])
    queue.batch([NewJob("part", job_id=f"e{n}000000-0000-4000-8000-000000000001") for n in range(5)], NewJob("last"))
    queue.enqueue("fourth", job_id=ids[3], after=[ids[1]])
    text = cli.done("jobs", "export", "--all-scopes")
    assert into.done("jobs", "import", stdin=text) == "10 jobs imported\n"
    assert graph_of(other) == graph_of(queue)
    assert [state for state, _ in graph_of(other).values()].count(JobState.WAITING) == 4


def test_what_is_not_exported_is_waited_for_no_more(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """A line that names a job that no line is of could not be imported: it is left out, and counted (issue 8)."""
    parents = [queue.enqueue("parent", n).job_id for n in range(2)]
    near = queue.enqueue("child", scope="acme").job_id
    child = queue.enqueue("child", after=[*parents, near], scope="acme").job_id
    outcome = cli("jobs", "export", "--kind", "child", "--scope", "acme")
    assert outcome.status == 0
    assert outcome.only_complaint() == "in 1 line `after` leaves out jobs that are not exported"
    assert into.done("jobs", "import", stdin=outcome.out) == "2 jobs imported\n"
    assert graph_of(other) == {near: (JobState.PENDING, set()), child: (JobState.WAITING, {near})}


def test_what_waits_for_one_that_cannot_be_carried_is(
    cli: Cli, queue: Queue, into: Cli, other: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a group that is too large is left out; everything else can be imported (issue 8)."""
    monkeypatch.setattr(exporting, "MAX_PARENTS", 2)
    batch = queue.batch((NewJob("part", n) for n in range(3)), NewJob("last"))
    queue.enqueue("afterwards", after=[batch.then.job_id])
    outcome = cli("jobs", "export")
    assert (outcome.status, len(outcome.err.splitlines())) == (1, 2)
    assert "in 1 line `after` leaves out" in outcome.err
    assert into.done("jobs", "import", stdin=outcome.out) == "4 jobs imported\n"
    assert {job.kind for job in other.list()} == {"part", "afterwards"}


@pytest.mark.parametrize("end", ["complete", "cancel"])
def test_an_end_that_not_all_have_been_told_of_counts(cli: Cli, queue: Queue, end: str) -> None:
    """A parent that has completed is waited for no more; one that has not, by what the job says of it (issue 8)."""
    parent = queue.enqueue("parent").job_id
    queue.enqueue_many(NewJob("told", after=[parent]) for _ in range(100))
    queue.enqueue_many(NewJob("child", n, after=[parent], on_parent_failure="run") for n in range(2))
    queue.enqueue("fragile", after=[parent])
    if end == "complete":
        queue.lease_many(1)[0].complete()
    else:
        queue.cancel(parent)
    lines = [line for line in lines_of(cli.done("jobs", "export")) if line["kind"] != "told"]
    assert [line["state"] for line in lines] == ["waiting"] * len(lines)
    assert [line["kind"] for line in lines] == ["child", "child", *(["fragile"] if end == "complete" else [])]
    assert not any("after" in line for line in lines)


def test_a_job_that_waits_no_more_comes_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has been passed when it waited, and is ready when its turn comes; what was begun later is not waited for."""
    monkeypatch.setattr(exporting, "STEP", 2)
    made = {queue.enqueue("parent").job_id}
    made.add(queue.enqueue("child", after=made).job_id)
    made |= {queue.enqueue("child", after=made).job_id for _ in range(3)}
    found: list[UUID] = []
    for step in queue.exporter(JobState).steps():
        found += [one.job.job_id for one in step.found]
        for lease in queue.lease_many(1):
            lease.complete()
        queue.enqueue("later", after=[queue.enqueue("later").job_id])
    assert sorted(found) == sorted(made)


def test_the_newest_trigger_of_a_job_that_runs_is_carried(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """An import has no run that it could wait for: the line is what a reset makes of a job that waits (V2)."""
    queue.enqueue("sync", 1, idempotency_key="k", max_attempts=3)
    (lease,) = queue.lease_many(1)
    due = datetime(2031, 5, 4, tzinfo=UTC)
    queue.enqueue("sync", 2, idempotency_key="k", on_conflict="reset", priority=7, run_at=due, expires=timedelta(9999))
    into.done("jobs", "import", stdin=cli.done("jobs", "export"))
    job = other.get(lease.job_id)
    assert (job.payload, job.priority, job.max_attempts, job.idempotency_key) == (2, 7, 3, "k")
    assert (job.not_before, job.state) == (int(due.timestamp() * 1e6), JobState.SCHEDULED)
    assert job.expires_at is not None
    assert queue.get(lease.job_id).payload == 1


def test_what_is_the_queue_s_own_stays_behind(cli: Cli, queue: Queue, sql: Sql) -> None:
    """Messages of outboxes are counted; the key of a schedule's job is no key of anybody else's (V2)."""
    with queue.transaction() as tx:
        Outbox(queue, "orders").put(tx, "placed", key="7")
    queue.schedule("tick", "@every 5m", "report")
    queue.run_now("tick")
    sql("UPDATE litequeue_job SET idempotency_key = 'litequeue:schedule:1:tick' WHERE kind = 'report'")
    outcome = cli("jobs", "export", "--all-scopes")
    assert (outcome.status, outcome.only_complaint()) == (0, "1 message of outboxes left out")
    (line,) = lines_of(outcome.out)
    assert (line["kind"], "idempotency_key" in line) == ("report", False)


def test_the_deepest_payload_is_carried_packed(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """What JSON cannot hold goes as it is stored (issue 8)."""
    deep: object = b"x"
    for _ in range(1000):
        deep = [deep]
    job_id = queue.enqueue("deep", deep).job_id
    text = cli.done("jobs", "export")
    assert set(cast("dict[str, object]", lines_of(text)[0]["payload"])) == {"$msgpack"}
    into.done("jobs", "import", stdin=text)
    assert other.get(job_id).encoded_payload == queue.get(job_id).encoded_payload


def test_each_job_comes_once_whatever_moves_meanwhile(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leased, completed, promoted and edited between two steps: none is missed, none comes twice (issue 8)."""
    monkeypatch.setattr(exporting, "STEP", 3)
    queue.enqueue_many(NewJob("work", n, delay=0 if n % 2 else 60) for n in range(20))
    ids = sorted(job.job_id for job in queue.list())
    found: list[UUID] = []
    for step in queue.exporter(JobState).steps():
        found += [one.job.job_id for one in step.found]
        for lease in queue.lease_many(1):
            lease.complete()
        for job in queue.list(JobState.SCHEDULED, limit=2):
            queue.edit(job.job_id, priority=7, delay=0)
        queue.enqueue("new", scope="elsewhere")
    assert found == ids
    assert {job.state for job in queue.list(scope=ANY)} == {JobState.PENDING, JobState.COMPLETED}


@pytest.mark.parametrize(("walk", "first"), [(SQL.export_ids, b""), (SQL.export_gates, 0)])
def test_places_out_of_order_are_damage_and_no_endless_export(
    cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch, walk: str, first: SQLiteValue
) -> None:
    """A damaged tree that leads back to where the walk has been (§6)."""
    monkeypatch.setattr(exporting, "STEP", 2)
    after = () if walk == SQL.export_ids else (queue.enqueue("first").job_id,)
    queue.enqueue_many(NewJob("work", n, after=after) for n in range(5))
    look = Reader.all

    def go_round(reader: Reader, statement: str, *values: SQLiteValue) -> list[tuple[Any, ...]]:
        return look(reader, statement, *((first, *values[1:]) if statement == walk else values))

    monkeypatch.setattr(Reader, "all", go_round)
    outcome = cli("jobs", "export")
    assert (outcome.status, len(outcome.out.splitlines())) == (1, 2 + len(after))
    assert "out of order" in outcome.only_complaint()


def test_only_states_are_taken_for_states(queue: Queue) -> None:
    """By those who write programs (§6)."""
    with pytest.raises(litequeue.UsageError, match="state"):
        queue.exporter(["dead"])  # type: ignore[list-item] # no JobState


def test_a_file_is_written_and_read(cli: Cli, queue: Queue, into: Cli, other: Queue, tmp_path: Path) -> None:
    """Whole, with the permissions of the queue; one that is there is never replaced (§9)."""
    queue.enqueue_many(NewJob("work", n) for n in range(3))
    path = tmp_path / "jobs.jsonl"
    assert cli.done("jobs", "export", path) == "3 jobs exported\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text(encoding="utf-8") == cli.done("jobs", "export")
    assert cli("jobs", "export", path).line_of_failure(1) == f"{path} exists already: name a file that does not"
    assert into.done("jobs", "import", path) == "3 jobs imported\n"
    assert [job.payload for job in other.list()] == [0, 1, 2]
    assert "No such file" in into("jobs", "import", tmp_path / "none").line_of_failure(1)


def test_a_file_that_was_begun_is_gone_when_the_export_fails(
    cli: Cli, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the jobs would be taken for all of them (G11)."""
    queue.enqueue("work")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    before = names_in(tmp_path)
    assert "No space left" in cli("jobs", "export", tmp_path / "jobs.jsonl").line_of_failure(1)
    assert names_in(tmp_path) == before
    assert cli("jobs", "export", tmp_path / "none" / "jobs.jsonl").line_of_failure(1) == (
        f"No such file or directory ({tmp_path}/none/jobs.jsonl)"
    )


def test_a_path_with_a_nul_is_wrong_usage(cli: Cli, queue: Queue) -> None:
    """The system takes none (§9)."""
    for verb in ("import", "export"):
        assert "there is a NUL in it" in cli("jobs", verb, "a\0b").line_of_failure(2)
    assert queue.list() == []


def test_an_export_that_is_told_to_end_leaves_no_file(
    cli: Cli, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is there one before it is whole, which a kill could leave behind (G11)."""
    monkeypatch.setattr(exporting, "STEP", 1)
    queue.enqueue_many(NewJob("work", n) for n in range(3))
    path = tmp_path / "jobs.jsonl"
    before = names_in(tmp_path)
    seen: list[bool] = []

    def told(done: int, _total: int) -> None:
        seen.append(path.exists())
        if done == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("litequeue.cli.carrying.progress", lambda *_, **__: nullcontext(told))
    with heard_by(pytest.fail):  # or the process of the tests would end
        assert cli("jobs", "export", path).line_of_failure(130) == "interrupted"
        assert cli("jobs", "export", path, "--kind", "none").line_of_failure(130) == "interrupted"
    assert seen == [False] * 4
    assert names_in(tmp_path) == before


def test_an_import_that_is_told_to_end_says_what_is_in(cli: Cli, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SIGTERM as by Ctrl-C: while it waits for a line at once, while it enqueues when that is done (§9)."""
    enqueue_many = Queue.enqueue_many

    def told(handle: Queue, jobs: Iterable[NewJob]) -> list[Enqueued]:
        signal.raise_signal(signal.SIGTERM)
        return enqueue_many(handle, jobs)

    line = b'{"kind": "a"}\n'
    with heard_by(pytest.fail):
        stdin = Arriving([line, partial(signal.raise_signal, signal.SIGTERM), line])
        assert cli("jobs", "import", stdin=stdin).line_of_failure(130) == "interrupted; 1 job imported"
        monkeypatch.setattr(Queue, "enqueue_many", told)
        assert cli("jobs", "import", stdin=Arriving([line, line])).line_of_failure(130) == "interrupted; 1 job imported"
    assert len(queue.list()) == 2


@pytest.mark.parametrize("suffix", ["", *SIDECARS])
def test_a_file_of_the_queue_itself_is_never_opened(cli: Cli, queue: Queue, tmp_path: Path, suffix: str) -> None:
    """Its closing would drop SQLite's locks; nor by another name, nor made where it is not (DESIGN §3)."""
    queue.enqueue("work")
    link = tmp_path / "link"
    link.symlink_to(f"{cli.path}{suffix}")
    for path in (link, f"{cli.path}{suffix}"):
        for verb in ("import", "export"):
            told = cli("jobs", verb, path).line_of_failure(1)
            assert told == f"{path} is a file of the queue itself, or would be"
    assert len(queue.list()) == 1


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "a", "%s": 1}' % ("x" * 5000),
        '{"kind": "a", "not_before": %s}' % ("9" * 4000),
        '{"kind": "a", "payload": {"$%s": 1}}' % ("x" * 5000),
        '{"kind": "a", "payload": {"$datetime": "%s"}}' % ("x" * 5000),
        '{"kind": "a", "payload": 1%s.5}' % ("0" * 5000),
        '{"kind": "a", "job_id": "%s"}' % ("x" * 5000),
    ],
)
def test_what_is_refused_is_quoted_up_to_some_characters(cli: Cli, queue: Queue, line: str) -> None:
    """The reason is to be read, and comes last (§9)."""
    told = cli("jobs", "import", stdin=line).line_of_failure(1)
    assert told.startswith("line 1: ")
    assert told.endswith("; 0 jobs imported before it")
    assert len(told) < 500
    assert queue.list() == []


def test_a_line_without_an_end_is_refused(cli: Cli, queue: Queue) -> None:
    """At 16 times what `max_payload` allows, and a MiB for the rest: no more of it is read (issue 8)."""
    queue.set("max_payload", 1000)
    chunk = bytes(500_000)

    def endless() -> Iterator[bytes]:
        yield b'{"kind": "a"}\n'
        while True:
            yield chunk

    for verb in (("jobs", "import"), ("enqueue", "work", "--lines")):
        told = cli(*verb, stdin=Arriving(endless())).line_of_failure(1)
        assert told.startswith(
            "line 2: longer than 1,064,576 bytes, more than any job has that max_payload allows; 1 job"
        )
    assert len(queue.list()) == 2


def test_the_longest_line_of_a_job_is_taken(cli: Cli, queue: Queue, into: Cli, other: Queue) -> None:
    """What grows most in JSON: ten bytes for each that is stored (issue 8)."""
    job_id = queue.enqueue("work", [{b"": None}] * 100_000).job_id
    other.set("max_payload", len(queue.get(job_id).encoded_payload))
    text = cli.done("jobs", "export")
    assert len(text) > 9 * len(queue.get(job_id).encoded_payload)
    assert into.done("jobs", "import", stdin=text) == "1 job imported\n"
    assert other.get(job_id).encoded_payload == queue.get(job_id).encoded_payload


def test_an_import_makes_no_file_and_nothing_is_nothing_to_do(cli: Cli) -> None:
    """It says how to make one; no line is status 3, no job to export an empty listing (§9)."""
    assert "make it with" in cli("jobs", "import", stdin='{"kind": "a"}').line_of_failure(1)
    assert not cli.path.exists()
    cli.done("init")
    outcome = cli("jobs", "import", stdin="\n")
    assert (outcome.status, outcome.out, outcome.err) == (3, "0 jobs imported\n", "")
    assert cli.done("jobs", "export") == ""


def test_ctrl_c_ends_with_130_and_says_what_is_in(cli: Cli, queue: Queue) -> None:
    """An interrupted import says how much of it is in the queue (§9)."""
    outcome = cli("jobs", "import", stdin=Arriving([b'{"kind": "a"}\n', KeyboardInterrupt()]))
    assert outcome.line_of_failure(130) == "interrupted; 1 job imported"
    assert len(queue.list()) == 1


def test_a_bar_tells_how_far_it_is(
    cli: Cli, queue: Queue, into: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many jobs have been looked at, and how much of a file has been read; up to the end (issue 8)."""
    queue.enqueue_many(NewJob("work", n) for n in range(250))
    drawn: list[tuple[int, int]] = []

    @contextmanager
    def recorded(_label: str, **_: object) -> Iterator[Callable[[int, int], None]]:
        yield lambda *done: drawn.append(done)

    monkeypatch.setattr("litequeue.cli.carrying.progress", recorded)
    path = tmp_path / "jobs.jsonl"
    cli.done("jobs", "export", path)
    assert drawn == [(100, 250), (200, 250), (250, 250)]
    drawn.clear()
    into.done("jobs", "import", path)
    size = path.stat().st_size
    assert {total for _, total in drawn} == {size}
    assert drawn[-1][0] == size
    drawn.clear()
    into.done("jobs", "import", stdin='{"kind": "a"}')
    assert drawn == []  # how much a pipe will bring is not known


def peak(work: Callable[[], object]) -> int:
    """Return how much memory Python has had at most while it did something, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_step_is_of_so_many_bytes(cli: Cli, queue: Queue, tmp_path: Path) -> None:
    """However large payloads are, few of them are in memory at once (issue 8)."""
    queue.enqueue_many(NewJob("large", "x" * 500_000) for _ in range(30))
    queue.enqueue("next", after=[queue.enqueue("small").job_id])
    assert [len(step.found) for step in queue.exporter().steps()] == [3] * 10 + [1, 1]
    assert peak(partial(cli.done, "jobs", "export", tmp_path / "jobs.jsonl")) < 8_000_000


@pytest.mark.slow
def test_jobs_go_through_in_a_stream(cli: Cli, queue: Queue, into: Cli, other: Queue, tmp_path: Path) -> None:
    """Neither command ever has more than a small part of the lines in memory, however many there are (issue 8)."""
    queue.enqueue_many(NewJob("work", {"n": n, "text": "x" * 3000}) for n in range(2000))
    path = tmp_path / "jobs.jsonl"
    peaks = [peak(partial(cli.done, "jobs", "export", path)), peak(partial(into.done, "jobs", "import", path))]
    assert other.stats().total == 2000
    assert 3 * max(peaks) < path.stat().st_size
