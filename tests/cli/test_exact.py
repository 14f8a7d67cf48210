"""JSON of stored values and back: the same value, of the same types."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litequeue import codec
from litequeue.cli.exact import DEEPEST, NoForm, from_json, to_json

KEYS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=4,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["$bytes", "$map", "$x", "a"]) | KEYS, inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_stored_comes_back_byte_for_byte(value: object) -> None:
    """Through JSON, whatever msgpack holds: the encoded record is the same (issue 8)."""
    encoded = codec.encode(value)
    stored = codec.decode(encoded, "a test")
    text = json.dumps(to_json(stored), allow_nan=False)
    assert codec.encode(from_json(json.loads(text))) == encoded


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"\x00\xff", {"$bytes": "AP8="}),
        (datetime(2031, 5, 4, 8, 0, 0, 5, tzinfo=UTC), {"$datetime": "2031-05-04T08:00:00.000005+00:00"}),
        (2**53 - 1, 2**53 - 1),
        (2**53, {"$int": "9007199254740992"}),
        (-(2**63), {"$int": "-9223372036854775808"}),
        (math.inf, {"$float": "inf"}),
        (1.0, 1.0),
        (msgpack.Timestamp(2**40, 5), {"$timestamp": [2**40, 5]}),
        (msgpack.ExtType(5, b"x"), {"$ext": [5, "eA=="]}),
        ({1: "x", "1": "y"}, {"$map": [[1, "x"], ["1", "y"]]}),
        ({(1, (2,)): None}, {"$map": [[[1, [2]], None]]}),
        ({"$bytes": "AP8="}, {"$map": [["$bytes", "AP8="]]}),
        ({"$other": 1}, {"$map": [["$other", 1]]}),
        ({"$bytes": 1, "a": 2}, {"$bytes": 1, "a": 2}),
    ],
)
def test_each_form(value: object, form: object) -> None:
    """The forms that the module's docstring names, both ways (issue 8)."""
    assert to_json(value) == form
    back = from_json(form)
    assert back == value
    assert type(back) is type(value)


def test_a_time_of_any_zone_is_read() -> None:
    """By hand one writes the zone that one is in."""
    there = datetime(2031, 5, 4, 8, tzinfo=timezone(timedelta(hours=2)))
    assert from_json({"$datetime": "2031-05-04T08:00:00+02:00"}) == there


@pytest.mark.parametrize(
    "form",
    [
        {"$bytes": "not base64"},
        {"$bytes": 5},
        {"$datetime": "tomorrow"},
        {"$int": "1.5"},
        {"$int": 15},
        {"$float": "many"},
        {"$double": "7ff8"},
        {"$double": "nan"},
        {"$timestamp": [1]},
        {"$timestamp": ["1", 2]},
        {"$ext": [1000, "eA=="]},
        {"$map": [[1, 2, 3]]},
        {"$map": {"a": 1}},
        {"$map": [[{"a": 1}, 2]]},
        {"$byte": "eA=="},
        [{"a": {"$bytes": None}}],
    ],
)
def test_what_is_no_form_is_refused(form: object) -> None:
    """A slip of the pen is not stored as if it had been meant (§6)."""
    with pytest.raises(NoForm, match=r"^\$\w+ is (no form of a value|written wrongly)"):
        from_json(form)


def test_what_is_nested_too_deep_has_no_form() -> None:
    """Python's recursion would end before JSON does (§6)."""
    value: object = None
    for _ in range(DEEPEST + 1):
        value = [value]
    with pytest.raises(NoForm, match="nested deeper than 550 levels"):
        to_json(value)
