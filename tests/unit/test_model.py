"""The records: pinned states, what a new job checks, scopes that no string can name, counts (§2, §3, §9)."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from litequeue import ANY, SYSTEM, Event, Job, JobState, NewJob, Stats, Transition, UsageError, codec
from litequeue.model import Scope, lease_summary, public_scope, storable_scope

ID = UUID("01977420-dc00-7000-8000-000000000001")
NOW = 1_750_000_000_000_000


# --- states


def test_the_codes_of_the_states_are_pinned() -> None:
    """They are a part of every job's key in every file (§3)."""
    assert {state.name: state.value for state in JobState} == {
        "PENDING": 0,
        "LEASED": 1,
        "COMPLETED": 2,
        "RETRYABLE": 3,
        "DEAD": 4,
        "SCHEDULED": 5,
        "CANCELLED": 6,
        "WAITING": 7,
    }


def test_a_state_is_shown_by_its_name() -> None:
    """Also in a mapping that is printed, such as `q.stats().counts` (issue 8)."""
    assert (str(JobState.DEAD), f"{JobState.DEAD:>6}") == ("dead", "  dead")
    assert repr({JobState.DEAD: 1}) == "{JobState.DEAD: 1}"


def test_each_state_is_waiting_leased_or_terminal() -> None:
    """Exactly one of the three (§3)."""
    assert [state.name for state in JobState if state.is_waiting] == ["PENDING", "RETRYABLE", "SCHEDULED", "WAITING"]
    assert [state.name for state in JobState if state.is_terminal] == ["COMPLETED", "DEAD", "CANCELLED"]


# --- new jobs


def test_a_new_job_has_the_defaults_of_enqueue() -> None:
    """Nothing but the kind must be given (§9)."""
    assert NewJob("work") == NewJob(
        kind="work",
        payload=None,
        scope=None,
        priority=100,
        delay=None,
        run_at=None,
        expires=None,
        max_attempts=None,
        idempotency_key=None,
        on_conflict="return",
        job_id=None,
    )


@pytest.mark.parametrize(
    "given",
    [
        {"priority": 0},
        {"priority": 255},
        {"scope": SYSTEM},
        {"scope": "x" * 255},
        {"delay": 0, "expires": 0},
        {"delay": timedelta(days=36_500), "expires": 3_153_600_000},
        {"run_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {"max_attempts": 1},
        {"max_attempts": 1_000_000},
        {"idempotency_key": "x" * 255, "on_conflict": "raise"},
        {"idempotency_key": "k", "on_conflict": "reset"},
        {"job_id": ID},
        {"job_id": str(ID)},
        {"payload": object()},  # a payload is looked at when it is encoded
    ],
)
def test_a_new_job_at_its_bounds_is_taken_as_it_is(given: dict[str, Any]) -> None:
    """And keeps what it was given (§2, §6)."""
    job = NewJob("work", **given)
    assert {name: getattr(job, name) for name in given} == given


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("kind", ""),
        ("kind", "x" * 256),
        ("scope", "litequeue:own"),
        ("scope", ""),
        ("scope", ANY),
        ("scope", 7),
        ("priority", -1),
        ("priority", 256),
        ("priority", True),
        ("delay", -1),
        ("expires", -1),
        ("expires", float("nan")),
        ("run_at", datetime(2025, 6, 15)),  # noqa: DTZ001 - naive is bad
        ("max_attempts", 0),
        ("max_attempts", 1_000_001),
        ("idempotency_key", ""),
        ("idempotency_key", "a\n"),
        ("on_conflict", "RESET"),
        ("on_conflict", None),
        ("job_id", "x"),
    ],
)
def test_a_new_job_beyond_its_bounds_is_refused_where_it_is_made(argument: str, value: object) -> None:
    """By the name of the argument, with its value (§6)."""
    given: dict[str, Any] = {"kind": "work", argument: value}
    with pytest.raises(UsageError) as caught:
        NewJob(**given)
    assert caught.value.argument == argument
    assert caught.value.value is value


def test_a_new_job_never_changes() -> None:
    """What was checked stays checked (§6)."""
    job = NewJob("work")
    with pytest.raises(FrozenInstanceError):
        job.priority = 999  # type: ignore[misc] # that is the point


