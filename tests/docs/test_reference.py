"""The reference is that of this source and complete: every public name is in it, and says what callers have to know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from griffe import Class, Function

import make_reference
from referencing import api

ROOT = Path(__file__).resolve().parents[2]
NEVER_RAISE = {
    "Collector.add_to",  # gives back what it met
    "Collector.on_event",
    "FakeClock.reboot",
    "FakeClock.step_wall",
    "FakeClock.suspend",
    "Queue.lost",
    "Transaction.has_settled",
}
"""What takes arguments and has nothing to refuse: no more than an object of ours, or a test's own word."""
REFERS = re.compile(r"\b([Ss]ee|as|as in|of|what) `(litequeue\.)?\w+(\.\w+)*`")
"""What says its arguments by naming what has the same."""


@pytest.fixture(scope="module")
def reader() -> api.Reader:
    """Give the package as it is read."""
    return api.Reader(ROOT)


def functions(reader: api.Reader) -> Iterator[tuple[str, Function]]:
    """Give each public function and method, by its name, once."""
    seen: set[str] = set()
    for module in api.PAGES:
        for name in reader.names(module):
            found = reader.public(module, name)
            members = reader.members(found) if isinstance(found, Class) else {}
            named = {f"{name}.{member}": its for member, its in members.items()} | {name: found}
            for full, its in named.items():
                if isinstance(its, Function) and its.path not in seen:
                    seen.add(its.path)
                    yield full, its


def test_the_pages_are_those_of_this_source() -> None:
    """Run `python tools/make_reference.py` when a docstring, a signature, a command or an option has changed."""
    stale = [path.name for path in make_reference.stale(make_reference.pages())]
    assert not stale, "out of date: run `python tools/make_reference.py`"


@pytest.mark.parametrize("module", [name for name in api.PAGES if name != "litequeue.pytest_plugin"])
def test_every_public_name_has_its_place(module: str) -> None:
    """What a program can import by name, as the program sees it (issue 8)."""
    page = (ROOT / "docs" / "reference" / f"{api.PAGES[module]}.md").read_text(encoding="utf-8")
    assert {name for name in import_module(module).__all__ if f"### `{name}`\n" not in page} == set()


def test_every_fixture_has_its_place() -> None:
    """What pytest finds in the plugin (issue 8)."""
    plugin = import_module("litequeue.pytest_plugin")
    fixtures = {name for name, found in vars(plugin).items() if type(found).__name__ == "FixtureFunctionDefinition"}
    page = (ROOT / "docs" / "reference" / "pytest.md").read_text(encoding="utf-8")
    assert len(fixtures) > 1
    assert {name for name in fixtures if f"### `{name}`\n" not in page} == set()


def test_every_public_name_has_a_docstring(reader: api.Reader) -> None:
    """Modules' names, and the methods of their classes."""
    assert list(api.undocumented(reader)) == []


def test_what_can_refuse_its_arguments_says_what_it_raises(reader: api.Reader) -> None:
    """By itself, or as that which it names."""
    silent = {
        name
        for name, function in functions(reader)
        if [each for each in function.parameters if each.name not in {"self", "cls"}]
        and not api.is_fixture(function)
        and "aise" not in _said(function)
        and not REFERS.search(_said(function))
    }
    assert silent == NEVER_RAISE


def test_what_takes_a_duration_says_its_unit(reader: api.Reader) -> None:
    """Seconds or a timedelta, by itself, or as that which it names."""
    silent = {
        name
        for name, function in functions(reader)
        if any("Duration" in str(each.annotation) for each in function.parameters)
        and not re.search(r"second|timedelta", _said(function))
        and not REFERS.search(_said(function))
    }
    assert silent == set()


def test_what_is_left_out_is_there(reader: api.Reader) -> None:
    """A name that is gone, or made anew, is not left out for ever."""
    classes = {name: reader.public(module, name) for module in api.PAGES for name in reader.names(module)}
    for entry in api.INTERNAL:
        owner, _, member = entry.partition(".")
        found = classes[owner]
        assert isinstance(found, Class)
        assert member in found.all_members, entry
    assert set(classes) >= api.CALLED


def _said(function: Function) -> str:
    return function.docstring.value if function.docstring else ""
