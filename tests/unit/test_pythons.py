"""The suite under other Pythons: where they are looked for, what is asked for, and which environment a script stays in.

Interpreters and pyenv are played by small shell scripts, so that every machine gives the same answers.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import environment
import pythons

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the interpreters here are shell scripts")

ANSWER = 'echo "{version}"; echo "{path}"'
NOT_THERE = "echo 'not installed' >&2; exit 127"


class Machine:
    """What is on the PATH: two folders, one before the other."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second, self.versions = folder / "first", folder / "second", folder / "versions"
        self.path = os.pathsep.join([str(self.first), str(self.second)])

    def put(self, place: Path, script: str) -> Path:
        """Make a command."""
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        place.chmod(0o700)
        return place

    def python(self, place: Path, version: str) -> Path:
        """Make an interpreter of that version."""
        return self.put(place, ANSWER.format(version=version, path=place))

    def pyenv(self, *versions: str) -> list[Path]:
        """Make a pyenv that has these versions, none of them switched on; return their interpreters."""
        listed = "".join(f"echo {version}; " for version in versions)
        self.put(self.second / "pyenv", f'case $1 in versions) {listed};; prefix) echo "{self.versions}/$2";; esac')
        for name in {f"python{version.rpartition('.')[0]}" for version in versions}:
            self.put(self.first / name, NOT_THERE)
        return [self.python(self.versions / version / "bin/python", version.rpartition(".")[0]) for version in versions]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Give a machine whose PATH has nothing of the real one's, and whose running Python says nothing."""
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", machine.path)
    monkeypatch.setattr(sys, "executable", str(machine.put(tmp_path / "running", NOT_THERE)))
    return machine


def test_an_interpreter_is_found_by_the_name_of_its_version(machine: Machine) -> None:
    """`python3.12` on the PATH, when it says that it is one."""
    found = machine.python(machine.second / "python3.12", "3.12")
    assert pythons.find("3.12") == found
    assert pythons.find("3.13") is None


def test_a_name_that_does_not_work_hides_no_other(machine: Machine) -> None:
    """A shim for a version that is switched off stands before the system's own of the same name."""
    machine.put(machine.first / "python3.12", NOT_THERE)
    found = machine.python(machine.second / "python3.12", "3.12")
    assert pythons.find("3.12") == found


def test_an_interpreter_is_believed_not_its_name(machine: Machine) -> None:
    """`python3` may be of the version; and `python3.12` of another."""
    machine.python(machine.first / "python3.12", "3.11")
    found = machine.python(machine.second / "python3", "3.12")
    assert pythons.find("3.12") == found


def test_pyenv_is_asked_for_what_is_not_switched_on(machine: Machine) -> None:
    """The newest patch of the version, by number; environments and other builds that pyenv lists are none."""
    *_, newest = machine.pyenv("3.12.1", "3.12.9", "3.13.0", "3.12.10")
    assert pythons.find("3.12") == newest
    machine.put(machine.second / "pyenv", "echo 3.12.1/envs/own; echo miniforge3-3.12.2; echo own; echo 3.121.1")
    assert pythons.find("3.12") is None


def test_a_pyenv_that_fails_is_one_that_has_nothing(machine: Machine) -> None:
    """No traceback, and no other version is lost by it."""
    machine.put(machine.first / "pyenv", NOT_THERE)
    found = machine.python(machine.second / "python3.11", "3.11")
    assert pythons.find("3.12") is None
    assert pythons.find("3.11") == found


def test_this_python_is_found_as_what_its_environment_was_made_from() -> None:
    """The real question to a real interpreter: an environment is never made from an environment."""
    found = pythons.find("{}.{}".format(*sys.version_info))
    assert found is not None
    asked = [str(found), "-c", "import sys; print(sys.prefix == sys.base_prefix, '{}.{}'.format(*sys.version_info))"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    assert answer == ["True", "{}.{}".format(*sys.version_info)]


def test_the_supported_versions_are_those_of_the_project() -> None:
    """Oldest first, and the oldest is the one that `requires-python` and the tools ask for."""
    versions = [tuple(map(int, version.split("."))) for version in pythons.supported()]
    assert versions == sorted(versions)
    assert versions[0] == environment.OLDEST
    project = (environment.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={pythons.supported()[0]}"' in project


@pytest.mark.parametrize(
    ("arguments", "versions", "rest"),
    [
        ([], [], []),
        (["-k", "fencing"], [], ["-k", "fencing"]),
        (["--python", "3.11"], ["3.11"], []),
        (["--python", "3.12", "3.11", "3.12"], ["3.12", "3.11"], []),
        (["--python", "3.12", "tests/unit", "-k", "3.11"], ["3.12"], ["tests/unit", "-k", "3.11"]),
        (["-x", "--python", "all", "-q"], ["all"], ["-x", "-q"]),
    ],
)
def test_arguments_behind_the_versions_go_to_pytest(arguments: list[str], versions: list[str], rest: list[str]) -> None:
    """A version is a version only directly behind `--python`; each runs once."""
    assert pythons.split(arguments) == (versions, rest)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--python"], "--python takes versions"),
        (["--python", "-x"], "--python takes versions"),
        (["--python", "all", "3.12"], "--python takes versions"),
        (["--python", "3.12", "3.10"], "needs Python 3.11 or newer, not 3.10"),
    ],
)
def test_versions_that_cannot_be_meant_are_refused(arguments: list[str], complaint: str) -> None:
    """One line that says what may be given."""
    with pytest.raises(pythons.Unknown, match=complaint):
        pythons.split(arguments)


