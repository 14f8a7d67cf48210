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

        def tell(listener: Listener, seconds: float) -> bool:
            self._sleeps.put(seconds)
            return sleep(listener, seconds)

        monkeypatch.setattr(Listener, "sleep", tell)

    def wait(self) -> float:
        """Wait for the next sleep; return how long it may last."""
        return self._sleeps.get(timeout=PATIENCE_S)

    def is_empty(self) -> bool:
        """Tell whether nobody went to sleep since."""
        return self._sleeps.empty()

    def assert_none(self) -> None:
        """Make sure of that."""
        with pytest.raises(Empty):
            self._sleeps.get_nowait()


class Waiting:
    """A thread that waits; its answer, or what it raised."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self._answers: SimpleQueue[object] = SimpleQueue()
        self._wait = wait
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.put(self._wait())
        except BaseException as exc:  # noqa: BLE001 - told to the test
            self._answers.put(exc)

    def answer(self) -> object:
        """Wait for the end of the waiting."""
        return self._answers.get(timeout=PATIENCE_S)

    def assert_waiting(self) -> None:
        """Make sure that it has not ended."""
        with pytest.raises(Empty):
            self._answers.get_nowait()


class Turns:
    """Lets two threads, W and E, take steps in an order that the test gives; a step ends where the next one begins."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._left = {actor: order.count(actor) for actor in "WE"}
        self._go: dict[str, SimpleQueue[None]] = {actor: SimpleQueue() for actor in "WE"}
        self._come: dict[str, SimpleQueue[None]] = {actor: SimpleQueue() for actor in "WE"}
        self._ended: set[str] = set()

    def stepping(self, actor: str, work: Callable[..., object]) -> Callable[..., object]:
        """Return the same work as a step; once all of an actor's are over it is one no more."""

        def step(*args: object, **kwargs: object) -> object:
            if self._left[actor] > 0:
                self._left[actor] -= 1
                self._come[actor].put(None)
                self._go[actor].get(timeout=PATIENCE_S)
            return work(*args, **kwargs)

        return step

    def end(self, actor: str) -> None:
        """Say that an actor will take no more steps; what it does from here on is its own affair."""
        self._left[actor] = 0
        self._ended.add(actor)
        self._come[actor].put(None)

    def run(self) -> None:
        """Let the steps be taken in their order; the end of the waiter's last one, its sleep, is not waited for."""
        left = {actor: self._order.count(actor) for actor in "WE"}
        for actor in "WE":
            self._come[actor].get(timeout=PATIENCE_S)
        for actor in self._order:
            left[actor] -= 1
            if actor not in self._ended:
                self._go[actor].put(None)
                if left[actor] > 0 or actor == "E":
                    self._come[actor].get(timeout=PATIENCE_S)


MakeTurns = Callable[[str], Turns]
StartWaiting = Callable[[Callable[[], object]], Waiting]


@pytest.fixture
def no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but what is tested wake a waiter: the slow look that is the net is an hour away."""
    monkeypatch.setattr(arrivals, "_NET_S", 3600.0)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Asleep:
    """Give what tells when a waiter goes to sleep."""
    return Asleep(monkeypatch)


@pytest.fixture
def make_turns() -> MakeTurns:
    """Give the means to force an order on the steps of two threads."""
    return Turns


@pytest.fixture
def start_waiting() -> StartWaiting:
    """Give the means to wait in another thread."""
    return Waiting
