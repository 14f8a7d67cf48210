"""The log of `work`: a line on standard error for each thing that happened.

Owns: the form of a line (time, level, message), and which records become one. Invariants: text that jobs bring in
cannot steer a terminal; a line that nobody can read does no harm to the work; where the user's module has set up
logging for itself, the records go there, as it wants them, and nothing is said twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from litequeue.cli.maintain import report_of
from litequeue.cli.output import Messages, one_line
from litequeue.worker import errortext

_logger = logging.getLogger("litequeue")


@contextmanager
def work_log(*, is_quiet: bool, is_counted: bool) -> Iterator[None]:
    """Write what the library logs, in the place of the messages of other commands.

    `is_quiet` leaves warnings and worse. So does `is_counted` for what happens to jobs: somebody sees their numbers.
    """
    replaced = [handler for handler in _logger.handlers if isinstance(handler, Messages)]
    for handler in replaced:
        _logger.removeHandler(handler)
    level = _logger.level
    lines = None if _logger.hasHandlers() else _Lines(is_counted=is_counted)
    if lines is not None:
        _logger.addHandler(lines)
        _logger.setLevel(logging.INFO)
    if is_quiet:
        _logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        _logger.setLevel(level)
        if lines is not None:
            _logger.removeHandler(lines)
        for handler in replaced:
            _logger.addHandler(handler)


class _Lines(logging.Handler):
    """Writes a record as a line."""

    def __init__(self, *, is_counted: bool) -> None:
        super().__init__()
        self._is_counted = is_counted

    def emit(self, record: logging.LogRecord) -> None:
        """Write one, unless it is only counted; when nobody can read it, the work goes on all the same."""
        is_of_a_job = "job_id" in vars(record)
        if self._is_counted and is_of_a_job and record.levelno < logging.WARNING:
            return
        try:
            click.echo(_text(record), err=True)
        except (OSError, ValueError):  # the latter when it has been closed
            return


def _text(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    report = report_of(record)
    message = record.getMessage() if report is None else f"maintenance: {report}"
    return f"{moment}Z {record.levelname:<7} {one_line(message + _cause(record))}"


def _cause(record: logging.LogRecord) -> str:
    """Return the error that a record tells of; of a traceback the last line."""
    if record.exc_info is not None and record.exc_info[1] is not None:
        return f": {errortext.summary(record.exc_info[1])}"
    return f": {record.exc_text.splitlines()[-1]}" if record.exc_text else ""
