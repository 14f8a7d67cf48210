"""An exception as text, for `last_error` and the event log.

Owns: what is kept of an exception: `Type: message` on the first line, and below it the tail of its traceback, together
at most 8 KiB. Invariants: of a message of several lines only the first is there, as what changes from job to job
(a statement's parameters, a response) tends to be in the others, and errors are counted by their first lines; the
traceback has the whole of it. Nothing here raises, whatever the exception's own methods do, because the job's outcome
would be lost with it. Leaves out: what follows from the exception (`outcomes`).
"""

from __future__ import annotations

import traceback
from types import TracebackType

from litequeue import codec
from litequeue.errors import first_line

_SUMMARY_BYTES = 1024
_PIECE_BYTES = 1024
"""How much is kept of a frame or a message within the traceback, so that a long one does not push the others out."""
_FRAMES = 40
"""The innermost so many of each traceback: far more than 8 KiB hold, and a deep recursion costs no more."""
_CUT = "…\n"
_WORKER = "litequeue.worker."
_HANDLERS = "litequeue.worker.handlers"
"""The module whose functions call those of the user."""


def summary(exc: BaseException) -> str:
    """Return `Type: message` with the first line of the message, at most 1 KiB; the type alone when there is none."""
    try:
        message = " ".join(first_line(str(exc))[:_SUMMARY_BYTES].split())
        name = type(exc).__name__
        return codec.clip(f"{name}: {message}" if message else name, _SUMMARY_BYTES)
    except BaseException:  # noqa: BLE001 - a message is the user's code: whatever it raises, the outcome must be kept
        return f"{_name(exc)}: its message cannot be shown"


def described(exc: BaseException) -> str:
    """Return the summary of an exception, and below it the tail of its traceback; at most 8 KiB."""
    return below(summary(exc), exc)


def below(first_line: str, exc: BaseException | None) -> str:
    """Return a line of one's own, and below it the tail of a traceback, if there is one; at most 8 KiB."""
    first = codec.clip(first_line, _SUMMARY_BYTES)
    if exc is None:
        return first
    return f"{first}\n{_tail(_pieces(exc), codec.MAX_ERROR_BYTES - len(first.encode()) - 1)}"


def _pieces(exc: BaseException) -> list[str]:
    try:
        whole = traceback.TracebackException(type(exc), exc, of_user(exc.__traceback__), limit=-_FRAMES)
        return [_clipped(piece) for piece in whole.format()]
    except BaseException as broken:  # noqa: BLE001 - it asks the exception for its message, its causes and its notes
        return [f"(its traceback cannot be shown: {_name(broken)})\n"]


def of_user(whole: TracebackType | None) -> TracebackType | None:
    """Leave out what the worker, and an event loop, did before they came to the handler."""
    part = whole
    while part is not None and not _is_of(part, _HANDLERS):
        part = part.tb_next
    part = part or whole
    while part is not None and _is_of(part, _WORKER):
        part = part.tb_next
    return part or whole


def _is_of(part: TracebackType, module: str) -> bool:
    return str(part.tb_frame.f_globals.get("__name__")).startswith(module)


def _clipped(piece: str) -> str:
    kept = codec.clip(piece, _PIECE_BYTES)
    return kept if kept.endswith("\n") else f"{kept}{_CUT}"


def _tail(pieces: list[str], room: int) -> str:
    """Keep the last pieces that fit: where it happened is at the end."""
    whole = "".join(pieces)
    if len(whole.encode()) <= room:
        return whole.rstrip("\n")
    kept: list[str] = []
    room -= len(_CUT.encode())
    for piece in reversed(pieces):
        room -= len(piece.encode())
        if room < 0:
            break
        kept.append(piece)
    return (_CUT + "".join(reversed(kept))).rstrip("\n")


def _name(exc: BaseException) -> str:
    """Return the type's name, asked of `type` itself: a metaclass may have another opinion."""
    name = type.__dict__["__name__"].__get__(type(exc))
    return codec.clip(name, _SUMMARY_BYTES // 2) if isinstance(name, str) else "exception"
