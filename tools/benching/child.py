"""One measurement in a process of its own: an order on standard input, an answer on standard output, both JSON.

Runs in whichever environment the subject needs, so it imports the standard library, the workloads and the adapter, and
nothing else. The first line of input is the order; a task that meets others says `{"ready": true}` and waits for
another line. The last line of output is the answer: figures and the pragmas of the live connection, or why there are
none.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import traceback
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    # Last on the path: no module of a library may be hidden by one of these folders.
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parent.parent)]

from benching import subject as subjects
from benching.order import Answer, Measured, Order, Pragmas
from benching.subject import Peer, Subject


def introduce(subject: Subject, order: Order) -> Pragmas:
    """Return what a peer's figures belong to besides; refuse to measure it where it has not what is asked for."""
    if order["where"] != "peers":
        return {}
    peer = cast("Peer", subject)
    if order["durability"] not in peer.durabilities and not order["at_any_durability"]:
        raise subjects.Unsupported(f"always {peer.durabilities[0]}")
    version = importlib.metadata.version(peer.distribution)
    return {"library": f"{peer.distribution} {version}", "delivery": peer.delivery}


def main() -> None:
    """Do what is ordered."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library that talks does not talk into the answer

    def tell(answer: Answer) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    def meet() -> None:
        print(json.dumps({"ready": True}), file=answers, flush=True)
        sys.stdin.readline()

    order = cast("Order", json.loads(sys.stdin.readline()))
    try:
        task = importlib.import_module(f"benching.workloads.{order['module']}").TASKS[order["task"]]
        subject = subjects.load(order["where"], order["subject"])
        told = introduce(subject, order)
        done: Measured = task(subject, order, meet)
        tell({"figures": done.figures, "has": {**done.has, **told}})
    except subjects.Unsupported as exc:
        tell({"unsupported": str(exc) or "not by itself"})
    except BaseException:  # noqa: BLE001 - told to the parent in full
        tell({"failed": traceback.format_exc()})


if __name__ == "__main__":
    main()
