"""The dispatcher: outcomes into the queue, leases out of it, in one transaction after the other.

Owns: all that a worker does with the queue but heartbeats and maintenance, in the thread that runs it. Invariants:
there are never more leases in hand than handlers at once, so no job waits here while another worker is idle; what has
ended is handed in with what ends at about the same time, within `hold`; an outcome is kept until the queue has taken it
or refused it; a queue that is busy, full or out of reach is tried again, at longer and longer intervals.

    handler ends → inbox → exchange: settles all that have ended and leases as many, one commit → handlers begin

Leaves out: where handlers run (`run.Executor`), and what an ending means (`outcomes`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from queue import Empty, SimpleQueue

from litequeue.errors import (
    CannotOpen,
    LeaseConflict,
    LiteQueueError,
    OutcomeUnknown,
    QueueBusy,
    QueueFull,
    StorageCorrupt,
    StorageLost,
)
from litequeue.lease import Lease
from litequeue.queue import Queue
from litequeue.settlement import Exchange, Failed, Released, Settlement
from litequeue.worker.events import EventName, Events, stopping
from litequeue.worker.heartbeat import Heartbeat
from litequeue.worker.in_hand import InHand
from litequeue.worker.outcomes import unstorable
from litequeue.worker.run import Executor, Plan, Run

_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 5.0
_FIRST_IDLE_S = 0.001
_LAST_IDLE_S = 0.1
"""After a lease call that found nothing though something seemed ready."""
GRAVE_S = 30.0
"""For how long a file that cannot be read, or is not there, is tried again: a disk may come back."""
_LONGEST_SLEEP_S = 3600.0
_UNWIND_S = 0.25
"""How long handlers that were told to stop have to do so, before their jobs are given back."""
INSIST_S = 30.0
"""For how long giving back is tried where the file is busy; then the leases lapse by themselves."""
MOST_STOPS = 2
GRAVE = (StorageLost, StorageCorrupt, CannotOpen)
PASSING = (QueueBusy, QueueFull, OutcomeUnknown)
"""What is tried again for ever."""
MAY_PASS = (*PASSING, *GRAVE)
"""What is tried again."""
_log = logging.getLogger("litequeue.worker")


@dataclass(frozen=True, slots=True)
class Ending:
    """What a worker has done from its start to its end, in runs."""

    completed: int = 0
    failed: int = 0
    """Failed, and to be tried again."""
    dead: int = 0
    """Failed for good: discarded, out of attempts, or for a permanent reason."""
    snoozed: int = 0
    """Put off by their handlers; the attempt does not count."""
    released: int = 0
    """Given back before they began, or while they waited for their next try; the attempt does not count."""
    interrupted: int = 0
    """Given back because the drain was over; the attempt does not count."""
    lost: int = 0
    """Refused, because the job was cancelled or somebody else's by then."""

    @property
    def is_clean(self) -> bool:
        """Whether every handler ended by itself."""
        return self.interrupted == 0

    @property
    def total(self) -> int:
        """How many runs there were."""
        return sum(astuple(self))


COUNTED: dict[EventName, str] = {
    "completed": "completed",
    "settled": "completed",
    "failed": "failed",
    "retried": "failed",
    "dead": "dead",
    "discarded": "dead",
    "snoozed": "snoozed",
    "released": "released",
    "lost": "lost",
}
"""As what each end of a run is counted."""

Place = Callable[[int, Callable[[Run], None]], Executor]
"""Makes where handlers run: for so many at once, each posted when it has ended."""


