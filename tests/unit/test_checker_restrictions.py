"""The checker and what restricts leases: limits, rates, pauses, schedules and turns (`harness.restrained`).

Every rule has a story that breaks it, beside one that does not. Times are counted from 0, in µs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from harness.admitted import LAST_PLACES, LAST_TOKENS
from harness.fairness import WAITS
from harness.fired import BOUNDARIES
from harness.found import FoundJob, Line, live_through
from harness.journal import digest
from harness.promises import Breach, Rule
from harness.restrained import Restrained
from harness.restrictions import (
    ALL_SCOPES,
    EACH_SCOPE,
    Flow,
    LimitChange,
    Paused,
    Pool,
    Restrictions,
    Scheduled,
)
from harness.story import A, B, Story, job, rules

SECOND = 1_000_000
PAYLOAD = digest("tick")
SCHEDULE = Scheduled("nightly", "tick", PAYLOAD, 10, created_at=100, upcoming=140, fired=3, skipped=0)


def ran(
    leased: int, ended: int, *, kind: str = "work", scope: str = "one", enqueued: int = 0, worker: str = A
) -> FoundJob:
    """Make a job with one run."""
    lines = Line(enqueued, "enqueued", ""), Line(leased, "leased", worker), Line(ended, "completed", "")
    return replace(job(f"{kind} {scope} {leased}", "completed"), kind=kind, scope=scope, events=lines, generation=1)


def logged(*lines: tuple[int, str], scope: str = "one") -> FoundJob:
    """Make a job whose log says this; `leased alice` is a lease by alice."""
    found = job("one", "completed", *(text for _, text in lines))
    events = tuple(line._replace(at=at) for line, (at, _) in zip(found.events, lines, strict=True))
    return replace(found, scope=scope, events=events)


def fired(boundary: int, name: str = "nightly", *, late: int = 0) -> FoundJob:
    """Make a job of a schedule."""
    key = f"litequeue:schedule:{name}:{boundary}"
    done = ran(boundary + late, boundary + late + 1, kind="tick")
    return replace(done, key=key, created_at=boundary + late, payload=PAYLOAD)


def judged(
    restrictions: Restrictions, *jobs: FoundJob, of_one_scope: Collection[str] = ()
) -> tuple[list[Breach], Counter[str]]:
    """Hold jobs against restrictions; return the breaches and the figures."""
    breaches: list[Breach] = []
    figures: Counter[str] = Counter()
    restrained = Restrained(restrictions, breaches, figures)
    for found in jobs:
        restrained.add(found, live_through(found))
    restrained.judge(of_one_scope)
    return breaches, figures


def broken(restrictions: Restrictions, *jobs: FoundJob, of_one_scope: Collection[str] = ()) -> list[Rule]:
    """Return the rule of each breach."""
    return [breach.rule for breach in judged(restrictions, *jobs, of_one_scope=of_one_scope)[0]]


def limited(*changes: tuple[int, int | None], kind: str = "work", scope: str = ALL_SCOPES) -> Restrictions:
    """Return a limit, as it was set at these times."""
    return Restrictions([LimitChange(at, kind, scope, most) for at, most in changes])


# --- which restriction governs


def test_the_longest_filter_governs_and_a_scope_of_its_own_counts_by_itself() -> None:
    """As the guide says of limits: over all scopes, and within each, or within the one that has its own (§5)."""
    found = Restrictions(
        [
            LimitChange(0, "work:", ALL_SCOPES, 5),
            LimitChange(0, "work:big", ALL_SCOPES, None),
            LimitChange(0, "work:", EACH_SCOPE, 2),
            LimitChange(0, "work:big", "one", 1),
        ]
    )
    assert found.pools("work:big", "one") == [
        Pool("work:big", ALL_SCOPES, ALL_SCOPES),
        Pool("work:big", "one", "one"),
    ]
    assert found.pools("work:small", "one") == [
        Pool("work:", ALL_SCOPES, ALL_SCOPES),
        Pool("work:", EACH_SCOPE, "one"),
    ]
    assert found.pools("work:small", "two") == [
        Pool("work:", ALL_SCOPES, ALL_SCOPES),
        Pool("work:", EACH_SCOPE, "two"),
    ]
    assert found.pools("working", "one") == []
    assert not found.is_free("work:big", "two")
    assert found.is_free("working", "two")
    assert Restrictions([LimitChange(0, "work:big", ALL_SCOPES, None)]).is_free("work:big", "one")


# --- limits


def test_leases_up_to_a_limit_pass() -> None:
    """One ends in the same µs in which the next begins; leases of other kinds and scopes are not counted (§5)."""
    jobs = ran(10, 20), ran(15, 30, scope="two"), ran(20, 40, scope="three"), ran(12, 50, kind="other")
    breaches, figures = judged(limited((0, 2)), *jobs)
    assert breaches == []
    assert figures[LAST_PLACES] == 2
    assert broken(limited((0, 1), scope=EACH_SCOPE), *jobs) == []


@pytest.mark.parametrize("scope", [ALL_SCOPES, EACH_SCOPE, "one"])
def test_one_lease_too_many_is_found(scope: str) -> None:
    """Three at a time where two are allowed; also in one batch, which has one time (§5)."""
    assert broken(limited((0, 2), scope=scope), ran(10, 20), ran(15, 30), ran(19, 40)) == [Rule.LIMIT]
    assert broken(limited((0, 1), scope=scope), ran(10, 20), ran(10, 30, kind="work")) == [Rule.LIMIT]


def test_a_lease_that_is_held_to_the_end_counts() -> None:
    """Its log says nothing of its end (§5)."""
    held = logged((10, "enqueued"), (11, "leased alice"))
    assert broken(limited((0, 1)), held, ran(90, 91)) == [Rule.LIMIT]


def test_a_limit_that_is_lowered_holds_for_the_leases_after_it() -> None:
    """Those that are there stay; whoever comes at the very time of the change may have come before it (§5)."""
    lowered = limited((0, 3), (50, 1))
    assert broken(lowered, ran(10, 90), ran(20, 90)) == []
    assert broken(lowered, ran(10, 90), ran(50, 90)) == []
    assert broken(lowered, ran(10, 90), ran(51, 90)) == [Rule.LIMIT]
    assert broken(limited((0, 1), (50, None)), ran(10, 90), ran(51, 90)) == []


def test_a_run_that_is_retaken_keeps_its_place() -> None:
    """It fails and begins anew in one commit, while the limit was lowered below what is leased (§5, V7)."""
    retaken = logged((1, "enqueued"), (10, "leased alice"), (60, "failed oh"), (60, "leased alice"), (90, "completed"))
    assert broken(limited((0, 2), (50, 1)), retaken, ran(20, 90)) == []
    later = logged((1, "enqueued"), (10, "leased alice"), (60, "released"), (61, "leased alice"), (90, "completed"))
    assert broken(limited((0, 2), (50, 1)), later, ran(20, 90)) == [Rule.LIMIT]


def test_what_a_log_no_longer_says_is_not_held_against_it() -> None:
    """It was cut, so it may have been leased or not before (§2)."""
    cut = logged((1, "enqueued"), (40, "truncated 12 events"), (60, "completed"))
    assert broken(limited((0, 1)), replace(cut, generation=4), ran(20, 90)) == []


# --- rates


def test_a_full_bucket_and_what_comes_in_passes() -> None:
    """Two at once, then one each half a second (§5)."""
    often = Restrictions(flows=[Flow("work", 2, SECOND)])
    breaches, figures = judged(often, *(ran(at, at + 1) for at in (0, 1, SECOND // 2 + 1, SECOND + 1, 9 * SECOND)))
    assert breaches == []
    assert figures[LAST_TOKENS] == 3


def test_a_lease_without_a_token_is_found() -> None:
    """In any stretch of time no more begin than a full bucket and what has come in since (§5)."""
    often = Restrictions(flows=[Flow("work", 2, SECOND)])
    assert broken(often, *(ran(at, at + 1) for at in (0, 1, 2))) == [Rule.RATE]
    assert broken(often, *(ran(at, at + 1) for at in (0, 1, SECOND // 2 + 1, SECOND // 2 + 2))) == [Rule.RATE]
    assert broken(often, *(ran(at, at + 1, kind="other") for at in (0, 1, 2))) == []


# --- pauses


@pytest.mark.parametrize(("kind", "scope"), [("work", ALL_SCOPES), (None, "one"), ("work", "one"), (None, ALL_SCOPES)])
def test_a_lease_within_a_pause_is_found(kind: str | None, scope: str) -> None:
    """By kind, by scope, or both; not at its ends, where it may have come before or after (V15)."""
    paused = Restrictions(paused=[Paused(kind, scope, 10, 50)])
    assert broken(paused, ran(10, 20), ran(50, 60)) == []
    assert broken(paused, ran(11, 20), ran(49, 60)) == [Rule.PAUSED] * 2
    assert broken(Restrictions(paused=[Paused(kind, scope, 10, None)]), ran(99, 100)) == [Rule.PAUSED]


def test_what_a_pause_does_not_name_passes() -> None:
    """Other kinds, other scopes; a lease that is held goes on (V15)."""
    assert broken(Restrictions(paused=[Paused("work:", ALL_SCOPES, 10, 50)]), ran(20, 30), ran(5, 60)) == []
    assert broken(Restrictions(paused=[Paused(None, "two", 10, 50)]), ran(20, 30), ran(5, 60)) == []


# --- schedules


def test_a_job_for_each_boundary_passes(tmp_path: Path) -> None:
    """Nobody's journal tells of an enqueue: a schedule made them."""
    story = Story(tmp_path)
    jobs = []
    for number, boundary in enumerate((110, 120, 130)):
        story.lease(f"{number}", 1)
        story.word("complete", f"{number}", 1)
        jobs.append(replace(fired(boundary, late=3), job_id=f"{number}", attempts=1))
    found = story.judge(*jobs, restrictions=Restrictions(schedules=[SCHEDULE]))
    assert found.breaches == []
    assert found.restrained[BOUNDARIES] == 3


