"""The virtual environments that the commands of this repository run in.

Owns `.venv` in the repository's root, and those of other Pythons beside it (`pythons`): makes one when it is missing,
brings it up to date when `pyproject.toml` has changed, and runs the calling script again under the Python of `.venv`.
Needs only Python and the package index. Invariant: the stamp is there only while the installation is whole, so what a
killed run leaves is made anew. This file and the scripts that import it must parse and start on old Pythons (3.7 and
newer): they have to say what is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if sys.platform != "win32":
    import fcntl

ROOT = Path(__file__).resolve().parent.parent

OLDEST = (3, 11)
CANDIDATES = ("python3.13", "python3.12", "python3.11", "python3.14", "python3", "python", "py")
"""Where a newer Python may be when the running one is too old; those that have wheels for sure come first."""


class Environment:
    """One virtual environment in the root, with the package in it, editable."""

    def __init__(self, name: str) -> None:
        self.folder = ROOT / name
        self.python = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._stamp = self.folder / "litequeue-stamp"

    def is_current(self, wanted: set[str]) -> bool:
        """Tell whether what is installed is what `pyproject.toml` and a script want: the package with these extras."""
        return self._is_current(self._read_stamp(), wanted)

    def is_running(self) -> bool:
        """Tell whether this very process runs in it."""
        return Path(sys.prefix).resolve() == self.folder.resolve()

    def bring_up_to_date(self, wanted: set[str], base: Callable[[], str]) -> None:
        """Do what is missing, which is nothing when another process has done it meanwhile; `base` finds its Python."""
        with alone():
            stamp = self._read_stamp()
            if stamp is None:
                python = base()
                say(f"making {self.folder.name}")
                self._run([python, "-m", "venv", "--clear", str(self.folder)])
                self._install(wanted)
            elif not self._is_current(stamp, wanted):
                self._stamp.unlink()
                self._install(wanted.union(stamp[1:]))

    def _is_current(self, stamp: list[str] | None, wanted: set[str]) -> bool:
        return stamp is not None and stamp[0] == _fingerprint() and wanted <= set(stamp[1:])

    def _read_stamp(self) -> list[str] | None:
        """Return fingerprint and extras of the last installation; `None` when there is none to build on."""
        if not self.python.exists():  # also when the Python that it was made from has gone
            return None
        try:
            place, *stamp = self._stamp.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return None
        return stamp if place == str(ROOT) else None  # a moved environment has the old place in its commands

    def _install(self, extras: set[str]) -> None:
        """Install the package, editable, with `extras`, and set the stamp."""
        names = ",".join(sorted(extras))
        say(f"installing the package into {self.folder.name}" + (f" with {names}" if names else ""))
        target = f".[{names}]" if names else "."
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", target]
        self._run([str(self.python), *install])
        self._stamp.write_text("\n".join([str(ROOT), _fingerprint(), *sorted(extras)]), encoding="utf-8")

    def _run(self, command: list[str]) -> None:
        """Run a step of the installation in the root; when it fails, its own words above ours explain it."""
        if subprocess.call(command, cwd=ROOT, stdout=sys.stderr, close_fds=False) != 0:
            sys.exit(f"litequeue: could not prepare {self.folder.name}; this failed: {' '.join(command)}")


def ensure(extra: str | None = None) -> None:
    """Return inside an up-to-date environment; from any other Python, start the script again in `.venv`.

    `extra` names the optional dependencies that the script needs besides the package's own (`None`: none). What
    another script has asked for stays installed, so they all share one environment. A script that already runs in the
    environment of its Python (`beside`), as those do that the tests start there, stays in it.
    """
    wanted = {extra} if extra else set()
    for ours in (OWN, beside("{}.{}".format(*sys.version_info))):
        if ours.is_running() and ours.is_current(wanted):
            return
    if not OWN.is_current(wanted):
        OWN.bring_up_to_date(wanted, _new_enough_python)
    _run_again()


def beside(version: str) -> Environment:
    """Return the environment of a Python, such as 3.12, whether it is there or not."""
    return Environment(f".venv-{version}")


def _fingerprint() -> str:
    """Return what an installation is made from."""
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process at a time install in this repository, by a lock on the root folder itself.

    Two scripts started at once in a fresh clone would clear each other's half-made environment. The steps
    inherit the lock, so that a step that outlives its killed script is waited for too. Not on Windows.
    """
    if sys.platform == "win32":
        yield
    else:
        folder = os.open(ROOT, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            os.set_inheritable(folder, True)  # noqa: FBT003 - it takes no keywords
            yield
        finally:
            os.close(folder)


def _new_enough_python() -> str:
    """Return a Python that can make the environment: the running one if it can, else one from the PATH."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for name in CANDIDATES:
        found = shutil.which(name)
        if found and _is_new_enough(found):
            return found
    sys.exit(f"litequeue needs Python 3.11 or newer; this is {sys.version_info[0]}.{sys.version_info[1]}")


def _is_new_enough(python: str) -> bool:
    """Ask that Python itself: a name on the PATH may be a shim for a version that is not installed."""
    code = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    return subprocess.call([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def _run_again() -> None:
    """Become the same script under the Python of `.venv`."""
    command = [str(OWN.python), *sys.argv]
    if os.name == "nt":  # Windows has no exec: its imitation returns to the shell before the script is done
        sys.exit(subprocess.call(command))
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - no shell wanted


def say(what: str) -> None:
    """Tell on stderr, so that a script's own output stays clean."""
    print(f"litequeue: {what}", file=sys.stderr, flush=True)


OWN = Environment(".venv")
"""The one that every script runs in."""
