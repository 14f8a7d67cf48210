"""What a process of a worker logs is said once, by its parent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import handled
import pytest

from litequeue import Handler
from litequeue.worker.child_log import Logged, told_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from litequeue import Job, Queue
    from tests.worker.conftest import Work


@pytest.mark.slow
def test_what_a_process_warns_of_is_in_the_log_of_its_parent(  # noqa: PLR0917 - fixtures
    queue: Queue,
    work: Work,
    ended: Callable[[UUID], Job],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With its level, its extras and its traceback, and nothing goes to standard error by itself (item 11)."""
    handlers = {"bad": Handler(handled.bad, permanent=handled.undecided)}
    worker = work(handlers, mode="processes", concurrency=1)
    job_id = queue.enqueue("bad", str(tmp_path), max_attempts=1).job_id
    ended(job_id)
    worker.drained()
    (dead,) = (record for record in caplog.records if "is dead" in record.getMessage())
    assert dead.getMessage() == f"job {job_id} (bad) is dead: ValueError: no such page"
    assert (dead.name, dead.levelno, vars(dead)["job_id"]) == ("litequeue", logging.WARNING, str(job_id))
    (failed,) = (record for record in caplog.records if "predicate" in record.getMessage())
    assert (failed.name, failed.levelno) == ("litequeue.worker", logging.ERROR)
    assert str(failed.exc_text).splitlines()[-1] == "LookupError: nobody knows about no such page"
    assert capfd.readouterr().err == ""


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Give the package's logger; it is put back."""
    logger = logging.getLogger("litequeue")
    before = logger.handlers, logger.propagate
    yield logger
    logger.handlers, logger.propagate = before


def test_a_process_without_a_parent_speaks_for_itself(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or nobody would hear that it ends; while there is one, only the parent speaks."""
    told: list[Logged] = []

    def tell(logged: Logged) -> bool:
        told.append(logged)
        return len(told) == 1

    told_to(tell)
    logger.warning("with %s", "one")
    assert capsys.readouterr().err == ""
    logger.warning("without one")
    assert capsys.readouterr().err == "without one\n"
    assert [logged.text for logged in told] == ["with one", "without one"]
    assert caplog.records == []


def test_only_plain_extras_travel_and_the_parent_s_level_counts(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """A record factory of the user's may add what does not pickle, in both processes."""
    record = logger.makeRecord("litequeue.x", logging.INFO, "", 0, "text", (), None, extra={"a": 1, "b": object()})
    logged = Logged.of(record)
    assert logged == Logged("litequeue.x", logging.INFO, "text", None, {"a": 1})
    with caplog.at_level(logging.WARNING, logger="litequeue"):
        logged.say()
    assert caplog.records == []
    with caplog.at_level(logging.INFO, logger="litequeue"):
        logged.say()
    (said,) = caplog.records
    assert (said.name, said.getMessage(), vars(said)["a"]) == ("litequeue.x", "text", 1)
