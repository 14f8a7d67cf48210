"""Values to bytes and back: payloads, results and event logs.

Owns: the encoding (one version byte, then msgpack), its limits and its errors. Invariant: whatever is encoded here can
be decoded here; tuples come back as lists (as tuples where they are keys of a map) and aware datetimes as UTC.
An event log is a run of msgpack values, one after the other, so that SQL can append to it without decoding.
Leaves out: the size limit, which is a setting and so is checked inside the transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgpack

from litequeue.errors import PayloadError, RecordError
from litequeue.model import Decoder, Event, Transition


class Arguments(list[object]):
    """A list of the arguments of a call, which have names for the message that says which of them cannot be stored.

    It is stored as the list, and travels to another process as one. `named` is only called for the message.
    """

    __slots__ = ("named",)

    def __init__(self, items: Iterable[object], named: Callable[[], Mapping[str, object]]) -> None:
        super().__init__(items)
        self.named = named

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


VERSION = 1
MAX_DETAIL_BYTES = 256
MAX_EVENTS_BYTES = 4096
MAX_ERROR_BYTES = 8192

_PREFIX = bytes([VERSION])
_TRANSITIONS = list(Transition)
_CODES = {transition: code for code, transition in enumerate(_TRANSITIONS)}
_BARE_EVENT = struct.Struct(">BBQB")
"""An event without a detail, as msgpack has it: a list of two, a whole number of 64 bits, one below 128."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT_EVENTS_BYTES = 3072
"""Trimming goes below the limit by a quarter, so that it is paid once in many events."""
_SPARE_PACKERS = 8
_SPARE_BYTES = 2**16
"""How many packers are kept for the next values, and after how large a value at most: a packer keeps its buffer."""
_MAX_DEPTH = 500
"""Levels that msgpack surely packs and unpacks; beyond it the two ways differ, and each value is tried."""


def encode(value: object, what: str = "payload") -> bytes:
    """Encode a payload or a result.

    Raises:
        PayloadError: a type that msgpack lacks, a naive datetime, text that UTF-8 cannot hold, a number beyond 64 bits
            or nesting that is too deep; the message says where.
    """
    try:
        packed = _pack(value)
    except Exception as exc:
        raise PayloadError(
            f"{what} cannot be stored: {_culprit_if_any(value) or str(exc) or type(exc).__name__}"
        ) from exc
    if len(packed) > _MAX_DEPTH and isinstance(value, (list, tuple, dict)) and not _unpacks(packed):
        raise PayloadError(f"{what} cannot be stored: nested too deep")
    return _PREFIX + packed


def unreadable(encoded: bytes | None) -> str | None:
    """Say why a stored value cannot even be tried, or `None` when its version byte is known."""
    if not encoded:
        return "the record has no payload"
    if encoded[0] != VERSION:
        return f"payload version {encoded[0]} is unknown (this program reads version {VERSION})"
    return None


def decode(encoded: bytes, owner: UUID | str) -> object:
    """Decode a stored payload or result; `owner` is the job's id, or what else it belongs to, in words.

    Raises:
        RecordError: an unknown version, or bytes that are not one whole msgpack value.
    """
    reason = unreadable(encoded)
    if reason is not None:
        raise _record_error(owner, reason)
    body = memoryview(encoded)[1:]
    try:
        return msgpack.unpackb(body, timestamp=3, strict_map_key=False)
    except Exception:  # noqa: BLE001 - msgpack raises many sorts; the careful way decides which of them are final
        return _decode_carefully(body, owner)


def _decode_carefully(body: memoryview, owner: UUID | str) -> object:
    """Decode what the fast way refuses: tuples as keys, and timestamps beyond the years of `datetime`."""
    try:
        try:
            return msgpack.unpackb(body, timestamp=3, strict_map_key=False, object_pairs_hook=_hashable_keys)
        except (ValueError, OverflowError):
            return msgpack.unpackb(body, timestamp=0, strict_map_key=False, object_pairs_hook=_hashable_keys)
    except Exception as exc:
        raise _record_error(owner, f"its payload cannot be decoded: {str(exc) or type(exc).__name__}") from exc


