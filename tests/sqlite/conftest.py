"""What the tests of the engine have: a path, other processes, and a look at files from outside of this one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults import children
else:  # the folders of the tests are no packages
    _place = Path(__file__).parent.parent / "faults" / "children.py"
    _spec = importlib.util.spec_from_file_location("litequeue_children", _place)
    children = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = children
    _spec.loader.exec_module(children)

_HASHES = """
import hashlib, json, pathlib, sys
files = (path for path in sorted(pathlib.Path(sys.argv[1]).iterdir()) if path.is_file())
print(json.dumps({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a queue file that does not exist yet."""
    return tmp_path / "app.queue"


@pytest.fixture
def processes() -> Iterator[children.Children]:
    """Give the means to run functions of this module in other processes; none outlives the test."""
    started = children.Children()
    yield started
    started.end()


@pytest.fixture
def fingerprint(tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Give what tells the names and the hashes of all files of the test's folder, read in another process."""

    def look() -> dict[str, str]:
        command = [sys.executable, "-S", "-E", "-c", _HASHES, str(tmp_path)]
        hashes: dict[str, str] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return hashes

    return look
