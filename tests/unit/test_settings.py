"""Settings as pure values: the bounds of each, which filter wins, and the back-off that follows (§5)."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litequeue import UsageError
from litequeue.settings import SPECS, Jitter, KindSettings, Settings, Value, check

SECOND = 1_000_000
DAY = 86_400
YEAR = 365 * DAY
CENTURY = 100 * YEAR

# Each setting's values just inside its bounds, and just outside.
BOUNDS: dict[str, tuple[list[Value], list[object]]] = {
    "lease_ttl": ([1e-6, 1, YEAR], [0, 0.0, -1, 4e-7, YEAR + 1e-6, math.nan, math.inf, None, "1", True]),
    "max_attempts": ([1, 1_000_000], [0, -1, 1_000_001, 1.0, "1", None, True]),
    "backoff_base": ([0, 1e-6, YEAR], [-1e-6, YEAR + 1e-6, math.nan, -math.inf, None, "1", False]),
    "backoff_factor": ([1, 1.5, 1000], [0.999_999, 1000.001, 0, -4, math.nan, math.inf, None, "4", True]),
    "backoff_cap": ([0, 1e-6, YEAR], [-1e-6, YEAR + 1e-6, math.nan, math.inf, None, "1", True]),
    "backoff_jitter": (["none", "equal", "full"], [None, "", "Full", "half", 0, True]),
    "completed_retention": ([None, 0, CENTURY], [-1e-6, CENTURY + 1, math.nan, math.inf, "forever", False]),
    "cancelled_retention": ([None, 0, CENTURY], [-1e-6, CENTURY + 1, math.nan, math.inf, "none", False]),
    "dead_retention": ([None, 0, CENTURY], [-1e-6, CENTURY + 1, math.nan, math.inf, "", False]),
    "concurrency": ([None, 1, 10_000], [0, -1, 10_001, 1.0, "1", True]),
    "rate": (
        [None, "1/1s", "1000000/2592000s"],
        ["0/1s", "1000001/1s", "1/0s", "1/2592001s", "1/31d", "1", "/s", "1/", "1/1w", "1/1.5s", "-1/s", 1, 1.0, True],
    ),
    "reaper_interval": ([1e-6, 30, DAY], [0, -1, DAY + 1e-6, math.nan, math.inf, None, "30", True]),
    "idempotency_window": ([0, 1e-6, CENTURY], [-1e-6, CENTURY + 1, math.nan, None, "1", False]),
    "max_payload": ([1, 2**29], [0, -1, 2**29 + 1, 1.0, None, "1", True]),
    "max_bytes": ([None, 65_536, 2**50], [0, -1, 65_535, 2**50 + 1, 1e6, "1", True]),
    "refuse_lapsed": ([False, True], [None, 0, 1, "true"]),
}
INSIDE = [(name, value) for name, (inside, _) in BOUNDS.items() for value in inside]
OUTSIDE = [(name, value) for name, (_, outside) in BOUNDS.items() for value in outside]
DURATIONS = [
    *("lease_ttl", "backoff_base", "backoff_cap", "reaper_interval", "idempotency_window"),
    *("completed_retention", "cancelled_retention", "dead_retention"),
]


# --- bounds


def test_the_table_names_every_setting() -> None:
    """None is left unbounded (§5)."""
    assert list(BOUNDS) == list(SPECS)


@pytest.mark.parametrize(("name", "value"), INSIDE)
def test_a_value_just_inside_its_bounds_is_kept_as_it_is(name: str, value: Value) -> None:
    """The bounds themselves belong to it (§5)."""
    assert check(name, value) == value


@pytest.mark.parametrize(("name", "value"), OUTSIDE, ids=repr)
def test_a_value_just_outside_its_bounds_is_refused(name: str, value: object) -> None:
    """With the name, the value and the bounds, in the message and as attributes (§5, §6)."""
    with pytest.raises(UsageError) as caught:
        check(name, value)
    error = caught.value
    assert (error.argument, error.value) == (name, value) or value != value  # noqa: PLR0124 - not a number
    assert error.bounds
    assert str(error) == f"{name} must be {error.bounds}, not {value!r}"


@pytest.mark.parametrize(("name", "value"), [(name, 10**400) for name in BOUNDS], ids=list(BOUNDS))
def test_a_number_beyond_all_floats_is_refused_too(name: str, value: int) -> None:
    """It is out of range, not an arithmetic error (§5)."""
    with pytest.raises(UsageError) as caught:
        check(name, value)
    assert caught.value.argument == name


@pytest.mark.parametrize("name", [name for name, (inside, _) in BOUNDS.items() if None in inside])
def test_the_bounds_of_an_optional_setting_say_so(name: str) -> None:
    """Whoever is refused learns that there may be none (§5, §6)."""
    with pytest.raises(UsageError, match="none") as caught:
        check(name, -1)
    assert caught.value.argument == name


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_may_be_a_timedelta(name: str) -> None:
    """Stored in seconds; the same bounds hold (§5, §8)."""
    assert check(name, timedelta(minutes=2, microseconds=5)) == 120.000_005
    for bad in (timedelta(microseconds=-1), timedelta.max):
        with pytest.raises(UsageError) as caught:
            check(name, bad)
        assert caught.value.argument == name
        assert caught.value.value in (bad, bad.total_seconds())


@pytest.mark.parametrize("name", ["max_attempts", "backoff_factor", "max_payload", "max_bytes", "refuse_lapsed"])
def test_what_is_no_duration_may_not_be_a_timedelta(name: str) -> None:
    """A count of seconds is no count (§5)."""
    with pytest.raises(UsageError):
        check(name, timedelta(seconds=2))


# --- which value is in force


def test_an_exact_filter_wins_over_any_prefix() -> None:
    """And a longer prefix over a shorter one, whatever the order in which they stand (§5)."""
    filters: dict[str, Value] = {"a:": 2, "a:b:": 3, "a:b:c": 4, "a:b:cd:": 6}
    for order in permutations(filters):
        snapshot = Settings(own={"max_attempts": 9}, by_kind={name: {"max_attempts": filters[name]} for name in order})
        kinds = ("a:b:c", "a:b:x", "a:b:", "a:b", "a:", "a", "a:b:c:", "a:b:cd:e", "b")
        found = [snapshot.of(kind).max_attempts for kind in kinds]
        assert found == [4, 3, 3, 2, 2, 9, 3, 6, 9]
        assert [snapshot.value("max_attempts", kind) for kind in kinds] == found


def test_a_filter_without_a_colon_at_its_end_is_exact() -> None:
    """`mail` is no prefix of `mailer` nor of `mail:send` (§5, §2)."""
    snapshot = Settings(by_kind={"mail": {"max_attempts": 2}})
    assert [snapshot.of(kind).max_attempts for kind in ("mail", "mailer", "mail:send", "mai")] == [2, 5, 5, 5]


def test_each_setting_is_looked_up_by_itself() -> None:
    """A longer filter that says nothing of a setting leaves it to the shorter one, the file, the default (§5)."""
    snapshot = Settings(own={"lease_ttl": 7, "backoff_base": 1}, by_kind={"a:": {"lease_ttl": 8}, "a:b": {}})
    kind = snapshot.of("a:b")
    assert (kind.lease_ttl_us, kind.backoff_base_us, kind.max_attempts) == (8 * SECOND, 1 * SECOND, 5)


def test_a_kinds_own_none_wins_over_the_files_number() -> None:
    """Forever is a value like any other (§5)."""
    snapshot = Settings(own={"completed_retention": 5}, by_kind={"a": {"completed_retention": None}})
    assert snapshot.of("a").completed_retention_us is None
    assert snapshot.of("b").completed_retention_us == 5 * SECOND


def test_the_listing_of_a_kind_leaves_out_what_is_the_files_alone() -> None:
    """A file-wide setting is no kind's (§5)."""
    file_wide = {"reaper_interval", "idempotency_window", "max_payload", "max_bytes", "refuse_lapsed"}
    assert set(Settings().values()) == set(BOUNDS)
    assert set(Settings().values("work")) == set(BOUNDS) - file_wide


