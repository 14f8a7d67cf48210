"""The wheel, installed into an environment of its own, is all that a user's program needs (issue "Packaging").

Nothing is fetched: its dependencies are copied from the environment of the tests. The programs in `user` are copied to
another folder, run there, and checked there by two type checkers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest

import litequeue
from tests.packaging.conftest import run

pytestmark = pytest.mark.slow

USER = Path(__file__).with_name("user")
HONEST = ("shop.py", "web.py", "test_shop.py")
NEEDED = ("apsw", "msgpack", "click", *(["colorama"] if os.name == "nt" else []))
EXTRAS = {"cron": "cronsim", "prometheus": "prometheus_client", "tui": "rich"}
"""What a user may add, and what is imported then."""


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the Python of an environment that has the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name == "posix")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = Path(run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    run([sys.executable, "-m", "pip", f"--python={python}", *install], folder)
    for name in NEEDED:
        for file in metadata.files(name) or ():
            if ".." not in file.parts:  # a command's script
                place = site / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), place)
    where = run([str(python), "-c", "import litequeue, sys; print(sys.prefix, litequeue.__file__, sep='\\n')"], folder)
    prefix, home = map(Path, where.splitlines())
    assert home.is_relative_to(prefix), where
    return python


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Give a folder with the user's programs."""
    return Path(shutil.copytree(USER, tmp_path / "user", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_command_does_a_users_own_job(python: Path, tmp_path: Path) -> None:
    """From an empty folder to a finished job, by `litequeue` and by `python -m litequeue`, which are the same (§9)."""
    command = [str(python.with_name("litequeue"))]
    module = [str(python), "-m", "litequeue"]
    for either in (command, module):
        assert litequeue.__version__ in run([*either, "--version"], tmp_path)
    (tmp_path / "app.py").write_text(
        "import litequeue\n\ntasks = litequeue.Tasks()\n\n\n"
        "@tasks.task('mail:send')\ndef send(to):\n    print('sending to', to)\n    return len(to)\n",
        encoding="utf-8",
    )
    run([*command, "--db", "app.queue", "init"], tmp_path)
    run([*module, "--db", "app.queue", "enqueue", "mail:send", '{"to": "you"}'], tmp_path)
    worked = run([*command, "--db", "app.queue", "work", "app:tasks", "--until-empty"], tmp_path)
    assert "sending to you" in worked
    assert "completed mail:send" in worked
    (job,) = json.loads(run([*command, "jobs", "ls", "--json"], tmp_path, LITEQUEUE_DB="app.queue"))
    assert (job["state"], job["kind"]) == ("completed", "mail:send")
    assert json.loads(run([*command, "--db", "app.queue", "stats", "--json"], tmp_path))["counts"]["completed"] == 1
    run([*command, "--db", "app.queue", "doctor"], tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith("app.queue")}
    assert left == {f"app.queue{suffix}" for suffix in ("", "-bell", "-lock", "-maintenance")}


def test_what_an_extra_is_for_says_so_without_it(python: Path, tmp_path: Path) -> None:
    """One line that names it; nothing else needs one."""
    command = [str(python), "-m", "litequeue", "--db", "app.queue"]
    run([*command, "init"], tmp_path)
    run([*command, "metrics"], tmp_path)
    run([*command, "schedule", "add", "often", "@every 5m", "report"], tmp_path)
    asks = {"cron": ["schedule", "add", "nightly", "0 2 * * *", "report"], "tui": ["top", "--once"]}
    for extra, words in asks.items():
        done = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in (1, 2), done
        assert f"litequeue-jobs[{extra}]" in done.stderr, done
        assert "Traceback" not in done.stderr
    absent = f"import importlib.util as found; assert not any(map(found.find_spec, {list(EXTRAS.values())}))"
    run([str(python), "-c", absent], tmp_path)


def test_a_users_programs_run(python: Path, user: Path) -> None:
    """The one that uses all of the package, and the one whose process must have no second SQLite (no apsw)."""
    run([str(python), "-W", "error", "shop.py", str(user)], user)
    run([str(python), "web.py", "web.db"], user)  # it may be warned that the SQLite of this Python is old


def test_a_users_tests_have_the_fixtures(python: Path, user: Path) -> None:
    """The plugin is found by its entry point, with nothing said (§9)."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", "test_shop.py"]
    told = run([str(python), *words], user, PYTHONPATH=sysconfig.get_path("purelib"))  # for pytest itself
    assert "1 passed" in told


def test_mypy_knows_what_is_right_and_what_is_wrong(python: Path, user: Path) -> None:
    """Strictly, by the types of the installed package; in `refused.py` a complaint that does not come is an error."""
    pytest.importorskip("mypy")
    words = ["--strict", "--enable-error-code=ignore-without-code", "--config-file=", "--cache-dir=cache"]
    told = run([sys.executable, "-m", "mypy", f"--python-executable={python}", *words, *HONEST, "refused.py"], user)
    assert "no issues found in 4 source files" in told


def test_pyright_knows_what_is_right_and_what_is_wrong(python: Path, user: Path) -> None:
    """The same by another checker, which has rules of its own."""
    pytest.importorskip("pyright")
    rules = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",  # with later ones apsw's types are whole, and an ignore of what they lack unneeded
        "enableTypeIgnoreComments": False,  # those are mypy's
        "reportUnnecessaryTypeIgnoreComment": "error",
        "include": [*HONEST, "refused.py"],
    }
    (user / "pyrightconfig.json").write_text(json.dumps(rules), encoding="utf-8")
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # that it is not the newest, for which it would ask the index
    told = run([sys.executable, "-m", "pyright", f"--pythonpath={python}"], user, **quiet)
    assert "0 errors, 0 warnings" in told
