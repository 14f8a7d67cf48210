"""`metrics`: Prometheus' text, printed once for one file or several, or served on loopback (issue 8, metrics)."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import signal
import socket
import sys
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import litequeue
from litequeue.cli import litequeue as command
from litequeue.metrics.server import LOOPBACK, MetricsServer

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from litequeue import Queue
    from tests.cli.conftest import Cli, Processes

posix = pytest.mark.skipif(sys.platform == "win32", reason="the signals here are POSIX")
DEAD = 'litequeue_jobs{db="%s",kind="work",state="dead"} 1'


def values(text: str) -> dict[tuple[str, str], float]:
    """Read a page: values by name and file; those of one name are added up."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name.removeprefix("litequeue_"), Path(sample.labels["db"]).name
            found[key] = found.get(key, 0) + sample.value
    return found


def fill(path: Path) -> Path:
    """Make a file with a dead job."""
    with litequeue.open(path, durability="normal") as queue:
        queue.enqueue("work")
        queue.fail_many(queue.lease_many(1), "boom", retryable=False)
    return path


# --- printed


def test_a_page_is_printed(cli: Cli, db: Path) -> None:
    """What a scrape or a textfile collector reads, with the dead letters in it; nothing else is printed (§9)."""
    fill(db)
    out = cli.done("metrics")
    assert DEAD % db in out.splitlines()
    assert values(out)["up", "app.queue"] == 1


def test_several_files_are_on_one_page(cli: Cli, db: Path, tmp_path: Path) -> None:
    """Each metric is declared once, and each value names its file (issue 8: several files at once)."""
    other = fill(tmp_path / "other.queue")
    fill(db)
    result = CliRunner().invoke(command, ["--db", str(db), "--db", str(other), "metrics"])
    assert result.exit_code == 0
    assert result.stdout.count("# TYPE litequeue_jobs gauge\n") == 1
    found = values(result.stdout)
    assert found["jobs", "app.queue"] == found["jobs", "other.queue"] == 1
    assert cli.done("stats"), "one file as ever"


def test_one_of_several_that_cannot_be_read_hides_none(db: Path, tmp_path: Path) -> None:
    """It is down, with the reason as a line; the others are told of; the status is 1."""
    fill(db)
    gone = tmp_path / "gone.queue"
    result = CliRunner().invoke(command, ["--db", str(gone), "--db", str(db), "metrics"])
    assert (result.exit_code, result.stderr) == (1, f"litequeue: cannot open {gone}: there is no such file\n")
    found = values(result.stdout)
    assert (found["up", "gone.queue"], found["up", "app.queue"], found["jobs", "app.queue"]) == (0, 1, 1)
    assert not gone.exists()


