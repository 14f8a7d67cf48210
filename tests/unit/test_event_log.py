"""The event log of a job as bytes: its pinned codes, its limit, and what becomes of a bad one (§2, §6)."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litequeue import Event, RecordError, Transition, codec

JOB_ID = UUID("01977420-dc00-7000-8000-000000000001")
LIMIT = 4096

CODES = {
    "enqueued": 0,
    "promoted": 1,
    "leased": 2,
    "extended": 3,
    "checkpoint": 4,
    "note": 5,
    "completed": 6,
    "failed": 7,
    "released": 8,
    "reaped": 9,
    "dead": 10,
    "expired": 11,
    "cancelled": 12,
    "retried": 13,
    "truncated": 14,
    "edited": 15,
}
"""What stands in every file: a code may be added at the end, none may ever change."""

TIMES = st.integers(0, 2**62)
EVENTS = st.builds(Event, TIMES, st.sampled_from(Transition), st.text(max_size=60))


def encoded(events: list[Event]) -> bytes:
    """Return the log of these events."""
    return b"".join(codec.encode_event(*event) for event in events)


def appended(log: bytes, more: bytes) -> bytes:
    """Append as the engine does: when there is no room for it, the log is shortened first."""
    return (codec.trimmed_events(log, len(more)) if len(log) + len(more) > LIMIT else log) + more


def read(log: bytes) -> list[Event]:
    """Return the events of a log."""
    return codec.decode_events(log, JOB_ID)


# --- the stored form


def test_the_codes_are_pinned() -> None:
    """They are a file format: what a transition is stored as never changes (§2)."""
    assert {str(name): code for code, name in enumerate(Transition)} == CODES
    for name, code in CODES.items():
        assert codec.encode_event(5, Transition(name)) == bytes([0x92, 0xCF, 0, 0, 0, 0, 0, 0, 0, 5, code])
        assert codec.encode_event(5, Transition(name), "é") == bytes([0x93, 5, code]) + b"\xa2\xc3\xa9"
        assert read(bytes([0x92, 5, code, 0x93, 6, code]) + b"\xa1x") == [(5, name, ""), (6, name, "x")]


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=20))
def test_a_log_comes_back_in_order(events: list[Event]) -> None:
    """One event after the other, whole, of the records' own types (§2)."""
    found = read(encoded(events))
    assert found == events
    assert {type(event) for event in found} <= {Event}
    assert {type(event.transition) for event in found} <= {Transition}


@settings(deadline=None)
@given(st.text(max_size=600), st.integers(0, 300))
def test_clipped_text_is_the_longest_beginning_that_fits(text: str, most: int) -> None:
    """Never more bytes than that, and never a part of a character (§2)."""
    found = codec.clip(text, most)
    size = len(found.encode())
    assert text.startswith(found)
    assert size <= most
    if found != text:
        assert size + len(text[len(found)].encode()) > most


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 0, ""),
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("é" * 3, 5, "éé"),
        ("aéé", 4, "aé"),
        ("€" * 2, 5, "€"),
        ("€", 2, ""),
        ("😀😀", 7, "😀"),
        ("a\ud800b", 9, "a?b"),
        ("\udfff" * 9, 3, "???"),
    ],
)
def test_clipping_at_the_edges_of_characters(text: str, most: int, expected: str) -> None:
    """Of one to four bytes; what UTF-8 cannot hold becomes a question mark (§2, §6)."""
    assert codec.clip(text, most) == expected


@pytest.mark.parametrize(
    ("detail", "kept"), [("x" * 256, 256), ("x" * 257, 256), ("é" * 128, 128), ("é" * 129, 128), ("x" + "é" * 128, 128)]
)
def test_a_detail_holds_256_bytes(detail: str, kept: int) -> None:
    """No more, cut at a character (§2)."""
    ((_, _, found),) = read(codec.encode_event(1, Transition.NOTE, detail))
    assert found == detail[:kept]


# --- the limit


@settings(deadline=None, max_examples=60)
@given(
    first=st.text(max_size=300),
    details=st.lists(st.text(max_size=10) | st.text("x€", min_size=50, max_size=300), min_size=1, max_size=12),
    batches=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    repeats=st.integers(30, 60),
)
def test_a_log_that_grows_keeps_its_first_event_and_the_newest(
    first: str, details: list[str], batches: list[int], repeats: int
) -> None:
    """At every step: at most 4 KiB, the first stays, and the marker counts what is missing between (§2)."""
    beginning = Event(0, Transition.ENQUEUED, codec.clip(first, 256))
    log, all_events = encoded([beginning]), [beginning]
    for step in range(repeats):
        lines = [details[(step + line) % len(details)] for line in range(batches[step % len(batches)])]
        new = [Event(len(all_events) + n, Transition.NOTE, codec.clip(line, 256)) for n, line in enumerate(lines)]
        log = appended(log, encoded(new))
        all_events += new
        assert len(log) <= LIMIT
        found = read(log)
        assert found[0] == beginning
        if found[1].transition is not Transition.TRUNCATED:
            assert found == all_events
        else:
            _, marker, *kept = found
            assert kept == all_events[-len(kept) :]
            assert len(kept) >= len(new)
            assert marker.detail == f"{len(all_events) - 1 - len(kept)} events"
            assert beginning.at <= marker.at <= kept[0].at


