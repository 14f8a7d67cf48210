"""Limits as pure values: which filter governs, where a lease counts, and the arithmetic of a rate (§5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litequeue.arguments import matches
from litequeue.limits import (
    ALL_KINDS,
    ALL_SCOPES,
    EACH_SCOPE,
    Bucket,
    Flow,
    Limits,
    Pauses,
    Pool,
    Rate,
    exchanged,
    filled,
    filters_of,
    rate,
    rate_text,
    token_in_us,
    tokens,
)

SECOND = 1_000_000
_kinds = st.text("ab:", min_size=1, max_size=6)
_filters = st.frozensets(st.just(ALL_KINDS) | _kinds, max_size=6)
_rates = st.builds(Rate, st.integers(1, 50), st.integers(1, 50).map(lambda seconds: seconds * SECOND))


@given(_kinds, _filters)
def test_the_filters_of_a_kind_are_those_that_match_the_longest_first(kind: str, filters: frozenset[str]) -> None:
    """As a lease filter takes it: exact, or a prefix that ends in a colon (§2, §5)."""
    found = [name for name in filters_of(kind) if name in filters]
    expected = {name for name in filters if name == ALL_KINDS or matches(name, kind)}
    assert set(found) == expected
    assert [len(name) for name in found] == sorted((len(name) for name in found), reverse=True)


@given(_kinds, st.dictionaries(st.just(ALL_KINDS) | _kinds, st.none() | st.integers(1, 9), max_size=6))
def test_the_longest_filter_governs_and_no_other_counts(kind: str, values: dict[str, int | None]) -> None:
    """One that frees its kinds frees them from the shorter ones as well (§5)."""
    matching = [name for name in values if name == ALL_KINDS or matches(name, kind)]
    governing = max(matching, key=len, default=None)
    most = None if governing is None else values[governing]
    expected = () if governing is None or most is None else (Pool(governing, ALL_SCOPES, most),)
    assert Limits({ALL_SCOPES: values}).pools(kind, "one") == expected


def test_a_lease_counts_over_all_scopes_and_within_its_own() -> None:
    """What a scope has of its own stands before what each has (§5)."""
    limits = Limits({ALL_SCOPES: {"a:": 5}, EACH_SCOPE: {"a:": 2, "b": 1}, "own": {"a:x": 9}})
    assert limits.pools("a:x", "other") == (Pool("a:", ALL_SCOPES, 5), Pool("a:", "other", 2))
    assert limits.pools("a:x", "own") == (Pool("a:", ALL_SCOPES, 5), Pool("a:x", "own", 9))
    assert limits.pools("a:y", "own") == (Pool("a:", ALL_SCOPES, 5), Pool("a:", "own", 2))
    assert limits.pools("b", "") == (Pool("b", "", 1),)
    assert limits.pools("c", "own") == ()


def test_a_file_without_limits_says_so() -> None:
    """That is what spares a lease every further question (§5)."""
    assert not Limits()
    assert Limits({EACH_SCOPE: {"a": 1}})
    assert Limits(rates={"a": Rate(1, SECOND)})


def test_the_longest_filter_has_the_rate() -> None:
    """And one of its own that is none frees it (§5)."""
    slow, fast = Rate(1, SECOND), Rate(9, SECOND)
    limits = Limits(rates={ALL_KINDS: slow, "a:": fast, "a:free": None})
    assert limits.flow("b") == Flow(ALL_KINDS, slow)
    assert limits.flow("a:b") == Flow("a:", fast)
    assert limits.flow("a:free") is None


@pytest.mark.parametrize(
    ("text", "stored"),
    [("1/s", "1/1s"), ("10/1s", "10/1s"), ("100/5m", "100/300s"), ("7/h", "7/3600s"), ("0003/2d", "3/172800s")],
)
def test_a_rate_is_stored_in_one_form(text: str, stored: str) -> None:
    """And read back from it (§5)."""
    assert rate_text("rate", text) == stored
    assert rate_text("rate", stored) == stored
    assert rate(stored) == Rate(int(stored.split("/", maxsplit=1)[0]), int(stored.split("/")[1][:-1]) * SECOND)


@given(_rates, st.lists(st.tuples(st.integers(0, 100 * SECOND), st.integers(0, 60)), max_size=30))
def test_a_bucket_gives_out_what_its_rate_allows_and_no_more(rate: Rate, asked: list[tuple[int, int]]) -> None:
    """In every window of time: a full bucket, and what has come since; nothing is lost by rounding (§5)."""
    now, bucket = 0, None
    taken: list[tuple[int, int]] = []
    for pause, wanted in asked:
        now += pause
        bucket = filled(rate, bucket, now)
        given_out = min(wanted, tokens(rate, bucket))
        bucket = Bucket(bucket.credit - given_out * rate.period_us, bucket.at)
        taken.append((now, given_out))
        for since, _ in taken:
            in_window = sum(count for at, count in taken if since <= at <= now)
            assert in_window <= rate.size + (now - since) * rate.size // rate.period_us
    if bucket is not None and not tokens(rate, bucket):
        wait = token_in_us(rate, bucket)
        assert tokens(rate, filled(rate, bucket, now + wait)) == 1
        assert tokens(rate, filled(rate, bucket, now + wait - 1)) == 0


@given(_rates, _rates, st.integers(0, 50), st.integers(0, 100 * SECOND))
def test_a_changed_rate_lacks_the_tokens_that_were_taken(old: Rate, new: Rate, taken: int, later: int) -> None:
    """Beside those that the old one has filled in again; and the same rate changes nothing (§5)."""
    taken = min(taken, old.size)
    bucket = Bucket(old.full - taken * old.period_us, 0)
    left = exchanged(old, new, bucket, later)
    come = later * old.size // old.period_us
    assert max(0, new.size - taken) <= tokens(new, left) <= min(new.size, max(0, new.size - taken + come + 1))
    assert exchanged(old, old, bucket, later) == filled(old, bucket, later)
    assert exchanged(old, new, Bucket(old.full, 0), later) == filled(new, None, later)


def test_a_bucket_does_not_empty_when_the_clock_is_behind() -> None:
    """A lease clock that began anew takes nothing away (§8)."""
    assert filled(Rate(2, SECOND), Bucket(SECOND, 100), 50) == Bucket(SECOND, 50)


@given(_kinds, st.sampled_from(["one", "two"]), st.dictionaries(st.sampled_from([ALL_SCOPES, "one", "two"]), _filters))
def test_a_pause_holds_what_its_filter_takes_where_it_was_given(
    kind: str, scope: str, paused: dict[str, frozenset[str]]
) -> None:
    """In every scope, or in one (V15)."""
    pauses = Pauses({name: dict.fromkeys(filters, 0) for name, filters in paused.items()})
    filters = paused.get(ALL_SCOPES, frozenset()) | paused.get(scope, frozenset())
    assert pauses.holds(kind, scope) == any(name == ALL_KINDS or matches(name, kind) for name in filters)
    assert pauses.holds_all(scope) == (ALL_KINDS in filters)
