"""An outbox against a list for each key: what can be delivered when, whatever is done to the messages (G4, V14)."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import litequeue
from litequeue import Lease, Outbox
from litequeue.sqlite.examining import problems
from litequeue.testing import FakeClock

KEYS = st.sampled_from(["a", "b", None])
ENDS = st.sampled_from(["complete", "fail", "bury", "release"])
PAUSE_S = 60


@dataclass
class Expected:
    """A message that is not delivered, as the model has it."""

    number: int
    key: str | None
    id: UUID
    lease: Lease | None = None
    ready_at_s: float = 0
    is_dead: bool = False


class Undo(Exception):
    """Ends a transaction."""


class OutboxMachine(RuleBasedStateMachine):
    """Says and expects."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._clock = FakeClock()
        path = Path(self._folder.name) / "app.queue"
        self._queue = litequeue.open(path, durability="normal", clock=self._clock)
        self._outbox = Outbox(self._queue, "mail")
        self._now_s = 0.0
        self._count = 0
        self._messages: list[Expected] = []

    def teardown(self) -> None:
        """Close the file and remove it."""
        self._queue.close()
        self._folder.cleanup()

    def _heads(self) -> list[Expected]:
        """Return the messages that no other one of their key is before."""
        seen: set[str | None] = set()
        heads = []
        for message in self._messages:
            if message.key is None or message.key not in seen:
                heads.append(message)
            seen.add(message.key)
        return heads

    def _ready(self) -> list[Expected]:
        return [
            message
            for message in self._heads()
            if message.lease is None and not message.is_dead and message.ready_at_s <= self._now_s
        ]

    def _held(self) -> list[Expected]:
        return [message for message in self._messages if message.lease is not None]

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), is_undone=st.booleans())
    def put(self, keys: list[str | None], *, is_undone: bool) -> None:
        """Put messages in a transaction, which may roll back."""
        put = []
        with suppress(Undo), self._queue.transaction() as tx:
            for key in keys:
                self._count += 1
                put.append(Expected(self._count, key, self._outbox.put(tx, self._count, key=key)))
            if is_undone:
                raise Undo
        if not is_undone:
            self._messages += put

    @precondition(lambda self: self._messages)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        """Put what is there once more: nothing comes of it."""
        message = data.draw(st.sampled_from(self._messages))
        with self._queue.transaction() as tx:
            self._outbox.put(tx, -1, key=message.key, message_id=message.id)

    @rule()
    def lease(self) -> None:
        """Lease all that can be delivered."""
        expected = {message.number: message for message in self._ready()}
        for lease in self._queue.lease_many(100, [self._outbox.kind], scope=self._outbox._scope, ttl=10_000_000):
            assert isinstance(lease.payload, dict)
            expected.pop(lease.payload["message"]).lease = lease
        assert expected == {}

    @precondition(lambda self: self._held())
    @rule(data=st.data(), end=ENDS, is_undone=st.booleans())
    def end(self, data: st.DataObject, end: str, *, is_undone: bool) -> None:
        """End a delivery, in a transaction that may roll back."""
        message = data.draw(st.sampled_from(self._held()))
        lease = message.lease
        assert lease is not None
        with suppress(Undo), self._queue.transaction() as tx:
            match end:
                case "complete":
                    tx.complete(lease)
                case "release":
                    tx.release(lease)
                case _:
                    tx.fail(lease, "boom", retryable=end == "fail", delay=PAUSE_S)
            if is_undone:
                raise Undo
        if is_undone:
            return
        message.lease = None
        message.is_dead = end == "bury"
        if end == "fail":
            message.ready_at_s = self._now_s + PAUSE_S
        elif end == "complete":
            self._messages.remove(message)

    @precondition(lambda self: self._messages)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        """Take any message away."""
        message = data.draw(st.sampled_from(self._messages))
        self._outbox.discard(message.id)
        self._messages.remove(message)

    @precondition(lambda self: any(message.is_dead for message in self._messages))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Deliver a dead message once more."""
        message = data.draw(st.sampled_from([message for message in self._messages if message.is_dead]))
        self._outbox.retry(message.id)
        message.is_dead = False
        message.ready_at_s = 0

    @rule(seconds=st.sampled_from([1, PAUSE_S, 3 * PAUSE_S]))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self._clock.advance(seconds)
        self._now_s += seconds

    @invariant()
    def is_sound(self) -> None:
        """Hold the file against what an examination wants, and what waits or is dead against the model."""
        assert problems(self._queue.path) == []
        assert self._outbox.waiting() == len(self._messages) - len(self._heads())
        assert {job.job_id for job in self._outbox.dead()} == {
            message.id for message in self._messages if message.is_dead
        }


@pytest.mark.timeout(600)  # it takes seconds, but to shrink a failure takes minutes
def test_an_outbox_does_what_its_model_says() -> None:
    """Whatever happens in any order, the first of each key can be delivered and no other (G4, G5, G7, G11, V14)."""
    run_state_machine_as_test(OutboxMachine, settings=settings(settings.get_profile("fast"), max_examples=40))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_outbox_does_what_its_model_says_for_longer() -> None:
    """The same, with more sequences."""
    run_state_machine_as_test(OutboxMachine, settings=settings.get_profile("fast"))