class Dispatcher:
    """The loop. `post` and `lose` may be called from any thread, `stop` from a signal handler too."""

    def __init__(self, queue: Queue, plan: Plan, events: Events, place: Place) -> None:
        self._queue = queue
        self._plan = plan
        self._events = events
        self._place = place
        self._waiter = queue.waiter(plan.handlers.kinds, scope=plan.scope)
        self._in_hand: InHand | None = None
        self._heartbeat: Heartbeat | None = None
        self._inbox: deque[Run] = deque()
        """Runs that have ended."""
        self._lost: deque[Lease] = deque()
        self._news: SimpleQueue[None] = SimpleQueue()
        """One for each time that the loop is to look around."""
        self._is_looking = False
        self._is_told = False
        """Whether the loop has been woken for what is in the inbox."""
        self._outstanding = 0
        """How many an executor has, or has posted without their having been taken in."""
        self._is_ready = True
        """Whether a lease call may find something, as far as is known."""
        self._stops = 0
        self._drain_until = math.inf
        self._unwind_until = math.inf
        """Until when those that were told to stop may still say what they came to."""
        self._is_given_up = False
        self._hold_until = math.inf
        self._exchange_s = 0.0
        self._retry_s = 0.0
        self._retry_at = 0.0
        self._is_known = False
        """Whether it has been tried to let others know of this worker, which has found nothing to do."""
        self._is_failing = False
        self._grave_since = math.inf
        self._counts: Counter[str] = Counter()

    def run(self) -> Ending:
        """Work until `stop`, or until nothing is ready with `until_empty`; then drain.

        Raises:
            LiteQueueError: the file is of no more use; handlers that still run have been told to stop.
        """
        with Heartbeat(self._queue, self.lose) as heartbeat:
            executor = self._place(self._plan.concurrency, self.post)
            self._heartbeat = heartbeat
            hand = self._in_hand = InHand(self._plan, executor, heartbeat, self._events)
            try:
                while not self._is_over(hand):
                    try:
                        self._turn(hand)
                    except MAY_PASS as exc:
                        self._try_later(exc)
            finally:
                for run in hand:  # an error has ended the loop
                    hand.cancel(run)
                executor.close(is_idle=self._outstanding <= len(self._inbox))
        return Ending(**self._counts)

    def stop(self) -> None:
        """Lease no more, and end when what runs has ended; called again, give the rest back at once."""
        self._stops += 1
        self._wake()

    def post(self, run: Run) -> None:
        """Take in what has ended. Only the first wakes the loop, and the last that it can wait for.

        The first is who finds that nobody has woken it since the inbox was last seen to; two may be so at once. To ask
        for the length instead would not do: of two that come at once neither may find itself alone.
        """
        self._inbox.append(run)
        if not self._is_told or len(self._inbox) >= self._outstanding:
            self._is_told = True
            self._wake()

    def lose(self, lease: Lease) -> None:
        """Hear that a lease is lost: its handler is told at once, everything else comes in its turn."""
        run = self._in_hand.find(lease) if self._in_hand is not None else None
        if run is not None and self._in_hand is not None and run.settlement is None:
            self._in_hand.cancel(run)
        self._lost.append(lease)
        self._wake()

    def look(self) -> None:
        """Find out at once which leases are lost."""
        if self._heartbeat is not None:
            self._heartbeat.look()

    def is_running(self, lease: Lease) -> bool:
        """Whether a handler still works on a lease."""
        run = self._in_hand.find(lease) if self._in_hand is not None else None
        return run is not None and run.settlement is None and not lease.settled

    @property
    def running(self) -> int:
        """How many jobs are in hand."""
        return 0 if self._in_hand is None else len(self._in_hand)

    # --- the loop

    def _is_over(self, hand: InHand) -> bool:
        return self._stops > 0 and (not hand or self._is_given_up)

    def _turn(self, hand: InHand) -> None:
        while not self._news.empty():
            self._news.get_nowait()
        now = time.monotonic()
        while self._lost:
            self._tell_loss(hand.find(self._lost.popleft()), "")
        if self._stops:
            self._drain(hand, now)
        self._outstanding += hand.attend(now)
        if now < self._retry_at:
            self._sleep(hand, now)
        elif now >= self._unwind_until and (hand or self._inbox):
            self._exchange(hand, gives_back=True)
        elif self._is_to_exchange(hand, now):
            self._exchange(hand, gives_back=False)
        else:
            self._sleep(hand, now)

    def _is_to_exchange(self, hand: InHand, now: float) -> bool:
        ended = len(self._inbox)
        if not ended:
            return self._is_ready and not self._stops and len(hand) < self._plan.concurrency
        if self._hold_until == math.inf:
            # Who waits for others no longer than a commit takes pays at most twice what the best choice would cost.
            third_s = min(run.lease.ttl_us for run in self._inbox.copy()) / 3_000_000
            self._hold_until = now + min(self._plan.hold_s, self._exchange_s, third_s)
        return ended >= self._outstanding or now >= self._hold_until

    def _exchange(self, hand: InHand, *, gives_back: bool) -> None:
        """Hand in what has ended, or else (`gives_back`) all that is in hand; lease as many as there is room for."""
        ended = self._inbox.copy()  # in one step: others append to it
        settled = {run: self._settlement(run) for run in ended}
        if gives_back:
            settled |= {run: run.settlement or Released(run.lease) for run in hand if run not in settled}
        settlements = [settlement for settlement in settled.values() if settlement is not None]
        limit = 0 if self._stops else self._plan.concurrency - len(hand) + len(ended)
        plan = self._plan
        began_at = time.monotonic()
        done = self._queue.exchange(settlements, limit, plan.handlers.kinds, scope=plan.scope, ttl=plan.lease_ttl_s)
        self._exchange_s = time.monotonic() - began_at
        self._hold_until = math.inf
        self._is_told = False  # who comes after this wakes the loop; who came before it is seen at the next turn
        for _ in ended:
            self._inbox.popleft()
        self._outstanding -= len(ended)
        is_all = self._conclude(hand, settled, done)
        self._is_given_up = gives_back and is_all
        if self._stops:  # it was told to stop meanwhile: they are another worker's
            for run in hand.keep(done.leases):
                run.settlement = Released(run.lease)
                self._again(run)
        elif is_all:
            self._outstanding += hand.begin(done.leases)
        else:  # what could not be stored comes first: a handler may take long, and its process may be killed
            hand.put_by(done.leases)
        self._is_ready = False  # until a look says otherwise
        self._is_failing, self._grave_since = False, math.inf
        if settled or done.leases:
            self._retry_s = 0.0
        else:
            self._retry_after(_FIRST_IDLE_S, _LAST_IDLE_S)

    def _settlement(self, run: Run) -> Settlement | None:
        """Return what a run came to; in a drain nothing is leased again."""
        if self._stops and isinstance(run.settlement, Failed):
            run.settlement = replace(run.settlement, retake_within=0.0)
        return run.settlement

    def _conclude(self, hand: InHand, settled: dict[Run, Settlement | None], done: Exchange) -> bool:
        """Let go of what the queue has taken, or refused; tell whether that was all, and nothing is handed in anew."""
        is_all = True
        refused = {id(settlement): error for settlement, error in done.refused}
        retaken = {lease.raw_job_id for lease, _ in done.retaken}
        dead = set(map(id, done.dead))
        for run, settlement in settled.items():
            error = refused.get(id(settlement))
            if error is not None and not isinstance(error, LeaseConflict):  # it cannot be stored
                run.settlement = unstorable(run.lease, error)
                self._again(run)
                is_all = False
                continue
            hand.forget(run)
            if error is not None:
                self._tell_loss(run, str(error))
            else:
                is_retaken = run.lease.raw_job_id in retaken
                self._count(run, settlement, is_retaken=is_retaken, is_dead=id(settlement) in dead)
        for lease, pause_s in done.retaken:
            hand.rest(lease, pause_s)
        return is_all

    def _again(self, run: Run) -> None:
        """Hand in, or hand in anew, what no executor has."""
        self._outstanding += 1
        self._inbox.append(run)

    def _sleep(self, hand: InHand, now: float) -> None:
        """Wait for what comes first: an ending, a ready job, a time that is up, or a call to stop."""
        until = min(hand.next_at, self._hold_until, now + _LONGEST_SLEEP_S)
        if self._stops:
            until = min(until, self._drain_until if self._unwind_until == math.inf else self._unwind_until)
        if now < self._retry_at:
            self._pause(min(hand.next_at, self._retry_at) - now)
        elif self._inbox or self._stops or len(hand) >= self._plan.concurrency:
            self._pause(max(0.0, until - now))
        else:
            is_last_look = self._plan.until_empty and not hand
            if not (hand or is_last_look or self._is_known):
                self._is_known = True
                with contextlib.suppress(*MAY_PASS):  # then it is known from its first lease on
                    self._queue.register()
            self._look(0.0 if is_last_look else max(0.0, until - now))
            if is_last_look and not self._is_ready:
                self.stop()

    def _pause(self, seconds: float) -> None:
        """Wait for news, and for nothing else."""
        with contextlib.suppress(Empty):
            self._news.get(timeout=seconds)

    def _look(self, seconds: float) -> None:
        """Wait for a ready job as well. Who brings news puts them first, then asks whether to interrupt this."""
        self._is_looking = True
        try:
            if self._news.empty():
                self._is_ready = self._waiter.wait(seconds)
        finally:
            self._is_looking = False

    def _wake(self) -> None:
        self._news.put(None)
        if self._is_looking:
            self._waiter.interrupt()

    def _try_later(self, exc: LiteQueueError) -> None:
        """Wait longer after each failure in a row; say so once.

        Raises: `exc` itself, when the file has been out of reach for long.
        """
        now = time.monotonic()
        if not self._is_failing:
            self._is_failing = True
            _log.warning("%s cannot be worked with, which is tried again: %s", self._queue.path, exc)
        self._grave_since = min(self._grave_since, now) if isinstance(exc, GRAVE) else math.inf
        if now - self._grave_since >= GRAVE_S:
            raise exc
        if self._stops > MOST_STOPS or now >= self._unwind_until + INSIST_S:
            _log.warning("%s: jobs in hand could not be given back; their leases lapse", self._queue.path)
            self._is_given_up = True
            self._counts["interrupted"] += self.running
        self._retry_after(_FIRST_RETRY_S, _LAST_RETRY_S)

    def _retry_after(self, least_s: float, most_s: float) -> None:
        self._retry_s = min(max(2 * self._retry_s, least_s), most_s)
        self._retry_at = time.monotonic() + self._retry_s

    # --- endings

    def _drain(self, hand: InHand, now: float) -> None:
        """Begin to drain, and when that takes too long, tell what runs to stop; each once."""
        if self._drain_until == math.inf:
            self._drain_until = now + self._plan.drain_timeout_s
            for run in hand.take_unbegun():
                run.settlement = Released(run.lease, delay=max(0.0, run.starts_at - now))
                self._again(run)
            _log.info(stopping(sum(run.settlement is None for run in hand), self._plan.drain_timeout_s))
        if self._unwind_until == math.inf and (self._stops > 1 or now >= self._drain_until):
            self._unwind_until = now + _UNWIND_S
            for run in hand:
                if run.settlement is None:
                    run.is_given_back = True
                    hand.cancel(run)

    def _count(self, run: Run, settlement: Settlement | None, *, is_retaken: bool, is_dead: bool) -> None:
        if not run.has_begun:
            self._counts["released"] += 1
            return
        duration_s = max(0.0, time.monotonic() - run.starts_at)
        name = self._events.ended(run.lease, settlement, duration_s, is_retaken=is_retaken, is_dead=is_dead)
        self._counts["interrupted" if name == "released" else COUNTED[name]] += 1

    def _tell_loss(self, run: Run | None, reason: str) -> None:
        """Say once that a job is no longer ours."""
        if run is not None and not run.is_loss_told and not run.lease.settled:
            run.is_loss_told = True
            self._counts["lost"] += 1
            self._events.lost(run.lease, max(0.0, time.monotonic() - run.starts_at), reason)
