"""The check that no code of the package opens one of SQLite's files (DESIGN §3; `tools/lint_open.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lint_open

if TYPE_CHECKING:
    from pathlib import Path

OPENS = [
    "def f(path):\n    return open(path)\n",
    "def f(path):\n    with open(path, 'rb') as file:\n        return file\n",
    "import os\ndef f(path):\n    return os.open(path, os.O_RDONLY)\n",
    "import os as system\ndef f(path):\n    return system.open(path, 0)\n",
    "from os import open\ndef f(path):\n    return open(path, 0)\n",
    "from os import open as descriptor\ndef f(path):\n    return descriptor(path, 0)\n",
    "import io\ndef f(path):\n    return io.open(path)\n",
    "from io import FileIO as Raw\ndef f(path):\n    return Raw(path)\n",
    "import codecs\ndef f(path):\n    return codecs.open(path)\n",
    "import builtins\ndef f(path):\n    return builtins.open(path)\n",
    "import shutil\ndef f(path):\n    shutil.copyfile(path, 'b')\n",
    "import _io\ndef f(path):\n    return _io.FileIO(path)\n",
    "import posix\ndef f(path):\n    return posix.open(path, 0)\n",
    "import gzip\ndef f(path):\n    return gzip.GzipFile(path)\n",
    "from zipfile import ZipFile\ndef f(path):\n    ZipFile('b', 'w').write(path)\n",
    "import mmap\ndef f(descriptor):\n    return mmap.mmap(descriptor, 0)\n",
    "import os\ndef f(descriptor):\n    return os.fdopen(descriptor)\n",
    "import os\ndef f(descriptor):\n    os.close(os.dup(descriptor))\n",
    "import os\nf = os.closerange\n",
    "import logging\ndef f(path):\n    return logging.FileHandler(path)\n",
    "def f(path):\n    path.copy_into('b')\n",
    "from shutil import move as put\ndef f(path):\n    put(path, 'b')\n",
    "from pathlib import Path\ndef f(path):\n    return Path(path).read_text()\n",
    "import pathlib\ndef f(path):\n    return (pathlib.Path(path) / 'b').write_bytes(b'')\n",
    "def f(path):\n    path.touch()\n",
    "def f(path):\n    return path.parent.joinpath('b').open()\n",
    "from functools import partial\ndef f(path):\n    return partial(open, path)\n",
    "def f(path):\n    own = open\n    return own(path)\n",
    "async def f(path):\n    return [open(each) for each in path]\n",
    "def f(path, opener=open):\n    return opener(path)\n",
    "f = lambda path: open(path)\n",
    "class C:\n    def f(self, path):\n        return open(path)\n",
]

OPENS_NOTHING = [
    "def open(path):\n    return path\ndef f(path):\n    return open(path)\n",
    "from litequeue.queue import open\ndef f(path):\n    return open(path)\n",
    "import litequeue\ndef f(path):\n    return litequeue.open(path)\n",
    "import litequeue as queue\ndef f(path):\n    return queue.open(path)\n",
    "from . import queue\ndef f(path):\n    return queue.open(path)\n",
    "from importlib import resources\ndef f():\n    return resources.files('litequeue').joinpath('a').read_text()\n",
    "from importlib import resources\ndef f():\n    return (resources.files('litequeue') / 'a').read_bytes()\n",
    "def f(path):\n    # open(path)\n    return 'open(path)'\n",
    "import os\ndef f(path):\n    os.stat(path)\n    os.mknod(path)\n    os.close(3)\n",
    "def f(is_open):\n    return is_open.reopen()\n",
    "def f(self):\n    self.open = True\n",
]


def plant(package: Path, source: str, name: str = "sqlite/room.py") -> Path:
    """Put a module into a package, and beside it one that opens nothing."""
    for file, text in ((name, source), ("plain.py", "x = 1\n")):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(text, encoding="utf-8")
    return package


@pytest.mark.parametrize("source", OPENS)
def test_an_opening_is_found_however_it_is_written(tmp_path: Path, source: str) -> None:
    """By its own name, by another, through a module, by a path, in a call or handed on (DESIGN §3)."""
    found = lint_open.problems(plant(tmp_path, source), {})
    assert len(found) == 1
    assert found[0].startswith("sqlite/room.py:")
    assert "may be one of SQLite's files" in found[0]


@pytest.mark.parametrize("source", OPENS_NOTHING)
def test_what_opens_no_file_is_left_alone(tmp_path: Path, source: str) -> None:
    """The package's own `open`, what lies in the package itself, words that are no calls (DESIGN §3)."""
    assert lint_open.problems(plant(tmp_path, source), {}) == []


