"""The virtual environment that the other libraries of the benchmark live in: `.venv-peers`, from `peers.txt`.

Ours never has them: one has our import name. Invariant: a library that cannot be installed is left out with its reason
and keeps none of the others out; it is tried again the next time. What a killed run leaves is made anew, as the stamp
is there only while an installation is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import environment
import pythons

VENV = environment.ROOT / ".venv-peers"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "peers-stamp"
REQUIREMENTS = Path(__file__).resolve().parent / "peers.txt"
WANTED = (3, 12)
"""What all of them need; an older Python leaves some of them out."""

_ADAPTERS = {"litequeue": "litements"}
"""Where the adapter's name is not the distribution's."""


@dataclass(frozen=True, slots=True)
class Peers:
    """What there is to measure."""

    python: Path
    adapters: tuple[str, ...]
    """By the names of their files in `peers/`."""
    left_out: Mapping[str, str]
    """Adapter to why its library is not there."""


def prepare() -> Peers:
    """Bring the environment up to date, if it is not, and return it."""
    with environment.alone():
        missing = _read_stamp()
        if missing is None:
            base = suitable_python()
            environment.say(f"making {VENV.name}")
            _run([str(base), "-m", "venv", "--clear", str(VENV)])
            missing = dict.fromkeys(requirements(), "")
        if missing:
            missing = _install(missing)
            stamp = {"place": str(environment.ROOT), "fingerprint": _fingerprint(), "missing": missing}
            STAMP.write_text(json.dumps(stamp), encoding="utf-8")
    left_out = {adapter_of(requirement): reason for requirement, reason in missing.items()}
    adapters = [adapter_of(requirement) for requirement in requirements()]
    return Peers(PYTHON, tuple(name for name in adapters if name not in left_out), left_out)


def requirements() -> list[str]:
    """Return the lines of `peers.txt`, without what they say besides."""
    lines = (line.partition("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def adapter_of(requirement: str) -> str:
    """Return the name of the adapter's file."""
    distribution = requirement.partition("==")[0]
    return _ADAPTERS.get(distribution, distribution.replace("-", "_"))


def suitable_python() -> Path:
    """Return the Python that the environment is made from: ours if it is new enough, else the oldest one that is.

    The nearer it is to ours, the less the figures tell of Pythons. When there is none, ours has to do.
    """
    own = Path(getattr(sys, "_base_executable", sys.executable))
    if sys.version_info[:2] >= WANTED:
        return own
    newer = (version for version in pythons.supported() if tuple(map(int, version.split("."))) >= WANTED)
    return next((found for version in newer if (found := pythons.find(version)) is not None), own)


def _read_stamp() -> dict[str, str] | None:
    """Return what is missing and why; `None` when the environment has to be made anew."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    is_ours = PYTHON.exists() and stamp["place"] == str(environment.ROOT) and stamp["fingerprint"] == _fingerprint()
    return cast("dict[str, str]", stamp["missing"]) if is_ours else None


def _fingerprint() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


def _install(wanted: Iterable[str]) -> dict[str, str]:
    """Install all at once, or else one by one; return those that could not be, with the reason."""
    environment.say(f"installing {', '.join(wanted)}")
    if _why_not(*wanted) is None:
        return {}
    failed = {requirement: _why_not(requirement) for requirement in wanted}
    return {requirement: reason for requirement, reason in failed.items() if reason is not None}


def _why_not(*wanted: str) -> str | None:
    """Install; return the first complaint of pip's when it fails, which says more than the last."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, cwd=environment.ROOT, check=False)
    if done.returncode == 0:
        return None
    complaints = [line for line in done.stderr.splitlines() if line.lower().startswith("error: ")]
    return complaints[0].partition(" ")[2] if complaints else f"pip ended with {done.returncode}"


def _run(command: list[str]) -> None:
    if subprocess.call(command, cwd=environment.ROOT, stdout=sys.stderr) != 0:
        sys.exit(f"could not prepare {VENV.name}; this failed: {' '.join(command)}")
