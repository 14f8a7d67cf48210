"""The metrics: what each is called, what it means, and a page of their values at one moment.

Invariants: a metric is defined here, once, whoever writes it; names and units are as Prometheus wants them; the labels
of a value are those of its definition. Leaves out: where values come from, and how a page is written.
Source: Prometheus' documentation, "Metric and label naming".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from litequeue.histogram import Observed

OTHER = "(other)"
"""The kind that stands for all kinds beyond the bound."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    """Besides `db`, which every metric has: the file's real path."""


UP = Definition("litequeue_up", "gauge", "Whether the file could be read just now.")
JOBS = Definition("litequeue_jobs", "gauge", "Jobs in the file; state=dead are the dead letters.", ("kind", "state"))
SCOPES = Definition("litequeue_scopes", "gauge", "Scopes that have jobs in the file.")
REAPS = Definition(
    "litequeue_reaps",
    "gauge",
    "Of the leases that the jobs in the file have had, how many ended in a reap; falls when finished jobs are removed.",
    ("kind",),
)
COUNT_AGE = Definition(
    "litequeue_jobs_count_age_seconds",
    "gauge",
    "Age of the counts of jobs, scopes and reaps: those that take longer than 20 ms are kept for a while.",
)
OLDEST_READY = Definition(
    "litequeue_oldest_ready_age_seconds",
    "gauge",
    "How long the job at the head of a line (scope, kind, priority) has been ready, at the most; paused ones, too.",
    ("kind",),
)
LAPSED = Definition(
    "litequeue_lapsed_leases", "gauge", "Leases past their deadline that nobody has reaped yet; 10000 is at least that."
)
MAINTENANCE_AGE = Definition(
    "litequeue_maintenance_age_seconds", "gauge", "Time since the last pass of maintenance; absent when none is known."
)
FILE_BYTES = Definition("litequeue_file_bytes", "gauge", "Size of the file.")
FREE_BYTES = Definition("litequeue_free_bytes", "gauge", "Of that, what deleted jobs have left for reuse.")
WAL_BYTES = Definition("litequeue_wal_bytes", "gauge", "Size of the write-ahead log's file.")
RECENT = Definition(
    "litequeue_recent_jobs",
    "gauge",
    "Size of the sample: of up to 1000 completed jobs, those that ended within the last 5 minutes.",
    ("kind",),
)
RECENT_WAIT = Definition(
    "litequeue_recent_wait_seconds",
    "gauge",
    "Quantiles of the sample: from ready to leased, the last time.",
    ("kind", "quantile"),
)
RECENT_RUN = Definition(
    "litequeue_recent_run_seconds",
    "gauge",
    "Quantiles of the sample: from leased to completed.",
    ("kind", "quantile"),
)
RECENT_LATENCY = Definition(
    "litequeue_recent_latency_seconds",
    "gauge",
    "Quantiles of the sample: from ready for the first time to completed, retries included.",
    ("kind", "quantile"),
)
GATE_WAIT = Definition(
    "litequeue_gate_wait_seconds",
    "histogram",
    "How long this process has waited for the file's write gate, when it was not free at once.",
)
RUNS = Definition(
    "litequeue_worker_runs_total", "counter", "Runs of this process that have ended.", ("kind", "outcome")
)
TIMEOUTS = Definition(
    "litequeue_worker_timeouts_total",
    "counter",
    "Runs of this process that were told that their time is over.",
    ("kind",),
)
RUNNING = Definition("litequeue_worker_running", "gauge", "Runs that are going on in this process.", ("kind",))
WORKER_WAIT = Definition(
    "litequeue_worker_wait_seconds",
    "histogram",
    "From enqueued to the start of the first run, in this process; a delay, or jobs that it waited for, included.",
    ("kind",),
)
WORKER_RUN = Definition("litequeue_worker_run_seconds", "histogram", "How long runs took in this process.", ("kind",))
WORKER_LATENCY = Definition(
    "litequeue_worker_latency_seconds",
    "histogram",
    "From enqueued to completed or dead, in this process; delays and retries included.",
    ("kind",),
)

OF_FILE = (
    UP,
    JOBS,
    SCOPES,
    REAPS,
    COUNT_AGE,
    OLDEST_READY,
    LAPSED,
    MAINTENANCE_AGE,
    FILE_BYTES,
    FREE_BYTES,
    WAL_BYTES,
    RECENT,
    RECENT_WAIT,
    RECENT_RUN,
    RECENT_LATENCY,
)
"""What any process can read from the file."""
OF_PROCESS = (GATE_WAIT, RUNS, TIMEOUTS, RUNNING, WORKER_WAIT, WORKER_RUN, WORKER_LATENCY)
"""What only the process itself knows, since its start."""


class Sample(NamedTuple):
    """One value; a histogram has several."""

    suffix: str
    labels: dict[str, str]
    value: float


class Family(NamedTuple):
    """A metric with its values."""

    definition: Definition
    samples: list[Sample]


class Page:
    """Values of metrics at one moment, of one file or of several."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = {}
        self.remarks: list[str] = []
        """What a person should know of it, such as why a file could not be read."""

    def add(self, db: str, definition: Definition, value: float, *labels: str) -> None:
        """Add a value; its labels come in the order of the definition's."""
        self._add(db, definition, labels, Sample("", {}, value))

    def add_histogram(self, db: str, definition: Definition, observed: Observed, *labels: str) -> None:
        """Add what a histogram has counted."""
        for bound, count in observed.buckets:
            self._add(db, definition, labels, Sample("_bucket", {"le": repr(bound)}, count))
        self._add(db, definition, labels, Sample("_bucket", {"le": "+Inf"}, observed.observations))
        self._add(db, definition, labels, Sample("_count", {}, observed.observations))
        self._add(db, definition, labels, Sample("_sum", {}, observed.total))

    def families(self) -> list[Family]:
        """Return the metrics that have values, always in the same order."""
        known = (*OF_FILE, *OF_PROCESS)
        return [Family(one, self._samples[one.name]) for one in known if one.name in self._samples]

    def _add(self, db: str, definition: Definition, labels: tuple[str, ...], sample: Sample) -> None:
        own: Mapping[str, str] = dict(zip(definition.labels, labels, strict=True))
        whole = sample._replace(labels={"db": db, **own, **sample.labels})
        self._samples.setdefault(definition.name, []).append(whole)


class Kinds:
    """Which kinds have values of their own: a bounded number, so that series do not grow with what users enqueue.

    A kind that has a name keeps it for as long as it has jobs, so that no series comes and goes with its neighbours.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._named: dict[str, None] = {}

    def renew(self, sizes: Mapping[str, int]) -> None:
        """Forget kinds that are no more, and name the largest of the others, as far as there is room."""
        self._named = {kind: None for kind in self._named if kind in sizes}
        for kind in sorted(sizes, key=lambda kind: (-sizes[kind], kind)):
            self.label(kind)

    def label(self, kind: str) -> str:
        """Return the kind, or what stands for all that have no name."""
        if kind not in self._named and len(self._named) < self._most:
            self._named[kind] = None
        return kind if kind in self._named else OTHER
