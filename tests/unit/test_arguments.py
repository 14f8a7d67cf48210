"""The checks of arguments, each at its bounds; the message names the argument, its value and the bounds (§6)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from litequeue import UsageError, arguments

if TYPE_CHECKING:
    from collections.abc import Callable

ID = UUID("01977420-dc00-7000-8000-000000000001")
CENTURY_S = 3_153_600_000
NAIVE = datetime(2025, 6, 15)  # noqa: DTZ001 - naive is bad
HUGE = 10**400
"""No float holds it."""
ENDLESS = 10**5000
"""Python refuses to write it out."""

text = partial(arguments.text, "x")
small = partial(arguments.whole, "x", least=-2, most=3)
duration = partial(arguments.duration_us, "x")
positive = partial(arguments.duration_us, "x", positive=True, most_s=5)
moment = partial(arguments.moment_us, "x")
job_id = partial(arguments.job_id, "x")
share = partial(arguments.number, "x", least=0.0, most=1.0)
timeout = partial(arguments.timeout_s, "x")

GOOD: list[tuple[Callable[[object], object], object, object]] = [
    *((text, value, value) for value in ("a", "x" * 255, "é" * 255, " ", "a:b", "\xa0", "\ue000", "\U0010ffff")),
    (arguments.scope_name, "litequeue", "litequeue"),
    (arguments.scope_name, "my litequeue:", "my litequeue:"),
    *((small, value, value) for value in (-2, 0, 3)),
    *((duration, value, 0) for value in (0, 0.0, -0.0, 4e-7, timedelta(0))),
    (duration, 1e-6, 1),
    (duration, 1.5, 1_500_000),
    (duration, timedelta(minutes=1, microseconds=1), 60_000_001),
    (duration, CENTURY_S, CENTURY_S * 1_000_000),
    (positive, 6e-7, 1),
    (positive, timedelta(microseconds=1), 1),
    (positive, 5, 5_000_000),
    (moment, datetime(1970, 1, 1, tzinfo=UTC), 0),
    (moment, datetime(1970, 1, 1, 2, 0, 0, 7, tzinfo=timezone(timedelta(hours=2))), 7),
    (moment, datetime(2025, 6, 15, 15, 6, 40, 123_456, tzinfo=UTC), 1_750_000_000_123_456),
    (moment, datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))), 253_402_383_599_999_999),
    *((job_id, value, ID) for value in (ID, str(ID), ID.hex, str(ID).upper(), f"urn:uuid:{ID}", f"{{{ID}}}")),
    *((share, value, value) for value in (0.0, 0.25, 1.0)),
    (share, 1, 1.0),
    (timeout, 2.5, 2.5),
    (timeout, timedelta(milliseconds=1), 0.001),
    (timeout, 0, 0.0),
    (arguments.kind_filters, None, None),
    (arguments.kind_filters, ["b", "a:", "b"], ("b", "a:")),
    (arguments.kind_filters, iter(["a"]), ("a",)),
    (arguments.kind_filters, {"a": 1}, ("a",)),
]

EMPTY: list[object] = [[], (), {}, frozenset()]
BAD: list[tuple[Callable[[object], object], str, object, str]] = [
    *(
        (text, "x", value, "1 to 255 characters without control characters or lone surrogates")
        for value in ("", "x" * 256, "a\n", "\x00", "\x1f", "\x7f", "\x80", "\x9f", "\ud800", "\udfff", None, 7, b"a")
    ),
    *((arguments.scope_name, "scope", value, "'litequeue:'") for value in ("litequeue:", "litequeue:own")),
    *((arguments.scope_name, "scope", value, "1 to 255 characters") for value in ("", "a\x00", None)),
    *(
        (small, "x", value, "a whole number from -2 to 3")
        for value in (-3, 4, 2.0, True, False, "2", None, math.nan, HUGE, -HUGE, ENDLESS)
    ),
    *(
        (duration, "x", value, "0 or more and at most 3,153,600,000")
        for value in (-1, -1e-9, math.nan, math.inf, -math.inf, CENTURY_S + 1, HUGE, ENDLESS, True, "5", None, NAIVE)
    ),
    *((duration, "x", value, "seconds or a timedelta") for value in (timedelta(microseconds=-1), timedelta.max)),
    *((positive, "x", value, "more than 0 and at most 5") for value in (0, 4e-7, timedelta(0), -1, 5.000_001)),
    *(
        (moment, "x", value, "an aware datetime (with a time zone) not before 1970")
        for value in (
            NAIVE,
            datetime.min.replace(tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=timezone(timedelta(microseconds=1))),
            date(2025, 6, 15),
            1_750_000_000,
            "2025-06-15",
            None,
        )
    ),
    *(
        (job_id, "x", value, "a UUID or the text of one")
        for value in ("", "x", ID.hex[1:], ID.hex + "0", ID.bytes, ID.int, None, "\ud800" * 32)
    ),
    *(
        (share, "x", value, "a number from 0 to 1")
        for value in (-1e-9, 1.000_001, math.nan, math.inf, True, "1", None, HUGE, ENDLESS)
    ),
    *((timeout, "x", value, "0 or more") for value in (-1, math.inf, math.nan, None)),
    *((arguments.kind_filters, "kinds", value, "a list of kinds and prefixes") for value in ("a", "", 7, b"a"[0])),
    *((arguments.kind_filters, "kinds", value, "at least one") for value in EMPTY),
]


@pytest.mark.parametrize(("check", "value", "expected"), GOOD, ids=range(len(GOOD)))
def test_a_value_at_its_bounds_is_taken(check: Callable[[object], object], value: object, expected: object) -> None:
    """And comes out in its stored form, of its stored type (§2, §6)."""
    found = check(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("check", "argument", "value", "bounds"), BAD, ids=range(len(BAD)))
def test_a_value_beyond_its_bounds_is_refused(
    check: Callable[[object], object], argument: str, value: object, bounds: str
) -> None:
    """With the argument, the value and the bounds, in the message and as attributes (§6)."""
    with pytest.raises(UsageError) as caught:
        check(value)
    error = caught.value
    assert error.argument == argument
    assert error.value is value
    assert bounds in str(error.bounds)
    assert str(error).startswith(f"{argument} must be {error.bounds}, not ")


@pytest.mark.parametrize("bad", ["", "a\n", 7, None])
def test_a_bad_filter_in_the_list_is_named_itself(bad: object) -> None:
    """Not the whole list (§6)."""
    with pytest.raises(UsageError) as caught:
        arguments.kind_filters(["good", bad])
    assert (caught.value.argument, caught.value.value) == ("kinds", bad)


def test_a_long_value_is_cut_in_the_message() -> None:
    """It says how long it was; the attribute has it all (§6)."""
    with pytest.raises(UsageError) as caught:
        text("x" * 5000)
    assert len(str(caught.value)) < 250
    assert "5002 characters" in str(caught.value)
    assert caught.value.value == "x" * 5000


@pytest.mark.parametrize(
    ("kind_filter", "kind", "expected"),
    [
        ("mail", "mail", True),
        ("mail", "mail:send", False),
        ("mail", "mai", False),
        ("mail:", "mail:send", True),
        ("mail:", "mail:", True),
        ("mail:", "mail:a:b", True),
        ("mail:", "mail", False),
        ("mail:", "mailer:x", False),
        ("mail:a:", "mail:a:b", True),
        ("mail:a:", "mail:ab", False),
        ("mail", "MAIL", False),
        (":", ":x", True),
        (":", "x:", False),
    ],
)
def test_a_filter_is_exact_or_a_prefix_with_a_colon(kind_filter: str, kind: str, expected: bool) -> None:
    """What does not end in a colon is no prefix (§2)."""
    assert arguments.matches(kind_filter, kind) is expected
