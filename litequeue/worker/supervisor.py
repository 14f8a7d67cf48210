"""Processes of a worker (`mode="processes"`), seen from their parent.

Owns: the processes, how many there are, and what becomes of one that does not end by itself. Invariants: each is a
holder of its own, so one that dies costs one attempt of its own job only, and what it held is reaped at once; one that
is to be killed is stopped first and killed only when its job has been settled, so that nobody takes the job while its
handler still runs, and no attempt is counted that should not be; one whose handler has ended is let be, as it is about
to hand in what that came to.

    parent: SIGSTOP                 the child works no more, but its presence lock still holds its job
    parent: hears what it said      its handler may have ended just before: then it goes on
    parent: settles for it          failed (its time is over) or released (the drain is over), by its fence
    parent: SIGKILL                 now there is nothing left to reap

Leaves out: what a process does (`child`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import connection as connections
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from litequeue.errors import LiteQueueError, UsageError
from litequeue.lease import Lease
from litequeue.queue import Queue
from litequeue.settlement import Failed, Released, Settlement
from litequeue.worker import signals
from litequeue.worker.child import EXIT_LOST, Begun, Broken, Ended, Imports, Ready, serve
from litequeue.worker.child_log import Logged
from litequeue.worker.dispatcher import COUNTED, GRAVE, GRAVE_S, INSIST_S, MOST_STOPS, PASSING, Ending
from litequeue.worker.events import Events, WorkerEvent, stopping
from litequeue.worker.process import Child
from litequeue.worker.run import Plan

_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 5.0
_MOST_FAILED_STARTS = 3
"""So many processes in a row that end before they are ready end the worker."""
_BUSY_S = 0.5
"""How long the parent waits for the file when it speaks for a stopped child, which may have been at a commit."""
_TRIES = 5
"""So often it tries to speak for one whose time is over, before that is killed all the same."""
_AGAIN_S = 0.05
"""Between two tries."""
_LEAVE_S = 1.0
"""How long a handler may go on whose job has ended otherwise."""
_LOOK_S = 1.0
_log = logging.getLogger("litequeue.worker")


class Supervisor:
    """The processes of one worker; `stop` may be called from any thread and in signal handlers."""

    def __init__(self, queue: Queue, plan: Plan, events: Events, imports: Iterable[str]) -> None:
        self._queue = queue
        self._imports = Imports(imports)
        self._options = queue.options
        self._plan = plan
        self._child_plan = plan._replace(concurrency=1, drain_timeout_s=math.inf, has_limits=False)
        self._events = events
        self._context = multiprocessing.get_context("spawn")
        self._children: list[Child] = []
        self._wanted = plan.concurrency
        self._spawn_at = 0.0
        self._failed_starts = 0
        self._failing_since = math.inf
        self._grave_since = math.inf
        """Since when the file has been out of reach."""
        self._look_at = 0.0
        self._has_to_reap = False
        self._reap_at = 0.0
        """When that is tried again; 0 as long as it has not failed."""
        self._stops = 0
        self._drain_until = math.inf
        self._insist_until = math.inf
        """When the drain is over: until when those that have not ended may hand in what they hold, or be spoken for."""
        self._speak_at = 0.0
        self._bell: tuple[Connection[object, bytes], Connection[object, bytes]] | None = None
        """What `stop` rings; the end that hears comes first. All platforms can wait for it, unlike a pipe of `os`."""
        self._counts: Counter[str] = Counter()
        plan.handlers.check_travel()
        try:
            pickle.dumps((self._options, self._child_plan))
        except Exception as exc:
            what = f"{type(exc).__name__}: {exc}"
            raise UsageError(f"mode='processes' needs a queue that another process can open, not {what}") from exc

    def run(self) -> Ending:
        """Keep the processes at work until `stop`, or until nothing is ready with `until_empty`.

        Raises:
            UsageError: the processes cannot begin.
        """
        self._bell = self._context.Pipe(duplex=False)
        with replace(self._options, busy_timeout_s=_BUSY_S).opened() as spokesman:
            try:
                while self._wanted and not (self._stops and not self._children):
                    self._turn(spokesman, time.monotonic())
                if self._has_to_reap:
                    self._reap(spokesman)
            finally:
                for child in list(self._children):
                    self._end(child)
                bell, self._bell = self._bell, None
                for end in bell:
                    end.close()
        return Ending(**self._counts)

    def stop(self) -> None:
        """Let them end after their jobs; called again, end them now."""
        self._stops += 1
        bell = self._bell
        if bell is not None and self._stops <= MOST_STOPS + 1:  # more say nothing new, and a full pipe would block
            with contextlib.suppress(OSError):  # the worker has just ended
                bell[1].send_bytes(b"")

    @property
    def running(self) -> int:
        """How many jobs handlers work on just now."""
        return sum(child.begun is not None for child in self._children)

    # --- the loop

    def _turn(self, spokesman: Queue, now: float) -> None:
        if self._stops:
            self._drain(spokesman, now)
        elif now >= self._spawn_at and self._grave_since == math.inf:
            self._fill(now)
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._look_at_file(spokesman, now)
        if now >= self._speak_at:
            self._end_overdue(spokesman, now)
        if self._has_to_reap and now >= self._reap_at:
            self._reap(spokesman)
        self._hear(now)

    def _look_at_file(self, spokesman: Queue, now: float) -> None:
        """Find out whether the file is still there; no process begins while it is not.

        Raises: what was met, when it has been so for long.
        """
        try:
            spokesman.reaper_interval()
            self._grave_since = math.inf
        except GRAVE as exc:
            if self._grave_since == math.inf:
                self._grave_since = now
                _log.warning("%s cannot be worked with, which is tried again: %s", self._queue.path, exc)
            if now - self._grave_since >= GRAVE_S:
                raise
        except PASSING:
            pass

    def _hear(self, now: float) -> None:
        """Wait for messages, ends, a call to stop, or the next time limit."""
        until = min([now + _LOOK_S, *(max(child.limit_at, self._speak_at) for child in self._children)])
        if self._stops:
            until = min(until, self._drain_until if self._insist_until == math.inf else now + _AGAIN_S)
        if len(self._children) < self._wanted and not self._stops:
            until = min(until, self._spawn_at)
        sources = [source for child in self._children for source in (child.connection, child.process.sentinel)]
        bell = [self._bell[0]] if self._bell is not None else []
        ready = connections.wait([*sources, *bell], max(0.0, until - now))
        if bell and bell[0] in ready:
            while bell[0].poll():
                bell[0].recv_bytes()
        for child in list(self._children):
            # The pipes of one that has died stay open where what it has forked has them, so its parent asks, too.
            has_ended = child.process.sentinel in ready or not child.process.is_alive()
            if has_ended or child.connection in ready:
                self._listen(child)
            if has_ended:
                self._bury(child)

    def _listen(self, child: Child) -> None:
        for message in child.messages():
            match message:
                case Ready():
                    child.is_ready = True
                    self._failed_starts, self._failing_since = 0, math.inf
                case Begun():
                    child.begins(message, time.monotonic())
                    self._events.started(message.lease(self._queue))
                case Ended():
                    child.has_ended()
                case Broken():
                    child.broken = message
                case Logged():
                    message.say()
                case WorkerEvent():
                    self._pass_on(child, message)

    def _pass_on(self, child: Child, event: WorkerEvent) -> None:
        child.ends()
        self._counts[COUNTED[event.name]] += 1
        self._events.tell(event)

    # --- beginnings and ends

    def _fill(self, now: float) -> None:
        """Start what is missing; where the machine has no more processes, again later."""
        while len(self._children) < self._wanted:
            try:
                self._children.append(self._spawn())
            except OSError as exc:
                _log.warning("a process of the worker could not be started, which is tried again: %s", exc)
                self._spawn_at = now + _LAST_RETRY_S
                return

    def _spawn(self) -> Child:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve, args=(self._imports, self._options, self._child_plan, theirs), name="litequeue-worker"
        )
        if signals.CAN_BLOCK:
            resource_tracker.ensure_running()  # which lets signals through again; else `start` would see to it
        with signals.blocked():  # until the child can heed them as it should
            process.start()
        theirs.close()
        return Child(process, ours)

    def _end(self, child: Child) -> None:
        """End a process if it has not ended, and hear its last words."""
        child.kill()
        self._listen(child)
        child.connection.close()
        self._children.remove(child)

    def _bury(self, child: Child) -> None:
        """Let go of a process that has ended, and find out whether that was in order."""
        self._end(child)
        status = child.process.exitcode
        if status == 0 and (child.is_draining or self._plan.until_empty):
            self._wanted -= not child.is_draining
            return
        self._has_to_reap = True
        how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        how += f": {child.broken.reason}" if child.broken is not None else ""
        if child.begun is not None:
            duration_s = time.monotonic() - child.begun_at
            self._events.lost(child.begun.lease(self._queue), duration_s, f"its process {how}")
            self._counts["lost"] += 1
        elif status != EXIT_LOST:
            _log.warning("process %s of the worker %s", child.process.pid, how)
        if not child.is_ready:
            self._begin_later(how, may_pass=child.may_have_passed_by(status))

    def _begin_later(self, how: str, *, may_pass: bool) -> None:
        """Wait longer after each process that could not begin.

        Raises:
            UsageError: none can begin, or none could for long.
        """
        now = time.monotonic()
        self._failed_starts += 1
        self._failing_since = min(self._failing_since, now)
        is_hopeless = not may_pass or now - self._failing_since >= GRAVE_S
        if self._failed_starts >= _MOST_FAILED_STARTS and is_hopeless:
            raise UsageError(f"the worker's processes end before they begin; the last one {how}")
        self._spawn_at = now + min(_FIRST_RETRY_S * 2**self._failed_starts, _LAST_RETRY_S)

    def _reap(self, spokesman: Queue) -> None:
        """Take back what a dead process held; where the file is busy, at the next turn."""
        try:
            spokesman.reap_dead()
            self._has_to_reap = False
            self._reap_at = 0.0
        except LiteQueueError as exc:
            if self._reap_at == 0.0:
                _log.warning("what a dead process held is not taken back yet: %s", exc)
            self._reap_at = time.monotonic() + _LOOK_S

    def _drain(self, spokesman: Queue, now: float) -> None:
        if self._drain_until == math.inf:
            self._drain_until = now + self._plan.drain_timeout_s
            _log.info(stopping(self.running, self._plan.drain_timeout_s))
        for child in self._children:
            if not child.is_draining:
                child.drain()
        if self._stops > 1 or now >= self._drain_until:
            self._end_draining(spokesman, now)

    def _end_draining(self, spokesman: Queue, now: float) -> None:
        """Give back what handlers still work on, and end their processes.

        The others end by themselves: who waits for a job, who hands in what has ended, and who has just leased, as that
        one hears in time that it is not to begin, or tells that it has.
        """
        if self._insist_until == math.inf:
            self._insist_until = now + INSIST_S
        for child in list(self._children):
            self._listen(child)
            if not child.is_ready:  # it has not even begun
                self._end(child)
        is_over = self._stops > MOST_STOPS or now >= self._insist_until
        if is_over or now >= self._speak_at:
            handling = [child for child in self._children if child.is_handling and not child.settled]
            for child, begun, _ in self._speak_for(spokesman, handling, _released):
                self._counts["interrupted"] += 1
                lease = begun.lease(spokesman)
                self._events.ended(lease, Released(lease), now - child.begun_at)
                child.ends()
                self._end(child)
        if is_over or self._insist_until == 0.0:
            self._give_up(now)

    def _give_up(self, now: float) -> None:
        """End those that are left; what they hold is taken back as that of the dead, and counts as an attempt."""
        for child in list(self._children):
            self._end(child)
            if child.begun is not None:
                lease = child.begun.lease(self._queue)
                self._events.lost(lease, now - child.begun_at, "its process was killed before it could be given back")
                self._counts["interrupted"] += 1
            self._has_to_reap = True

    def _end_overdue(self, spokesman: Queue, now: float) -> None:
        overdue = [child for child in self._children if child.limit_at <= now]
        for child in [child for child in overdue if child.settled or child.tries >= _TRIES]:
            overdue.remove(child)
            self._end_unsettled(child, now)
        for child, begun, is_dead in self._speak_for(spokesman, overdue, _timed_out):
            lease = begun.lease(spokesman)
            duration_s = now - child.begun_at
            self._events.timed_out(lease, duration_s)
            name = self._events.ended(lease, _timed_out(lease, begun), duration_s, is_dead=is_dead)
            self._counts[COUNTED[name]] += 1
            child.ends()
            self._end(child)

    def _end_unsettled(self, child: Child, now: float) -> None:
        """Kill one whose job is not to be settled: it has ended otherwise, or the file is busy for long."""
        if child.begun is not None:
            lease = child.begun.lease(self._queue)
            self._events.timed_out(lease, now - child.begun_at)
            self._events.lost(lease, now - child.begun_at, child.settled or "it was killed while the file was busy")
            self._counts["lost"] += 1
        child.ends()
        self._end(child)
        self._has_to_reap = True

    def _speak_for(
        self, spokesman: Queue, children: Sequence[Child], settle: Callable[[Lease, Begun], Settlement]
    ) -> list[tuple[Child, Begun, bool]]:
        """Stop these, and settle their jobs; return those whose job that was, and whether it is dead. The others go on.

        Those had just ended their jobs. Where the file is busy all go on, as one of them may have it, until a next try.
        """
        if not children:
            return []
        for child in children:
            child.send_signal("SIGSTOP")
        for child in children:
            child.await_stop()
            self._listen(child)  # to what it had said by then
        speaking = {child: begun for child in children if child.is_handling and (begun := child.begun) is not None}
        settlements = {child: settle(begun.lease(spokesman), begun) for child, begun in speaking.items()}
        ended = self._hand_in(spokesman, settlements)
        for child in children:
            if child not in ended:
                child.send_signal("SIGCONT")
        return [(child, begun, ended[child]) for child, begun in speaking.items() if child in ended]

    def _hand_in(self, spokesman: Queue, settlements: Mapping[Child, Settlement]) -> dict[Child, bool]:
        """Settle the jobs of processes that stand still; return those whose job that was, and whether it is dead."""
        try:
            exchanged = spokesman.exchange(list(settlements.values()))
        except LiteQueueError as exc:
            self._speak_again(list(settlements), exc)
            return {}
        refused = {id(settlement): str(error) for settlement, error in exchanged.refused}
        dead = set(map(id, exchanged.dead))
        ended = {
            child: id(settlement) in dead for child, settlement in settlements.items() if id(settlement) not in refused
        }
        for child in settlements.keys() - ended.keys():
            child.found_settled(refused[id(settlements[child])], time.monotonic() + _LEAVE_S)
        return ended

    def _speak_again(self, children: Sequence[Child], exc: LiteQueueError) -> None:
        """Try it once more in a moment; a file that is of no more use is not insisted on."""
        if not any(child.tries for child in children):
            _log.warning("jobs of processes that are to be killed are not settled yet: %s", exc)
        is_passing = isinstance(exc, PASSING)
        for child in children:
            child.tries += 1 if is_passing else _TRIES
        if self._stops and not is_passing:
            self._insist_until = 0.0
        self._speak_at = time.monotonic() + _AGAIN_S


def _released(lease: Lease, _: Begun) -> Settlement:
    return Released(lease)


def _timed_out(lease: Lease, begun: Begun) -> Settlement:
    return Failed(lease, f"timed out after {begun.timeout_s or 0:g} s")
