"""Everything that a program can do with a queue file, done to one that may be damaged, and judged.

Owns: the order of the verbs and of the commands, and what is allowed of each: it works, or it raises an error of the
contract's tree, or the command ends with a status of the contract and one line. Invariants watched besides: no job in
two hands at once, no job with another one's payload, no lease call without end. Leaves out: crashes, which the parent
sees, and the bystanders' bytes, which it compares.
"""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypedDict, TypeVar

import litequeue
from litequeue import (
    ANY,
    SYSTEM,
    Completed,
    DuplicateJob,
    Failed,
    InvalidTransition,
    JobNotFound,
    JobState,
    Lease,
    LeaseConflict,
    LiteQueueError,
    Maintenance,
    NewJob,
    RecordError,
    Released,
)
from litequeue.cli import litequeue as command
from litequeue.testing import FakeClock

if TYPE_CHECKING:
    from litequeue import Job, Queue, Settlement
    from litequeue.model import Scope
    from litequeue.sqlite.transaction import Transaction

P = ParamSpec("P")
T = TypeVar("T")

_LEASES_A_JOB = 20
"""Far more than any job's attempts: a file whose jobs are leased more often never ends."""
_MOST_PAGES = 200
_STATUSES = (0, 1, 2, 3)
_LEDGER = "CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, entry TEXT)"
_ORDINARY = (DuplicateJob, InvalidTransition, JobNotFound, LeaseConflict, RecordError)
"""What a whole file may answer as well, or what concerns one job."""


class Answer(TypedDict):
    """What came of one file, as the child tells it."""

    outcomes: list[tuple[str, str, int]]
    """Stage, outcome (`worked` or the name of an error) and how often it came."""
    wrong: list[str]
    """What was not allowed."""
    mixed: list[str]
    """Jobs that were in two hands, and payloads that were another job's."""
    first_error: tuple[str, str] | None
    """The stage and the name of the first error that concerns more than one job; `None` when there was none."""
    has_opened: bool
    rss_kib: int
    """The most memory that the process has had so far."""


