"""The collector: a file's metrics and a worker's, as text and in a registry (issue 8, metrics)."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import litequeue
from litequeue import JobState, NewJob, Queue, UsageError, Worker, WorkerEvent
from litequeue.metrics import Collector
from litequeue.metrics import families as of
from litequeue.sqlite import gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litequeue.testing import FakeClock
    from litequeue.worker.events import EventName
    from tests.conftest import JobIn, MakeQueue
    from tests.metrics.conftest import Read


@pytest.fixture
def collector(queue: Queue) -> Iterator[Collector]:
    """Give a collector of the fixture `queue`."""
    with Collector(queue) as opened:
        yield opened


def test_a_page_tells_of_the_file(
    queue: Queue, collector: Collector, clock: FakeClock, job_in: JobIn, read: Read
) -> None:
    """Every metric of a file, with the values that its jobs have (metrics)."""
    job_in(JobState.DEAD)
    job_in(JobState.COMPLETED)
    queue.enqueue("work")
    litequeue.Maintenance(queue).run_once()
    clock.advance(30)
    found = read(collector.text())
    assert found["up{}"] == 1
    states = {state.name.lower(): found[f"jobs{{kind=work,state={state.name.lower()}}}"] for state in JobState}
    assert states == {**dict.fromkeys(states, 0), "pending": 1, "dead": 1, "completed": 1}
    assert found["oldest_ready_age_seconds{kind=work}"] == pytest.approx(30, abs=0.01)
    assert found["maintenance_age_seconds{}"] == pytest.approx(30, abs=0.01)
    assert (found["scopes{}"], found["reaps{kind=work}"], found["lapsed_leases{}"]) == (1, 0, 0)
    assert found["jobs_count_age_seconds{}"] >= 0
    stats = queue.stats()
    assert (found["file_bytes{}"], found["free_bytes{}"]) == (stats.file_bytes, stats.free_bytes)
    assert found["wal_bytes{}"] == queue.wal_bytes
    assert found["recent_jobs{kind=work}"] == 1
    assert found["recent_run_seconds{kind=work,quantile=0.5}"] == pytest.approx(0, abs=1)
    told = {name.partition("{")[0] for name in found}
    assert {one.name.removeprefix("litequeue_") for one in of.OF_FILE} <= told


def test_every_value_names_its_file(queue: Queue, collector: Collector) -> None:
    """By its real path, so that the pages of several can be added up (metrics: label db)."""
    queue.enqueue("work")
    lines = [line for line in collector.text().splitlines() if not line.startswith("#")]
    assert all(f'{{db="{queue.path}"' in line for line in lines)


def test_quantiles_are_values_of_the_sample(queue: Queue, collector: Collector, clock: FakeClock, read: Read) -> None:
    """The least that half, nine tenths, 99 hundredths of the runs did not exceed."""
    for seconds in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):
        queue.enqueue("work")
        lease = queue.lease_next()
        assert lease is not None
        clock.advance(seconds)
        lease.complete()
    found = read(collector.text())
    quantiles = [round(found[f"recent_run_seconds{{kind=work,quantile={q}}}"]) for q in ("0.5", "0.9", "0.99")]
    assert quantiles == [5, 9, 10]


def test_the_kinds_beyond_the_bound_are_added_up(queue: Queue, read: Read) -> None:
    """In every metric that has kinds, so that the sums hold and the series are bounded."""
    for number, kind in enumerate("abcd"):
        queue.enqueue_many(NewJob(kind) for _ in range(number + 1))
    with Collector(queue, max_kinds=2) as collector:
        found = read(collector.text())
    pending = {name: value for name, value in found.items() if name.endswith("state=pending}")}
    assert pending == {
        "jobs{kind=(other),state=pending}": 3,
        "jobs{kind=c,state=pending}": 3,
        "jobs{kind=d,state=pending}": 4,
    }
    assert sum("oldest_ready" in name for name in found) == 3


@pytest.mark.parametrize(("mode", "concurrency"), [("threads", 2), ("asyncio", 2)])
def test_a_worker_s_runs_are_counted(
    tmp_path: Path, read: Read, mode: litequeue.worker.worker.Mode, concurrency: int
) -> None:
    """By what became of them, with how long they waited and took; a real worker, its hook and nothing else."""
    with litequeue.open(tmp_path / "app.queue", durability="normal") as queue, Collector(queue) as collector:

        def fail(_lease: litequeue.Lease) -> None:
            raise litequeue.Discard("no")

        queue.enqueue_many(NewJob("good", n) for n in range(5))
        queue.enqueue("bad")
        worker = Worker(
            queue,
            {"good": lambda _: None, "bad": fail},
            mode=mode,
            concurrency=concurrency,
            until_empty=True,
            maintenance=False,
            on_event=collector.on_event,
        )
        worker.run()
        found = read(collector.text())
    assert found["worker_runs_total{kind=good,outcome=completed}"] == 5
    assert found["worker_runs_total{kind=bad,outcome=discarded}"] == 1
    assert found["worker_running{kind=good}"] == found["worker_running{kind=bad}"] == 0
    for name in ("wait", "run", "latency"):
        assert found[f"worker_{name}_seconds_count{{kind=good}}"] == 5
        assert found[f"worker_{name}_seconds_bucket{{kind=good,le=+Inf}}"] == 5
        assert found[f"worker_{name}_seconds_bucket{{kind=good,le=60.0}}"] == 5
    assert found["jobs{kind=good,state=completed}"] == 5


def test_what_goes_on_is_told_while_it_does(tmp_path: Path, read: Read) -> None:
    """A scrape in the midst of a run: the job is running, nothing has ended; nobody waits for the scrape."""
    with litequeue.open(tmp_path / "app.queue", durability="normal") as queue, Collector(queue) as collector:
        begun, may_end = threading.Event(), threading.Event()

        def hold(_lease: litequeue.Lease) -> None:
            begun.set()
            assert may_end.wait(60)

        queue.enqueue("slow")
        worker = Worker(queue, {"slow": hold}, until_empty=True, maintenance=False, on_event=collector.on_event)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert begun.wait(60)
            found = read(collector.text())
        finally:
            may_end.set()
            thread.join()
        assert found["worker_running{kind=slow}"] == 1
        assert found["jobs{kind=slow,state=leased}"] == 1
        assert not any("worker_runs_total" in name for name in found)
        assert read(collector.text())["worker_running{kind=slow}"] == 0


def _event(
    name: EventName, clock: FakeClock, *, attempt: int = 1, ago_s: float = 0, took_s: float | None = 2.0
) -> WorkerEvent:
    created_at = clock.wall_us() - round(ago_s * 1_000_000)
    return WorkerEvent(name, uuid4(), "work", "default", attempt, attempt, "me", took_s, "", created_at)


def test_a_wait_is_told_once_a_job_and_a_latency_at_its_end(queue: Queue, clock: FakeClock, read: Read) -> None:
    """A second attempt has waited for its back-off, not for a worker; a job that is tried again has not ended."""
    with Collector(queue, file=False) as collector:
        collector.on_event(_event("started", clock, ago_s=3, took_s=None))
        collector.on_event(_event("started", clock, ago_s=30, attempt=2, took_s=None))
        collector.on_event(_event("failed", clock, ago_s=40))
        collector.on_event(_event("timed_out", clock))
        collector.on_event(_event("dead", clock, ago_s=50))
        found = read(collector.text())
    assert (found["worker_wait_seconds_count{kind=work}"], found["worker_wait_seconds_sum{kind=work}"]) == (1, 3)
    assert (found["worker_latency_seconds_count{kind=work}"], found["worker_latency_seconds_sum{kind=work}"]) == (1, 50)
    assert found["worker_run_seconds_count{kind=work}"] == 2
    assert found["worker_timeouts_total{kind=work}"] == 1
    assert not any(name.startswith(("jobs", "up")) for name in found), "file=False"


def test_a_wait_for_the_gate_is_counted_and_only_that(
    make_queue: MakeQueue, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verb that finds the gate free has not waited; one that comes while another handle writes has (metrics)."""
    pytest.importorskip("fcntl", reason="there is no gate here")
    one, other = make_queue(), make_queue()
    waits, wait = threading.Event(), gate.Gate._wait

    def told(self: gate.Gate, descriptor: int, now: float, give_up: float) -> bool:
        waits.set()
        return wait(self, descriptor, now, give_up)

    with Collector(one, file=False) as collector:
        before = read(collector.text())["gate_wait_seconds_count{}"]
        one.enqueue("work")
        assert read(collector.text())["gate_wait_seconds_count{}"] == before
        monkeypatch.setattr(gate.Gate, "_wait", told)
        with one.transaction():
            thread = threading.Thread(target=other.enqueue, args=("work",))
            thread.start()
            assert waits.wait(60)
        thread.join()
        found = read(collector.text())
    assert found["gate_wait_seconds_count{}"] > before
    assert found["gate_wait_seconds_sum{}"] > 0


