"""The virtual environment that every command of this repository runs in.

Owns `.venv` in the repository's root: makes it when it is missing, brings it up to date when `pyproject.toml`
has changed, and runs the calling script again under its Python. Needs only Python and the package index.
Invariant: the stamp is there only while the installation is whole, so what a killed run leaves is made anew.
This file and the scripts that import it must parse and start on old Pythons (3.7 and newer): they have to say
what is missing.
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
    from collections.abc import Iterator

if sys.platform != "win32":
    import fcntl

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "litequeue-stamp"

OLDEST = (3, 11)
CANDIDATES = ("python3.13", "python3.12", "python3.11", "python3.14", "python3", "python", "py")
"""Where a newer Python may be when the running one is too old; those that have wheels for sure come first."""


def ensure(extra: str | None = None) -> None:
    """Return inside an up-to-date `.venv`; from any other Python, start the script again in there.

    `extra` names the optional dependencies that the script needs besides the package's own (`None`: none).
    What another script has asked for stays installed, so they all share one environment.
    """
    wanted = {extra} if extra else set()
    if _is_current(_read_stamp(), wanted):
        if Path(sys.prefix).resolve() == VENV.resolve():
            return
    else:
        with alone():
            _bring_up_to_date(wanted)
    _run_again()


def _bring_up_to_date(wanted: set[str]) -> None:
    """Do what is missing, which is nothing when another process has done it meanwhile."""
    stamp = _read_stamp()
    if stamp is None:
        base = _new_enough_python()
        say("making .venv")
        _run([base, "-m", "venv", "--clear", str(VENV)])
        _install(wanted)
    elif not _is_current(stamp, wanted):
        STAMP.unlink()
        _install(wanted.union(stamp[1:]))


def _is_current(stamp: list[str] | None, wanted: set[str]) -> bool:
    """Tell whether what is installed is what `pyproject.toml` and the script want."""
    return stamp is not None and stamp[0] == _fingerprint() and wanted <= set(stamp[1:])


def _fingerprint() -> str:
    """Return what the installation was made from."""
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()


def _read_stamp() -> list[str] | None:
    """Return fingerprint and extras of the last installation; `None` when there is none to build on."""
    if not PYTHON.exists():  # also when the Python that it was made from has gone
        return None
    try:
        place, *stamp = STAMP.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return None
    return stamp if place == str(ROOT) else None  # a moved environment has the old place in its commands


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


def _install(extras: set[str]) -> None:
    """Install the package, editable, with `extras`, and set the stamp."""
    names = ",".join(sorted(extras))
    say("installing the package" + (f" with {names}" if names else ""))
    target = f".[{names}]" if names else "."
    _run([str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", target])
    STAMP.write_text("\n".join([str(ROOT), _fingerprint(), *sorted(extras)]), encoding="utf-8")


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
    """Become the same script under the environment's Python."""
    command = [str(PYTHON), *sys.argv]
    if os.name == "nt":  # Windows has no exec: its imitation returns to the shell before the script is done
        sys.exit(subprocess.call(command))
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - no shell wanted


def _run(command: list[str]) -> None:
    """Run a step of the installation in the root; when it fails, its own words above ours explain it."""
    if subprocess.call(command, cwd=ROOT, stdout=sys.stderr, close_fds=False) != 0:
        sys.exit(f"litequeue: could not prepare .venv; this failed: {' '.join(command)}")


def say(what: str) -> None:
    """Tell on stderr, so that a script's own output stays clean."""
    print(f"litequeue: {what}", file=sys.stderr, flush=True)
