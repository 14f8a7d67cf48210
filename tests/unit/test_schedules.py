"""From specs to boundaries, and what becomes of those that were missed: held against models of their own (issue 6)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litequeue import InvalidSpec, UsageError, schedules
from litequeue.boundaries import boundary_of, key
from litequeue.schedules import MAX_COUNTED, MAX_REPLAYED, MISFIRE_GRACE_US, Cron, Every

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litequeue.model import Misfire

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
NOW = 1_750_000_000_000_000


def us(text: str, zone: str = "UTC", *, fold: int = 0) -> int:
    """Return a time on the wall of a zone, µs since the epoch."""
    return (datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold) - EPOCH) // timedelta(microseconds=1)


def walked(spec: str, zone: str, start: int, end: int) -> list[int]:
    """Return all boundaries after a start up to an end, one by one."""
    rule = schedules.rule(spec, zone)
    found = []
    at = rule.after(start, start)
    while at <= end:
        found.append(at)
        at = rule.after(at, at)
    return found


# --- specs


@pytest.mark.parametrize(
    ("spec", "interval_us"),
    [
        ("@every 1s", SECOND),
        ("@every 300s", 300 * SECOND),
        ("@every 1.5m", 90 * SECOND),
        ("@every 2h", 7200 * SECOND),
        ("@every 1d", DAY),
        ("@every 36500d", 36_500 * DAY),
        ("@every 1.000001s", 1_000_001),
    ],
)
def test_an_interval_is_read_to_the_microsecond(spec: str, interval_us: int) -> None:
    """s, m, h and d, also in parts."""
    assert schedules.rule(spec, "UTC") == Every(interval_us)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("@every", "takes a number"),
        ("@every 5", "takes a number"),
        ("@every 5w", "takes a number"),
        ("@every -5s", "takes a number"),
        ("@every 1e3s", "takes a number"),
        ("@every 5s 6s", "takes a number"),
        ("@every 0s", "from 1 s to 36,500 d"),
        ("@every 0.999s", "from 1 s to 36,500 d"),
        ("@every 36501d", "from 1 s to 36,500 d"),
        ("@every 1.0000001s", "whole µs"),
        ("@reboot", "the names are"),
        ("@EVERY 5m", "the names are"),
        ("", "1 to 255 characters"),
        ("0 0 * * * \x00", "1 to 255 characters"),
        ("1," * 200 + "1 * * * *", "1 to 255 characters"),
        ("hourly", "five fields"),
        ("* * * *", "five fields"),
        ("0 * * * * *", "five fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * FOO *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("5-1 * * * *", "bad minute"),
        ("*/0 * * * *", "bad minute"),
        ("* * 31 2 *", "bad day-of-month"),
        ("0 0 */29 2 MON#2", "no time in the next fifty years"),
        ("9" * 200 + " * * * *", "bad minute"),
        (None, "1 to 255 characters"),
        (b"@daily", "1 to 255 characters"),
    ],
)
def test_a_bad_spec_is_quoted_with_the_reason(spec: str, reason: str) -> None:
    """One error, which names the argument and what is allowed (§6)."""
    with pytest.raises(InvalidSpec, match="spec must be @every with an interval") as caught:
        schedules.rule(schedules.normal(spec), "UTC")
    assert reason in caught.value.reason
    assert (caught.value.argument, caught.value.spec) == ("spec", spec)
    assert repr(spec)[:60] in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("every 5m", "@every 5m"),
        ("@every5m", "@every 5m"),
        ("@every 5 m", "@every 5m"),
        ("@EVERY 1.5H", "@every 1.5h"),
        ("90s", "@every 90s"),
        ("daily", "@daily"),
        ("@ Hourly", "@hourly"),
    ],
)
def test_a_spec_that_is_nearly_one_asks_whether_that_was_meant(spec: str, meant: str) -> None:
    """For an interval and for a name (§6)."""
    with pytest.raises(InvalidSpec, match=rf"; did you mean '{meant}'\?$"):
        schedules.rule(schedules.normal(spec), "UTC")


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "Europe", "../UTC", "\x00", "Europe/Berlin\n", None, 5, "x" * 300]
)
def test_a_zone_that_is_unknown_is_refused(name: object) -> None:
    """Whatever the system's files make of its name (§6)."""
    with pytest.raises(UsageError, match="timezone must be an IANA time zone") as caught:
        schedules.zone(name)
    assert caught.value.argument == "timezone"


