"""The Pythons of this machine, and for each an environment in which the suite runs.

Owns: where an interpreter is looked for: the names on the PATH, the launcher of Windows, and pyenv, which is asked for
what it has, since its names on the PATH are shims that only work for versions that are switched on. Invariant: each
one found has said itself which version it is, and that it can make an environment; no path is guessed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import environment

_QUESTION = (
    "import ensurepip, sys, venv; "
    "print('{}.{}'.format(*sys.version_info)); print(getattr(sys, '_base_executable', sys.executable))"
)
"""Asked of each candidate; without `ensurepip` and `venv` (Debian packs them apart) it cannot make an environment."""
_CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_VERSION = re.compile(r"3\.\d+")
ALL = "all"


class Unknown(ValueError):
    """Versions that were asked for in a way that cannot be answered."""


def supported() -> tuple[str, ...]:
    """Return the versions that `pyproject.toml` says the package is for, oldest first."""
    project = tomllib.loads((environment.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return tuple(found[1] for text in project["classifiers"] if (found := _CLASSIFIER.fullmatch(text)))


def find(version: str) -> Path | None:
    """Return an interpreter of a version, such as 3.12, that can make an environment; `None` when there is none."""
    for candidate in chain(_on_path(version), _of_pyenv(version)):
        said = _ask(*candidate, "-c", _QUESTION)
        if len(said) == 2 and said[0] == version:  # noqa: PLR2004 - the answers to the question
            return Path(said[1])
    return None


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the arguments of `tools/test.py` into the versions behind `--python` and what pytest gets.

    Raises:
        Unknown: `--python` without a version, or one that is too old.
    """
    if "--python" not in arguments:
        return [], list(arguments)
    place = arguments.index("--python")
    rest = list(arguments[place + 1 :])
    versions: list[str] = []
    while rest and (rest[0] == ALL or _VERSION.fullmatch(rest[0])):
        versions.append(rest.pop(0))
    if not versions or (ALL in versions and len(versions) > 1):
        raise Unknown(f"--python takes versions, such as {' '.join(supported())}, or {ALL} by itself")
    for version in versions:
        if version != ALL and tuple(map(int, version.split("."))) < environment.OLDEST:
            raise Unknown(f"litequeue needs Python {'{}.{}'.format(*environment.OLDEST)} or newer, not {version}")
    return list(dict.fromkeys(versions)), [*arguments[:place], *rest]


def run(versions: Sequence[str], command: Callable[[str], Sequence[str]]) -> int:
    """Run a command under each Python; return the exit status of the worst.

    `command` makes it for the interpreter of an environment. A version that is missing keeps all of them from running,
    unless `all` was asked for.
    """
    wanted = supported() if ALL in versions else versions
    found = {version: python for version in wanted if (python := find(version)) is not None}
    missing = [version for version in wanted if version not in found]
    parts = [f"{', '.join(names)} {word}" for names, word in ((found, "found"), (missing, "not found")) if names]
    environment.say(f"Python {'; '.join(parts)}")
    if not found or (missing and ALL not in versions):
        return 1
    statuses = {version: _run_under(version, python, command) for version, python in found.items()}
    if len(statuses) > 1:
        ends = (
            f"{version} {'passed' if status == 0 else f'failed ({status})'}" for version, status in statuses.items()
        )
        environment.say(f"Python {', '.join(ends)}")
    return max(statuses.values())


def _run_under(version: str, python: Path, command: Callable[[str], Sequence[str]]) -> int:
    place = environment.beside(version)
    place.bring_up_to_date({"dev"}, lambda: str(python))
    environment.say(f"the suite under Python {version}")
    status = subprocess.call(command(str(place.python)), cwd=environment.ROOT)
    return status if status >= 0 else 128 - status  # ended by a signal: as a shell says it


def _on_path(version: str) -> Iterator[tuple[str, ...]]:
    """Return every interpreter that the PATH names, not only the first: that one may be a shim that does not work."""
    yield (sys.executable,)
    for name in (f"python{version}", "python3", "python"):
        for folder in os.get_exec_path():
            found = shutil.which(name, path=folder)
            if found:
                yield (found,)
    launcher = shutil.which("py")
    if launcher:
        yield launcher, f"-{version}"


def _of_pyenv(version: str) -> Iterator[tuple[str, ...]]:
    """Return what pyenv has of a version, the newest first."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return
    of_version = re.compile(rf"{re.escape(version)}\.(\d+)")
    patches = [int(found[1]) for line in _ask(pyenv, "versions", "--bare") if (found := of_version.fullmatch(line))]
    for patch in sorted(patches, reverse=True):
        for prefix in _ask(pyenv, "prefix", f"{version}.{patch}"):
            yield (str(Path(prefix) / ("python.exe" if os.name == "nt" else "bin/python")),)


def _ask(*command: str) -> list[str]:
    """Return the lines that a command answers; none when it fails or is not there."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [line.strip() for line in done.stdout.splitlines()]
