"""Stored values that no queue writes: what a decoder without limits would choke on.

Each is the bytes of a msgpack value, without the version byte. Those of `UNREADABLE` are no value at all, or none that
a payload can be, and those of `HUGE` the same in sizes that would fill a small file; those of `READABLE` are odd and
read all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

_DEEP = 2000
_ABYSS = 100_000

UNREADABLE: Mapping[str, bytes] = {
    "lists nested 2,000 deep": b"\x91" * _DEEP + b"\xc0",
    "maps nested 2,000 deep": b"\x81\xa1a" * _DEEP + b"\xc0",
    "a list that claims 4 billion items": b"\xdd\xff\xff\xff\xff",
    "a list that claims 100 million items": b"\xdd\x05\xf5\xe1\x00" + b"\xc0" * 1000,
    "a map that claims 4 billion items": b"\xdf\xff\xff\xff\xff",
    "text that claims 4 GiB": b"\xdb\xff\xff\xff\xff",
    "bytes that claim 4 GiB": b"\xc6\xff\xff\xff\xff",
    "an extension that claims 4 GiB": b"\xc9\xff\xff\xff\xff\x05",
    "a timestamp of a length that there is not": b"\xd4\xff\x00",
    "a timestamp with too many nanoseconds": b"\xd7\xff" + b"\xff" * 8,
    "text that is not UTF-8": b"\xa2\xff\xff",
    "two values": b"\xc0\xc0",
    "a value that is cut off": b"\x93\x01\x02",
    "a byte that begins nothing": b"\xc1",
    "a map as the key of a map": b"\x81\x80\x01",
    "nothing": b"",
}
HUGE: Mapping[str, bytes] = {
    "lists nested 100,000 deep": b"\x91" * _ABYSS + b"\xc0",
    "maps nested 100,000 deep": b"\x81\xa1a" * _ABYSS + b"\xc0",
    "lists in a list that each claim 900,000 items": b"\xdd\x00\x0d\xbb\xa0" * 1000 + b"\xc0" * 900_000,
}
READABLE: Mapping[str, bytes] = {
    "an extension of an unknown code": b"\xd4\x05\x00",
    "a timestamp after the year 9999": b"\xc7\x0c\xff\x00\x00\x00\x00\x7f" + b"\xff" * 7,
    "a key that comes twice": b"\x82\xa1a\x01\xa1a\x02",
    "not a number": b"\xcb\x7f\xf8" + b"\0" * 6,
    "infinity": b"\xcb\x7f\xf0" + b"\0" * 6,
    "a list as the key of a map": b"\x81" + b"\x91" * 900 + b"\xc0\x01",
    "text that steers a terminal": b"\xaf\x1b[2J\x1b]0;x\x07\xe2\x80\xae\xc2\x9b",
}
VERSION = b"\x01"
"""The version byte that a queue writes before a payload or a result."""
UNKNOWN_VERSION = b"\x07\xc0"
EVENTS: Mapping[str, bytes] = {
    "a time before time": b"\x92\xd3\x80" + b"\0" * 7 + b"\x01",
    "a time after time": b"\x92\xcf" + b"\xff" * 8 + b"\x01",
    "an unknown transition": b"\x92\x01\x7f",
    "flags for numbers": b"\x92\xc3\xc3",
    "a marker without its count": b"\x92\x01\x00\x93\x01\x0e\xa3abc" + b"\x92\x01\x01" * 2000,
    "a text that steers a terminal": b"\x93\x01\x05\xa8\x1b[2J\x07\n\r!",
}
"""Event logs that are runs of msgpack values, and none that a queue writes."""
