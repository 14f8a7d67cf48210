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
    lock: str
    settings_changed: str
    settings: str
    kind_settings: str
    setting_put: str
    setting_remove: str
    kind_setting_put: str
    kind_setting_remove: str
    scope_settings: str
    scope_setting_put: str
    scope_setting_remove: str
    pauses: str
    pause_put: str
    pause_remove: str
    weights: str
    weight_put: str
    weight_remove: str
    host: str
    host_booted: str
    host_unbooted: str
    latest_deadline: str
    holder_add: str
    holder_remove: str
    holders_clear: str
    holders: str
    handles: str
    tail: str
    tail_waiting: str
    job_add: str
    body_add: str
    body_replace: str
    body_moved: str
    row_by_id: str
    row_by_key: str
    row_by_done_key: str
    rekey: str
    rerun_put: str
    rerun: str
    rerun_remove: str
    outbox_add: str
    outbox_message: str
    outbox_first: str
    outbox_last: str
    outbox_begin: str
    outbox_remove: str
    outbox_waiting: str
    is_chained: str
    gate_begun: str
    last_gate: str
    gate_add: str
    gate_of_job: str
    gate_close: str
    gate_delay: str
    gate_remove: str
    gate_told: str
    dependency_add: str
    dependency_remove: str
    last_gate_of_parent: str
    gates_of_parent: str
    parents_of_gate: str
    children: str
    notice_add: str
    notice_first: str
    notice_remove: str
    pages_used: str
    room: str
    heads: str
    heads_of_kind: str
    kind_from: str
    head: str
    turn: str
    turns: str
    turn_put: str
    turns_prune: str
    ready_scope: str
    ready_scope_of_kinds: str
    lease: str
    slots_taken: str
    slot_add: str
    slot_remove: str
    slots_clear: str
    leased_kinds: str
    bucket: str
    bucket_put: str
    bucket_remove: str
    buckets_booted: str
    held: str
    held_to_complete: str
    extend: str
    checkpoint: str
    retake: str
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
    due_anywhere: str
    due_scope: str
    overdue: str
    overdue_anywhere: str
    distant: str
    scope_from: str
    group_after: str
    finished: str
    row_at: str
    next_due: str
    next_due_anywhere: str
    next_lapse: str
    schedule_put: str
    schedule: str
    schedules: str
    schedules_due: str
    schedule_upcoming: str
    schedule_advance: str
    schedule_pause: str
    schedule_resume: str
    schedule_remove: str
    record: str
    records: str
    last_id: str
    export_ids: str
    export_gates: str
    exported: str
    ids_between: str
    ids_between_in_state: str
    any_ready: str
    running_counts: str
    running: str
    running_logs: str
    group_youngest: str
    group_since: str
    log_by_id: str
    counts: str
    oldest_ready: str
    lapsed_count: str
    file_size: str
    survey_end: str
    survey_jobs: str
    survey_ready: str
    survey_done: str
    survey_lapsed: str
    survey_running: str
    survey_dead: str
    flow_in: str
    flow_out: str
    flow_back: str
    examined_jobs: str
    examined_bodies: str
    examined_outcomes: str
    examined_continuations: str
    examined_reruns: str
    examined_slots: str
    slot_exists: str
    examined_outbox: str
    examined_gates: str
    examined_dependencies: str
    examined_schedules: str
    body_count: str
    hosts: str
    others: str
    orphaned_outcomes_remove: str
    orphaned_continuations_remove: str
    gates_count_anew: str
    untold: str
    orphaned_dependencies_remove: str


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
