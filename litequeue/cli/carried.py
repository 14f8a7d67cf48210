"""A job as a line of JSON: what `jobs export` writes of it, and what `jobs import` makes of that.

Invariants: a job has in its line all that an enqueue takes, and is made from it by one; what is in a line and is not
known is refused. Leaves out: the forms of payloads (`exact`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from litequeue import NewJob, codec
from litequeue.arguments import RESERVED_PREFIX
from litequeue.cli.exact import NoForm, from_json, to_json
from litequeue.cli.jsonable import Json
from litequeue.errors import RecordError, shown
from litequeue.model import SYSTEM, Job
from litequeue.sqlite.exporting import Found

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PACKED = "$msgpack"
"""A payload that JSON cannot hold, as it is stored."""
_TOLD = frozenset({"state", "created_at", "attempts", "last_error"})
"""What a line tells of its job and an import does not take."""
_TAKEN = (
    *("job_id", "scope", "kind", "payload", "priority", "max_attempts", "idempotency_key"),
    *("not_before", "expires_at", "after", "on_parent_failure"),
)


class Unfit(Exception):
    """A job that cannot be exported; the message says why."""


def form_of(found: Found, parents: Sequence[UUID]) -> dict[str, Json]:
    """Return the line of a job; what it has not is not in it. `parents` are those that it is to wait for."""
    job, waits = found.job, found.waits
    if waits is not None and waits.is_too_many:
        raise Unfit("it waits for more jobs than one that is enqueued may")
    key = job.idempotency_key
    form: dict[str, Json] = {
        "job_id": str(job.job_id),
        "state": str(job.state),
        "scope": None if job.scope is SYSTEM else job.scope,
        "kind": job.kind,
        "payload": _payload_form(job),
        "priority": job.priority,
        "created_at": job.created_at,
    }
    more: dict[str, Json] = {
        "not_before": job.not_before if waits is None else waits.not_before,
        "expires_at": job.expires_at,
        "max_attempts": job.max_attempts,
        "idempotency_key": None if key is not None and key.startswith(RESERVED_PREFIX) else key,
        "attempts": job.attempts or None,
        "last_error": job.last_error,
    }
    form |= {name: value for name, value in more.items() if value is not None}
    if waits is not None and parents:
        form["after"] = [str(parent) for parent in parents]
        form["on_parent_failure"] = waits.on_parent_failure
    return form


def _payload_form(job: Job) -> Json:
    try:
        return to_json(job.payload)
    except RecordError as exc:
        raise Unfit(str(exc)) from exc
    except NoForm:
        return {_PACKED: base64.b64encode(job.encoded_payload[1:]).decode("ascii")}


def job_of(line: object) -> NewJob:
    """Read one line.

    Raises:
        NoForm: it is no job, or has something in it that no job has.
        UsageError: a value is out of its bounds.
        RecordError: a packed payload cannot be read.
    """
    if not isinstance(line, dict):
        raise NoForm("it is no JSON object")
    unknown = sorted(line.keys() - _TOLD - {*_TAKEN})
    if unknown:
        raise NoForm(f"{shown(unknown[0])} is nothing that a job is imported with: {', '.join(_TAKEN)}")
    if "kind" not in line:
        raise NoForm("it has no kind")
    given = {name: line[name] for name in ("max_attempts", "idempotency_key", "job_id") if line.get(name) is not None}
    given |= {name: line[name] for name in ("priority", "on_parent_failure", "after") if name in line}
    if "scope" in line:
        given["scope"] = SYSTEM if line["scope"] is None else line["scope"]
    return NewJob(
        line["kind"],
        _payload(line.get("payload")),
        run_at=_moment("not_before", line.get("not_before")),
        expires=_moment("expires_at", line.get("expires_at")),
        **given,
    )


def _payload(form: object) -> object:
    try:
        if isinstance(form, dict) and form.keys() == {_PACKED}:
            return codec.decode(bytes([codec.VERSION]) + base64.b64decode(form[_PACKED], validate=True), _PACKED)
        return from_json(form)
    except RecursionError as exc:
        raise NoForm("its payload is nested too deep for JSON") from exc
    except NoForm:
        raise
    except (ValueError, TypeError) as exc:
        raise NoForm(f"{_PACKED} is written wrongly: {exc}") from exc


def _moment(name: str, moment_us: object) -> datetime | None:
    if moment_us is None:
        return None
    try:
        if isinstance(moment_us, int) and not isinstance(moment_us, bool) and moment_us >= 0:
            return _EPOCH + timedelta(microseconds=moment_us)
    except OverflowError:
        pass
    raise NoForm(f"{name} must be µs since the epoch, up to the year 9999, not {shown(moment_us)}")
