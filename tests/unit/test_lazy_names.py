"""The names of the package are loaded when they are asked for (PEP 562), each from one module."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import litequeue

INIT = Path(litequeue.__file__)


def imported_for_types() -> dict[str, str]:
    """Return which name comes from which module, as a type checker reads it."""
    (block,) = [node for node in ast.parse(INIT.read_text(encoding="utf-8")).body if _is_for_types(node)]
    imports = [node for node in ast.walk(block) if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{node.module}" for node in imports for alias in node.names}


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_a_type_checker_reads_what_is_loaded() -> None:
    """Every name of `__all__`, and no other, from the very same module."""
    loaded = {name: f"litequeue.{home}" for name, home in litequeue._HOME_OF.items()}
    assert imported_for_types() == loaded
    assert sorted(loaded) == sorted(litequeue.__all__)
    for name, home in loaded.items():
        assert getattr(litequeue, name) is getattr(import_module(home), name)
    assert set(litequeue.__all__) <= set(dir(litequeue))


def test_what_is_not_there_is_not_there() -> None:
    """And says so as every module does."""
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(litequeue, "nothing")  # noqa: B009 - a type checker knows as much
    assert not hasattr(litequeue, "_nothing")


def test_the_package_alone_brings_no_apsw() -> None:
    """Nor do its modules that need none; the first verb does, and a module is there as an attribute (DESIGN §3)."""
    program = """
import sys, litequeue
assert "apsw" not in sys.modules
assert litequeue.errors.QueueBusy is litequeue.QueueBusy
import litequeue.sqlite.enqueueing, litequeue.sqlite.settings_table, litequeue.sqlite.bell, litequeue.sqlite.tables
assert "apsw" not in sys.modules
from litequeue import *
assert open is litequeue.open and "apsw" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_fork_waits_for_another_threads_loading() -> None:
    """A child forked in the midst of it would wait for ever for a thread that it lacks (§6 "use after fork")."""
    program = """
import os, signal, sys, threading
import litequeue

has_begun, may_go_on = threading.Event(), threading.Event()

class Finder:
    def find_spec(self, name, *_):
        if name == "litequeue.queue":
            has_begun.set()
            may_go_on.wait(30)

sys.meta_path.insert(0, Finder())
os.register_at_fork(before=may_go_on.set)  # the last one to be registered is the first one to be called
thread = threading.Thread(target=lambda: litequeue.open)
thread.start()
has_begun.wait(30)
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if callable(litequeue.open) else 1)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], check=True, timeout=60)