def test_a_snapshot_answers_alike_for_more_kinds_than_it_remembers() -> None:
    """What was resolved is forgotten at some point, and found again (§5)."""
    snapshot = Settings(by_kind={"odd:": {"max_attempts": 3}})
    kinds = [f"{'odd' if n % 2 else 'even'}:{n}" for n in range(5000)] * 2
    assert all(snapshot.of(kind).max_attempts == (3 if kind.startswith("odd:") else 5) for kind in kinds)
    assert len(snapshot._resolved) <= 4096


@pytest.mark.parametrize(
    ("own", "by_kind", "least_us"),
    [
        (9, {}, 9 * SECOND),
        (9, {"a": 10}, 9 * SECOND),
        (9, {"a": 2, "b:": 3, "c": None}, 2 * SECOND),
        (None, {"a": 2}, 2 * SECOND),
        (None, {"a": None}, None),
        (0.5, {"a": 0}, 0),
    ],
)
def test_the_least_retention_is_over_the_file_and_all_kinds(
    own: Value, by_kind: dict[str, Value], least_us: int | None
) -> None:
    """Whatever is younger than that cannot be over; `None` when nothing ever is (§5, V11)."""
    snapshot = Settings(
        own={"dead_retention": own}, by_kind={kind: {"dead_retention": value} for kind, value in by_kind.items()}
    )
    assert snapshot.least_retention_us("dead_retention") == least_us