def test_a_registry_has_the_same_metrics_as_the_text(queue: Queue, collector: Collector, read: Read) -> None:
    """One definition each, whoever writes it; `prometheus_client` finds the names without a scrape."""
    queue.enqueue('we"ird\\kind')
    queue.enqueue("work")
    lease = queue.lease_next(["work"])
    assert lease is not None
    lease.complete()
    collector.on_event(WorkerEvent("completed", uuid4(), "work", "default", 1, 1, "me", 0.5, "", 0))
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector)
    by_client, by_us = read(generate_latest(registry).decode()), read(collector.text())
    ages = {name for name in by_us if "age_seconds" in name}
    assert by_client.keys() == by_us.keys()
    assert {name: by_client[name] for name in by_us.keys() - ages} == {
        name: by_us[name] for name in by_us.keys() - ages
    }
    assert {one.name for one in collector.describe()} == {
        one.name.removesuffix("_total") for one in (*of.OF_FILE, *of.OF_PROCESS)
    }
    with pytest.raises(ValueError, match=r"[Dd]uplicate"):
        registry.register(Collector(queue))


def test_a_registry_may_be_told_before_the_file_is_read(queue: Queue) -> None:
    """To register neither opens nor counts anything."""
    collector = Collector(queue)
    CollectorRegistry(auto_describe=True).register(collector)
    assert collector._own is None


