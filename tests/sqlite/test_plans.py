"""How SQLite runs each statement: by the index that it was written for, without a scan or a sort (G9, DESIGN §2)."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import apsw
import pytest

import litequeue
from litequeue import NewJob
from litequeue.sqlite.statements import SQL
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litequeue import Queue

_KEY = "PRIMARY KEY (scope=? AND state=? AND priority=? AND created_at=? AND job_id=?)"
_PLACE = "scope,state,priority,created_at,job_id"
_GROUP = "scope=? AND state=? AND priority=?"
_BY_ID = "PRIMARY KEY (job_id=?)"
_BODY = f"SEARCH body USING {_BY_ID} LEFT-JOIN"
_EXTRAS = [f"SEARCH {table} USING {_BY_ID} LEFT-JOIN" for table in ("outcome", "continuation")]
_MOVED = [f"SEARCH litequeue_job USING {_KEY}"]
_FOUND = [f"SEARCH job USING {_KEY}"]
_NEXT_READY = "SEARCH job USING COVERING INDEX litequeue_job_ready (scope>? AND scope<?)"
_NEXT_GATED = "SEARCH job USING COVERING INDEX litequeue_job_due (scope>? AND scope<?)"
_COUNTED = ["CORRELATED SCALAR SUBQUERY 1", *_FOUND]

_GATE = ["SEARCH litequeue_gate USING COVERING INDEX litequeue_gate_job (job_id=?)"]
_SCHEDULE = ["SEARCH litequeue_schedule USING PRIMARY KEY (name=?)"]
_WALKS = ("CO-ROUTINE walk", "SETUP", "SCAN CONSTANT ROW", "RECURSIVE STEP", "SCAN walk", "SEARCH walk", "SCAN kinds")
"""Steps of a walk by a recursive statement: none of them goes over a table."""


def _walk(step: str, *ends_at: str) -> list[str]:
    """Return the plan of a walk whose every step is one seek, to where a second one finds something."""
    return [
        *("CO-ROUTINE walk", "SETUP", "SCAN CONSTANT ROW", "SCALAR SUBQUERY 1", step),
        *("RECURSIVE STEP", "SCAN walk", "CORRELATED SCALAR SUBQUERY 4", *ends_at),
        *("CORRELATED SCALAR SUBQUERY 3", step, "SEARCH walk"),
    ]


PLANS: dict[str, list[str]] = {
    "tail": [f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP})"],
    "row_by_id": [f"SEARCH body USING {_BY_ID}", *_FOUND],
    "row_by_key": ["SEARCH job USING INDEX litequeue_job_key (scope=? AND kind=? AND idempotency_key=? AND state=?)"],
    "row_by_done_key": [
        "SEARCH job USING INDEX litequeue_job_key_done (scope=? AND kind=? AND idempotency_key=? AND finished_at>?)"
    ],
    "heads": ["SEARCH job USING PRIMARY KEY (scope=? AND state=?)", _BODY],
    "heads_of_kind": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_ready (scope=? AND kind=?)"],
    "kind_from": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_ready (scope=? AND kind>? AND kind<?)"],
    "head": [*_FOUND, _BODY],
    "turn": ["SEARCH litequeue_turn USING PRIMARY KEY (kinds=?)"],
    "ready_scope": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_ready (scope>? AND scope<?)"],
    "ready_scope_of_kinds": _walk(
        _NEXT_READY,
        "SCAN kinds VIRTUAL TABLE INDEX 1:",
        "SEARCH job USING COVERING INDEX litequeue_job_ready (scope=? AND kind>? AND kind<?)",
    ),
    "group_youngest": [f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP})"],
    "group_since": [f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP} AND (created_at,job_id)>(?,?))"],
    "log_by_id": [f"SEARCH body USING {_BY_ID}", *_FOUND],
    "export_ids": [
        "SEARCH body USING PRIMARY KEY (job_id>? AND job_id<?)",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH gate USING COVERING INDEX litequeue_gate_job (job_id=?)",
    ],
    "export_gates": ["SEARCH litequeue_gate USING PRIMARY KEY (id>? AND id<?)"],
    "exported": [f"SEARCH body USING {_BY_ID}", *_FOUND, *_EXTRAS],
    "ids_between": ["SEARCH litequeue_body USING PRIMARY KEY (job_id>? AND job_id<?)"],
    "ids_between_in_state": ["SEARCH body USING PRIMARY KEY (job_id>? AND job_id<?)", *_FOUND],
    "any_ready": ["SEARCH litequeue_job USING PRIMARY KEY (scope=? AND state=?)"],
    "lease": _MOVED,
    "held": _FOUND,
    "held_to_complete": [*_FOUND, "CORRELATED SCALAR SUBQUERY 1", f"SEARCH outcome USING {_BY_ID}"],
    "extend": _MOVED,
    "checkpoint": _MOVED,
    "retake": _MOVED,
    "move": _MOVED,
    "rekey": _MOVED,
    "regate": _MOVED,
    "events": _MOVED,
    "events_append": _MOVED,
    "events_replace": _MOVED,
    "job_remove": _MOVED,
    "row_at": _FOUND,
    "body_replace": [f"SEARCH litequeue_body USING {_BY_ID}"],
    "body_moved": [f"SEARCH litequeue_body USING {_BY_ID}"],
    "body_remove": [f"SEARCH litequeue_body USING {_BY_ID}"],
    "outcome_remove": [f"SEARCH litequeue_outcome USING {_BY_ID}"],
    "continuation_remove": [f"SEARCH litequeue_continuation USING {_BY_ID}"],
    "rerun": [f"SEARCH litequeue_rerun USING {_BY_ID}"],
    "rerun_remove": [f"SEARCH litequeue_rerun USING {_BY_ID}"],
    "lapsed": ["SEARCH job USING INDEX litequeue_job_deadline (lease_deadline<?)"],
    "latest_deadline": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_deadline"],
    "due": ["SEARCH job USING INDEX litequeue_job_due (scope=? AND not_before<?)"],
    "due_anywhere": ["SEARCH job USING INDEX litequeue_job_due_anywhere (not_before<?)"],
    "due_scope": _walk(_NEXT_GATED, "SEARCH job USING COVERING INDEX litequeue_job_due (scope=? AND not_before<?)"),
    "next_due_anywhere": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_due_anywhere"],
    "overdue_anywhere": ["SEARCH job USING INDEX litequeue_job_expiry_anywhere (expires_at>? AND expires_at<?)"],
    "next_due": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_due (scope=?)"],
    "next_lapse": ["SEARCH litequeue_job USING COVERING INDEX litequeue_job_deadline"],
    "distant": [f"SEARCH job USING INDEX litequeue_job_due_anywhere ((not_before,{_PLACE})>(?,?,?,?,?,?))"],
    "overdue": ["SEARCH job USING INDEX litequeue_job_expiry (scope=? AND expires_at>? AND expires_at<?)"],
    "scope_from": ["SEARCH litequeue_job USING PRIMARY KEY (scope>?)"],
    "group_after": ["SEARCH litequeue_job USING PRIMARY KEY ((scope,state,priority)>(?,?,?))"],
    "finished": [f"SEARCH job USING PRIMARY KEY ({_GROUP} AND (created_at,job_id)>(?,?) AND created_at<?)"],
    "record": [f"SEARCH body USING {_BY_ID}", *_FOUND, *_EXTRAS],
    "records": [
        "SEARCH job USING PRIMARY KEY (scope=? AND state=? AND (priority,created_at,job_id)>(?,?,?))",
        _BODY,
        *_EXTRAS,
    ],
    "slots_taken": [
        "CO-ROUTINE (subquery-1)",
        "SEARCH litequeue_slot USING PRIMARY KEY (kind=? AND scope=?)",
        "SCAN (subquery-1)",
    ],
    "slot_remove": ["SEARCH litequeue_slot USING PRIMARY KEY (kind=? AND scope=? AND job_id=?)"],
    "slot_exists": ["SEARCH litequeue_slot USING PRIMARY KEY (kind=? AND scope=? AND job_id=?)"],
    "examined_slots": [
        "SEARCH slot USING PRIMARY KEY ((kind,scope,job_id)>(?,?,?))",
        "SEARCH body USING PRIMARY KEY (job_id=?) LEFT-JOIN",
        "SEARCH job USING PRIMARY KEY (scope=? AND state=? AND priority=? AND created_at=? AND job_id=?) LEFT-JOIN",
    ],
    "outbox_message": ["SEARCH litequeue_outbox USING INDEX litequeue_outbox_message (job_id=?)"],
    "outbox_first": ["SEARCH litequeue_outbox USING PRIMARY KEY (scope=? AND key=?)"],
    "outbox_last": ["SEARCH litequeue_outbox USING PRIMARY KEY (scope=? AND key=?)"],
    "outbox_begin": ["SEARCH litequeue_outbox USING PRIMARY KEY (scope=? AND key=? AND position=?)"],
    "outbox_remove": ["SEARCH litequeue_outbox USING PRIMARY KEY (scope=? AND key=? AND position=?)"],
    "outbox_waiting": ["SEARCH litequeue_outbox USING PRIMARY KEY (scope=?)"],
    "examined_outbox": [
        "SEARCH message USING PRIMARY KEY ((scope,key,position)>(?,?,?))",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH other USING PRIMARY KEY (scope=? AND key=? AND position<?)",
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH body USING PRIMARY KEY (job_id=?)",
    ],
    "tail_waiting": [f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP})"],
    "gate_of_job": ["SEARCH litequeue_gate USING INDEX litequeue_gate_job (job_id=?)"],
    "gate_delay": _GATE,
    "gate_remove": _GATE,
    "gate_close": ["SEARCH litequeue_gate USING PRIMARY KEY (id=?)"],
    "gate_told": ["SEARCH litequeue_gate USING PRIMARY KEY (id=?)"],
    "dependency_remove": ["SEARCH litequeue_dependency USING PRIMARY KEY (parent_id=? AND gate=?)"],
    "last_gate_of_parent": ["SEARCH litequeue_dependency USING PRIMARY KEY (parent_id=?)"],
    "gates_of_parent": [
        "SEARCH dependency USING PRIMARY KEY (parent_id=? AND gate<?)",
        "SEARCH gate USING PRIMARY KEY (id=?) LEFT-JOIN",
    ],
    "parents_of_gate": ["SEARCH litequeue_dependency USING COVERING INDEX litequeue_dependency_gate (gate=?)"],
    "children": ["SEARCH litequeue_dependency USING PRIMARY KEY (parent_id=?)"],
    "notice_first": ["SEARCH litequeue_notice USING PRIMARY KEY (id>?)"],
    "notice_remove": ["SEARCH litequeue_notice USING PRIMARY KEY (id=?)"],
    "examined_gates": [
        "SEARCH gate USING PRIMARY KEY (id>?)",
        "CORRELATED SCALAR SUBQUERY 1",
        f"SEARCH body USING {_BY_ID}",
        *_FOUND,
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH missed USING COVERING INDEX litequeue_dependency_gate (gate=?)",
    ],
    "bucket": ["SEARCH litequeue_bucket USING PRIMARY KEY (kind=?)"],
    "bucket_remove": ["SEARCH litequeue_bucket USING PRIMARY KEY (kind=?)"],
    "schedule": _SCHEDULE,
    "schedule_advance": _SCHEDULE,
    "schedule_pause": _SCHEDULE,
    "schedule_resume": _SCHEDULE,
    "schedule_remove": _SCHEDULE,
    "schedules_due": [
        "SEARCH litequeue_schedule USING INDEX litequeue_schedule_due ((boundary,name)>(?,?) AND boundary<?)"
    ],
    "schedule_upcoming": ["SEARCH litequeue_schedule USING COVERING INDEX litequeue_schedule_due (boundary>?)"],
    "survey_end": [f"SEARCH litequeue_job USING PRIMARY KEY (({_PLACE})>(?,?,?,?,?))"],
    "survey_ready": ["SEARCH job USING INDEX litequeue_job_ready ((scope,kind,priority)>(?,?,?))"],
    "survey_done": [f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP})"],
    "survey_dead": [
        "SEARCH job USING PRIMARY KEY (scope=? AND state=? AND (priority,created_at,job_id)>(?,?,?))",
        f"SEARCH outcome USING {_BY_ID} LEFT-JOIN",
    ],
    "flow_in": [
        "CO-ROUTINE (subquery-2)",
        f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP} AND created_at>? AND created_at<?)",
        "SCAN (subquery-2)",
        "SCALAR SUBQUERY 1",
        f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP} AND created_at>?)",
    ],
    "flow_out": [
        "CO-ROUTINE (subquery-1)",
        f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP} AND created_at<?)",
        "SCAN (subquery-1)",
    ],
    "flow_back": [f"SEARCH litequeue_job USING PRIMARY KEY ({_GROUP} AND created_at<?)"],
    "examined_jobs": [
        "SEARCH job USING PRIMARY KEY ((scope,state,priority,created_at,job_id)>(?,?,?,?,?))",
        _BODY,
        *_EXTRAS,
    ],
    "examined_bodies": ["SEARCH body USING PRIMARY KEY (job_id>?)", *_COUNTED],
    "examined_outcomes": ["SEARCH outcome USING PRIMARY KEY (job_id>?)", _BODY],
    "examined_continuations": ["SEARCH continuation USING PRIMARY KEY (job_id>?)", _BODY, *_COUNTED],
    "examined_schedules": ["SEARCH litequeue_schedule USING PRIMARY KEY (name>?)"],
    "examined_reruns": ["SEARCH rerun USING PRIMARY KEY (job_id>?)", _BODY, *_COUNTED],
}
"""The statements of the verbs, each with its whole plan."""

FREE = {
    "counts",  # `stats` reads every key of a scope once, and says so
    "oldest_ready",
    "lapsed_count",
    "survey_jobs",  # a bounded step over all jobs, sorted by kind; who asks says how many
    "survey_lapsed",  # counts up to a bound
    "survey_running",  # by the index that it is pinned to, from its beginning up to a bound
    "pages_used",
    "room",
    "file_size",
    "settings_version",  # tables of one row, or of as many as there are settings
    "lock",  # writes no row
    "settings_changed",
    "gate_begun",
    "last_gate",
    "settings",
    "kind_settings",
    "scope_settings",
    "scope_setting_remove",
    "pauses",
    "pause_remove",
    "slots_clear",  # when a limit changes, every lease is counted anew
    "leased_kinds",
    "buckets_booted",  # once a boot, as many rows as there are rates
    "host",
    "host_booted",
    "host_unbooted",
    "holder_remove",
    "holders",  # a row for each handle that holds leases
    "handles",
    "running_counts",  # walk the index of held leases: so many jobs run
    "running",
    "running_logs",
    "last_id",  # the first row from the end
    "held_by",  # walks the index of held leases, once for each holder that has died
    "holders_clear",
    "weights",  # a row for each scope that has a weight, read with the settings
    "weight_remove",
    "turns",  # at most 1,000 rows, in an examination
    "turns_prune",  # at most 1,000 rows, looked at when a new filter has its first turn
    "setting_remove",
    "kind_setting_remove",
    "schedules",  # all of them, for a person
    "hosts",
    "body_count",  # an operator's examination and mending look at every row
    "others",
    "is_chained",  # the first row of three tables, when settings are read
    "examined_dependencies",  # an operator's examination looks through the notices that are not worked off
    "gates_count_anew",
    "untold",
    "orphaned_dependencies_remove",
    "orphaned_outcomes_remove",
    "orphaned_continuations_remove",
}
"""Statements whose plan is nobody's promise."""