def _record_error(owner: UUID | str, reason: str) -> RecordError:
    if isinstance(owner, UUID):
        return RecordError(f"job {owner}: {reason}", job_id=owner)
    return RecordError(f"{owner}: {reason}")


def encode_event(at: int, transition: Transition, detail: str = "") -> bytes:
    """Encode one event; its detail is cut to 256 bytes."""
    code = _CODES[transition]
    return _pack([at, code, clip(detail, MAX_DETAIL_BYTES)]) if detail else _BARE_EVENT.pack(0x92, 0xCF, at, code)


def decode_events(encoded: bytes, job_id: UUID) -> list[Event]:
    """Decode an event log, oldest first.

    Raises:
        RecordError: the bytes are not a run of events.
    """
    try:
        return [Event(at, _TRANSITIONS[code], *(detail or ("",))) for at, code, *detail in _raw_events(encoded)]
    except Exception as exc:
        reason = str(exc) or type(exc).__name__
        raise RecordError(f"job {job_id}: its event log cannot be read: {reason}", job_id=job_id) from exc


def trimmed_events(encoded: bytes, more_bytes: int) -> bytes:
    """Shorten a log that `more_bytes` no longer fit: the first event stays, the oldest others become a marker.

    A log that cannot be read becomes a marker as a whole: it must not stand in its job's way.
    """
    try:
        return _trimmed(_raw_events(encoded), more_bytes)
    except Exception:  # noqa: BLE001 - msgpack raises many sorts; each means that the bytes are bad
        return encode_event(0, Transition.TRUNCATED, f"{len(encoded)} bytes that could not be read")


def _trimmed(events: list[list[Any]], more_bytes: int) -> bytes:
    first, *rest = events
    dropped = 0
    if rest and rest[0][1] == _CODES[Transition.TRUNCATED]:
        dropped = int(rest.pop(0)[2].split()[0])
    pieces: list[bytes] = [msgpack.packb(event) for event in (first, *rest)]
    room = _KEPT_EVENTS_BYTES - len(pieces[0]) - more_bytes
    kept: list[bytes] = []
    for piece in reversed(pieces[1:]):
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    dropped += len(rest) - len(kept)
    at = rest[len(rest) - len(kept)][0] if kept else first[0]
    marker = encode_event(at, Transition.TRUNCATED, f"{dropped} events")
    return b"".join([pieces[0], marker, *reversed(kept)])


def clip(text: str, most_bytes: int) -> str:
    """Cut text to so many bytes of UTF-8, at a character; what UTF-8 cannot hold becomes `?`."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return encoded.decode("utf-8")
    return encoded[:most_bytes].decode("utf-8", "ignore")


_spare_packers: list[msgpack.Packer] = []


def _pack(value: object) -> bytes:
    """Encode with a packer that nobody else uses meanwhile; a new one costs more than most values."""
    try:
        packer = _spare_packers.pop()
    except IndexError:
        packer = msgpack.Packer(datetime=True, default=_plain, strict_types=True)
    packed: bytes = packer.pack(value)  # after an exception its buffer holds half a value: it is not kept
    if len(packed) <= _SPARE_BYTES and len(_spare_packers) < _SPARE_PACKERS:
        _spare_packers.append(packer)
    return packed


DECODER = Decoder(value=decode, events=decode_events)


def _raw_events(encoded: bytes) -> list[list[Any]]:
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(encoded)
    events = []
    end = 0
    for event in unpacker:
        events.append(event)
        end = unpacker.tell()
    if end != len(encoded):
        raise ValueError("it is cut off")
    if not all(_is_event(event) for event in events):
        raise ValueError("not a run of events")
    return events


def _is_event(item: object) -> bool:
    match item:
        case [int(at), int(code)] | [int(at), int(code), str()]:
            return not (isinstance(at, bool) or isinstance(code, bool)) and 0 <= code < len(_TRANSITIONS)
        case _:
            return False


def _hashable_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_as_key(key): value for key, value in pairs}


def _as_key(key: Any) -> Any:
    """Turn a list, which was a tuple, back into one, and the lists in it; without recursion, however deep it is."""
    if not isinstance(key, list):
        return key
    open_lists: list[tuple[Iterator[Any], list[Any]]] = [(iter(key), [])]
    while True:
        items, done = open_lists[-1]
        inner = next((item for item in items if not _keep(item, done)), None)
        if inner is not None:
            open_lists.append((iter(inner), []))
            continue
        open_lists.pop()
        if not open_lists:
            return tuple(done)
        open_lists[-1][1].append(tuple(done))


def _keep(item: object, done: list[Any]) -> bool:
    """Take over an item that is no list; tell whether it was one."""
    if isinstance(item, list):
        return False
    done.append(item)
    return True


def _culprit_if_any(whole: object) -> str | None:
    """Find it, unless an object of the caller's own raises while it is looked at."""
    try:
        return _culprit(whole)
    except Exception:  # noqa: BLE001 - what its methods raise is anything
        return None


