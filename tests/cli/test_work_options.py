"""`work`: MODULE:OBJECT, the options, the log and the exit status, in this process and in a moment."""

from __future__ import annotations

import logging
import re
from typing import IO, TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, SYSTEM, JobState, StorageLost
from litequeue.worker import Ending
from tests.cli.conftest import Cli, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litequeue import Queue

MODULE = """
import collections, logging
import litequeue

tasks = litequeue.Tasks()

@tasks.task("greet")
def greet(name):
    return f"hello {name}"

def fail(lease):
    raise ValueError(lease.payload)

handlers = {"count": lambda lease: len(lease.payload), "fail:": fail}

def both():
    return {**tasks, **handlers}

async def asynchronous():
    return handlers

def nothing():
    return None

def broken():
    raise LookupError("no settings")

class Nested:
    handlers = handlers

number = 5

def __getattr__(name):
    if name == "lazy":
        raise RuntimeError("not now")
    raise AttributeError(name)
"""
LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO   |WARNING) (.*)"


class Alone(Cli):
    """The command as in a process of its own, where nobody has set up logging; a test runner has."""

    def __call__(self, *arguments: object, stdin: str | bytes | IO[bytes] | None = None) -> Outcome:
        """Run the command."""
        root = logging.getLogger()
        before, root.handlers, level = root.handlers, [], root.level
        try:
            return super().__call__(*arguments, stdin=stdin)
        finally:
            for handler in root.handlers:
                handler.close()
            root.handlers = before
            root.setLevel(level)


@pytest.fixture
def work(folder: Path, cli: Cli) -> Alone:
    """Give the command, with a queue and a module `app` beside it."""
    (folder / "app.py").write_text(MODULE, encoding="utf-8")
    cli.done("init")
    return Alone(cli.path)


def log(err: str) -> list[tuple[str, str]]:
    """Return level and message of each line of the log."""
    found = [re.fullmatch(LINE, line) for line in err.splitlines()]
    assert all(found), err
    return [(line[1].strip(), line[2]) for line in found if line is not None]


def complaint(err: str) -> str:
    """Return the one line after the log."""
    *lines, last = err.splitlines()
    assert last.startswith("litequeue: ")
    log("\n".join(lines))
    return last.removeprefix("litequeue: ")


@pytest.mark.parametrize("name", ["app:tasks", "app:handlers", "app:both", "app:Nested.handlers"])
def test_tasks_a_mapping_and_a_function_that_returns_one_are_worked_with(work: Cli, name: str) -> None:
    """Each is found in a module of the current folder, by its path in it (issue 5)."""
    kind, payload = ("greet", '[["you"], {}]') if name != "app:handlers" and "Nested" not in name else ("count", "[1]")
    job_id = work.done("enqueue", kind, payload).strip()
    outcome = work("work", name, "--until-empty", "--no-maintenance")
    assert (outcome.status, outcome.out) == (0, "")
    with litequeue.open(work.path, create=False) as queue:
        assert queue.get(job_id).result == ("hello you" if kind == "greet" else 1)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("app", "'app' is not MODULE:OBJECT"),
        ("app:", "'app:' is not MODULE:OBJECT"),
        (":tasks", "':tasks' is not MODULE:OBJECT"),
        ("..app:tasks", "'..app:tasks' is not MODULE:OBJECT"),
        ("app:tasks.", "'app:tasks.' is not MODULE:OBJECT"),
        ("elsewhere:tasks", "there is no module 'elsewhere', here or on Python's path"),
        ("elsewhere.app:tasks", "there is no module 'elsewhere', here or on Python's path"),
        ("app.inner:tasks", "there is no module 'app.inner', here or on Python's path"),
        ("app.py:tasks", "there is no module 'app.py', here or on Python's path; a module is named as in an import"),
        ("./app:tasks", "is not MODULE:OBJECT"),
        ("app:task", "'app' has no 'task'; it has 'tasks', 'handlers'"),
        ("app:Nested.tasks", "'app.Nested' has no 'tasks'; it has 'handlers'"),
        ("os.path:tasks", "'os.path' has no 'tasks'"),
        ("app:greet", "'app:greet' is one task; give the Tasks that it is in, or a mapping"),
        ("app:fail", "'app:fail' is a function that takes arguments; give Tasks, a mapping of kinds"),
        ("app:asynchronous", "'app:asynchronous' is an asynchronous function; give Tasks, a mapping of kinds"),
        ("app:number", "'app:number' is an object of the type int; give Tasks, a mapping of kinds"),
        ("app:nothing", "'app:nothing' returned None; give Tasks, a mapping of kinds"),
        ("app:Nested", "'app:Nested' returned an object of the type Nested; give Tasks, a mapping of kinds"),
        ("collections:OrderedDict", "'collections:OrderedDict' has no tasks or handlers: is the module that defines"),
    ],
)
def test_a_name_that_leads_nowhere_is_wrong_usage(work: Cli, name: str, line: str) -> None:
    """One line that says what is wrong with it, status 2, and no traceback (§9, issue 5)."""
    assert line in work("work", name).line_of_failure(2)