def _plan(queue: Queue, name: str) -> list[str]:
    """Ask the very connection that the handle writes with."""
    connection = queue._store._writer.connection
    assert connection is not None
    sql = getattr(SQL, name)
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    named = set(re.findall(r":[a-z]\w*", sql))
    bindings = (None,) * max(len(re.findall(r"\?(?!\d)", sql)) + len(named), *numbered, 0)
    return [str(row[3]) for row in connection.execute(sql, bindings, explain=2).fetchall()]


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    """Give a handle on a fresh queue."""
    with litequeue.open(path, durability="normal", clock=FakeClock()) as opened:
        yield opened


def _fill(queue: Queue) -> None:
    """Enqueue few kinds in one scope and many in another, and bring them into all states."""
    for scope, kinds in (("one", 1), ("many", 200), ("some", 7)):
        queue.enqueue_many(
            NewJob(f"kind {number % kinds}", number, scope=scope, idempotency_key=str(number), expires=1000)
            for number in range(400)
        )
    queue.complete_many(queue.lease_many(300, scope="one"))
    queue.fail_many(queue.lease_many(50, scope="many"), "boom")
    queue.lease_many(50, scope="some")


def test_every_statement_has_a_promised_plan_or_a_reason() -> None:
    """A new statement is looked at, once, by whoever adds it (STYLE "Hot statements have their plan asserted")."""
    inserts = {field.name for field in fields(SQL) if getattr(SQL, field.name).startswith("INSERT")}
    assert {field.name for field in fields(SQL)} == PLANS.keys() | FREE | inserts


