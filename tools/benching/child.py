"""One measurement in a process of its own: an order on standard input, an answer on standard output, both JSON.

Runs in whichever environment the subject needs, so it imports the standard library, the workloads and the adapter, and
nothing else. The first line of input is the order; a task that meets others says `{"ready": true}` and waits for
another line. The last line of output is the answer: figures and the pragmas of the live connection, or why there are
none.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    # Last on the path: no module of a library may be hidden by one of these folders.
    sys.path[:] = [*sys.path[1:], str(Path(__file__).resolve().parent.parent)]

from benching import subject as subjects
from benching.order import Answer, Measured, Order


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
        done: Measured = task(subject, order, meet)
        tell({"figures": done.figures, "has": done.has})
    except subjects.Unsupported as exc:
        tell({"unsupported": str(exc) or "not by itself"})
    except BaseException:  # noqa: BLE001 - told to the parent in full
        tell({"failed": traceback.format_exc()})


if __name__ == "__main__":
    main()