def _culprit(whole: object) -> str | None:
    """Find what msgpack refused, once through the value: why, and its place as `$.a[2]`."""
    parts: list[tuple[object, str, int]] = [(whole, "$", 0)]
    if isinstance(whole, Arguments):
        parts = [(value, name, 2) for name, value in whole.named().items()]
    while parts:
        value, path, depth = parts.pop()
        if depth > _MAX_DEPTH:
            return "nested too deep"
        if isinstance(value, dict):
            parts += [(key, f"key {_shown(key)} of {path}", depth + 1) for key in value]
            names = [(key if isinstance(key, str) else _shown(key), item) for key, item in value.items()]
            parts += [(item, f"{path}.{name}", depth + 1) for name, item in names]
        elif isinstance(value, (list, tuple)):
            parts += [(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        elif not _packs(value):
            reason = _reason(value)
            where = f"{'in the argument' if isinstance(whole, Arguments) else 'at'} {path[:MAX_DETAIL_BYTES]!a}"
            return f"{reason} {where}{_STORABLE if reason.startswith(_TYPE) else ''}"
    return None


def _unpacks(packed: bytes) -> bool:
    """Tell whether the reader's stack takes it: msgpack packs deeper than it unpacks. A level has a byte at least."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(packed)
    try:
        unpacker.skip()
    except ValueError:
        return False
    return True


def _packs(value: object) -> bool:
    try:
        _pack(value)
    except Exception:  # noqa: BLE001 - what its methods raise is anything
        return False
    return True


def _plain(value: object) -> object:
    """Take a tuple for a list, and an object of a derived class for what it holds, whatever its methods say of it.

    A list that counts its items wrongly would make a record that nobody can read.
    """
    for base, held in _HELD:
        if isinstance(value, base):
            return held(value)
    return _plain_datetime(value)


_HELD: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (tuple, lambda value: list(tuple.__iter__(value))),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((bytes, bytearray), lambda value: bytes(memoryview(value))),
)
"""What an object of a class, or of one derived from it, holds; asked of the class itself."""


def _plain_datetime(value: object) -> object:
    if type(value) is not datetime and isinstance(value, datetime) and value.utcoffset() is not None:
        return _EPOCH + (value - _EPOCH)
    raise TypeError(f"{type(value).__name__} is no msgpack value")


def _shown(key: object) -> str:
    """Write a key out, for a message."""
    try:
        return repr(key)
    except (ValueError, RecursionError):
        return f"a {type(key).__name__}"


def _reason(value: object) -> str:
    if isinstance(value, datetime):
        return "a naive datetime (it needs a time zone)"
    if isinstance(value, str):
        return "text that UTF-8 cannot hold (a lone surrogate)"
    if isinstance(value, int):
        return "a whole number beyond 64 bits"
    return f"{_TYPE}{type(value).__name__}"


_TYPE = "a value of type "
_STORABLE = "; storable: None, bool, int, float, str, bytes, aware datetimes, lists and dicts"
