"""Values as JSON and back, exactly: what `jobs export` writes and `jobs import` reads.

Owns: the forms of what JSON, or a program that edits it, would lose. Bytes are `{"$bytes": BASE64}`, datetimes
`{"$datetime": ISO 8601}`, whole numbers that a double cannot hold `{"$int": "DIGITS"}`, numbers that are not finite
`{"$float": "nan"}` (`{"$double": HEX}` for a NaN that carries anything), msgpack's own times and extensions
`{"$timestamp": [SECONDS, NANOSECONDS]}` and `{"$ext": [CODE, BASE64]}`; a map with other keys than text, or that looks
like one of these forms, `{"$map": [[KEY, VALUE], …]}`.
Invariant: what is written is read back as the same value, of the same types; tuples, which only keys are, are lists in
JSON. Leaves out: the form for reading alone (`jsonable`).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from datetime import datetime

import msgpack

from litequeue.cli.jsonable import Json
from litequeue.errors import cut

DEEPEST = 550
"""Levels of JSON; Python's recursion has room for so many."""
_SAFE = 2**53
"""Beyond it programs that take numbers for doubles change them."""
_SIGN = "$"
_NAMED_CHARS = 80
_WHY_CHARS = 200
"""Python may quote what it cannot read."""
_DOUBLE = struct.Struct(">d")
_NAN = _DOUBLE.pack(math.nan)


class NoForm(ValueError):
    """A value that has no form in JSON, or JSON that is no form of a value; the message says why."""


def to_json(value: object, depth: int = 0) -> Json:
    """Return the form of a stored value.

    Raises:
        NoForm: it is nested too deep.
    """
    if depth > DEEPEST:
        raise NoForm(f"nested deeper than {DEEPEST} levels")
    # Loops, not comprehensions: before Python 3.12 those are a frame more a level.
    if isinstance(value, msgpack.ExtType):  # a tuple, too
        return {"$ext": [value.code, _text(value.data)]}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not _looks_like_a_form(value):
            members: dict[str, Json] = {}
            for key, item in value.items():
                members[key] = to_json(item, depth + 1)
            return members
        pairs: list[Json] = []
        for key, item in value.items():
            pairs.append([to_json(key, depth + 3), to_json(item, depth + 3)])
        return {"$map": pairs}
    if isinstance(value, (list, tuple)):
        items: list[Json] = []
        for item in value:
            items.append(to_json(item, depth + 1))  # noqa: PERF401 - see above
        return items
    return _scalar(value)


def from_json(form: object) -> object:
    """Return the value of a form.

    Raises:
        NoForm: it has a form that is not known, or one that is written wrongly.
        RecursionError: it is nested too deep.
    """
    if isinstance(form, list):
        items: list[object] = []
        for item in form:
            items.append(from_json(item))  # noqa: PERF401 - see above
        return items
    if not isinstance(form, dict):
        return form
    if _looks_like_a_form(form):
        ((name, inner),) = form.items()
        return _read(name, inner)
    members: dict[str, object] = {}
    for key, item in form.items():
        members[key] = from_json(item)
    return members


def _looks_like_a_form(value: dict[str, object]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith(_SIGN)


def _scalar(value: object) -> Json:
    form: Json
    match value:
        case None | bool() | str():
            form = value
        case int():
            form = value if -_SAFE < value < _SAFE else {"$int": str(value)}
        case float():
            form = value if math.isfinite(value) else _not_finite(value)
        case bytes():
            form = {"$bytes": _text(value)}
        case datetime():
            form = {"$datetime": value.isoformat()}
        case msgpack.Timestamp():
            form = {"$timestamp": [value.seconds, value.nanoseconds]}
        case _:
            raise NoForm(f"a {type(value).__name__} has no form in JSON")
    return form


def _not_finite(value: float) -> Json:
    packed = _DOUBLE.pack(value)
    return {"$double": packed.hex()} if math.isnan(value) and packed != _NAN else {"$float": str(value)}


def _read(name: str, inner: object) -> object:
    """Read what stands under the name of a form."""
    read = _READERS.get(name)
    if read is None:
        name = cut(name, _NAMED_CHARS)
        raise NoForm(f'{name} is no form of a value; a map with this one key is {{"$map": [["{name}", …]]}}')
    try:
        return read(inner)
    except NoForm:
        raise
    except (ValueError, TypeError, OverflowError, struct.error) as exc:
        raise NoForm(f"{name} is written wrongly: {cut(str(exc), _WHY_CHARS)}") from exc


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _said(form: object) -> str:
    if isinstance(form, str):
        return form
    raise TypeError("it is text")


def _parts(form: object) -> tuple[object, object]:
    if isinstance(form, list) and len(form) == 2:  # noqa: PLR2004 - a pair
        return form[0], form[1]
    raise TypeError("it is a list of two")


def _number(form: object) -> int:
    if isinstance(form, int):
        return form
    raise TypeError("it is a whole number")


def _data(form: object) -> bytes:
    return base64.b64decode(_said(form), validate=True)


def _timestamp(form: object) -> object:
    seconds, nanoseconds = _parts(form)
    return msgpack.Timestamp(_number(seconds), _number(nanoseconds))


def _extension(form: object) -> object:
    code, data = _parts(form)
    return msgpack.ExtType(_number(code), _data(data))


def _map(form: object) -> dict[object, object]:
    if not isinstance(form, list):
        raise TypeError("it is a list of pairs")
    return {_key(from_json(key)): from_json(item) for key, item in map(_parts, form)}


def _key(value: object) -> object:
    """Return a key: a list, which was a tuple, as one."""
    return tuple([_key(item) for item in value]) if isinstance(value, list) else value


_READERS: dict[str, Callable[[object], object]] = {
    "$bytes": _data,
    "$datetime": lambda form: datetime.fromisoformat(_said(form)),
    "$int": lambda form: int(_said(form)),
    "$float": lambda form: float(_said(form)),
    "$double": lambda form: _DOUBLE.unpack(bytes.fromhex(_said(form)))[0],
    "$timestamp": _timestamp,
    "$ext": _extension,
    "$map": _map,
}