@pytest.mark.parametrize(
    ("source", "line", "shown"),
    [
        (
            "x = 1\nraise ValueError('no \x1b[31mred')",
            "importing 'bad' failed: ValueError: no \\u001b[31mred",
            "line 2",
        ),
        ("import elsewhere", "importing 'bad' failed: ModuleNotFoundError: No module named 'elsewhere'", "line 1"),
        ("def f(:\n    pass", "importing 'bad' failed: SyntaxError: invalid syntax (bad.py, line 1)", "def f(:"),
        ("raise SystemExit(3)", "importing 'bad' failed: SystemExit: 3", "raise SystemExit(3)"),
        ("import app\ntasks = app.broken()", "importing 'bad' failed: LookupError: no settings", "app.py"),
    ],
)
def test_an_error_of_the_user_s_module_is_shown_with_where_it_was(
    work: Cli, folder: Path, source: str, line: str, shown: str
) -> None:
    """The last lines of its traceback, none of ours, one line of what failed, and status 1 (issue 5)."""
    (folder / "bad.py").write_text(source, encoding="utf-8")
    outcome = work("work", "bad:tasks")
    assert (outcome.status, outcome.out) == (1, "")
    *trace, last = outcome.err.splitlines()
    assert last == f"litequeue: {line}"
    assert shown in "\n".join(trace)
    assert str(folder) in "\n".join(trace)
    assert "importlib" not in outcome.err
    assert "cli/" not in outcome.err
    assert "\x1b" not in outcome.err


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("app:broken", "calling 'app:broken' failed: LookupError: no settings"),
        ("app:lazy", "asking 'app' for 'lazy' failed: RuntimeError: not now"),
    ],
)
def test_an_error_of_what_makes_the_handlers_is_shown_too(work: Cli, name: str, line: str) -> None:
    """It is the user's code as well."""
    outcome = work("work", name)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.splitlines()[-1] == f"litequeue: {line}"
    assert "app.py" in outcome.err


def test_only_a_file_that_is_there_is_worked_on(folder: Path, cli: Cli) -> None:
    """A worker makes no queue: one that is misspelt would wait for ever (§9)."""
    (folder / "app.py").write_text(MODULE, encoding="utf-8")
    assert str(cli.path) in cli("work", "app:tasks").line_of_failure(1)
    assert not cli.path.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--concurrency", "0"], "--concurrency must be a whole number from 1 to 1000"),
        (["--lease-ttl", "0"], "--lease-ttl must be a duration of seconds, more than 0"),
        (["--drain-timeout", "-1"], "--drain-timeout must be "),
        (["--short-retry", "2m"], "--short-retry must be "),
        (["--timeout", "0s"], "--timeout must be "),
        (["--scope", "litequeue:x"], "--scope must be "),
        (["--scope", "a", "--system"], "--scope and --system exclude each other"),
        (["--scope", "a", "--all-scopes"], "--all-scopes excludes --scope and --system"),
    ],
)
def test_an_option_out_of_its_bounds_is_wrong_usage(work: Cli, words: list[str], line: str) -> None:
    """The library's own line: name, value and bounds (§6, §9)."""
    assert line in work("work", "app:tasks", *words).line_of_failure(2)


@pytest.mark.parametrize("words", [["--mode", "fibres"], ["--timeout", "soon"], []])
def test_what_is_no_option_or_no_duration_is_wrong_usage(work: Cli, words: list[str]) -> None:
    """Status 2 (§9)."""
    outcome = work("work", *(["app:tasks"] if words else []), *words)
    assert (outcome.status, outcome.out) == (2, "")
    assert "Error: " in outcome.err