def test_a_job_that_only_looks_like_a_schedules_is_found(tmp_path: Path) -> None:
    """Of another kind; or of its kind and of no boundary (G11)."""
    stranger = replace(fired(110), kind="tock", attempts=1)
    assert Rule.FROM_NOWHERE in rules(Story(tmp_path).judge(stranger, restrictions=Restrictions(schedules=[SCHEDULE])))
    made = Restrictions(schedules=[scheduled(upcoming=110, fired=1)])
    assert broken(made, replace(fired(110), key=None)) == [Rule.FROM_NOWHERE]


@pytest.mark.parametrize(
    ("jobs", "fires"),
    [
        ((fired(110), fired(120), fired(120, "nightly of 7"), fired(130)), 4),
        ((fired(110), fired(130)), 2),
        ((fired(110), fired(120), fired(130), fired(140)), 4),
        ((fired(110), fired(121), fired(130)), 3),
        ((fired(110), fired(120, late=-1), fired(130)), 3),
        ((fired(110), fired(120), fired(130)), 2),
    ],
    ids=["twice", "never", "before it was due", "drifted", "early", "miscounted"],
)
def test_a_boundary_that_was_fired_wrongly_is_found(jobs: tuple[FoundJob, ...], fires: int) -> None:
    """Each has one job, made at its time or later."""
    assert set(broken(Restrictions(schedules=[scheduled(fired=fires)]), *jobs)) == {Rule.FIRED}


