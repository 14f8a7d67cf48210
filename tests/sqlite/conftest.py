"""What the tests of the engine have: a path, other processes, and a look at files from outside of this one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import pytest

from litequeue.sqlite import arrivals
from litequeue.sqlite.watching import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults import children
else:  # the folders of the tests are no packages
    _place = Path(__file__).parent.parent / "faults" / "children.py"
    _spec = importlib.util.spec_from_file_location("litequeue_children", _place)
    children = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = children
    _spec.loader.exec_module(children)

PATIENCE_S = 20.0
"""How long a thread may take to do what it has to, before the test fails."""

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


class Asleep:
    """Tells when a waiter goes to sleep, and for how long at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sleeps: SimpleQueue[float] = SimpleQueue()
        sleep = Listener.sleep

        def tell(listener: Listener, seconds: float) -> None:
            self._sleeps.put(seconds)
            sleep(listener, seconds)

        monkeypatch.setattr(Listener, "sleep", tell)

    def wait(self) -> float:
        """Wait for the next sleep; return how long it may last."""
        return self._sleeps.get(timeout=PATIENCE_S)

    def assert_none(self) -> None:
        """Make sure that nobody went to sleep since."""
        with pytest.raises(Empty):
            self._sleeps.get_nowait()


class Waiting:
    """A thread that waits for work; its answer, or what it raised."""

    def __init__(self, wait: Callable[[], bool]) -> None:
        self._answers: SimpleQueue[bool | BaseException] = SimpleQueue()
        self._wait = wait
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.put(self._wait())
        except BaseException as exc:  # noqa: BLE001 - told to the test
            self._answers.put(exc)

    def answer(self) -> bool | BaseException:
        """Wait for the end of the waiting."""
        return self._answers.get(timeout=PATIENCE_S)

    def assert_waiting(self) -> None:
        """Make sure that it has not ended."""
        with pytest.raises(Empty):
            self._answers.get_nowait()


StartWaiting = Callable[[Callable[[], bool]], Waiting]


@pytest.fixture
def no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but what is tested wake a waiter: the slow look that is the net is an hour away."""
    monkeypatch.setattr(arrivals, "_NET_S", 3600.0)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Asleep:
    """Give what tells when a waiter goes to sleep."""
    return Asleep(monkeypatch)


@pytest.fixture
def start_waiting() -> StartWaiting:
    """Give the means to wait in another thread."""
    return Waiting
