"""What is built from this tree, without a network: by the environment's own hatchling."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a command with nothing of this tree on its path; return what it printed."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the sdist of this tree, and with the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("built")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    """Give the wheel."""
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def sdist(built: Path) -> Path:
    """Give the sdist."""
    (sdist,) = built.glob("*.tar.gz")
    return sdist
