"""What the pages show, runs: block after block, as a reader would paste and type it, in a fresh folder."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import runpy
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import litequeue
from litequeue import JobState
from litequeue.cli import litequeue as command

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:`(?P<file>\w+\.py)`:\n\n)?^```(?P<language>python|console)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
"""A block; one that is the contents of a file stands below its name."""
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if BLOCK.search(page.read_text(encoding="utf-8")) and page.name != "work.md"  # which has a test of its own
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the current folder, a fresh one; the modules that a page puts there are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])  # as of a script in it
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the test runner keeps its own handlers
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.mark.filterwarnings("ignore:this process writes")  # of an old SQLite in `sqlite3`, on the page about it
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_in_their_order(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who pastes one block after the other, and types the commands, sees what the page shows.

    What has tests in it is a file of tests, which pytest runs with the fixtures that they ask for.
    """
    blocks = list(BLOCK.finditer(page.read_text(encoding="utf-8")))
    python = "\n\n".join(block["text"] for block in blocks if block["language"] == "python" and not block["file"])
    has_tests = _has_tests(python)
    if has_tests:
        (folder / "test_page.py").write_text(python, encoding="utf-8")
        _test(folder / "test_page.py")
    names: dict[str, Any] = {"__name__": "__page__"}
    terminal = Terminal(monkeypatch)
    for block in blocks:
        if block["language"] == "console":
            terminal.type(block["text"])
        elif block["file"]:
            (folder / block["file"]).write_text(block["text"], encoding="utf-8")
            if _has_tests(block["text"]):
                _test(folder / block["file"])
        elif not has_tests:
            exec(compile(block["text"], str(page), "exec"), names)  # noqa: S102 - our own page


def _has_tests(python: str) -> bool:
    return re.search(r"^ *def test_\w+", python, re.MULTILINE) is not None


def _test(file: Path) -> None:
    """Run a file of tests, in a process of its own as a reader does."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", file.name]
    told = subprocess.run(words, cwd=file.parent, capture_output=True, text=True, check=False, timeout=120)
    assert told.returncode == 0, told.stdout + told.stderr


class Terminal:
    """What is typed in the console blocks of a page, with the real ids of jobs instead of those that it shows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._ids: dict[str, str] = {}
        """By the ids that the page shows."""

    def type(self, console: str) -> None:
        """Run each line; where the page shows what is printed, see that it is, `…` being anything."""
        for typed in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            line, _, shown = typed.partition("\n")
            told = self._run([self._ids.get(word, word) for word in shlex.split(line, comments=True)])
            if shown.strip():
                self._compare(line, shown, told)

    def _compare(self, line: str, shown: str, told: str) -> None:
        parts = re.split(rf"(…|{UUID})", _plain(shown))
        new = list(dict.fromkeys(part for part in parts if re.fullmatch(UUID, part) and part not in self._ids))
        seen: set[str] = set()
        pattern = ""
        for part in parts:
            if part == "…":
                pattern += ".*"
            elif part in new:
                pattern += f"(?P=id{new.index(part)})" if part in seen else f"(?P<id{new.index(part)}>{UUID})"
                seen.add(part)
            else:
                pattern += re.escape(self._ids.get(part, part))
        found = re.fullmatch(pattern, _plain(told), re.DOTALL)
        assert found is not None, f"{line}\n{told}"
        self._ids |= {part: found[f"id{place}"] for place, part in enumerate(new)}

    def _run(self, words: list[str]) -> str:
        match words:
            case ["export", setting]:
                self._monkeypatch.setenv(*setting.split("=", 1))
            case ["echo", text, ">", file]:
                Path(file).write_text(f"{text}\n", encoding="utf-8")
            case ["python", file] if Path(file).exists():
                told = io.StringIO()
                with contextlib.redirect_stdout(told):
                    runpy.run_path(file, run_name="__main__")
                return told.getvalue()
            case ["python", file]:  # a tool, which has tests of its own
                assert (ROOT / file).exists(), file
            case ["litequeue", *arguments]:
                with self._monkeypatch.context() as patch:
                    patch.setattr(
                        logging.root, "handlers", []
                    )  # the test runner's, to which `work` would leave its lines
                    result = CliRunner().invoke(command, arguments)
                assert result.exit_code == 0, f"{arguments}: {result.output}"
                return result.output
            case _:
                pytest.fail(f"nobody has tried {words}")
        return ""


def _plain(text: str) -> str:
    """Return text without what depends on how wide the columns are."""
    return "\n".join(re.sub(" +", " ", line).strip() for line in text.strip().splitlines())


def test_each_console_block_has_commands_to_type() -> None:
    """What has none would not be run."""
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            assert block["language"] == "python" or block["text"].startswith("$ "), (page, block["text"])


def test_the_loop_of_the_page_on_leasing_works_until_it_is_stopped(folder: Path) -> None:
    """Its function, with the event that its signal handler would set."""
    page = ROOT / "docs" / "guide" / "leasing.md"
    (loop,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "__page__"}
    exec(compile(loop, str(page), "exec"), names)  # noqa: S102 - our own page
    path = folder / "app.queue"
    with litequeue.open(path) as queue:
        job_id = queue.enqueue("work").job_id
        worker = threading.Thread(target=names["work"], args=(str(path), 0.01))
        worker.start()
        try:
            assert queue.wait_for(job_id, 30).state is JobState.COMPLETED
        finally:
            names["stop"].set()
            worker.join()
