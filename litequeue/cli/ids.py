"""Jobs as they are named on the command line: by their id, or by as much of its beginning as is unique.

Invariant: a beginning that more than one job has, or none, is an error before anything is done to any job. Leaves out:
whether a job with a whole id is there, which its verb says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

import click

from litequeue import JobState, Queue, arguments
from litequeue.cli.failures import Failure
from litequeue.errors import UsageError

_SHOWN = 3
"""Candidates that are told of a beginning that is not unique."""


@dataclass(frozen=True, slots=True)
class GivenId:
    """An id, or the beginning of one, as it was typed."""

    text: str
    digits: str
    """Its hex digits, in lower case."""


def given_id(text: str) -> GivenId:
    """Read the value of an argument that names a job."""
    stripped = text.strip()
    try:
        return GivenId(stripped, arguments.id_digits("id", stripped))
    except UsageError:
        hexes = f"{arguments.MIN_ID_DIGITS} to {arguments.ID_DIGITS} hex digits"
        raise click.BadParameter(f"{text!r} is neither a job's id nor the beginning of one, {hexes}") from None


def whole_id(queue: Queue, given: GivenId, state: JobState | None = None) -> UUID:
    """Return the id that was meant; a beginning is that of a job in such a state, when one is given.

    Raises:
        Failure: no job has an id that begins so, or more than one has; the line tells some of them.
    """
    if len(given.digits) == arguments.ID_DIGITS:
        return UUID(given.digits)
    found = queue.find(given.digits, state=state, limit=_SHOWN + 1)
    job = "job" if state is None else f"{state} job"
    if not found:
        raise Failure(f"no {job} has an id that begins with {given.text}")
    if len(found) > 1:
        told = [str(job_id) for job_id in found[:_SHOWN]] + (["…"] if len(found) > _SHOWN else [])
        raise Failure(f"more than one {job} has an id that begins with {given.text}: {', '.join(told)}")
    return found[0]


def whole_ids(queue: Queue, given: Iterable[GivenId], state: JobState | None = None) -> list[UUID]:
    """Return the ids that were meant, in order, each once.

    Raises: as `whole_id`.
    """
    return list(dict.fromkeys(whole_id(queue, one, state) for one in given))
