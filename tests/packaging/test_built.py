"""What is in the wheel and in the sdist: all that is needed, and nothing else (issue "Packaging")."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packaging.conftest import ROOT, run

if TYPE_CHECKING:
    from email.message import Message

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_THE_WHEEL = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
OF_THE_SDIST = {"docs", "examples", "litequeue", "schema.sql", "tests", "tools"} | {
    *("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore")
}


def contents(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel, or of an sdist without its topmost folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as unpacked:
            return {name: unpacked.read(name) for name in unpacked.namelist()}
    with tarfile.open(archive) as unpacked:
        files = {member.name.partition("/")[2]: unpacked.extractfile(member) for member in unpacked}
        return {name: file.read() for name, file in files.items() if file is not None}


def metadata(wheel: Path) -> Message:
    """Return what a wheel says of itself."""
    (found,) = (text for name, text in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(found.decode())


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    """Its code, its SQL and its `py.typed`; no tests, no tools."""
    files = contents(wheel)
    own = [path for path in (ROOT / "litequeue").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in own} == {".py", ".sql", ".typed"}
    found = {name for name in files if not name.partition("/")[0].endswith(".dist-info")}
    assert found == {path.relative_to(ROOT).as_posix() for path in own}
    assert {"litequeue/py.typed", "litequeue/sqlite/schema.sql", "litequeue/sqlite/statements.sql"} <= found
    assert files["litequeue/sqlite/schema.sql"] == (ROOT / "schema.sql").read_bytes()
    assert {name.partition("/")[2] for name in files.keys() - found} == OF_THE_WHEEL


def test_the_sdist_has_what_its_tests_need_and_nothing_else(sdist: Path) -> None:
    """Documentation too, whose blocks the tests run; nothing that a tool has left behind."""
    files = contents(sdist)
    assert {name.partition("/")[0] for name in files} == OF_THE_SDIST
    left = [name for name in files if "__pycache__" in name or name.endswith((".pyc", ".queue", "-wal", "-lock"))]
    assert not left
    assert files["schema.sql"] == files["litequeue/sqlite/schema.sql"] == (ROOT / "schema.sql").read_bytes()


def test_neither_names_a_place_of_this_machine(wheel: Path, sdist: Path) -> None:
    """The folder of this tree, the home folder, the environment that it was built in."""
    places = {str(place).encode() for place in (ROOT, Path.home(), sys.prefix, sys.base_prefix)} - {b"/", b"/usr"}
    named = {
        f"{archive.name}: {name} names {place.decode()}"
        for archive in (wheel, sdist)
        for name, content in contents(archive).items()
        for place in places
        if place in content
    }
    assert not named


def test_the_tree_builds_the_same_wheel_as_the_sdist(wheel: Path, tmp_path: Path) -> None:
    """Byte for byte, so an installation from source is the same."""
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)], tmp_path)
    assert contents(tmp_path / wheel.name) == contents(wheel)


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    """apsw, msgpack and click; extras as in `pyproject.toml`; the distribution is `litequeue-jobs`."""
    told = metadata(wheel)
    assert (told["Name"], told["Requires-Python"]) == ("litequeue-jobs", ">=3.11")
    needed = [line for line in told.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in needed) == ["apsw", "click", "msgpack"]
    assert {"bench", "cron", "prometheus", "tui"} <= set(PROJECT["optional-dependencies"])
    assert sorted(told.get_all("Provides-Extra", [])) == sorted(PROJECT["optional-dependencies"])
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert told["Description-Content-Type"] == "text/markdown"