def test_a_marker_counts_over_several_trims() -> None:
    """A thousand events of which a few are left: the number of all that is gone (§2)."""
    log = codec.encode_event(0, Transition.ENQUEUED)
    trims = 0
    for at in range(1, 1001):
        more = codec.encode_event(at, Transition.NOTE, f"line {at}" + "." * 50)
        trims += len(log) + len(more) > LIMIT
        log = appended(log, more)
    first, marker, *kept = read(log)
    assert trims > 10
    assert first == (0, Transition.ENQUEUED, "")
    assert marker.transition is Transition.TRUNCATED
    assert marker.detail == f"{1000 - len(kept)} events"
    assert [event.at for event in kept] == list(range(1001 - len(kept), 1001))
    assert [event.transition for event in read(log)].count(Transition.TRUNCATED) == 1


def test_trimming_is_paid_once_in_many_events() -> None:
    """It goes below the limit by a quarter, not by one event (§2, G9)."""
    log = codec.encode_event(0, Transition.ENQUEUED)
    trims = 0
    for at in range(1, 2001):
        more = codec.encode_event(at, Transition.LEASED, "worker")
        trims += len(log) + len(more) > LIMIT
        log = appended(log, more)
    assert trims < 2000 / 40
    assert len(log) > LIMIT / 2


@pytest.mark.parametrize("more_bytes", [0, 1, 1000, 2800, 3072, 4000])
def test_a_log_makes_room_for_as_much_as_is_to_come(more_bytes: int) -> None:
    """However much that is, the first event and the marker stay (§2)."""
    events = [Event(at, Transition.NOTE, "x" * 200) for at in range(19)]
    log = codec.trimmed_events(encoded(events), more_bytes)
    first, marker, *kept = read(log)
    assert first == events[0]
    assert marker.transition is Transition.TRUNCATED
    assert kept == (events[-len(kept) :] if kept else [])
    assert len(log) + more_bytes <= LIMIT or not kept


# --- a bad log

UNREADABLE = {
    "garbage": b"\xc1\xc1",
    "a number": b"\x07",
    "text": b"\xa3abc",
    "an event of nothing": b"\x90",
    "an event without a code": b"\x91\x05",
    "a code to come": b"\x92\x05\x10",
    "a code below zero": b"\x92\x05\xff",
    "a code of another type": b"\x92\x05\xa1x",
    "a time of another type": b"\x92\xa1x\x00",
    "a truth for a time": b"\x92\xc2\x00",
    "a truth for a transition": b"\x92\x05\xc3",
    "a detail of another type": b"\x93\x05\x00\x07",
    "bad text": b"\x93\x05\x00\xa1\xff",
    "a good one, then garbage": b"\x92\x05\x00\xc1",
    "half an event": b"\x93\x05\x00",
    "a good one, then half a one": b"\x92\x05\x00\x93\x06\x00\xa5abc",
}


@pytest.mark.parametrize("log", UNREADABLE.values(), ids=UNREADABLE)
def test_a_log_that_is_not_a_run_of_events_is_a_record_error(log: bytes) -> None:
    """Of that job, and no other error whatever the bytes are; what is missing is not passed over (§6)."""
    with pytest.raises(RecordError, match="event log") as caught:
        read(log)
    assert caught.value.job_id == JOB_ID


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_log_or_a_record_error(log: bytes) -> None:
    """No other error comes out (§6)."""
    events: list[Event] = []
    with suppress(RecordError):
        events = read(log)
    assert {(type(event.at), type(event.transition), type(event.detail)) for event in events} <= {
        (int, Transition, str)
    }


@pytest.mark.parametrize("bad", [b"\xc1", b"\x07", b"\x90", b"\x92\x05\xa1x", b"\xa3abc"])
def test_a_log_that_cannot_be_read_becomes_a_marker(bad: bytes) -> None:
    """It does not stand in its job's way: what comes after it is logged again (§2, §6)."""
    log = bad * 4200
    for at in range(1, 500):
        log = appended(log, codec.encode_event(at, Transition.NOTE, "x" * 100))
        assert len(log) <= LIMIT
    first, marker, *kept = read(log)
    assert first == (0, Transition.TRUNCATED, f"{len(bad) * 4200} bytes that could not be read")
    assert marker == (kept[0].at, Transition.TRUNCATED, f"{499 - len(kept)} events")
    assert kept[-1].at == 499


def test_an_empty_log_is_no_events() -> None:
    """And to make room in it is possible (§6)."""
    assert read(b"") == []
    assert len(read(codec.trimmed_events(b"", 9))) == 1


def test_a_log_is_msgpack() -> None:
    """Others can read it: a run of arrays of time, code and detail (§2)."""
    log = encoded([Event(1, Transition.ENQUEUED, ""), Event(2, Transition.FAILED, "boom")])
    unpacker = msgpack.Unpacker()
    unpacker.feed(log)
    assert list(unpacker) == [[1, 0], [2, 7, "boom"]]