@pytest.mark.parametrize("name", PLANS)
def test_a_statement_runs_by_its_index(queue: Queue, name: str) -> None:
    """In an empty file, where the planner knows nothing (G9)."""
    assert _plan(queue, name) == PLANS[name]


@pytest.mark.parametrize("tables", ["", "litequeue_job", "litequeue_body"])
@pytest.mark.parametrize("when", ["full", "nearly empty"])
def test_plans_do_not_depend_on_what_analyze_has_found(path: Path, queue: Queue, tables: str, when: str) -> None:
    """An application that runs ANALYZE, or `PRAGMA optimize`, on its file changes no plan of the queue (G9).

    It does so when it likes: what it found in a queue of one job says nothing of the million that came later.
    """
    if when == "full":
        _fill(queue)
    queue.enqueue("work")
    application = apsw.Connection(str(path))
    application.execute(f"ANALYZE {tables}")
    application.close()
    with litequeue.open(path) as analysed:
        assert {name: _plan(analysed, name) for name in PLANS} == PLANS


def test_no_promised_plan_scans_or_sorts() -> None:
    """The table above holds no scan of a table, and no temporary b-tree (G9)."""
    # The rows that a search has found, up to a bound.
    counted = {f"{step} (subquery-{n})" for step in ("CO-ROUTINE", "SCAN") for n in (1, 2)}
    steps = [step for plan in PLANS.values() for step in plan if step not in counted]
    assert all(step.startswith(("SEARCH", "CORRELATED", "SCALAR", *_WALKS)) for step in steps)
