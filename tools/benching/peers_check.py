"""Try every adapter of the peers, in their environment: `PYTHON tools/benching/peers_check.py [name …]`.

Each is opened at each durability on a fresh file, and has what it says. What is enqueued comes back equal, is not taken
twice by two handles, and is gone when it is completed; batches and waiting the same; rows of every sort can be put in
and leave the verbs working. Ends with 1 when an adapter is wrong. What a library does not have is told, not failed.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

if __name__ == "__main__":
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parent.parent)]

from benching import subject as subjects
from benching.subject import Unsupported

ROWS = 50
SYNCHRONOUS = {"full": 2, "normal": 1}
"""Each durability, and SQLite's number for it."""
PAYLOADS = [b"%020d" % number + bytes(80) for number in range(6)]


class Peer(subjects.Peer, Protocol):
    """What the peers' adapters have for this check."""

    def unfinished(self) -> int:
        """Count the jobs of its queue that are to be done or in work."""


class WrongError(Exception):
    """An adapter does not do what its interface says."""


def hold(what: str, found: object, wanted: object) -> None:
    """Compare."""
    if found != wanted:
        raise WrongError(f"{what}: {found!r} instead of {wanted!r}")


def one_by_one(one: Peer, other: Peer) -> None:
    """Enqueue, lease with two handles in turn, complete: everything comes once, as it was put in, and is gone."""
    for payload in PAYLOADS:
        one.enqueue(payload)
    seen = []
    for handle in (one, other) * (len(PAYLOADS) // 2):
        token = handle.lease()
        hold("a lease is there", token is None, False)  # noqa: FBT003 - what is wanted
        seen.append(handle.payload_id(token))
        handle.complete(token)
    hold("payloads", sorted(seen), PAYLOADS)
    hold("a lease of nothing", (one.lease(), other.lease()), (None, None))
    hold("unfinished jobs", one.unfinished(), 0)


def batches(one: Peer, _: Peer) -> None:
    """Lease and complete several at once, of those that were put in one by one."""
    for payload in PAYLOADS:
        one.enqueue(payload)
    tokens = one.lease_many(len(PAYLOADS) - 1)
    hold("a batch", sorted(one.payload_id(token) for token in tokens), PAYLOADS[:-1])
    one.complete_many(tokens)
    last = one.lease_many(len(PAYLOADS))
    hold("the last one", [one.payload_id(token) for token in last], PAYLOADS[-1:])
    one.complete_many(last)
    hold("a lease of nothing", one.lease(), None)
    hold("unfinished jobs", one.unfinished(), 0)


def bulk(one: Peer, other: Peer) -> None:
    """Enqueue several at once."""
    one.enqueue_many(PAYLOADS)
    tokens = [other.lease() for _ in PAYLOADS]
    hold("payloads", sorted(other.payload_id(token) for token in tokens), PAYLOADS)
    for token in tokens:
        other.complete(token)
    hold("a lease of nothing", one.lease(), None)
    hold("unfinished jobs", one.unfinished(), 0)


def waiting(one: Peer, other: Peer) -> None:
    """Wait in vain, and then not."""
    hold("a wait for nothing", one.wait(0.05), False)  # noqa: FBT003 - what is wanted
    other.enqueue(PAYLOADS[0])
    hold("a wait for something", one.wait(30), True)  # noqa: FBT003 - what is wanted
    token = one.lease()
    hold("its payload", one.payload_id(token), PAYLOADS[0])
    one.complete(token)
    hold("unfinished jobs", one.unfinished(), 0)


def workers(one: Peer, _: Peer) -> None:
    """Let a worker of its own handle jobs: each once, and gone when it was handled."""
    handled: list[bytes] = []
    are_all = threading.Event()

    def handle(payload: bytes) -> None:
        handled.append(payload)
        if len(handled) == len(PAYLOADS):
            are_all.set()

    for payload in PAYLOADS:
        one.enqueue(payload)
    modes = getattr(one, "modes", ())
    if not modes:
        raise Unsupported("no worker, or none that can be driven")
    with cast("subjects.Working", one).working(modes[0], 2, handle, None):
        are_all.wait(30)
    hold("payloads that were handled", sorted(handled), PAYLOADS)
    hold("unfinished jobs", one.unfinished(), 0)


def filling(sort: str) -> Callable[[Peer, Peer], None]:
    """Return a check that puts rows of a sort in, twice, and then takes the next job."""

    def check(one: Peer, __: Peer) -> None:
        one.fill(sort, ROWS)
        one.fill(sort, 1)
        one.fill(sort, 0)
        if sort == "own-backlog":
            for _ in range(ROWS + 1):
                one.complete(one.lease())
        there = one.unfinished()
        if sort == "leased":
            hold("leased jobs", there, ROWS + 1)
        one.enqueue(PAYLOADS[0])
        token = one.lease()
        hold("payload", one.payload_id(token), PAYLOADS[0])
        hold("unfinished jobs meanwhile", one.unfinished() - there, 0 if one.delivery == "at most once" else 1)
        one.complete(token)
        hold("a lease of nothing", one.lease(), None)
        hold("unfinished jobs", one.unfinished(), there)

    return check


CHECKS = {
    "one by one": one_by_one,
    "lease_many": batches,
    "enqueue_many": bulk,
    "wait": waiting,
    "a worker": workers,
    **{f"beside {sort}": filling(sort) for sort in subjects.SORTS},
}


def holds(one: Peer, durability: str) -> None:
    """Compare what an adapter says of its durability with the live connection."""
    pragmas = one.pragmas()
    wanted = durability if durability in one.durabilities else one.durabilities[0]
    hold("synchronous", pragmas["synchronous"], SYNCHRONOUS[wanted])
    hold("journal mode", pragmas["journal_mode"], "wal")


def load(name: str) -> Peer:
    """Make a subject."""
    return cast("Peer", subjects.load("peers", name))


def check(name: str) -> bool:
    """Try one adapter; return whether it is right."""
    right = True
    for durability in SYNCHRONOUS:
        for what, try_it in CHECKS.items():
            with tempfile.TemporaryDirectory() as folder:
                one, other = load(name), load(name)
                try:
                    one.open(folder, durability)
                    if not what.startswith("beside"):  # rows are put in by one who is alone
                        other.open(folder, durability)
                    try_it(one, other)
                    holds(one, durability)
                    one.close()
                    if not what.startswith("beside"):
                        other.close()
                except Unsupported as exc:
                    print(f"{name} at {durability}: {what}: {exc}")
                except Exception:  # noqa: BLE001 - told in full
                    right = False
                    print(f"{name} at {durability}: {what}: WRONG\n{traceback.format_exc()}")
    return right


def main() -> int:
    """Try those that are named, or all; return the exit status."""
    wrong = [name for name in sys.argv[1:] or subjects.names("peers") if not check(name)]
    print(f"wrong: {', '.join(wrong)}" if wrong else "all are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