@pytest.fixture
def made(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Give the environments that are made, as name and interpreter; their Python ends with what `STATUS` says."""
    made: list[tuple[str, str]] = []

    def make(place: environment.Environment, wanted: set[str], base: object) -> None:
        assert wanted == {"dev"}
        assert callable(base)
        made.append((place.folder.name, base()))
        version = place.folder.name.removeprefix(".venv-")
        machine.put(place.python, f"eval $STATUS_{version.replace('.', '_')}")

    monkeypatch.setattr(environment, "ROOT", machine.first.parent)
    monkeypatch.setattr(environment.Environment, "bring_up_to_date", make)
    monkeypatch.setattr(pythons, "supported", lambda: ("3.11", "3.12", "3.13"))
    return made


def suite(python: str) -> Sequence[str]:
    """Return what is run here in the place of the suite."""
    return [python, "-m", "pytest"]


def test_the_worst_status_counts_and_each_python_has_its_say(
    machine: Machine,
    made: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One failure does not keep the next from running; a crash of the interpreter is a failure, too."""
    found = [machine.python(machine.first / f"python{version}", version) for version in ("3.11", "3.12", "3.13")]
    monkeypatch.setenv("STATUS_3_11", "exit 2")
    monkeypatch.setenv("STATUS_3_12", "kill -9 $$")
    monkeypatch.setenv("STATUS_3_13", "exit 0")
    assert pythons.run(["3.11", "3.12", "3.13"], suite) == 128 + 9
    assert made == [(f".venv-3.{11 + number}", str(python)) for number, python in enumerate(found)]
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "litequeue: Python 3.11, 3.12, 3.13 found"
    assert said[-1] == "litequeue: Python 3.11 failed (2), 3.12 failed (137), 3.13 passed"
    assert pythons.run(["3.13"], suite) == 0
    assert pythons.run(["3.13", "3.11"], suite) == 2


def test_a_named_version_that_is_missing_is_a_failure(
    machine: Machine, made: list[tuple[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing runs, so that nobody takes a green line for the whole."""
    machine.python(machine.first / "python3.11", "3.11")
    assert pythons.run(["3.11", "3.12", "3.13"], suite) == 1
    assert capfd.readouterr().err == "litequeue: Python 3.11 found; 3.12, 3.13 not found\n"
    assert made == []


def test_all_are_those_that_are_there(
    machine: Machine, made: list[tuple[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    """The missing ones are named and do no harm; none at all is a failure."""
    assert pythons.run([pythons.ALL], suite) == 1
    assert capfd.readouterr().err == "litequeue: Python 3.11, 3.12, 3.13 not found\n"
    machine.python(machine.first / "python3.12", "3.12")
    assert pythons.run([pythons.ALL], suite) == 0
    assert capfd.readouterr().err.startswith("litequeue: Python 3.12 found; 3.11, 3.13 not found\n")
    assert [name for name, _ in made] == [".venv-3.12"]


@pytest.mark.parametrize(("changed", "stays"), [(False, True), (True, False)])
def test_a_script_stays_in_the_environment_of_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, changed: bool, stays: bool
) -> None:
    """Else a harness that a test starts under 3.12 is quietly run by the Python of `.venv`; not when it is stale."""
    (tmp_path / "pyproject.toml").write_text("[project]", encoding="utf-8")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    beside = environment.beside("{}.{}".format(*sys.version_info))
    beside.python.parent.mkdir(parents=True)
    beside.python.touch()
    fingerprint = "another" if changed else hashlib.sha256(b"[project]").hexdigest()
    (beside.folder / "litequeue-stamp").write_text(f"{tmp_path}\n{fingerprint}\ndev", encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(beside.folder))
    left: list[str] = []
    monkeypatch.setattr(environment.Environment, "bring_up_to_date", lambda *_: None)
    monkeypatch.setattr(environment, "_run_again", lambda: left.append("left"))
    environment.ensure("dev")
    assert left == ([] if stays else ["left"])
