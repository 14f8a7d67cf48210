"""Values to bytes and back: what comes back, what is refused and where, and the pinned form of the file (§2, §6)."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litequeue import PayloadError, RecordError, codec

if TYPE_CHECKING:
    from collections.abc import Callable

JOB_ID = UUID("01977420-dc00-7000-8000-000000000001")

MOMENTS = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001 - the strategy gives them their zones
    datetime(9998, 12, 31),  # noqa: DTZ001 - the strategy gives them their zones
    timezones=st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
)
PLAIN_KEYS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.recursive(
    PLAIN_KEYS | MOMENTS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5
)  # a key may be a tuple of keys
VALUES = st.recursive(
    PLAIN_KEYS | MOMENTS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.lists(inner, max_size=5).map(tuple) | st.dictionaries(KEYS, inner, max_size=5)
    ),
    max_leaves=25,
)


def round_trip(value: object) -> object:
    """Encode and decode."""
    return codec.decode(codec.encode(value), JOB_ID)


def as_returned(value: object) -> object:
    """Return what is promised to come back: tuples as lists, except as keys; moments in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(
            fold=0
        )  # UTC has no hour twice; `astimezone` keeps the fold of a UTC moment
    if isinstance(value, (list, tuple)):
        return [as_returned(item) for item in value]
    if isinstance(value, dict):
        return {as_key(key): as_returned(item) for key, item in value.items()}
    return value


def as_key(key: object) -> object:
    """Return what is promised to come back of a key."""
    return tuple(as_key(item) for item in key) if isinstance(key, tuple) else as_returned(key)


def exactly(value: object) -> str:
    """Return text that tells apart what `==` does not: 1, 1.0 and True, and the zones of moments."""
    return repr(value)


# --- round trips


@settings(deadline=None)
@given(VALUES)
def test_every_msgpack_value_comes_back(value: object) -> None:
    """Of the same types; tuples as lists, except as keys of a map; moments in UTC (§2)."""
    assert exactly(round_trip(value)) == exactly(as_returned(value))


@settings(deadline=None)
@given(VALUES)
def test_what_came_back_goes_round_unchanged(value: object) -> None:
    """A payload that is handed on as a follower's payload stays what it is (§2)."""
    once = round_trip(value)
    assert exactly(round_trip(once)) == exactly(once)


