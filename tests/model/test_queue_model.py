"""The queue against its model, step by step, in sequences that nobody would think of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

import make_fixture
from litequeue.sqlite import tables
from tests.model.machine import QueueMachine

HERE = Path(__file__).parent


@pytest.mark.timeout(600)  # it takes seconds, but to shrink a failure takes minutes
def test_the_queue_does_what_its_model_says() -> None:
    """Whatever happens in any order, each job is where the contract has it (G1, G4 to G7, G11, V1 to V11, V14, §8)."""
    run_state_machine_as_test(QueueMachine, settings=settings.get_profile("fast"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_queue_does_what_its_model_says_for_longer() -> None:
    """The same, with more and longer sequences."""
    run_state_machine_as_test(QueueMachine, settings=settings.get_profile("long"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", range(1, tables.VERSION))
def test_a_file_of_an_earlier_version_does_what_the_model_says(version: int) -> None:
    """Whatever happens to it once it was moved forward (G1, G4 to G7, G11, V1 to V11, V14, §8)."""

    class Machine(QueueMachine):
        def __init__(self) -> None:
            super().__init__()
            make_fixture.unpacked(version, "empty", Path(self.both.folder.name) / "model.queue")

    run_state_machine_as_test(Machine, settings=settings.get_profile("fast"))


def test_the_model_does_not_borrow_the_rules_that_it_checks() -> None:
    """A model that imported `rules`, `settings` or the engine could only agree with them."""
    allowed = {"litequeue", "litequeue.model", "litequeue.testing"}
    for path in (HERE / "reference.py", HERE / "records.py", HERE / "comparing.py"):
        modules = {
            node.module
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module is not None
        }
        assert {module for module in modules if module.startswith("litequeue")} <= allowed
