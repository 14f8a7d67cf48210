"""JSON of values that JSON lacks: whatever a job holds, the output is JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litequeue import SYSTEM, JobState
from litequeue.cli.jsonable import dumps, jsonable

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue
    from tests.cli.conftest import Cli

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.binary(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"\x00\xff", {"$bytes": "AP8="}),
        (math.inf, {"$float": "inf"}),
        (-math.inf, {"$float": "-inf"}),
        (math.nan, {"$float": "nan"}),
        (datetime(2031, 5, 4, 8, 0, 0, 5, tzinfo=UTC), "2031-05-04T08:00:00.000005+00:00"),
        ((1, [2]), [1, [2]]),
        ({"a": {"b": b""}}, {"a": {"b": {"$bytes": ""}}}),
        ({1: "x", "1": "y"}, {"$map": [[1, "x"], ["1", "y"]]}),
        ({(1, 2): None, b"k": True}, {"$map": [[[1, 2], None], [{"$bytes": "aw=="}, True]]}),
        ({}, {}),
        (2**64 - 1, 2**64 - 1),
        (JobState.DEAD, "dead"),
        (SYSTEM, None),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (msgpack.ExtType(5, b"x"), [5, {"$bytes": "eA=="}]),
    ],
)
def test_each_form(value: object, form: object) -> None:
    """The forms that the module's docstring names (§9)."""
    assert json.loads(dumps(jsonable(value))) == form


@given(ANYTHING)
def test_whatever_comes_is_json_in_ascii(value: object) -> None:
    """Any value becomes strict JSON that any terminal or log can carry (§9)."""
    text = dumps(jsonable(value))
    assert text.isascii()
    assert "\n" not in text
    json.loads(text, parse_constant=pytest.fail)


def test_what_has_no_form_is_named() -> None:
    """A type that nobody thought of is shown as unreadable, not as a traceback (§9)."""
    assert jsonable({"at": msgpack.Timestamp(1, 5)}) == {
        "at": {"$unreadable": "a Timestamp: Timestamp(seconds=1, nanoseconds=5)"}
    }


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}, lambda value: {1: value}])
def test_the_deepest_payload_that_can_be_stored_can_be_shown(
    cli: Cli, queue: Queue, wrap: Callable[[object], object]
) -> None:
    """A thousand levels are cut off with a word, never a RecursionError (§6, §9)."""
    value: object = None
    for _ in range(1000):
        value = wrap(value)
    job_id = queue.enqueue("work", value).job_id
    shown = cli.done("jobs", "show", job_id, "--json")
    assert "nested deeper than 550 levels" in shown
    assert json.loads(shown)["job_id"] == str(job_id)
    assert "nested deeper than 550 levels" in cli.done("jobs", "show", job_id)


def test_a_payload_of_every_sort_is_listed(cli: Cli, queue: Queue) -> None:
    """Through the file: bytes, dates, maps, infinities come back in their forms (§9)."""
    payload = {"bytes": b"\xff", "at": datetime(2031, 5, 4, tzinfo=UTC), "map": {1: 2}, "nan": math.nan}
    job_id = queue.enqueue("work", payload).job_id
    listed = cli.json("jobs", "ls")
    assert isinstance(listed, list)
    assert [(job["job_id"], job["payload"]) for job in listed] == [
        (
            str(job_id),
            {
                "bytes": {"$bytes": "/w=="},
                "at": "2031-05-04T00:00:00+00:00",
                "map": {"$map": [[1, 2]]},
                "nan": {"$float": "nan"},
            },
        )
    ]
    assert '"bytes": {' in cli.done("jobs", "show", job_id)
