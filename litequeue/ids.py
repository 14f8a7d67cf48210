"""Job ids: UUID version 7 when they are new.

Invariant: ids of one call rise, and so do those of later moments, so that new jobs go to the end of their table.
Source: RFC 9562, section 5.7 (layout) and section 6.2 (methods 3: sub-millisecond bits, and 2: a counter in a batch).
"""

from __future__ import annotations

import os
from uuid import UUID, SafeUUID

_VERSION_7 = 7 << 76
_VARIANT = 2 << 62
_RANDOM_BITS = 61


def new_job_ids(now_us: int, count: int) -> list[UUID]:
    """Return so many ids for one moment, rising."""
    milliseconds, rest_us = divmod(now_us, 1000)
    moment = (milliseconds & (2**48 - 1)) << 80 | _VERSION_7 | (rest_us * 4096 // 1000) << 64 | _VARIANT
    first = int.from_bytes(os.urandom(8)) >> (64 - _RANDOM_BITS)
    return [_made(moment | (first + step)) for step in range(count)]


def stored_job_id(raw: bytes) -> UUID:
    """Return the id that is stored as these sixteen bytes."""
    return _made(int.from_bytes(raw))


def _made(number: int) -> UUID:
    """Return what `UUID(int=number)` does, for half the price: the constructor looks at five other ways to give one."""
    made = object.__new__(UUID)
    object.__setattr__(made, "int", number)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made