def test_a_file_that_is_gone_is_down_and_up_again(tmp_path: Path, read: Read) -> None:
    """The scrape says so and why, and what the process itself knows is told as ever; it never raises."""
    with litequeue.open(tmp_path / "app.queue", durability="normal") as queue:
        queue.enqueue("work")
        collector = Collector(queue)
        assert read(collector.text())["up{}"] == 1
        away = tmp_path / "away"
        away.mkdir()
        for part in ("", "-wal", "-shm"):
            (tmp_path / f"app.queue{part}").rename(away / f"app.queue{part}")
        text = collector.text()
        assert text.startswith("# litequeue: ")
        assert str(tmp_path / "app.queue") in text.splitlines()[0]
        found = read(text)
        assert found["up{}"] == 0
        assert "gate_wait_seconds_count{}" in found
        assert not any(name.startswith("jobs") for name in found)
        for part in ("", "-wal", "-shm"):
            (away / f"app.queue{part}").rename(tmp_path / f"app.queue{part}")
        collector.close()
        assert "up{}" not in read(collector.text()), "closed: only what the process knows"


def test_many_scrapes_at_once_are_each_answered(queue: Queue, collector: Collector, read: Read) -> None:
    """By whatever threads a server has."""
    queue.enqueue("work")
    pages: list[str] = []
    threads = [threading.Thread(target=lambda: pages.append(collector.text())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read(page)["jobs{kind=work,state=pending}"] for page in pages] == [1] * 8


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda queue: Collector(queue, max_kinds=0), "max_kinds.*1 to 10000"),
        (lambda queue: Collector(queue, max_kinds=10_001), "max_kinds"),
        (lambda queue: Collector(queue.path), "queue.*litequeue.open"),
    ],
)
def test_bad_arguments_are_refused(queue: Queue, call: Callable[[Queue], object], said: str) -> None:
    """With the argument, its value and the bounds (§6)."""
    with pytest.raises(UsageError, match=said):
        call(queue)


def test_the_text_needs_no_prometheus_client(tmp_path: Path) -> None:
    """The extra is for the registry alone: nothing of it is imported for the text."""
    program = """
import sys
sys.modules["prometheus_client"] = None  # as if it were not installed
import litequeue
from litequeue.metrics import Collector
with litequeue.open(sys.argv[1]) as queue, Collector(queue) as collector:
    queue.enqueue("work")
    assert "litequeue_jobs" in collector.text()
    for ask in (collector.collect, collector.describe):
        try:
            next(ask())
        except litequeue.UsageError as exc:
            assert "pip install 'litequeue-jobs[prometheus]'" in str(exc)
        else:
            raise AssertionError(ask)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "app.queue")], check=True, timeout=100)
