"""The statements of `statements.sql`, loaded once into a frozen record.

Invariant: the record's fields and the file's names are the same, so a typo fails the type check or the import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from importlib import resources

_HEADING = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_INCLUDE = re.compile(r"<(\w+)>")


@dataclass(frozen=True, slots=True)
class Statements:
    """One field a statement; what each does and why stands beside it in `statements.sql`."""

    settings_version: str
    settings_changed: str
    settings: str
    kind_settings: str
    setting_put: str
    setting_remove: str
    kind_setting_put: str
    kind_setting_remove: str
    host: str
    host_booted: str
    host_unbooted: str
    latest_deadline: str
    holder_add: str
    holder_remove: str
    holders_clear: str
    holders: str
    tail: str
    job_add: str
    body_add: str
    body_replace: str
    row_by_id: str
    row_by_key: str
    row_by_done_key: str
    rekey: str
    rerun_put: str
    rerun: str
    rerun_remove: str
    pages_used: str
    room: str
    heads: str
    heads_of_kind: str
    kind_from: str
    head: str
    lease: str
    held: str
    held_to_complete: str
    extend: str
    checkpoint: str
    continuation_put: str
    continuation_remove: str
    move: str
    events_append: str
    events_replace: str
    events: str
    regate: str
    outcome_put: str
    outcome_remove: str
    job_remove: str
    body_remove: str
    lapsed: str
    held_by: str
    due: str
    overdue: str
    distant: str
    scope_from: str
    group_after: str
    finished: str
    row_at: str
    next_due: str
    next_lapse: str
    record: str
    records: str
    any_ready: str
    counts: str
    oldest_ready: str
    lapsed_count: str
    file_size: str
    examined_jobs: str
    examined_bodies: str
    examined_outcomes: str
    examined_continuations: str
    examined_reruns: str
    body_count: str
    hosts: str
    others: str
    orphaned_outcomes_remove: str
    orphaned_continuations_remove: str


def parse(text: str) -> dict[str, str]:
    """Split the file into its statements, parts put in and comments left behind.

    Raises:
        ValueError: a name stands twice, or a part is named that has not been defined above.
    """
    _, *pieces = _HEADING.split(text)
    parts: dict[str, str] = {}
    statements: dict[str, str] = {}
    for sort, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        into = parts if sort == "part" else statements
        if name in into:
            raise ValueError(f"the {sort} {name} stands twice")
        bare = " ".join(_COMMENT.sub("", body).split()).rstrip(";")
        into[name] = _INCLUDE.sub(lambda match: _part(parts, match[1]), bare)
    return statements


def _part(parts: dict[str, str], name: str) -> str:
    if name not in parts:
        raise ValueError(f"no part is named {name}")
    return parts[name]


def _load() -> Statements:
    found = parse(resources.files(__package__).joinpath("statements.sql").read_text(encoding="utf-8"))
    expected = {field.name for field in fields(Statements)}
    if expected != set(found):
        raise ValueError(f"statements.sql and its record differ in {sorted(expected ^ set(found))}")
    return Statements(**found)


SQL = _load()
