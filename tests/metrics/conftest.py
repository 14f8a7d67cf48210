"""What the tests of metrics and surveys have: a page, read as Prometheus reads it, and the cost of reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import apsw
import pytest
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from litequeue import Queue

VmSteps = Callable[["Queue", Callable[[], object]], int]
"""Counts the steps of SQLite's virtual machine that work takes on a handle's reading connection."""
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


@pytest.fixture
def vm_steps() -> VmSteps:
    """Give what counts steps."""

    def count(queue: Queue, work: Callable[[], object]) -> int:
        connection = queue._store._reader.connection
        assert connection is not None
        steps = 0

        def add(event: dict[str, dict[str, int]]) -> None:
            nonlocal steps
            steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, add)
        try:
            work()
        finally:
            connection.trace_v2(0, None)
        return steps

    return count