def test_boundaries_that_were_skipped_have_no_job() -> None:
    """After an outage; and only as many as the schedule says."""
    assert broken(Restrictions(schedules=[scheduled(fired=1, skipped=2)]), fired(130)) == []
    assert broken(Restrictions(schedules=[scheduled(fired=1, skipped=1)]), fired(130)) == [Rule.FIRED]


def test_another_payload_than_the_schedules_is_found() -> None:
    """The job was made of it (G2)."""
    made = Restrictions(schedules=[scheduled(upcoming=120, fired=1)])
    assert broken(made, replace(fired(110), payload=digest("other"))) == [Rule.RESULT]


def scheduled(*, upcoming: int = 140, fired: int = 3, skipped: int = 0) -> Scheduled:
    """Return a schedule that has come to something else."""
    return SCHEDULE._replace(upcoming=upcoming, fired=fired, skipped=skipped)


# --- turns

TURNS = Restrictions(weights={"two": 2})


def others(count: int, since: int = 10, scope: str = "two", worker: str = B) -> list[FoundJob]:
    """Make jobs of another scope, leased one after the other."""
    return [ran(since + step, 90, scope=scope, worker=worker) for step in range(count)]


def test_a_scope_that_waits_for_the_others_weights_passes() -> None:
    """Two of the weight 2, one of the weight 1, then it is served; and so again (V12, G10)."""
    jobs = [ran(20, 30), ran(40, 50), *others(2), ran(12, 30, scope="three"), *others(2, 30)]
    breaches, figures = judged(TURNS, *jobs, ran(31, 40, scope="three", enqueued=5))
    assert breaches == []
    assert figures[WAITS] > 0


def test_a_scope_that_waits_longer_is_found() -> None:
    """One lease more than the others' weights, before its first lease or between two (V12, G10)."""
    assert set(broken(TURNS, ran(20, 30), *others(3))) == {Rule.FAIR}
    assert set(broken(TURNS, ran(5, 8), ran(20, 30), *others(3))) == {Rule.FAIR}


def test_what_is_no_turn_is_not_held_against_the_queue() -> None:
    """Those who lease from one scope; a scope that has nothing ready, or only what is paused or limited (V12)."""
    assert broken(TURNS, ran(20, 30), *others(9), of_one_scope={B}) == []
    assert broken(TURNS, ran(20, 30, enqueued=19), *others(9)) == []
    delayed = logged((0, "enqueued"), (19, "promoted"), (20, "leased alice"), (30, "completed"))
    assert broken(TURNS, delayed, *others(9)) == []
    assert broken(replace(TURNS, paused=[Paused(None, "one", 2, 4)]), ran(20, 30), *others(9)) == []
    assert broken(replace(TURNS, limits=[LimitChange(0, "work", EACH_SCOPE, 99)]), ran(20, 30), *others(9)) == []


def test_a_truncated_log_may_hide_that_a_scope_was_served() -> None:
    """What it does not say is not held against the queue (§2)."""
    cut = logged((0, "enqueued"), (40, "truncated 12 events"), (60, "leased alice"), (61, "completed"))
    assert broken(TURNS, ran(20, 30), replace(cut, generation=5), *others(9)) == []
