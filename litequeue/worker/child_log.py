"""What a process of a worker logs, said by its parent.

Owns: the way of a record from there to here. Invariants: each is said once, by the parent and in its way, whatever the
user's module has set up in either process; only where there is no parent any more the process says it itself. It is
cut to what is written in one piece: a process that its parent has stopped must not have half a message in the pipe, on
the rest of which the parent would wait. Leaves out: events of jobs, which go to the parent as such.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from litequeue import codec

_LOGGER = "litequeue"
_USUAL = frozenset(vars(logging.makeLogRecord({})))
_FORMATTER = logging.Formatter()

_TEXT_BYTES = 4_096
_TRACEBACK_BYTES = 6_144
_EXTRA_BYTES = 256
"""Together less than the 16 KiB that `Connection.send` writes at once, with what else there is."""

Extra = str | int | float | None
_TRAVELLING = (str, int, float, type(None))
"""What else a user's own record factory may have added stays here: it may not pickle."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the log, as it travels."""

    name: str
    level: int
    text: str
    traceback: str | None = None
    extra: dict[str, Extra] = field(default_factory=dict)

    @classmethod
    def of(cls, record: logging.LogRecord) -> Logged:
        """Make it of a record; what it was written with need not travel."""
        traceback = None if record.exc_info is None else _FORMATTER.formatException(record.exc_info)
        extra: dict[str, Extra] = {}
        for name, value in vars(record).items():
            if name not in _USUAL and isinstance(value, _TRAVELLING):
                extra[name] = codec.clip(value, _EXTRA_BYTES) if isinstance(value, str) else value
        text = codec.clip(record.getMessage(), _TEXT_BYTES)
        return cls(record.name, record.levelno, text, None if traceback is None else _tail(traceback), extra)

    def say(self) -> None:
        """Log it here."""
        logger = logging.getLogger(self.name)
        if logger.isEnabledFor(self.level):
            record = logger.makeRecord(self.name, self.level, "", 0, self.text, (), None)
            record.exc_text = self.traceback
            vars(record).update(self.extra)
            logger.handle(record)


def _tail(text: str) -> str:
    """Return the end of a traceback, which is the part that says most."""
    encoded = text.encode(errors="backslashreplace")
    return encoded[-_TRACEBACK_BYTES:].decode(errors="ignore")


def told_to(tell: Callable[[Logged], bool]) -> None:
    """Let what this process logs under `litequeue` be told by `tell`, for good; it answers whether anybody listens."""
    logger = logging.getLogger(_LOGGER)
    logger.handlers = [_Teller(tell)]
    logger.propagate = False


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[Logged], bool]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if not self._tell(Logged.of(record)) and logging.lastResort is not None:
            logging.lastResort.handle(record)