# --- back-off


def backoff(
    base: float = 10,
    factor: float = 4,
    cap: float = 3600,
    jitter: Jitter = "none",
    kind: dict[str, Value] | None = None,
) -> KindSettings:
    """Return the settings of a kind, in a file with this back-off."""
    own: dict[str, Value] = {
        "backoff_base": base,
        "backoff_factor": factor,
        "backoff_cap": cap,
        "backoff_jitter": jitter,
    }
    return Settings(own=own, by_kind={"work": kind or {}}).of("work")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Settings().of("work"), [10, 40, 160, 640, 2560, 3600, 3600, 3600]),
        (backoff(2, 3, 50), [2, 6, 18, 50, 50]),
        (backoff(1, 1.5, 100), [1, 1.5, 2.25, 3.375, 5.0625]),
        (backoff(7, 1), [7, 7, 7]),
        (backoff(0), [0, 0, 0]),
        (backoff(cap=0), [0, 0, 0]),
        # The file's own base is cut by the cap; a kind's own base lifts it to at least itself.
        (backoff(7200), [3600, 3600]),
        (backoff(kind={"backoff_base": 7200}), [7200, 7200, 7200]),
        (backoff(kind={"backoff_base": 3600}), [3600, 3600]),
        (backoff(kind={"backoff_base": 1000}), [1000, 3600, 3600]),
        (backoff(kind={"backoff_base": 100, "backoff_cap": 30}), [100, 100]),
        (backoff(kind={"backoff_base": 5}), [5, 20, 80, 320, 1280, 3600]),
        (backoff(kind={"backoff_cap": 30}), [10, 30, 30]),
        (backoff(kind={"backoff_factor": 1}), [10, 10, 10]),
    ],
)
def test_the_back_off_is_base_times_factor_up_to_the_cap(found: KindSettings, expected: list[float]) -> None:
    """`min(cap, base · factor^(a-1))` (§5)."""
    pauses = [found.backoff_us(attempt, 0.5) for attempt in range(1, len(expected) + 1)]
    assert pauses == [round(seconds * SECOND) for seconds in expected]


@pytest.mark.parametrize("attempt", [100, 103, 104, 512, 513, 1025, 10_000, 1_000_000])
def test_no_number_of_attempts_is_too_many(attempt: int) -> None:
    """Where the power is beyond all floats the cap counts, and a base of zero stays no pause (§5)."""
    for factor in (4.0, 1000.0):
        assert backoff(factor=factor).backoff_us(attempt, 0.5) == 3600 * SECOND
        assert backoff(base=0, factor=factor).backoff_us(attempt, 0.5) == 0
    assert backoff(factor=1).backoff_us(attempt, 0.5) == 10 * SECOND


@pytest.mark.parametrize(
    ("jitter", "draw", "seconds"),
    [
        ("none", 0.0, 40),
        ("none", 0.999, 40),
        ("equal", 0.0, 20),
        ("equal", 0.5, 30),
        ("equal", 1.0, 40),
        ("full", 0.0, 0),
        ("full", 0.25, 10),
        ("full", 1.0, 40),
    ],
)
def test_jitter_takes_its_part_of_the_pause(jitter: Jitter, draw: float, seconds: float) -> None:
    """`equal` from [d/2, d], `full` from [0, d] (§5)."""
    assert backoff(jitter=jitter).backoff_us(2, draw) == seconds * SECOND


@settings(deadline=None)
@given(
    base=st.floats(0, YEAR),
    factor=st.floats(1, 1000),
    cap=st.floats(0, YEAR),
    attempts=st.lists(st.integers(1, 1_000_000), min_size=2, max_size=5).map(sorted),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_stays_within_its_bounds(
    base: float, factor: float, cap: float, attempts: list[int], draw: float
) -> None:
    """Whole µs of 0 or more, never over the cap, never shorter for more attempts; jitter only ever shortens (§5)."""
    pauses = [backoff(base, factor, cap).backoff_us(attempt, draw) for attempt in attempts]
    assert {type(pause) for pause in pauses} == {int}
    assert all(0 <= pause <= round(cap * SECOND) for pause in pauses)
    assert all(earlier <= later for earlier, later in pairwise(pauses))
    for attempt, pause in zip(attempts, pauses, strict=True):
        # A pause is rounded to µs after the draw, so half of an odd number may be rounded down.
        assert (pause - 1) / 2 <= backoff(base, factor, cap, "equal").backoff_us(attempt, draw) <= pause
        assert 0 <= backoff(base, factor, cap, "full").backoff_us(attempt, draw) <= pause
