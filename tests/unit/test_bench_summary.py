"""What the benchmark makes of its samples: medians, ratios within a round, and never across durabilities."""

from __future__ import annotations

from typing import Any

import pytest

from benching import goals, summary, tables
from benching.summary import Key

WAL_NORMAL = {"journal_mode": "wal", "synchronous": 1, "page_size": 2048, "sqlite": "3.54.1"}
WAL_FULL = WAL_NORMAL | {"synchronous": 2}
JOURNAL_FULL = WAL_FULL | {"journal_mode": "delete"}


def _sample(subject: str, number: int, us: float, has: dict[str, Any] | None = None, **other: object) -> dict[str, Any]:
    return {
        "workload": "enqueue",
        "cell": "100 B",
        "durability": "normal",
        "subject": subject,
        "is_peer": subject not in {"ours", "bare"},
        "round": number,
        "figures": {"us": us} if us else {},
        "has": WAL_NORMAL if has is None else has,
        "unsupported": None,
        "failed": None,
        **other,
    }


def _row(samples: list[dict[str, Any]], subject: str) -> summary.Row:
    return next(row for row in summary.summarise(samples) if row.key.subject == subject)


def test_a_ratio_is_taken_within_its_round() -> None:
    """A round in which the machine was busy is slow for both: the ratio is that of each round, and then the median."""
    floors, times = (10.0, 100.0, 20.0), (30.0, 300.0, 60.0)
    samples = [_sample("bare", number, us) for number, us in enumerate(floors)]
    samples += [_sample("ours", number, us) for number, us in enumerate(times)]
    row = _row(samples, "ours")
    assert row.to_floor["us"] == (3.0, 3.0, 3.0)
    assert row.figures["us"] == (60.0, 30.0, 300.0)


@pytest.mark.parametrize(("has", "held"), [(WAL_FULL, "full"), (JOURNAL_FULL, "full, journal delete")])
def test_nothing_is_compared_across_durabilities(has: dict[str, Any], held: str) -> None:
    """A peer that was asked for one durability and has another is told under what it has, and has no ratio."""
    row = _row([_sample("bare", 0, 10.0), _sample("peer", 0, 5.0, has)], "peer")
    assert row.held == held
    assert row.to_floor == {}


def test_a_peer_of_another_durability_is_no_rival() -> None:
    """The goal "ahead of every peer" looks at those that held the same durability, whatever they were asked for."""
    goal = next(goal for goal in goals.GOALS if goal.what == "enqueue, normal, × the fastest peer")
    samples = [_sample("ours", 0, 10.0), _sample("unsafe", 0, 1.0, WAL_NORMAL | {"synchronous": 0})]
    assert goal.measure({row.key: row for row in summary.summarise(samples)}) is None
    samples.append(_sample("peer", 0, 20.0))
    assert goal.measure({row.key: row for row in summary.summarise(samples)}) == pytest.approx(0.5)


def test_what_is_missing_is_told() -> None:
    """A round that failed is no figure, and is told beside those that did not."""
    samples = [_sample("peer", 0, 10.0), _sample("peer", 1, 0, failed="Traceback\nOops: locked")]
    row = _row(samples, "peer")
    assert row.rounds == 1
    assert row.why_not == "1 of 2 failed: Oops: locked"


def test_a_goal_is_missed_or_reached() -> None:
    """Bounds go both ways, and what was not measured is not judged."""
    samples = [_sample("bare", 0, 10.0), _sample("ours", 0, 31.0)]
    (judged,) = goals.judged(summary.summarise(samples))
    assert (judged["figure"], judged[""]) == (3.1, "missed")
    samples[1]["figures"] = {"us": 29.0}
    (judged,) = goals.judged(summary.summarise(samples))
    assert judged[""] == "reached"
    least = next(goal for goal in goals.GOALS if goal.is_least)
    assert least.is_reached(least.bound)
    assert not least.is_reached(least.bound - 0.01)
    assert goals.judged([]) == []


def test_a_key_names_what_was_asked() -> None:
    """The same subject at two durabilities makes two rows."""
    rows = summary.summarise([_sample("bare", 0, 1.0), _sample("bare", 0, 2.0, WAL_FULL, durability="full")])
    assert [row.key for row in rows] == [
        Key("enqueue", "100 B", "normal", "bare"),
        Key("enqueue", "100 B", "full", "bare"),
    ]


def test_who_cannot_acknowledge_is_no_rival_in_leases() -> None:
    """A job that is gone when it is handed out costs half: it counts among the enqueues only, and the table says so."""
    rivals = {goal.what: goal for goal in goals.GOALS if goal.what.endswith("× the fastest peer")}
    once = WAL_NORMAL | {"delivery": "at most once"}
    samples = [_sample("ours", 0, 10.0, workload=name) for name in ("enqueue", "lease+complete")]
    samples += [_sample("peer", 0, 5.0, once, workload=name) for name in ("enqueue", "lease+complete")]
    rows = summary.summarise(samples)
    by_key = {row.key: row for row in rows}
    assert rivals["enqueue, normal, × the fastest peer"].measure(by_key) == 2
    assert rivals["lease+complete, normal, × the fastest peer"].measure(by_key) is None
    table = tables.tables(rows)["Lease and complete, one by one"]
    assert {line["subject"] for line in table} == {"ours", "peer (at most once)"}


def test_the_goals_of_a_worker_are_judged_by_its_cells() -> None:
    """A worker with threads that sync is to do five times what single verbs do, and its memory is to stay (issue 5)."""
    at_full = "worker, 8 threads, full: jobs/s, × single verbs'"
    at_the_end = "a worker with threads: memory at the end, × that after a twentieth of its jobs"
    for times, said in (4.9, ("missed", "reached")), (5.1, ("reached", "missed")):
        figures = {"us": 1.0, "times": times}
        later = {"us": 1.0, "times": times - 4}
        samples = [
            _sample("ours", 0, 1.0, WAL_FULL, workload="worker", cell="threads, 8 at once", figures=figures),
            _sample("ours", 0, 1.0, workload="worker memory", cell="threads, 10 jobs", figures=later),
        ]
        samples[0]["durability"] = "full"
        judged = {row["goal"]: row[""] for row in goals.judged(summary.summarise(samples))}
        assert judged == {at_full: said[0], at_the_end: said[1]}
