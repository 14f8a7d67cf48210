"""Prometheus' text format, version 0.0.4: the one place that writes it.

Invariant: whatever text a kind or a path is, a value is one line, and a parser reads the label as it was.
Source: Prometheus' documentation, "Exposition formats", "Text-based format".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from litequeue.metrics.families import Page

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def render(page: Page) -> str:
    """Write a page, its remarks as comments first."""
    return "".join(f"{line}\n" for line in _lines(page))


def _lines(page: Page) -> Iterator[str]:
    for remark in page.remarks:
        # The third word of a comment looks like a metric's name: parsers have been seen to refuse others.
        yield f"# litequeue: error: {' '.join(remark.split())}"
    for definition, samples in page.families():
        yield f"# HELP {definition.name} {definition.help.translate(_IN_HELP)}"
        yield f"# TYPE {definition.name} {definition.type}"
        for sample in samples:
            yield f"{definition.name}{sample.suffix}{{{_labels(sample.labels)}}} {_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels.items())


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
