"""The web application of `examples/shop`: real HTTP, its own process, and a worker process (issue 7, "done when")."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import litequeue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("flask")
pytestmark = pytest.mark.slow

SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop"
PATIENCE_S = 60

Answer = tuple[int, dict[str, object]]


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Give the path of the shop's database, which the shop makes."""
    return str(tmp_path / "shop.db")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Give the means to start a program of the shop's folder; none outlives the test."""
    started: list[subprocess.Popen[str]] = []
    errors: list[IO[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        errors.append((tmp_path / f"errors-{len(errors)}").open("w+", encoding="utf-8"))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [sys.executable, *words], cwd=SHOP, env=environment, stdout=subprocess.PIPE, stderr=errors[-1], text=True
        )
        started.append(process)
        return process

    yield run
    for process, told in zip(started, errors, strict=True):
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        told.close()


def ask(url: str, body: object = None) -> Answer:
    """Ask the shop; return the status and the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - the address of our own server
    try:
        with urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - the same
            return answer.status, json.load(answer)
    except HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


def served(shop: subprocess.Popen[str]) -> str:
    """Return where a shop answers, once it does."""
    assert shop.stdout is not None
    return shop.stdout.readline().strip()


def test_a_request_and_its_job_are_committed_together(db: str, start: Callable[..., subprocess.Popen[str]]) -> None:
    """The worker process runs the job of the order; of the one that failed there is neither order nor job (V14)."""
    shop = start("shop.py", db, "0")
    url = served(shop)
    worker = start("-m", "litequeue", "--db", db, "work", "worker:handlers")

    assert ask(f"{url}/orders", {"article": "snow", "email": "b@example.org"}) == (409, {"error": "sold out"})
    for number in (1, 2, 3):
        status, order = ask(f"{url}/orders", {"article": "tea", "email": f"{number}@example.org"})
        assert (status, order) == (201, {"order": number})
    assert ask(f"{url}/orders", {"article": "tea", "email": "late@example.org"}) == (409, {"error": "sold out"})

    for number in (1, 2, 3):
        wanted = {"article": "tea", "receipt": f"sent to {number}@example.org"}
        give_up = time.monotonic() + PATIENCE_S
        while ask(f"{url}/orders/{number}") != (200, wanted):
            assert time.monotonic() < give_up, "the worker does nothing"

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0
    with litequeue.open(db, create=False) as queue:  # beside the shop, which is another process
        assert [(job.payload, job.state, job.attempts) for job in queue.list()] == [
            (number, litequeue.JobState.COMPLETED, 1) for number in (1, 2, 3)
        ]
        with queue.transaction() as tx:
            assert tx.execute("SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]


def test_a_shop_that_is_killed_has_lost_nothing_that_it_answered(
    db: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """An order that was answered has its job, though no worker was there and the shop is gone (G2)."""
    shop = start("shop.py", db, "0")
    url = served(shop)
    assert ask(f"{url}/orders", {"article": "tea", "email": "a@example.org"}) == (201, {"order": 1})
    shop.kill()
    shop.wait(PATIENCE_S)
    with litequeue.open(db, create=False) as queue:
        assert [job.payload for job in queue.list()] == [1]
    again = served(start("shop.py", db, "0"))
    assert ask(f"{again}/orders", {"article": "tea", "email": "a@example.org"}) == (201, {"order": 2})
    worker = start("-m", "litequeue", "--db", db, "work", "worker:handlers", "--until-empty")
    assert worker.wait(PATIENCE_S) == 0
    assert ask(f"{again}/orders/1") == (200, {"article": "tea", "receipt": "sent to a@example.org"})