def test_a_problem_names_file_line_function_and_call(tmp_path: Path) -> None:
    """So that one finds it (DESIGN §3)."""
    source = (
        "import os\n\n\nclass Room:\n    def ask(self):\n        def inner():\n            return os.open('a', 0)\n"
    )
    assert lint_open.problems(plant(tmp_path, source), {}) == [
        "sqlite/room.py:7: os.open() in Room.ask.inner: may be one of SQLite's files"
    ]
    assert lint_open.openings("open('a')\n", "b.py") == [lint_open.Opening("b.py", 1, "<module>", "open()")]


def test_every_opening_of_the_tree_is_found(tmp_path: Path) -> None:
    """In the order of files and lines (DESIGN §3)."""
    plant(tmp_path, "open('a')\nopen('b')\n")
    plant(tmp_path, "def f():\n    open('c')\n", "deep/down/below.py")
    assert [line.split(":")[:2] for line in lint_open.problems(tmp_path, {})] == [
        ["deep/down/below.py", "2"],
        ["sqlite/room.py", "1"],
        ["sqlite/room.py", "2"],
    ]


def test_an_allowed_opening_is_allowed_in_its_function_only(tmp_path: Path) -> None:
    """Not in another one of the same file, nor in another file (DESIGN §3)."""
    plant(tmp_path, "def good():\n    open('/proc/a')\ndef bad():\n    open('a')\n")
    plant(tmp_path, "def good():\n    open('a')\n", "other.py")
    found = lint_open.problems(tmp_path, {("sqlite/room.py", "good"): "under /proc"})
    assert [line.split(": ")[:2] for line in found] == [
        ["other.py:2", "open() in good"],
        ["sqlite/room.py:4", "open() in bad"],
    ]


def test_an_entry_of_the_list_that_opens_nothing_is_a_problem(tmp_path: Path) -> None:
    """So that the list does not outlive its reasons (DESIGN §3)."""
    plant(tmp_path, "def good():\n    pass\n")
    assert lint_open.problems(tmp_path, {("sqlite/room.py", "good"): "it did once"}) == [
        "sqlite/room.py: good opens nothing: drop it from the allow list"
    ]


def test_the_package_itself_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands, without a word (DESIGN §3)."""
    assert lint_open.main() == 0
    assert capsys.readouterr().out == ""


def test_an_opening_planted_beside_the_package_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every source of the package, and one line more (DESIGN §3)."""
    for file in lint_open.PACKAGE.rglob("*.py"):
        plant(tmp_path, file.read_text(encoding="utf-8"), file.relative_to(lint_open.PACKAGE).as_posix())
    monkeypatch.setattr(lint_open, "PACKAGE", tmp_path)
    assert lint_open.main() == 0
    store = (tmp_path / "sqlite" / "store.py").read_text(encoding="utf-8")
    peek = "\n\ndef peek(path: str) -> bytes:\n    return open(path + '-wal', 'rb').read()\n"
    plant(tmp_path, store + peek, "sqlite/store.py")
    assert lint_open.main() == 1
    assert "open() in peek" in capsys.readouterr().out
