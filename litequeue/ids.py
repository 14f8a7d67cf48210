"""New job ids: UUID version 7.

Invariant: ids of one call rise, and so do those of later moments, so that new jobs go to the end of their table.
Source: RFC 9562, section 5.7 (layout) and section 6.2 (methods 3: sub-millisecond bits, and 2: a counter in a batch).
"""

from __future__ import annotations

import os
from uuid import UUID

_VERSION_7 = 7 << 76
_VARIANT = 2 << 62
_RANDOM_BITS = 61


def new_job_ids(now_us: int, count: int) -> list[UUID]:
    """Return so many ids for one moment, rising."""
    milliseconds, rest_us = divmod(now_us, 1000)
    moment = (milliseconds & (2**48 - 1)) << 80 | _VERSION_7 | (rest_us * 4096 // 1000) << 64 | _VARIANT
    first = int.from_bytes(os.urandom(8)) >> (64 - _RANDOM_BITS)
    return [UUID(int=moment | (first + step)) for step in range(count)]
