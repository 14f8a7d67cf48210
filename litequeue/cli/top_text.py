"""Figures of `top` as short texts: numbers, sizes, rates, lengths of time, and the names of files.

Invariant: each keeps its width whatever its value, as far as it can, so that columns do not jump. Leaves out: moments
(`times`), and texts of jobs (`output`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import filesize

from litequeue.cli.output import NOTHING, plain

_THOUSAND = 1_000
_MANY = 100_000
"""From here on a number of jobs is rounded down."""
_MANY_A_SECOND = 100
_SHORT_SPANS = ((0.9995, 1e-3, "ms"), (59.5, 1.0, "s"))
"""Up to how many seconds a length of time is told in which unit, rounded."""
_LONG_SPANS = ((90 * 60, 60, "min"), (36 * 3600, 3600, "h"), (math.inf, 86_400, "d"))
"""The same of longer ones, of which only what is whole counts, as in a listing."""
_FEW = 9.95
"""Up to here a length of time has a fraction."""


def labels(paths: Sequence[str]) -> list[str]:
    """Return as much of the end of each path as tells it from the others."""
    parts = [Path(path).parts for path in paths]
    ends = Counter(part[-depth:] for part in parts for depth in range(1, len(part) + 1))
    depths = [next((depth for depth in range(1, len(part)) if ends[part[-depth:]] == 1), len(part)) for part in parts]
    return [plain(str(Path(*part[-depth:]))) for part, depth in zip(parts, depths, strict=True)]


def count_text(count: int) -> str:
    """Write a number of jobs in at most six characters, up to a thousand million."""
    if count < _MANY:
        return f"{count:,}"
    return f"{count // 1_000}k" if count < 10 * _MANY else f"{count / 1_000_000:.1f}M"


def span_text(seconds: float | None) -> str:
    """Write a length of time in its largest unit."""
    if seconds is None:
        return NOTHING
    for most, unit_s, unit in _SHORT_SPANS:
        if seconds < most:
            value = seconds / unit_s
            return f"{value:.1f} {unit}" if 0 < value < _FEW else f"{value:.0f} {unit}"
    size, unit = next((size, unit) for most, size, unit in _LONG_SPANS if seconds < most)
    return f"{max(1, int(seconds // size)):,} {unit}"


def size_text(size_bytes: int) -> str:
    """Write a size."""
    return filesize.decimal(size_bytes) if size_bytes >= _THOUSAND else f"{size_bytes} B"


def rate_text(rate: float, *, is_estimated: bool) -> str:
    """Write a rate; one that goes by a part of the jobs is said to be about that."""
    text = f"{rate:,.0f}" if rate >= _MANY_A_SECOND else f"{rate:.1f}"
    return f"~{text}" if is_estimated and rate else text
