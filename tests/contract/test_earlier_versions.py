"""The contract, on files that an earlier version has made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from litequeue.sqlite import tables

HERE = Path(__file__).parent
ROOMS = ("exchange", "fairness", "idempotency", "lease_in_transaction", "limits", "outbox", "pauses", "reset", "reads")
"""What uses the tables most, and those that version 1 does not have."""
EARLIER = "LITEQUEUE_TESTS_BEGIN_WITH_VERSION"
PATIENCE_S = 500.0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", range(1, tables.VERSION))
def test_every_verb_works_on_a_file_that_was_moved_forward(version: int) -> None:
    """A good part of this suite passes on files that were made by that version (§1, §4, §5)."""
    files = [str(HERE / f"test_{room}.py") for room in ROOMS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *files]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        env=environment | {EARLIER: str(version)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "passed" in done.stdout
