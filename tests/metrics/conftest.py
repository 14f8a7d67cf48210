"""What the tests of metrics have: a page, read as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

Read = Callable[[str], dict[str, float]]
"""Reads a page: values by `name{label=value,…}` in the order of the labels' names, without `db`."""


@pytest.fixture
def read() -> Read:
    """Give the reader of pages."""

    def read(text: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "db")
                found[f"{sample.name.removeprefix('litequeue_')}{{{labels}}}"] = sample.value
        return found

    return read