class Exercise:
    """One file's exercise: what came of each stage, and what was not allowed."""

    def __init__(self, path: Path, twin: Path, payloads: Mapping[str, int], wall_us: int) -> None:
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._wrong: list[str] = []
        self._mixed: list[str] = []
        self._first_error: tuple[str, str] | None = None
        self._has_opened = False
        self._path = path
        self._twin = twin
        self._payloads = payloads
        self._numbers = frozenset(payloads.values())
        self._clock = FakeClock(wall_us=wall_us + 10_000_000)
        self._in_hand: dict[str, int] = {}

    def run(self, when_open: Callable[[], None]) -> None:
        """Open the file, do every verb, and close it; then run every command on its twin, which has the same wound."""
        with contextlib.ExitStack() as stack:
            queue = self._try("open", self._open)
            if queue is not None:
                self._has_opened = True
                stack.callback(self._try, "close", queue.close)
                when_open()
                self._everything(queue)
        self._commands()

    def answer(self, rss_kib: int) -> Answer:
        """Tell what came of it."""
        return Answer(
            outcomes=[(*key, count) for key, count in self._outcomes.items()],
            wrong=self._wrong,
            mixed=self._mixed,
            first_error=self._first_error,
            has_opened=self._has_opened,
            rss_kib=rss_kib,
        )

    def _open(self) -> Queue:
        return litequeue.open(self._path, durability="normal", clock=self._clock, busy_timeout=2.0)

    def _everything(self, queue: Queue) -> None:
        listed = self._reads(queue)
        for job in listed:
            self._look_into(job)
        self._leases(queue)
        self._transactions(queue)
        self._enqueues(queue)
        ids = [job.job_id for job in listed]
        self._try("edit", queue.edit_many, ids[::9], priority=7, delay=60)
        self._try("cancel", queue.cancel_many, ids[::7])
        self._try("retry", queue.retry_many, ids[::5])
        self._try("remove", queue.remove_many, ids[::11])
        self._clock.advance(3700)
        self._upkeep(queue)
        self._settings(queue)
        self._drain(queue, len(ids))
        self._clock.advance(200_000)
        self._upkeep(queue)
        self._reads(queue)

    # --- the verbs

    def _reads(self, queue: Queue) -> list[Job]:
        jobs = self._try("list", queue.list, scope=ANY, limit=10_000) or []
        for state in JobState:
            self._try("list", queue.list, state, "mail:", scope=ANY, limit=50)
        if self._try("list", _pages, queue) is False:
            self._wrong.append("list: the pages do not come to an end")
        for job_id in [*self._payloads][::10]:
            job = self._try("get", queue.get, job_id)
            if job is not None:
                self._look_into(job)
        for scope in (ANY, None, SYSTEM):
            self._try("stats", queue.stats, scope=scope)
        self._try("settings", _settings_of, queue)
        return jobs

    def _look_into(self, job: Job) -> None:
        self._try("record", repr, job)
        for name in ("payload", "result", "events"):
            value = self._try("record", getattr, job, name)
            if name == "payload":
                self._judge_payload("record", str(job.job_id), value)

    def _leases(self, queue: Queue) -> None:
        taken: list[Lease] = []
        for scope in ("default", "tenant-a", SYSTEM):
            for kinds in (None, ["mail:", "embed"], ["tick"], ["bomb"]):
                taken += self._lease("lease", queue.lease_many, 6, kinds, scope)
        taken += filter(None, [self._try("lease", queue.lease_next, scope="tenant-b")])
        self._try("extend", queue.extend_many, taken)
        for number, lease in enumerate(taken):
            match number % 6:
                case 0:
                    self._try("checkpoint", lease.checkpoint, b"x" * 3000, 0.5, "half")
                    self._settle("complete", lease, lease.complete, {"n": -1}, [NewJob("mail:send")])
                case 1:
                    self._try("note", lease.note, "read")
                    self._settle("fail", lease, lease.fail, "boom", retryable=False)
                case 2:
                    self._settle("release", lease, lease.release, delay=5)
                case 3:
                    self._settle("lease.transaction", lease, _complete_inside, lease)
                case _:
                    self._settle("fail", lease, lease.fail, "boom")
        self._try("complete_many", queue.complete_many, taken[-2:])
        self._exchanges(queue)

    def _exchanges(self, queue: Queue) -> None:
        leases = self._lease("lease", queue.lease_many, 3, None, "default")
        settlements = [_ended(number, lease) for number, lease in enumerate(leases)]
        done = self._try("exchange", queue.exchange, settlements, 2, scope="tenant-a")
        taken = [] if done is None else [*done.leases, *(lease for lease, _ in done.retaken)]
        for lease in [*leases, *taken]:
            self._in_hand.pop(str(lease.job_id), None)
            self._judge_payload("exchange", str(lease.job_id), self._try("record", getattr, lease, "payload"))

    def _transactions(self, queue: Queue) -> None:
        with contextlib.ExitStack() as stack:
            tx = self._try("transaction", lambda: stack.enter_context(queue.transaction()))
            if tx is None:
                return
            self._try("tx.enqueue", tx.enqueue_many, _new_jobs())
            self._try("tx.execute", tx.execute, _LEDGER)  # a log that was cut may have had it
            self._try("tx.execute", tx.execute, "INSERT INTO ledger (entry) VALUES ('in')")
            self._try("tx.execute", tx.execute, "SELECT count(*), max(kind) FROM litequeue_jobs")
            self._try("tx.read", _read_inside, tx)
            for lease in self._lease("tx.lease", tx.lease_many, 10, None, "default"):
                self._settle("tx.complete", lease, tx.complete, lease, {"n": -1})
            self._try("tx.upkeep", _all_upkeep, tx)
            self._try("tx.set", tx.set, "lease_ttl", 61)
            self._try("transaction", stack.close)
        self._try("transaction", _roll_back, queue)
        self._in_hand.clear()

    def _enqueues(self, queue: Queue) -> None:
        for job in _new_jobs():
            self._try("enqueue", queue.enqueue_many, [job])
        self._try("enqueue", queue.enqueue_many, [NewJob("tick", {"n": -1, "pad": "x" * 100})] * 40)
        for job_id in [*self._payloads][::40]:
            for kind in ("mail:send", "embed"):
                again = NewJob(kind, {"n": self._payloads[job_id], "again": True}, job_id=job_id)
                self._try("enqueue", queue.enqueue_many, [again])

    def _upkeep(self, queue: Queue) -> None:
        self._in_hand.clear()
        self._try("upkeep", _all_upkeep, queue)
        self._try("upkeep", queue.pull_in)
        self._try("upkeep", queue.checkpoint_wal)
        self._try("maintenance", Maintenance(queue).run_once)

    def _settings(self, queue: Queue) -> None:
        self._try("set", queue.set, "backoff_base", 2, kind="mail:")
        self._try("set", queue.set, "completed_retention", 10)
        self._try("set", queue.unset, "lease_ttl")

    def _drain(self, queue: Queue, jobs: int) -> None:
        """Lease and complete until nothing is left, which has to come."""
        left = _LEASES_A_JOB * (jobs + 200)
        for scope in ("default", "tenant-a", "tenant-b", SYSTEM):
            while leases := self._lease("lease", queue.lease_many, 50, None, scope):
                left -= len(leases)
                if left < 0:
                    self._wrong.append(f"lease: jobs of {scope!r} are handed out without end")
                    return
                if self._try("complete_many", queue.complete_many, leases) is None:
                    break
                for lease in leases:
                    self._in_hand.pop(str(lease.job_id), None)

    # --- leases, watched

    def _lease(
        self, stage: str, verb: Callable[..., list[Lease]], limit: int, kinds: list[str] | None, scope: Scope
    ) -> list[Lease]:
        leases = self._try(stage, verb, limit, kinds, scope=scope) or []
        for lease in leases:
            job_id = str(lease.job_id)
            if job_id in self._in_hand:
                self._mixed.append(f"{stage}: job {job_id} was handed out twice")
            self._in_hand[job_id] = lease.lease_generation
            self._judge_payload(stage, job_id, self._try("record", getattr, lease, "payload"))
        return leases

    def _settle(self, stage: str, lease: Lease, word: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Let a holder say its last word."""
        self._try(stage, word, *args, **kwargs)
        self._in_hand.pop(str(lease.job_id), None)

    def _judge_payload(self, stage: str, job_id: str, value: object) -> None:
        """See that a payload that reads as somebody's is this job's."""
        number = value.get("n") if isinstance(value, dict) else None
        own = self._payloads.get(job_id)
        if (
            own is not None
            and isinstance(number, int)
            and number != own
            and number in self._numbers
            and _is_whole(value)
        ):
            self._mixed.append(f"{stage}: job {job_id} has the payload of another one ({number} instead of {own})")

    # --- the command

    def _commands(self) -> None:
        first, second, *_ = self._payloads
        for arguments, stdin in _command_lines(first, second, self._twin.with_name("copy")):
            self._command(arguments, stdin)

    def _command(self, arguments: list[str], stdin: str) -> None:
        stage = "command " + " ".join(word for word in arguments[:2] if word.isalpha())
        status, error, raised = _run_command(["--db", str(self._twin), *arguments], stdin)
        outcome = "worked"
        if raised is not None:
            outcome = type(raised).__name__
            self._wrong.append(f"{stage}: a traceback: {_told(raised)}")
        elif status not in _STATUSES:
            self._wrong.append(f"{stage}: status {status}")
        elif "Traceback" in error or not all(line.startswith("litequeue: ") for line in error.splitlines()):
            self._wrong.append(f"{stage}: it says {error[:200]!r}")
        elif status == 1:
            outcome = "status 1"
        self._note(stage, outcome)

    # --- judging

    def _try(self, stage: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            result = call(*args, **kwargs)
        except LiteQueueError as exc:
            name = type(exc).__name__
            self._note(stage, name)
            if self._first_error is None and not isinstance(exc, _ORDINARY):
                self._first_error = stage, name
        except Exception as exc:  # noqa: BLE001 - what this is looking for
            self._note(stage, f"raw {type(exc).__name__}")
            self._first_error = self._first_error or (stage, f"raw {type(exc).__name__}")
            self._wrong.append(f"{stage}: {_told(exc)}")
        else:
            self._note(stage, "worked")
            return result
        return None

    def _note(self, stage: str, outcome: str) -> None:
        self._outcomes[stage, outcome] += 1


class _Given(Exception):
    """Raised in a transaction to roll it back."""


def _roll_back(queue: Queue) -> None:
    with contextlib.suppress(_Given), queue.transaction() as tx:
        tx.enqueue("mail:send")
        raise _Given


def _ended(number: int, lease: Lease) -> Settlement:
    ends = (Failed(lease, "boom", delay=0, retake_within=1), Completed(lease), Released(lease))
    return ends[number % len(ends)]


def _complete_inside(lease: Lease) -> None:
    with lease.transaction() as tx:
        tx.execute(_LEDGER)
        tx.execute("INSERT INTO ledger (entry) VALUES ('done')")


def _all_upkeep(verbs: Queue | Transaction) -> None:
    verbs.reap_expired()
    verbs.promote_due()
    verbs.expire_overdue()
    verbs.prune()


def _read_inside(tx: Transaction) -> None:
    tx.list(scope=ANY, limit=500)
    tx.stats(scope=ANY)
    tx.settings("mail:send")


def _settings_of(queue: Queue) -> None:
    queue.settings()
    queue.settings("mail:send")
    queue.kind_settings()


def _pages(queue: Queue) -> bool:
    """Walk all pages, as the command does; tell whether they came to an end."""
    after = None
    for _ in range(_MOST_PAGES):
        page = queue.list(scope=ANY, limit=50, after=after)
        if not page:
            return True
        after = page[-1]
    return False


def _new_jobs() -> list[NewJob]:
    return [
        NewJob("mail:send", {"n": -1}),
        NewJob("embed", {"n": -1, "pad": "z" * 5000}, scope="tenant-a", delay=5),
        NewJob("mail:send", {"n": -1}, idempotency_key="key 0"),
        NewJob("tick", {"n": -1}, idempotency_key="key 3", on_conflict="reset"),
        NewJob("embed", {"n": -1}, scope="tenant-b", idempotency_key="key 6", on_conflict="raise", expires=50),
    ]


def _is_whole(value: object) -> bool:
    """Tell whether a payload is as it was made, pad and all: one with a wound in it may name any job."""
    return isinstance(value, dict) and value.keys() == {"n", "pad"} and set(str(value["pad"])) <= {"x"}


def _command_lines(first: str, second: str, copy: Path) -> list[tuple[list[str], str]]:
    """Return what is run of the command: every command, with what it reads from standard input."""
    lines = [
        "stats --all-scopes",
        "stats --json",
        "jobs ls --all-scopes --limit 10000",
        "jobs ls --state dead --json",
        f"jobs show {first}",
        f"jobs show {second} --json",
        f"jobs retry {first} {second}",
        "jobs retry --state dead --all-scopes",
        f"jobs cancel {second}",
        "enqueue mail:send 1",
        "settings get",
        "settings get lease_ttl --kind mail:send --json",
        "settings set lease_ttl 90",
        "settings unset lease_ttl",
        "maintain --once",
        "init",
        "doctor",
        "doctor --json",
        "doctor --fix",
        f"backup {copy}",
        f"restore {copy} --overwrite",
        "stats",
    ]
    return [*((line.split(), "") for line in lines), (["enqueue", "tick", "--lines"], '{"n": -1}\n2\n')]


def _run_command(arguments: list[str], stdin: str) -> tuple[object, str, BaseException | None]:
    """Run the command in this process; return its status, its standard error and what escaped it."""
    said, complained = io.StringIO(), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            command.main(arguments, prog_name="litequeue")
    except SystemExit as exc:
        return exc.code, complained.getvalue(), None
    except BaseException as exc:  # noqa: BLE001 - a user would see a traceback
        return None, complained.getvalue(), exc
    finally:
        sys.stdin = before
    return 0, complained.getvalue(), None


def _told(exc: BaseException) -> str:
    """Say what an exception is and where it came from."""
    frames = traceback.extract_tb(exc.__traceback__)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:]]
    return f"{type(exc).__name__}: {str(exc)[:160]} ({' < '.join(reversed(places))})"