@pytest.mark.parametrize(
    ("value", "returned"),
    [
        ((1, (2, [(3,)])), [1, [2, [[3]]]]),
        ({(1, ("a", b"b")): (2,)}, {(1, ("a", b"b")): [2]}),
        ({"a": {(): {(1,): ()}}}, {"a": {(): {(1,): []}}}),
        ([{1: "x", "1": "y", b"1": "z", None: 0, 1.5: 1}], [{1: "x", "1": "y", b"1": "z", None: 0, 1.5: 1}]),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ([-(2**63), 2**64 - 1, -math.inf], [-(2**63), 2**64 - 1, -math.inf]),
        ("\x00\uffff\U0001f600e\u0301", "\x00\uffff\U0001f600e\u0301"),
        (
            datetime(2025, 6, 15, 17, 6, 40, 123_456, timezone(timedelta(hours=2))),
            datetime(2025, 6, 15, 15, 6, 40, 123_456, UTC),
        ),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
        (datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_in_its_promised_form(value: object, returned: object) -> None:
    """Examples of every sort (§2)."""
    assert exactly(round_trip(value)) == exactly(returned)


def test_not_a_number_comes_back() -> None:
    """It equals nothing, not even itself (§2)."""
    assert math.isnan(float(str(round_trip(math.nan))))


class Moment(datetime):
    """A datetime of another library, as those of pendulum, pandas and freezegun are."""


def test_an_aware_datetime_of_another_class_travels_too() -> None:
    """An aware datetime is one whatever its class is (§2)."""
    assert exactly(round_trip(Moment(2025, 6, 15, tzinfo=UTC))) == exactly(datetime(2025, 6, 15, tzinfo=UTC))


def test_the_stored_form_is_pinned() -> None:
    """Files of today are read by versions to come: one version byte, then msgpack (§2)."""
    value = {"a": [1, "é", b"\x00", 1.5, None, True, datetime(2025, 6, 15, 15, 6, 40, 5, UTC)]}
    stored = bytes.fromhex("0181a161 97 01 a2c3a9 c40100 cb3ff8000000000000 c0 c3 d7ff 00004e20684ee180")
    assert codec.encode(value) == stored
    assert codec.decode(stored, JOB_ID) == value
    assert (codec.VERSION, codec.encode(None)) == (1, b"\x01\xc0")


# --- what cannot be stored


@pytest.mark.parametrize(
    ("value", "reason", "place"),
    [
        ("\ud800", "lone surrogate", "$"),
        (["a", ["b", "\udfff"]], "lone surrogate", "$[1][1]"),
        ({"rows": [{"name": "good"}, {"name": "bad\ud800"}]}, "lone surrogate", "$.rows[1].name"),
        ({"a": ({"b": ("x\udc80",)},)}, "lone surrogate", "$.a[0].b[0]"),
        (2**64, "64 bits", "$"),
        ([0, -(2**63) - 1], "64 bits", "$[1]"),
        ({"n": 10**400}, "64 bits", "$.n"),
        ({"n": 10**5000}, "64 bits", "$.n"),
        ({"at": datetime(2025, 6, 15)}, "naive datetime", "$.at"),  # noqa: DTZ001 - naive is bad
        ({"s": [{1}]}, "type set", "$.s[0]"),
        ({7: object}, "type type", "$.7"),
    ],
    ids=range(11),
)
def test_an_error_names_the_reason_and_the_place(value: object, reason: str, place: str) -> None:
    """Whoever stores a large value has to find the bad one in it (§6)."""
    with pytest.raises(PayloadError) as caught:
        codec.encode(value)
    assert str(caught.value).startswith("payload cannot be stored: ")
    assert reason in str(caught.value)
    assert str(caught.value).removesuffix(STORABLE).endswith(f" at '{place}'")


@pytest.mark.parametrize(
    "key",
    ["a\ud800", ("a", "\ud800"), 2**64, 10**5000, (1, (2, 10**5000)), datetime(2025, 6, 15), frozenset({1})],  # noqa: DTZ001 - naive is bad
    ids=["text", "text in a tuple", "number", "huge number", "huge number in a tuple", "naive", "set"],
)
def test_a_bad_key_is_refused_as_a_key(key: object) -> None:
    """It is one clear error, that does not point at the value (§6)."""
    with pytest.raises(PayloadError, match="key"):
        codec.encode({"good": {key: "good"}})


def test_the_error_says_what_could_not_be_stored() -> None:
    """A result is no payload (§6)."""
    with pytest.raises(PayloadError, match=r"^result cannot be stored: "):
        codec.encode(object(), "result")


def test_the_message_about_a_long_path_stays_short() -> None:
    """However long the keys on the way are (§6)."""
    value: object = {1}
    for _ in range(50):
        value = {"k" * 1000: value}
    with pytest.raises(PayloadError, match="type set") as caught:
        codec.encode(value)
    assert len(str(caught.value)) < 400


STORABLE = "; storable: None, bool, int, float, str, bytes, aware datetimes, lists and dicts"
BAD = st.sampled_from(["\ud800", 2**64, {1}, datetime(2025, 6, 15)])  # noqa: DTZ001 - naive is bad


@settings(deadline=None)
@given(bad=BAD, way=st.lists(st.integers(0, 5) | st.text("abc", min_size=1, max_size=3), max_size=8))
def test_the_place_is_the_way_to_the_bad_value(bad: object, way: list[int | str]) -> None:
    """Through lists and maps, beside good values of every sort (§6)."""
    value, place = bad, "$"
    for step in reversed(way):
        value = [*range(step), value, "good"] if isinstance(step, int) else {"good": 1, step: value, "last": [b""]}
    for step in way:
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    with pytest.raises(PayloadError) as caught:
        codec.encode(value)
    assert str(caught.value).removesuffix(STORABLE).endswith(f" at '{place}'")


# --- depth


def in_lists(depth: int) -> object:
    """Return so many lists, one in the other."""
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def in_maps(depth: int) -> object:
    """Return so many maps, one in the other."""
    value: dict[str, object] = {}
    for _ in range(depth - 1):
        value = {"k": value}
    return value


def in_a_key(depth: int) -> object:
    """Return a map whose key is so many tuples, one in the other."""
    key: tuple[object, ...] = ()
    for _ in range(depth - 2):
        key = (key,)
    return {key: None}


def depth_of(value: object) -> int:
    """Count the levels."""
    depth = 0
    while isinstance(value, (list, tuple, dict)):
        depth += 1
        value = next(iter(value), None) if not isinstance(value, dict) else first_of(value)
    return depth


def first_of(value: dict[object, object]) -> object:
    """Return what stands deeper in a map of one: its value, or its key when that is a tuple."""
    for key, item in value.items():
        return key if isinstance(key, tuple) else item
    return None


@pytest.mark.parametrize(
    ("nest", "depth"),
    [
        *product((in_lists, in_maps), (2, 100, 500, 501, 510, 511, 512, 513, 1023, 1024, 1025, 2000, 100_000)),
        *product((in_a_key,), (2, 100, 490, 511, 512, 2000)),
    ],
)
def test_whatever_depth_is_stored_can_be_read(nest: Callable[[int], object], depth: int) -> None:
    """The same depth comes back, or it was refused as nested too deep; a hundred levels always pass (§6)."""
    refusal = ""
    try:
        stored = codec.encode(nest(depth))
    except PayloadError as exc:
        refusal = str(exc)
    else:
        assert depth_of(codec.decode(stored, JOB_ID)) == depth
    assert not refusal or (depth > 100 and "nested too deep" in refusal)


# --- what cannot be read


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (b"", "no payload"),
        (b"\x00\xc0", "version 0 is unknown"),
        (b"\x02\xc0", "version 2 is unknown"),
        (b"\xff", "version 255 is unknown"),
        (b"\x01", "cannot be decoded"),
        (b"\x01\xc1", "cannot be decoded"),
        (b"\x01\x01\x01", "cannot be decoded"),
        (b"\x01\x92\x01", "cannot be decoded"),
        (b"\x01\xa2\xff\xfe", "cannot be decoded"),
        (b"\x01\x81\x80\x01", "cannot be decoded"),
        (b"\x01" + b"\x91" * 5000 + b"\xc0", "cannot be decoded"),
    ],
    ids=range(11),
)
def test_what_cannot_be_read_is_a_record_error_of_that_job(stored: bytes, said: str) -> None:
    """Another version's, cut off, garbage, more than one value, an impossible key, an abyss (§6)."""
    with pytest.raises(RecordError, match=said) as caught:
        codec.decode(stored, JOB_ID)
    assert caught.value.job_id == JOB_ID
    assert str(JOB_ID) in str(caught.value)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_record_error(body: bytes) -> None:
    """No other error comes out, whatever the file holds (§6)."""
    with suppress(RecordError):
        assert repr(codec.decode(b"\x01" + body, JOB_ID))


@pytest.mark.parametrize(
    ("stored", "said"), [(None, "no payload"), (b"", "no payload"), (b"\x02", "version 2"), (b"\x01", None)]
)
def test_the_version_is_told_without_decoding(stored: bytes | None, said: str | None) -> None:
    """A lease checks no more than that (V3)."""
    reason = codec.unreadable(stored)
    assert reason is None if said is None else said in str(reason)


def test_a_moment_beyond_the_years_of_python_does_not_hide_the_rest() -> None:
    """Other programs may have written it: it comes back as msgpack's own timestamp (§2, §6)."""
    far = b"\x01\x82\xa1a\xc7\x0c\xff\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xa1b\x01"
    value = codec.decode(far, JOB_ID)
    assert isinstance(value, dict)
    assert (value["b"], value["a"].seconds) == (1, 2**63 - 1)


# --- packers that are used again


def test_what_is_encoded_while_another_value_is_does_not_mix_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packer is out of the pool while it is used (a signal handler, another thread, a finalizer may encode too)."""
    plain = codec._plain
    inner: list[bytes] = []

    def nosy(value: object) -> object:
        inner.append(codec.encode({"inner": [1, 2, 3]}))
        return plain(value)

    codec._spare_packers.clear()
    monkeypatch.setattr(codec, "_plain", nosy)
    outer = codec.encode([(1, 2), "between", (3, 4)])
    monkeypatch.undo()
    codec._spare_packers.clear()
    assert codec.decode(outer, JOB_ID) == [[1, 2], "between", [3, 4]]
    assert [codec.decode(one, JOB_ID) for one in inner] == [{"inner": [1, 2, 3]}] * 2


def test_a_value_that_is_refused_leaves_nothing_behind() -> None:
    """Half of it is in the packer's buffer: the next value must not begin with that (§6)."""
    codec._spare_packers.clear()
    codec.encode("warm")
    with pytest.raises(PayloadError):
        codec.encode(["stored", "before", object()])
    assert codec.decode(codec.encode("next"), JOB_ID) == "next"


def test_packers_of_large_values_are_not_kept() -> None:
    """One keeps its buffer; a few of them would keep megabytes for good."""
    codec._spare_packers.clear()
    codec.encode(b"x" * 2**20)
    assert not codec._spare_packers
    codec.encode(b"x" * 100)
    assert len(codec._spare_packers) == 1
