"""The jobs of the crash harness, and what must come of them.

Owns: the sorts of work, their payloads, and the result that a payload leads to, whoever works on it and however often.
Invariant: every payload is unlike every other, so a job whose id nobody was told is known by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

from litequeue import NewJob

POISON = "poison"
POISON_ATTEMPTS = 3
DOOMED = "doomed"
"""Its maker cancels it, if it is not done before."""
UNPACKABLE = "unpackable"
"""Comes to a result that the queue does not store."""
FAILING_ATTEMPTS = 2
MANY_ATTEMPTS = 200
"""For work that is repeated only because its worker was killed: far more than that ever happens."""

CALLED = {
    "plain": 8,
    "steps": 4,
    "side": 4,
    "side and no result": 2,
    "then": 3,
    "transaction": 4,
    "flaky": 2,
    "hopeless": 1,
    "released": 2,
    "sleepy": 1,
}
"""The sorts for processes that call the verbs themselves, and how often each comes."""
MOSTLY_PLAIN = {**CALLED, "plain": 40}
"""The same where leases are restricted: no limit counts plain work, so that it goes round the scopes in turn."""
HANDLED = {
    "plain": 8,
    "steps": 4,
    "side": 4,
    "side and no result": 2,
    "then": 3,
    "flaky": 2,
    "retried": 3,
    "hopeless": 1,
    UNPACKABLE: 1,
    "snoozed": 2,
    "released": 2,
    "failed": 2,
    "slow": 3,
    "deaf": 1,
    "overtime": 1,
    "stubborn": 1,
    "sleepy": 1,
    DOOMED: 2,
}
"""The sorts for handlers of real workers, and how often each comes."""
DEAD = frozenset({"hopeless", UNPACKABLE})
"""Can never succeed."""
SIDE = frozenset({"side", "side and no result", "transaction"})
"""Leave one row in the side table, in the commit that completes them."""
_KEYS = 20
_MOST_CHARS = 3000
_STEPS = 200

Payload = dict[str, str]


def happens(random: Random, share: float) -> bool:
    """Draw whether something happens that is to happen in this share of all cases."""
    return random.random() < share


def kind(how: str) -> str:
    """Return the kind of a sort of work."""
    return POISON if how == POISON else f"work:{how.replace(' ', '-')}"


def draw(random: Random, name: str, number: int, sorts: Mapping[str, int] = CALLED, poisoned: float = 0.01) -> NewJob:
    """Draw a job, now and then poison; the name of its maker and its number make it unlike every other."""
    if happens(random, poisoned):
        return NewJob(POISON, payload(random, POISON, f"{name} {number}"))
    how = random.choices(list(sorts), list(sorts.values()))[0]
    key = f"key {random.randrange(_KEYS)}" if how == "plain" and happens(random, 0.2) else None
    return NewJob(
        kind(how),
        payload(random, how, f"{name} {number}"),
        delay=random.choice((None, None, None, 0.05)),
        max_attempts=FAILING_ATTEMPTS if how == "hopeless" else None,
        idempotency_key=key,
        on_conflict="reset" if key is not None and happens(random, 0.5) else "return",
        job_id=UUID(int=random.getrandbits(128), version=4) if happens(random, 0.5) else None,
    )


def payload(random: Random, how: str, name: str) -> Payload:
    """Make a payload that can be told from a damaged one."""
    data = name + "." * random.randrange(_MOST_CHARS)
    return {"how": how, "data": data, "sum": _sum(data)}


def follower(of: Payload) -> NewJob:
    """Return the job that follows on another."""
    data = f"after {of['data'][:60]}"
    return NewJob("work:plain", {"how": "plain", "data": data, "sum": _sum(data)})


def is_whole(task: Payload) -> bool:
    """Tell whether a payload is as it was made."""
    return task["sum"] == _sum(task["data"])


def work(task: Payload, tell: Callable[[int], None] = lambda _: None) -> str | None:
    """Do the work: a digest of digests; `tell` is called half-way. The same task has the same result."""
    found = task["data"]
    for step in range(_STEPS):
        if step == _STEPS // 2:
            tell(step)
        found = _sum(found)
    return None if task["how"] == "side and no result" else found


def _sum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