def test_a_file_has_the_same_name_whether_it_can_be_read_or_not(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its real path: one series of `litequeue_up`, which goes from 1 to 0."""
    fill(db)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, ["--db", "app.queue", "--db", "gone.queue", "metrics"])
    lines = [line for line in result.stdout.splitlines() if line.startswith("litequeue_up{")]
    assert lines == [f'litequeue_up{{db="{db}"}} 1', f'litequeue_up{{db="{tmp_path / "gone.queue"}"}} 0']


def test_a_file_is_named_once(db: Path, tmp_path: Path) -> None:
    """By whatever path: its values would stand there twice, which Prometheus refuses (§9)."""
    fill(db)
    link = tmp_path / "link.queue"
    link.symlink_to(db)
    result = CliRunner().invoke(command, ["--db", str(db), "--db", str(link), "metrics"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"litequeue: --db {link} names the file of --db {db} again\n"


def test_a_command_for_one_file_refuses_several(db: Path, tmp_path: Path) -> None:
    """It would otherwise work on the wrong one (§9)."""
    result = CliRunner().invoke(command, ["--db", str(db), "--db", str(tmp_path / "b"), "init"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "litequeue: this command works on one file: "
        "only `stats`, `top`, `dead ls` and `metrics` take --db several times\n"
    )
    assert not db.exists()


def test_the_environment_names_one_file_whatever_its_characters(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spaces and colons do not make two of it."""
    path = fill(tmp_path / "my own: queue")
    monkeypatch.setenv("LITEQUEUE_DB", str(path))
    assert not cli.path.exists()
    result = CliRunner().invoke(command, ["metrics"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert DEAD % path in result.stdout.splitlines()


def test_kinds_are_bounded(cli: Cli, queue: Queue) -> None:
    """--max-kinds says how many have values of their own."""
    for kind in "aab":
        queue.enqueue(kind)
    out = cli.done("metrics", "--max-kinds", 1)
    assert 'kind="a",state="pending"} 2' in out
    assert 'kind="(other)",state="pending"} 1' in out
    assert 'kind="b"' not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--serve", "70000"], "70000 is not in the range 0<=x<=65535"),
        (["--serve", "x"], "'x' is not a valid integer"),
        (["--max-kinds", "0"], "0 is not in the range 1<=x<=10000"),
        (["--host", "0.0.0.0"], "--host goes with --serve"),  # noqa: S104 - it is refused
    ],
)
def test_bad_options_are_wrong_usage(cli: Cli, db: Path, words: list[str], said: str) -> None:
    """With the value and the bounds (§6)."""
    fill(db)
    outcome = cli("metrics", *words)
    assert (outcome.status, outcome.out) == (2, "")
    assert said in outcome.err


# --- served


class Served:
    """A server in a process of its own."""

    def __init__(self, processes: Processes, *words: str) -> None:
        self.process: subprocess.Popen[str] = processes.start("metrics", "--serve", "0", *words)
        self.url = processes.next_line(self.process)

    def get(self) -> str:
        """Scrape."""
        with urllib.request.urlopen(self.url, timeout=60) as answer:  # noqa: S310 - our own, on loopback
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text: str = answer.read().decode()
        return text


@pytest.fixture
def served(processes: Processes, db: Path) -> Served:
    """Give a server of a file with a dead job."""
    fill(db)
    return Served(processes)


@posix
def test_a_scrape_shows_the_file_as_it_is_now(served: Served, queue: Queue) -> None:
    """Each time anew, on loopback; the port is told when it is free to choose."""
    assert served.url.startswith(f"http://{LOOPBACK}:")
    assert values(served.get())["jobs", "app.queue"] == 1
    queue.enqueue("work")
    assert values(served.get())["jobs", "app.queue"] == 2


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_though_a_client_says_nothing(
    served: Served, processes: Processes, number: signal.Signals
) -> None:
    """At once, with status 0 and not a word; a connection that was opened and left is waited for by nobody (§9)."""
    host, port = served.url.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        silent.sendall(b"GET /metr")
        served.get()
        served.process.send_signal(number)
        outcome = processes.outcome(served.process)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


@posix
def test_a_file_that_goes_and_comes_is_down_and_up(served: Served, db: Path, tmp_path: Path) -> None:
    """The server never dies of it; the page says why, and standard error once (issue 8)."""
    assert values(served.get())["up", "app.queue"] == 1
    for part in tmp_path.glob("app.queue*"):
        part.unlink()
    for _ in range(2):
        text = served.get()
        assert values(text) == {("up", "app.queue"): 0}
        assert text.startswith("# litequeue: ")
    shutil.copyfile(fill(tmp_path / "another.queue"), db)
    assert values(served.get())["up", "app.queue"] == 1
    served.process.send_signal(signal.SIGTERM)
    out, err = served.process.communicate(timeout=60)
    assert (served.process.returncode, out) == (0, "")
    assert 1 <= err.count("\n") <= 2
    assert all(line.startswith("litequeue: ") for line in err.splitlines())


@posix
def test_a_file_that_is_not_there_at_the_start_is_an_error(cli: Cli) -> None:
    """A name that was mistyped is told at once, and no port is taken (§9)."""
    line = cli("metrics", "--serve", "0").line_of_failure(1)
    assert line == f"cannot open {cli.path}: there is no such file; make it with `litequeue --db {cli.path} init`"


@posix
def test_a_port_in_use_is_one_line(cli: Cli, db: Path) -> None:
    """With the address and the reason (§6)."""
    fill(db)
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        line = cli("metrics", "--serve", port).line_of_failure(1)
    assert line == f"cannot listen on {LOOPBACK}, port {port}: Address already in use"


@posix
@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 70 + ".example"])
def test_an_address_that_is_not_ours_is_one_line(cli: Cli, db: Path, host: str) -> None:
    """Whatever is wrong with it (§6)."""
    fill(db)
    line = cli("metrics", "--serve", 0, "--host", host).line_of_failure(1)
    assert line.startswith(f"cannot listen on {host}, port 0: ")


# --- the server itself


@pytest.fixture
def answering() -> Iterator[Callable[[Callable[[], str]], MetricsServer]]:
    """Give servers in threads of this process; none outlives the test."""
    with contextlib.ExitStack() as stack:

        def start(text: Callable[[], str]) -> MetricsServer:
            server = MetricsServer(text, 0)
            thread = threading.Thread(target=server.run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server

        yield start


def ask(server: MetricsServer, method: str, path: str) -> tuple[int, str]:
    """Make a request; return the status and what was answered."""
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/metrics", 200, "page\n"),
        ("GET", "/metrics?x=1", 200, "page\n"),
        ("HEAD", "/metrics", 200, ""),
        ("GET", "/", 200, "The metrics are at /metrics\n"),
        ("GET", "/other", 404, "There is nothing here; the metrics are at /metrics\n"),
    ],
)
def test_only_the_page_is_there(
    answering: Callable[[Callable[[], str]], MetricsServer], method: str, path: str, status: int, said: str
) -> None:
    """And a hint for a person who looks elsewhere."""
    assert ask(answering(lambda: "page\n"), method, path) == (status, said)


def test_whatever_is_wrong_with_one_answer_the_next_one_comes(
    answering: Callable[[Callable[[], str]], MetricsServer],
) -> None:
    """An error of our own is status 500 with its reason (issue 8)."""
    pages = iter(["first\n"])
    server = answering(lambda: next(pages, None) or _fail())
    assert ask(server, "GET", "/metrics") == (200, "first\n")
    for _ in range(2):
        assert ask(server, "GET", "/metrics") == (500, "RuntimeError: no page\n")
    assert ask(server, "PUT", "/metrics")[0] == 501
    assert ask(server, "GET", "/")[0] == 200


def test_a_burst_of_scrapes_is_let_in_at_once() -> None:
    """Though none of them is answered just then (issue 8)."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(MetricsServer(str, 0))
        host, port = server.server_address[:2]
        for _ in range(50):
            stack.enter_context(socket.create_connection((str(host), port), timeout=5))


def test_a_client_that_says_nothing_holds_no_thread_for_long(
    answering: Callable[[Callable[[], str]], MetricsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is hung up on (issue 8)."""
    monkeypatch.setattr("litequeue.metrics.server._Scrape.timeout", 0.05)
    host, port = answering(str).server_address[:2]
    with socket.create_connection((str(host), port), timeout=30) as connection:
        assert connection.recv(1) == b""


def _fail() -> str:
    raise RuntimeError("no page")
