"""Values as JSON, whatever they are.

Owns: the forms of what JSON lacks. Bytes are `{"$bytes": BASE64}`, numbers that are not finite `{"$float": "nan"}`, a
map with other keys than text `{"$map": [[KEY, VALUE], …]}`, datetimes ISO 8601 text, tuples lists, `SYSTEM` and `None`
null; what cannot be read or shown is `{"$unreadable": REASON}`. Invariant: what comes out is JSON to every parser, in
ASCII. It is made for reading, not for the way back: a payload that itself has such an object looks the same.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from uuid import UUID

from litequeue.errors import RecordError
from litequeue.model import SYSTEM, Dependencies, Event, Job, JobState, Stats

Json = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None

_DEEPEST = 550
"""Python's recursion has room for so many levels here and in `json`, whoever calls; msgpack packs up to 1,024."""
_DECODED = ("payload", "result", "events")
_STORED = frozenset({*(f"encoded_{name}" for name in _DECODED), "decoder"})


def dumps(value: Json) -> str:
    """Write JSON on one line, in ASCII, so that no terminal, locale or log can spoil it."""
    return json.dumps(value, allow_nan=False)


def jsonable(value: object, depth: int = 0) -> Json:
    """Turn any stored value into one that JSON has; `depth` is how many levels of JSON it stands in."""
    if depth > _DEEPEST:
        return _unreadable(f"nested deeper than {_DEEPEST} levels")
    # Loops, not comprehensions: before Python 3.12 those are a frame more a level, and depth is what runs out.
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            members: dict[str, Json] = {}
            for key, item in value.items():
                members[key] = jsonable(item, depth + 1)
            return members
        pairs: list[Json] = []
        for key, item in value.items():
            pairs.append([jsonable(key, depth + 3), jsonable(item, depth + 3)])
        return {"$map": pairs}
    if isinstance(value, (list, tuple)):
        items: list[Json] = []
        for item in value:
            items.append(jsonable(item, depth + 1))  # noqa: PERF401 - see above
        return items
    return _scalar(value)


def job_form(job: Job) -> dict[str, Json]:
    """Return a job by the names and in the units of contract §2: times are µs since the epoch, UTC."""
    form = {field.name: jsonable(getattr(job, field.name)) for field in fields(job) if field.name not in _STORED}
    form["payload"] = readable(lambda: jsonable(job.payload))
    form["result"] = readable(lambda: jsonable(job.result))
    form["events"] = readable(lambda: [_event_form(event) for event in job.events])
    return form


def shown_form(job: Job, dependencies: Dependencies) -> dict[str, Json]:
    """Return a job with what it waits for, and what waits for it, if anything does."""
    if not dependencies.is_any:
        return job_form(job)
    form = {field.name: jsonable(getattr(dependencies, field.name)) for field in fields(dependencies)}
    return job_form(job) | {"dependencies": form}


def stats_form(stats: Stats) -> dict[str, Json]:
    """Return counts, by the names of the states."""
    return {
        "total": stats.total,
        "counts": _counts_form(stats.counts),
        "by_kind": {kind: _counts_form(counts) for kind, counts in stats.by_kind.items()},
        "oldest_ready_at": stats.oldest_ready_at,
        "next_due_at": stats.next_due_at,
        "lapsed": stats.lapsed,
        "file_bytes": stats.file_bytes,
        "free_bytes": stats.free_bytes,
        "wal_bytes": stats.wal_bytes,
    }


def _counts_form(counts: Mapping[JobState, int]) -> dict[str, Json]:
    return {state.name.lower(): count for state, count in counts.items()}


def _event_form(event: Event) -> dict[str, Json]:
    return {"at": event.at, "transition": str(event.transition), "detail": event.detail}


def readable(decode: Callable[[], Json]) -> Json:
    """Return what a stored value is, or why it cannot be read."""
    try:
        return decode()
    except RecordError as exc:
        return _unreadable(str(exc))


def _unreadable(reason: str) -> Json:
    return {"$unreadable": reason}


def _scalar(value: object) -> Json:
    form: Json
    match value:
        case JobState():
            form = value.name.lower()
        case None | bool() | str() | int():
            form = value
        case float():
            form = value if math.isfinite(value) else {"$float": str(value)}
        case bytes():
            form = {"$bytes": base64.b64encode(value).decode("ascii")}
        case datetime():
            form = value.isoformat()
        case UUID():
            form = str(value)
        case _:
            form = None if value is SYSTEM else _unreadable(f"a {type(value).__name__}: {value}")
    return form