# --- scopes


def test_special_scopes_are_objects_and_no_strings() -> None:
    """No name of a tenant can be taken for one (§2)."""
    for scope, name in ((SYSTEM, "SYSTEM"), (ANY, "ANY")):
        assert not isinstance(scope, str)
        assert repr(scope) == name
        assert pickle.loads(pickle.dumps(scope)) is scope  # noqa: S301 - our own
        assert copy.deepcopy(scope) is scope
    assert (storable_scope("SYSTEM"), storable_scope("system"), storable_scope("any")) == ("SYSTEM", "system", "any")


@pytest.mark.parametrize(("scope", "stored"), [(SYSTEM, ""), ("default", "default"), ("Ä:b", "Ä:b")])
def test_a_scope_is_stored_and_shown_again(scope: Scope, stored: str) -> None:
    """SYSTEM as the empty text, which sorts first (§2)."""
    assert storable_scope(scope) == stored
    assert public_scope(stored) == scope


@pytest.mark.parametrize("scope", [ANY, "", None, 0, "litequeue:x"])
def test_what_is_not_one_scope_is_not_stored(scope: object) -> None:
    """A job is in one scope, and never in SYSTEM by an empty name (§2, §6)."""
    with pytest.raises(UsageError) as caught:
        storable_scope(scope)
    assert caught.value.argument == "scope"


# --- counts and logs


def test_the_total_adds_all_states_up() -> None:
    """Of a scope or of the file (V13)."""
    stats = Stats(
        counts={state: 10**state for state in JobState},
        by_kind={},
        oldest_ready_at=None,
        next_due_at=None,
        lapsed=0,
        file_bytes=0,
        free_bytes=0,
        wal_bytes=0,
    )
    assert stats.total == 11_111_111
    assert replace(stats, counts=dict.fromkeys(JobState, 0)).total == 0


@pytest.mark.parametrize(
    ("beats", "checkpoints", "lines"),
    [
        (0, 0, []),
        (1, 0, [("extended", "once")]),
        (2, 0, [("extended", "2 times")]),
        (0, 1, [("checkpoint", "once")]),
        (1000, 7, [("extended", "1000 times"), ("checkpoint", "7 times")]),
    ],
)
def test_a_lease_is_summed_up_in_a_line_a_sort(beats: int, checkpoints: int, lines: list[tuple[str, str]]) -> None:
    """Heartbeats and checkpoints become one event with a count (§2)."""
    assert lease_summary(beats, checkpoints) == lines


def job(state: JobState, beats: int = 2, last_beat_at: int | None = NOW) -> Job:
    """Return a record in this state."""
    return Job(
        job_id=ID,
        scope="default",
        state=state,
        priority=100,
        created_at=NOW,
        kind="work",
        attempts=1,
        reaps=0,
        max_attempts=None,
        lease_generation=1,
        worker_id="ada",
        holder=1,
        leased_at=NOW,
        lease_deadline=NOW,
        beats=beats,
        checkpoints=0,
        last_beat_at=last_beat_at,
        not_before=None,
        expires_at=None,
        finished_at=None,
        idempotency_key=None,
        last_error=None,
        continuation=None,
        progress=None,
        note=None,
        encoded_payload=codec.encode([1]),
        encoded_result=None,
        encoded_events=codec.encode_event(1, Transition.ENQUEUED),
        decoder=codec.DECODER,
    )


def test_a_record_decodes_when_asked() -> None:
    """Payload, result and log, each for itself, anew each time (§2)."""
    record = job(JobState.PENDING)
    assert (record.payload, record.result, record.events) == ([1], None, [(1, "enqueued", "")])
    assert record.payload is not record.payload
    assert replace(record, encoded_result=codec.encode("done")).result == "done"
    assert replace(record, encoded_payload=b"\x09").events == record.events


@pytest.mark.parametrize("state", JobState)
def test_the_heartbeats_of_a_live_lease_are_shown_before_its_end(state: JobState) -> None:
    """As a last line while it is leased; afterwards they stand in the log itself (§2)."""
    beats = [Event(NOW, Transition.EXTENDED, "2 times")] if state is JobState.LEASED else []
    assert job(state).events[1:] == beats
    assert job(state, beats=0, last_beat_at=None).events[1:] == []
