"""The wheel: built from this tree, installed by itself, it works from another folder (issue "Repository").

Nothing is fetched: the build uses the environment's own hatchling, and the dependencies are taken from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent


def _run(command: list[str], folder: Path, **environment: str) -> str:
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the wheel that is built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the Python of an environment that has the wheel, and of this environment only the dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name == "posix")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    _run([sys.executable, "-m", "pip", f"--python={python}", *install], folder)
    # A path file adds this environment's packages, without their own path files: so not the editable package itself.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def test_the_wheel_carries_its_sql_and_its_types(wheel: Path) -> None:
    """`schema.sql`, `statements.sql` and `py.typed` travel inside (issue "Repository")."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        schema = archive.read("litequeue/sqlite/schema.sql")
    assert {"litequeue/py.typed", "litequeue/sqlite/schema.sql", "litequeue/sqlite/statements.sql"} <= names
    assert schema == (ROOT / "schema.sql").read_bytes()
    roots = {name.split("/")[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"litequeue"}


def test_the_wheel_names_its_dependencies_and_no_others(wheel: Path) -> None:
    """apsw, msgpack and click; the distribution is `litequeue-jobs` (issue "Repository")."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    assert "Name: litequeue-jobs" in lines
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist:")]
    needed = [line for line in required if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in needed) == ["apsw", "click", "msgpack"]
    (wants,) = (line for line in lines if line.startswith("Requires-Python:"))
    assert wants == "Requires-Python: >=3.11"


_MAIN_JOB = """
import litequeue, pathlib, sys
assert pathlib.Path(litequeue.__file__).is_relative_to(sys.prefix), litequeue.__file__
with litequeue.open("app.queue") as queue:
    queue.enqueue("ingest:pdf", {"path": "a.pdf"})
    lease = queue.lease_next(["ingest:"])
    lease.complete({"pages": 3})
    assert queue.get(lease.job_id).result == {"pages": 3}
    print(litequeue.Maintenance(queue).run_once().as_dict())
"""


def test_the_installed_wheel_works_from_another_folder(python: Path, tmp_path: Path) -> None:
    """Nothing of it needs the tree that it was built from (issue "done when")."""
    assert "'reaped': 0" in _run([str(python), "-c", _MAIN_JOB], tmp_path)


def test_the_command_of_the_installed_wheel_works_from_another_folder(python: Path, tmp_path: Path) -> None:
    """`litequeue` and `python -m litequeue` are the same command (§9)."""
    command = [str(python.with_name("litequeue"))]
    module = [str(python), "-m", "litequeue"]
    _run([*command, "--db", "app.queue", "init"], tmp_path)
    _run([*module, "--db", "app.queue", "enqueue", "mail", '{"to": "you"}'], tmp_path)
    listed = _run([*command, "jobs", "ls", "--json"], tmp_path, LITEQUEUE_DB="app.queue")
    assert "mail" in listed
    assert json.loads(listed)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["app.queue", "app.queue-bell", "app.queue-lock"]