class Played:
    """What the command makes a worker with, and how that ends."""

    def __init__(self, ending: Ending | Exception) -> None:
        self.given: dict[str, object] = {}
        self._ending = ending

    def __call__(self, _queue: Queue, handlers: object, **options: object) -> Played:
        """Be made."""
        self.given = {"handlers": handlers, **options}
        return self

    def run(self) -> Ending:
        """End at once."""
        if isinstance(self._ending, Exception):
            raise self._ending
        return self._ending


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ending | Exception], Played]:
    """Give what plays the worker."""

    def play(ending: Ending | Exception) -> Played:
        worker = Played(ending)
        monkeypatch.setattr(litequeue, "Worker", worker)
        return worker

    return play


def test_every_option_reaches_the_worker(work: Cli, played: Callable[[Ending], Played]) -> None:
    """Durations in seconds, and nothing but what was asked for."""
    worker = played(Ending(completed=1))
    words = "--mode asyncio --concurrency 7 --lease-ttl 1m --drain-timeout 2m --short-retry 3s --timeout 4s --scope a"
    assert work("work", "app:tasks", *words.split(), "--no-maintenance", "--until-empty", "--quiet").status == 0
    del worker.given["handlers"]
    assert worker.given == {
        "mode": "asyncio",
        "concurrency": 7,
        "lease_ttl": 60,
        "drain_timeout": 120,
        "short_retry": 3,
        "timeout": 4,
        "scope": "a",
        "maintenance": False,
        "until_empty": True,
        "imports": ["app"],
        "on_event": None,
    }


def test_without_options_it_is_as_the_library_has_it(work: Cli, played: Callable[[Ending], Played]) -> None:
    """The defaults of the command are those of `Worker` (§9)."""
    defaults = litequeue.Worker.__init__.__kwdefaults__
    assert defaults is not None
    worker = played(Ending())
    assert work("work", "app:tasks").status == 0
    del worker.given["handlers"]
    assert worker.given == {name: defaults[name] for name in worker.given} | {"imports": ["app"]}


@pytest.mark.parametrize(
    ("ending", "words", "status", "line"),
    [
        (Ending(completed=3, failed=1), "", 0, None),
        (Ending(lost=1), "", 0, None),
        (Ending(), "", 0, None),
        (Ending(), "--until-empty", 3, None),
        (Ending(failed=1), "--until-empty", 0, None),
        (Ending(completed=1, interrupted=2), "", 4, "2 running jobs given back"),
        (Ending(interrupted=1), "--until-empty", 4, "1 running job given back"),
        (StorageLost("the file is gone"), "", 1, "the file is gone"),
    ],
)
def test_the_status_says_how_it_ended(  # noqa: PLR0917 - the columns of a table
    work: Cli,
    played: Callable[[Ending | Exception], Played],
    ending: Ending | Exception,
    words: str,
    status: int,
    line: str | None,
) -> None:
    """0 drained, 1 an error, 3 nothing to do, 4 running jobs were given back (issue 5, item 6)."""
    played(ending)
    outcome = work("work", "app:tasks", *words.split())
    assert (outcome.status, outcome.out) == (status, "")
    if line is None:
        log(outcome.err)
    else:
        assert complaint(outcome.err) == line


def test_the_statuses_stand_in_the_help(cli: Cli) -> None:
    """Whoever writes a service file looks there (issue 5, item 6)."""
    text = " ".join(cli.done("work", "--help").split())
    for status in ("status 0 when", "1 after", "2 for", "3 when", "4 when"):
        assert status in text


def test_the_log_has_a_line_for_each_end_of_a_job(work: Cli) -> None:
    """ISO time, level and message; what a job brings in cannot steer the terminal that it is read on (item 10)."""
    done, failed = (work.done("enqueue", *words).strip() for words in (["count", "[1]"], ["fail:it", '"\\u001b[2J"']))
    outcome = work("work", "app:handlers", "--until-empty", "--no-maintenance", "--concurrency", "1")
    assert (outcome.status, outcome.out) == (0, "")
    begun, first, second, ended = log(outcome.err)
    assert begun == ("INFO", f"working on {work.path}, scope default: count, fail:")
    assert re.fullmatch(rf"completed count {done}, attempt 1 after 0\.\d+ s", first[1])
    assert second[0] == "WARNING"
    assert re.fullmatch(rf"failed fail:it {failed}, attempt 1 after 0\.\d+ s: ValueError: \\u001b\[2J", second[1])
    assert ended == ("INFO", "ended: completed 1, failed 1, dead 0, snoozed 0, released 0, interrupted 0, lost 0")


