"""What can be said of the benchmark's peers without them: their adapters, their environment, their waiting."""

from __future__ import annotations

import ast
import contextlib
import sqlite3
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from benching import child, peer_environment, polling, running, stdlib_sqlite, summary
from benching import subject as subjects
from benching.order import Durability, Order
from benching.subject import Subject, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

ADAPTERS = subjects.names("peers")
VERBS = {name for name, value in vars(Subject).items() if callable(value) and not name.startswith("_")}
SHARED = {"benching.polling", "benching.stdlib_sqlite", "benching.subject"}
LIBRARIES = {"litements": "litequeue", "persist_queue": "persistqueue"}
"""What an adapter imports, where that is not its own name."""


def _parse(adapter: str) -> ast.Module:
    path = subjects.HERE / "peers" / f"{adapter}.py"
    return ast.parse(path.read_text(encoding="utf-8"), path.name)


def _imported(tree: ast.Module) -> set[str]:
    """Return the modules that are imported, also by name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                found.update(alias.name for alias in node.names)
            case ast.ImportFrom(module="benching"):
                found.update(f"benching.{alias.name}" for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                found.add(module)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]):
                found.add(module)
    return found


def test_every_library_has_its_adapter_and_every_adapter_its_library() -> None:
    """What the environment is made from and what can be measured are the same list."""
    assert sorted(map(peer_environment.adapter_of, peer_environment.requirements())) == ADAPTERS


def test_every_library_is_pinned() -> None:
    """A figure belongs to a version."""
    assert [line.count("==") for line in peer_environment.requirements()] == [1] * len(ADAPTERS)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_has_every_verb(adapter: str) -> None:
    """A verb that a library does not have says so; it is not forgotten."""
    (subject,) = (node for node in _parse(adapter).body if isinstance(node, ast.ClassDef) and node.name == "Subject")
    verbs = {node.name for node in subject.body if isinstance(node, ast.FunctionDef)}
    if any("Polled" in ast.dump(base) for base in subject.bases):
        verbs |= set(vars(polling.Polled))
    assert verbs >= VERBS | {"unfinished"}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_says_what_it_is(adapter: str) -> None:
    """The tables name it, and say which promise its figures are for."""
    (subject,) = (node for node in _parse(adapter).body if isinstance(node, ast.ClassDef) and node.name == "Subject")
    named = {ast.unparse(node.targets[0]) for node in subject.body if isinstance(node, ast.Assign)}
    assert named >= {"name", "distribution", "delivery", "durabilities"}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_needs_its_library_and_nothing_else(adapter: str) -> None:
    """It runs where neither this package nor another library is."""
    library = LIBRARIES.get(adapter, adapter)
    others = {
        module
        for module in _imported(_parse(adapter))
        if module not in SHARED and module.partition(".")[0] not in sys.stdlib_module_names
    }
    assert {module.partition(".")[0] for module in others} == {library}


class _Always:
    """A library that knows one durability."""

    distribution = "pytest"
    delivery = "at most once"
    durabilities = ("full",)


def _order(durability: Durability, *, at_any: bool) -> Order:
    return {
        "module": "verbs",
        "task": "enqueue",
        "where": "peers",
        "subject": "always",
        "folder": "",
        "durability": durability,
        "at_any_durability": at_any,
        "numbers": {},
    }


@pytest.mark.parametrize(("durability", "at_any"), [("full", False), ("full", True), ("normal", True)])
def test_figures_say_which_library_they_are_of(durability: Durability, *, at_any: bool) -> None:
    """Name, version and what it promises stand beside the pragmas."""
    told = child.introduce(cast("Subject", _Always()), _order(durability, at_any=at_any))
    assert told == {"library": f"pytest {pytest.__version__}", "delivery": "at most once"}


def test_a_library_is_not_measured_twice_at_the_durability_that_it_has() -> None:
    """Where both are asked for, one that has no setting is refused at the other; nothing ran twice for one figure."""
    with pytest.raises(Unsupported, match="always full"):
        child.introduce(cast("Subject", _Always()), _order("normal", at_any=False))


def test_a_library_that_is_not_there_is_told() -> None:
    """Why there is no figure stands in the run, also when it is read back."""
    (row,) = summary.summarise([running.absent("huey", "no network").as_dict()])
    assert (row.key.subject, row.why_not) == ("huey", "not installed: no network")


def test_one_library_that_cannot_be_installed_keeps_none_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out with its reason, and the others are there."""
    monkeypatch.setattr(peer_environment, "_why_not", lambda *wanted: "no such thing" if "b==1" in wanted else None)

    assert peer_environment._install(["a==1", "b==1", "c==1"]) == {"b==1": "no such thing"}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Give another library's connection, in memory; one that nobody closes is a warning from Python 3.13 on."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def test_a_row_is_multiplied(connection: sqlite3.Connection) -> None:
    """The newest row is copied, with what has to differ."""
    connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, key TEXT, state INTEGER)")
    connection.execute("INSERT INTO job VALUES (1, 'a', 0), (2, 'b', 1)")

    stdlib_sqlite.multiply(connection, "job", 2, id="NULL", key="key || i")

    assert connection.execute("SELECT * FROM job ORDER BY id").fetchall() == [
        (1, "a", 0),
        (2, "b", 1),
        (3, "b1", 1),
        (4, "b2", 1),
    ]


def test_a_row_is_multiplied_by_nothing(connection: sqlite3.Connection) -> None:
    """One row was wanted, and the library has made it."""
    connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO job VALUES (1)")

    stdlib_sqlite.multiply(connection, "job", 0, id="NULL")

    assert connection.execute("SELECT count(*) FROM job").fetchone() == (1,)


@dataclass
class _Clock:
    """A clock that is moved by sleeping."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class _Drawer(polling.Polled[str]):
    """A library with jobs that come at their times."""

    def __init__(self, clock: _Clock, *jobs: tuple[float, str]) -> None:
        super().__init__(1.0, 2.0, 5.0)
        self._clock = clock
        self._jobs = list(jobs)

    def take(self) -> str | None:
        """Take the first that is there."""
        if self._jobs and self._jobs[0][0] <= self._clock.now:
            return self._jobs.pop(0)[1]
        return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Put a clock of ours in the place of the real one."""
    clock = _Clock()
    monkeypatch.setattr(polling, "time", clock)
    return clock


def test_what_was_waited_for_is_leased_next_and_once(clock: _Clock) -> None:
    """Looking takes the job; neither another look nor the next lease loses it or hands it out again."""
    drawer = _Drawer(clock, (0, "a"), (0, "b"))

    assert drawer.wait(0)
    assert drawer.wait(0)
    assert [drawer.lease() for _ in range(3)] == ["a", "b", None]


def test_a_look_comes_ever_later_until_there_is_a_job(clock: _Clock) -> None:
    """A worker's delays grow up to its longest, also from one wait to the next, and start anew after a job."""
    drawer = _Drawer(clock, (20, "a"))

    assert not drawer.wait(8)
    assert clock.slept == [1, 2, 4, 1]
    assert drawer.wait(100)
    assert clock.slept[4:] == [5, 5, 5]
    assert drawer.lease() == "a"
    assert not drawer.wait(1)
    assert clock.slept[7:] == [1]
