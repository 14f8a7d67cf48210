"""What the checker holds the queue to, in one list, and how it says that something was broken."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Rule(StrEnum):
    """What must hold."""

    GENERATIONS = "the fencing token of a job grows at every lease, over all processes and in its log (G1)"
    ONE_HOLDER = "each generation has one holder (G1)"
    STALE = "nobody but the holder of the latest lease is obeyed (G1)"
    ONE_COMPLETION = "a run is ended once, and by somebody who said so (G1, G3)"
    TRUTH = "what was acknowledged is in the file, and what was refused had a reason (G2, G11)"
    FROM_NOWHERE = "nothing is in the file that nobody asked for (G11)"
    WHOLE = "a commit is in the file with all its parts, or not at all (G3, G7)"
    RESULT = "the payload is the one that was enqueued, the result the one of the completion (G2)"
    ATTEMPTS = "attempts are counted, and never more than allowed (G6)"
    ALONE = "a job that was reaped is leased alone from then on (V3, G6)"
    LOG = "the log of a job is a path through the state machine (contract §3)"
    EARLY = "no lease is taken away before its time, unless its holder has died (§8)"
    ORDER = "ready jobs of one priority are first leased in the order of enqueueing (G4)"
    DRAINED = "every job has ended (G5)"
    OVERLAP = "no handler works on a job while another one does, but after its lease has lapsed or was ended (G1)"
    HANDLED = "a job is completed by a worker after its handler has done it, not before (G3)"
    ANSWERED = "what a handler came to is what the queue is told (V6, V7, V8)"
    TOLD = "what a worker tells its user has been committed (G11)"
    LEFT = "nothing is left leased, and no attempt is lost, when a worker ends in order (V8)"
    LIMIT = "no more jobs are leased at a time than a limit allows (§5)"
    RATE = "no more leases begin in any stretch of time than a rate allows (§5)"
    PAUSED = "nothing is leased while it is paused (V15)"
    FIRED = "each boundary of a schedule has one job"
    FAIR = "a scope with ready work is served within the others' weights (V12, G10)"


class Breach(NamedTuple):
    """A rule that was broken, and where."""

    rule: Rule
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