def test_utc_needs_no_files() -> None:
    """A machine without time zones has UTC."""
    assert schedules.zone("UTC") is UTC


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval needs nothing; a cron expression says what to install."""
    schedules.rule.cache_clear()
    monkeypatch.setitem(sys.modules, "cronsim", None)
    assert schedules.rule("@every 5m", "UTC") == Every(300 * SECOND)
    for spec in ("0 5 * * *", "@daily"):
        with pytest.raises(UsageError, match=r"install 'litequeue-jobs\[cron\]', or '\.\[cron\]' in a clone"):
            schedules.rule(spec, "UTC")
    with pytest.raises(InvalidSpec, match="five fields"):
        schedules.rule("every 5m", "UTC")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 JAN *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_the_names_stand_for_fields(name: str, fields: str) -> None:
    """Also where fields are named and have ranges and steps."""
    assert walked(name, "UTC", NOW, NOW + 800 * DAY) == walked(fields, "UTC", NOW, NOW + 800 * DAY)
    assert schedules.normal("  */5\t8-18/2  * *   mon-fri ") == "*/5 8-18/2 * * mon-fri"


# --- the keys of fires


@given(name=st.text(min_size=1, max_size=40), boundary=st.integers(0, 4_000_000_000_000_000))
def test_a_key_gives_the_boundary_back(name: str, boundary: int) -> None:
    """Whatever the name holds, colons and digits too."""
    assert boundary_of(key(name, boundary)) == EPOCH + timedelta(microseconds=boundary)


@pytest.mark.parametrize(
    "other", [None, "", "mine", "litequeue:schedule:", "litequeue:schedule:a:", "litequeue:other:5"]
)
def test_other_keys_have_no_boundary(other: str | None) -> None:
    """Nor has one beyond what a datetime can hold."""
    assert boundary_of(other) is None
    assert boundary_of(key("a", 10**18)) is None


# --- both ends of summer time

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
SPRING, AUTUMN = "2025-03-30", "2025-10-26"
"""In Berlin 02:00 to 03:00 is left out, and comes twice."""


def of_day(spec: str, day: str, zone: str = BERLIN) -> list[str]:
    """Return the boundaries of one day, as the clock on the wall shows them, with its distance from UTC."""
    start = us(f"{day}T00:00", zone)
    end = us(f"{day}T23:59", zone)
    moments = [EPOCH + timedelta(microseconds=at) for at in walked(spec, zone, start - 1, end)]
    return [f"{moment.astimezone(ZoneInfo(zone)):%H:%M%z}" for moment in moments]


def test_a_time_in_the_hour_that_is_left_out_comes_right_after_it() -> None:
    """Once, also where two such times are named."""
    assert of_day("30 2 * * *", SPRING) == ["03:00+0200"]
    assert of_day("0,30 2,3 * * *", SPRING) == ["03:00+0200", "03:30+0200"]
    assert of_day("30 2 9 3 *", "2025-03-09", NEW_YORK) == ["03:00-0400"]


def test_a_time_in_the_hour_that_comes_twice_comes_once() -> None:
    """The first time; whoever looks in the second hour does not find it again."""
    assert of_day("30 2 * * *", AUTUMN) == ["02:30+0200"]
    assert of_day("30 1 2 11 *", "2025-11-02", NEW_YORK) == ["01:30-0400"]
    rule = schedules.rule("30 2 * * *", BERLIN)
    for minute in ("02:00", "02:15", "02:30", "02:45"):
        second_time = us(f"{AUTUMN}T{minute}", BERLIN, fold=1)
        assert rule.after(second_time, second_time) == us("2025-10-27T02:30", BERLIN)


def test_every_hour_and_every_quarter_follow_time_as_it_passes() -> None:
    """Twenty-three hours in spring, twenty-five in autumn."""
    assert [len(of_day("30 * * * *", day)) for day in (SPRING, AUTUMN)] == [23, 25]
    assert [len(of_day("*/15 * * * *", day)) for day in (SPRING, AUTUMN)] == [92, 100]
    assert of_day("*/15 2 * * *", SPRING) == []
    assert of_day("*/30 2 * * *", AUTUMN) == ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]


def test_an_interval_knows_no_summer_time() -> None:
    """A day is 86,400 seconds."""
    rule = schedules.rule("@every 1d", BERLIN)
    assert rule.after(us(f"{SPRING}T00:00", BERLIN), us("2025-03-29T12:00", BERLIN)) == us(f"{SPRING}T13:00", BERLIN)


class Fields:
    """An independent model: minutes and hours, each a list or a star with a step; every day."""

    def __init__(self, minutes: set[int] | int, hours: set[int] | int) -> None:
        self.spec = f"{self._text(minutes)} {self._text(hours)} * * *"
        self._follows_time = isinstance(minutes, int) or isinstance(hours, int)
        self._minutes = set(range(0, 60, minutes)) if isinstance(minutes, int) else minutes
        self._hours = set(range(0, 24, hours)) if isinstance(hours, int) else hours

    @staticmethod
    def _text(values: set[int] | int) -> str:
        return f"*/{values}" if isinstance(values, int) else ",".join(map(str, sorted(values)))

    def boundaries(self, zone: ZoneInfo, start: int, end: int) -> list[int]:
        """Return all in (start, end], by looking at every minute of the time that passes, or of the wall's clock."""
        found = self._passing(zone, start, end) if self._follows_time else self._on_the_wall(zone, start, end)
        return sorted(at for at in found if start < at <= end)

    def _passing(self, zone: ZoneInfo, start: int, end: int) -> set[int]:
        found = set()
        for at in range(start // MINUTE * MINUTE, end + 1, MINUTE):
            wall = (EPOCH + timedelta(microseconds=at)).astimezone(zone)
            if wall.minute in self._minutes and wall.hour in self._hours:
                found.add(at)
        return found

    def _on_the_wall(self, zone: ZoneInfo, start: int, end: int) -> set[int]:
        found = set()
        day = (EPOCH + timedelta(microseconds=start) - timedelta(days=2)).date()
        while day <= (EPOCH + timedelta(microseconds=end) + timedelta(days=2)).date():
            for hour in self._hours:
                for minute in self._minutes:
                    wall = datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001 - on the wall
                    while True:
                        moment = wall.replace(tzinfo=zone).astimezone(UTC)
                        if moment.astimezone(zone).replace(tzinfo=None) == wall:
                            break
                        wall += timedelta(minutes=1)  # it is left out
                    found.add((moment - EPOCH) // timedelta(microseconds=1))
            day += timedelta(days=1)
        return found


MINUTES = st.sets(st.integers(0, 59), min_size=1, max_size=4) | st.sampled_from([1, 7, 15, 30])
HOURS = st.sets(st.integers(0, 23) | st.integers(0, 4), min_size=1, max_size=4) | st.sampled_from([1, 2, 5])
EDGES = st.sampled_from(
    [
        *((BERLIN, SPRING), (BERLIN, AUTUMN), (NEW_YORK, "2025-03-09"), (NEW_YORK, "2025-11-02")),
        *(("Australia/Sydney", "2025-10-05"), ("Australia/Sydney", "2025-04-06")),
        *(("America/Havana", "2025-03-09"), ("America/Santiago", "2025-09-07"), ("Antarctica/Troll", "2025-03-30")),
        *(("Asia/Kolkata", "2025-06-01"), ("UTC", "2025-06-01"), ("Asia/Kathmandu", "2025-01-01")),
    ]
)


@settings(max_examples=150, deadline=None)
@given(minutes=MINUTES, hours=HOURS, edge=EDGES, before=st.integers(0, 2 * 1440), length=st.integers(1, 3 * 1440))
def test_boundaries_are_those_of_a_model_that_looks_at_every_minute(
    minutes: set[int] | int, hours: set[int] | int, edge: tuple[str, str], before: int, length: int
) -> None:
    """From wherever one looks, around both ends of summer time, walked one by one or found due at once."""
    zone, day = edge
    fields = Fields(minutes, hours)
    start = us(f"{day}T12:00", zone) - before * MINUTE - 17
    end = start + length * MINUTE
    expected = fields.boundaries(ZoneInfo(zone), start, end)
    assert walked(fields.spec, zone, start, end) == expected
    if expected:
        due = schedules.rule(fields.spec, zone).due(expected[0], end)
        assert due == (expected[-MAX_REPLAYED:], len(expected))


# --- what was missed


def policy(misfire: Misfire, due: list[int], now: int) -> list[int]:
    """Say anew which of all due boundaries are fired."""
    latest = due[-MAX_REPLAYED:]
    in_time = [at for at in latest if now - at <= MISFIRE_GRACE_US]
    if misfire == "all" or len(in_time) == len(due):
        return latest
    return in_time if misfire == "skip" else latest[-1:]


@settings(max_examples=300, deadline=None)
@given(
    misfire=st.sampled_from(["all", "latest", "skip"]),
    interval_us=st.integers(SECOND, 100 * SECOND) | st.sampled_from([SECOND, MINUTE, DAY]),
    late_us=st.integers(0, 300 * SECOND) | st.sampled_from([0, MISFIRE_GRACE_US, MISFIRE_GRACE_US + 1]),
)
def test_a_plan_is_the_policy_over_all_boundaries(misfire: Misfire, interval_us: int, late_us: int) -> None:
    """Fired, skipped and the one after them make up all that were due, and nothing in time is skipped."""
    now = NOW + late_us
    due = list(range(NOW, now + 1, interval_us))
    plan = schedules.plan(Every(interval_us), misfire, NOW, now)
    assert plan.fire == policy(misfire, due, now)
    assert len(plan.fire) + plan.skipped == len(due)
    assert plan.upcoming == due[-1] + interval_us
    in_time = {at for at in due if now - at <= MISFIRE_GRACE_US}
    assert misfire == "latest" or in_time <= set(plan.fire)


@given(interval_us=st.integers(SECOND, 36_500 * DAY), boundary=st.integers(0, 2 * NOW), moment=st.integers(0, 2 * NOW))
def test_an_interval_never_drifts(interval_us: int, boundary: int, moment: int) -> None:
    """The next one is a whole number of intervals from the last, and the first of those after the moment."""
    found = Every(interval_us).after(moment, boundary)
    assert (found - boundary) % interval_us == 0
    assert found > moment
    assert found == boundary or (found > boundary and found - interval_us <= moment)


def test_an_outage_of_years_is_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A boundary a second for a hundred years, and one a minute for ten: only the last ones are looked at.

    Counted by the steps of the walk, not by the time that it takes.
    """
    plan = schedules.plan(Every(SECOND), "all", NOW, NOW + 36_500 * DAY)
    assert plan.fire == [NOW + 36_500 * DAY - back * SECOND for back in reversed(range(MAX_REPLAYED))]
    assert plan.skipped == 36_500 * 86_400 + 1 - MAX_REPLAYED
    steps = 0
    walk = Cron._walk

    def counted(self: Cron, moment: int) -> Iterator[int]:
        nonlocal steps
        for found in walk(self, moment):
            steps += 1
            yield found

    monkeypatch.setattr(Cron, "_walk", counted)
    first = us("2025-01-01T00:00")
    now = first + 3650 * DAY
    plan = schedules.plan(schedules.rule("* * * * *", "UTC"), "all", first, now)
    assert plan.fire == [now - back * MINUTE for back in reversed(range(MAX_REPLAYED))]
    assert plan.skipped == MAX_COUNTED + 1 - MAX_REPLAYED
    assert plan.upcoming == now + MINUTE
    assert steps < MAX_COUNTED + 10 * MAX_REPLAYED


def test_after_a_long_outage_the_latest_are_found_however_rare_they_are() -> None:
    """Every minute of January only, looked at in December: further and further back."""
    first = us("2020-01-01T00:00")
    plan = schedules.plan(schedules.rule("* * * 1 *", "UTC"), "all", first, us("2025-12-24T00:00"))
    last = us("2025-01-31T23:59")
    assert plan.fire == [last - back * MINUTE for back in reversed(range(MAX_REPLAYED))]
    assert plan.upcoming == us("2026-01-01T00:00")


def test_a_boundary_that_the_rule_no_longer_has_is_fired_all_the_same() -> None:
    """Time zones change by law: what was stored is what is due."""
    rule = schedules.rule("0 5 * * *", "UTC")
    stored = us("2025-06-01T04:00")
    assert rule.due(stored, us("2025-06-02T12:00")).latest == [
        stored,
        us("2025-06-01T05:00"),
        us("2025-06-02T05:00"),
    ]


def test_beyond_the_years_of_a_calendar_there_is_none() -> None:
    """A clock that has gone mad is no crash."""
    rule = schedules.rule("0 5 * * *", "UTC")
    end = us("9999-12-31T12:00")
    with pytest.raises(InvalidSpec, match="no time in the next fifty years"):
        rule.after(end, end)
