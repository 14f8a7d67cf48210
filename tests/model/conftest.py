"""How long the model runs: the Hypothesis profiles `fast` (every check) and `long` (the whole suite).

Both are without a deadline (a checkpoint of the file may come at any step) and without a database of examples, and in
CI they are derandomized, so that a red run can be repeated.
"""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import HealthCheck, settings

_IS_CI = bool(os.environ.get("CI"))
_SLOW_STEPS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "fast",
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=_IS_CI,
    suppress_health_check=_SLOW_STEPS,
)
settings.register_profile(
    "long",
    max_examples=400,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=_IS_CI,
    suppress_health_check=_SLOW_STEPS,
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep thousands of dead-letters out of the report of a failure."""
    caplog.set_level(logging.ERROR, logger="litequeue")