def test_a_dead_job_is_told_in_one_short_line(work: Cli) -> None:
    """The first line of its error; the traceback below that is in the job (G6, item 1)."""
    job_id = work.done("enqueue", "fail:it", '"oh"', "--max-attempts", "1").strip()
    outcome = work("work", "app:handlers", "--until-empty", "--no-maintenance", "--quiet")
    assert ("WARNING", f"job {job_id} (fail:it) is dead: ValueError: oh") in log(outcome.err)
    assert "Traceback" in work.done("jobs", "show", job_id)


def test_quiet_leaves_warnings(work: Cli) -> None:
    """What went wrong, and nothing else (item 10)."""
    work.done("enqueue", "count", "[1]")
    work.done("enqueue", "fail:it", '"oh"')
    outcome = work("work", "app:handlers", "--until-empty", "--no-maintenance", "--quiet")
    assert outcome.status == 0
    assert [level for level, _ in log(outcome.err)] == ["WARNING"]


def test_a_module_that_sets_up_logging_has_the_log(work: Cli, folder: Path) -> None:
    """The records go where it wants them, with their extras, and nothing is said twice (item 11)."""
    source = """
import logging
from app import *

class Extras(logging.Formatter):
    def format(self, record):
        said = vars(record)
        return " ".join(str(said.get(name)) for name in ("name", "event", "kind", "attempt", "generation", "scope"))

handler = logging.FileHandler("own.log", encoding="utf-8")
handler.setFormatter(Extras())
logging.basicConfig(level="INFO", handlers=[handler])
"""
    (folder / "own.py").write_text(source, encoding="utf-8")
    work.done("enqueue", "count", "[1]")
    outcome = work("work", "own:handlers", "--until-empty", "--no-maintenance")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    assert "litequeue.worker completed count 1 1 default\n" in (folder / "own.log").read_text(encoding="utf-8")


def test_the_log_is_put_back_as_it_was(work: Cli, played: Callable[[Ending], Played]) -> None:
    """Whoever runs the command in a process of its own kind keeps its own log."""
    logger = logging.getLogger("litequeue")
    before = logger.level, list(logger.handlers)
    played(Ending())
    assert work("work", "app:tasks", "--quiet").status == 0
    assert (logger.level, list(logger.handlers)) == before


def test_upkeep_is_told_in_words(
    work: Cli, played: Callable[[Ending], Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `maintain` prints of a pass stands in the log here, and a cause behind its error (item 10)."""
    worker = played(Ending())

    def run() -> Ending:
        report = litequeue.MaintenanceReport(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        logging.getLogger("litequeue.maintenance").info("maintenance: %s", report, extra=report.as_dict())
        try:
            raise ValueError("in\nside")
        except ValueError:
            logging.getLogger("litequeue.worker").exception("on_event failed")
        return Ending()

    monkeypatch.setattr(worker, "run", run)
    lines = [line.partition("Z ")[2] for line in work("work", "app:tasks").err.splitlines()]
    assert lines[1:3] == ["INFO    maintenance: reaped 1, promoted 2", "ERROR   on_event failed: ValueError: in"]


def test_a_scope_is_worked_on_alone(work: Cli) -> None:
    """`--scope` and `--system`, as at `enqueue` (§2)."""
    ids = [work.done("enqueue", "count", "[1]", *words).strip() for words in ([], ["--scope", "a"], ["--system"])]

    def states() -> list[JobState]:
        with litequeue.open(work.path, create=False) as queue:
            return [queue.get(job_id).state for job_id in ids]

    assert work("work", "app:handlers", "--until-empty", "--no-maintenance", "--scope", "a").status == 0
    assert states() == [JobState.PENDING, JobState.COMPLETED, JobState.PENDING]
    assert work("work", "app:handlers", "--until-empty", "--no-maintenance", "--system").status == 0
    assert states() == [JobState.PENDING, JobState.COMPLETED, JobState.COMPLETED]


def test_all_scopes_are_worked_on_in_turn(work: Cli) -> None:
    """`--all-scopes` leases from each of them, by the weights of the file (V12)."""
    for words in ([], ["--scope", "a"], ["--system"]):
        work.done("enqueue", "count", "[1]", *words)
    assert work("work", "app:handlers", "--until-empty", "--no-maintenance", "--all-scopes").status == 0
    with litequeue.open(work.path, create=False) as queue:
        assert {job.scope: job.state for job in queue.list(scope=ANY)} == dict.fromkeys(
            (SYSTEM, "a", "default"), JobState.COMPLETED
        )
