"""The upkeep verbs of a queue (V11): what lapsed, what is due, what is too late, what may go, and the file itself.

Owns: the order of the bounded steps of each verb. Invariants: each step is a transaction of its own, so that none holds
the write lock for long; a look that reads comes before it, so that upkeep with nothing to do writes nothing.
Leaves out: what a step does (`sqlite/upkeep`), and when upkeep comes (`maintenance`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from litequeue import arguments
from litequeue.model import ANY, Copied
from litequeue.sqlite import backing_up, chaining, moves, reading, upkeep
from litequeue.sqlite.context import Context
from litequeue.sqlite.copying import Progress
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.store import Store
from litequeue.sqlite.verbs import ManyScopes, Verbs

T = TypeVar("T")

WAL_TRUNCATE_BYTES = 64 * 2**20
"""Maintenance cuts a write-ahead log that has grown beyond this."""


class Upkeep(Verbs):
    """The part of a `Queue` that keeps its file in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.between_steps: Callable[[], None] | None = None
        """Called after each step of upkeep: maintenance does there what cannot wait for the end of a long pass."""

    def reap_expired(self) -> int:
        """Take back every job whose lease has lapsed, in any scope; return how many (V11)."""
        self._store.refuse_inside()
        return self._in_steps(upkeep.has_lapsed, partial(upkeep.reap, limit=upkeep.STEP))

    def reap_dead(self) -> int:
        """Take back every job of a holder whose process has died, whatever its deadline; return how many (V11).

        A stopped or slow process is alive. Where the platform or the file system does not tell, nobody is dead.
        """
        self._store.refuse_inside()
        reaped = 0
        for holder_id in self._dead_holders():
            found = self._look(partial(upkeep.held_by, holder_id=holder_id))
            for start in range(0, len(found), upkeep.STEP):
                step = partial(upkeep.reap_found, found=found[start : start + upkeep.STEP])
                reaped += self._do(step, durable=False)
            self._do(partial(upkeep.forget_holder, holder_id=holder_id), durable=False)
        return reaped

    def has_dead(self) -> bool:
        """Tell whether `reap_dead` would find a holder: a read, and a question to the kernel for each holder."""
        return bool(self._dead_holders())

    def promote_due(self, scope: ManyScopes = ANY) -> int:
        """Make every due job ready; return how many were moved (V11).

        Raises:
            UsageError: no scope.
        """
        self._store.refuse_inside()
        where = self._stored_scopes(scope)
        return self._in_steps(
            partial(upkeep.has_due, scope=where), partial(upkeep.promote, scope=where, limit=upkeep.STEP)
        )

    def expire_overdue(self, scope: ManyScopes = ANY) -> int:
        """Bury every waiting job that can no longer start in time; return how many (V11).

        Raises:
            UsageError: no scope.
        """
        self._store.refuse_inside()
        where = self._stored_scopes(scope)
        return self._in_steps(
            partial(upkeep.has_overdue, scope=where), partial(upkeep.expire, scope=where, limit=upkeep.STEP)
        )

    def tell_waiting(self) -> int:
        """Tell every waiting job of what has ended that it waits for; return how many were told (V11)."""
        self._store.refuse_inside()
        return self._in_steps(chaining.is_behind, partial(moves.tell, limit=upkeep.STEP))

    def prune(self) -> int:
        """Remove every finished job whose retention is over; return how many (V11).

        The room that they leave in the file is used again; `vacuum` gives some of it back to the disk.
        """
        self._store.refuse_inside()
        removed = 0
        after = None
        while True:
            found = self._look(partial(upkeep.prunable, after=after))
            for start in range(0, len(found.rows), upkeep.STEP):
                removed += self._step(partial(upkeep.prune, found=found.rows[start : start + upkeep.STEP]))
            after = found.after
            if after is None:
                break
        return removed

    def vacuum(self) -> int:
        """Give room that deleted jobs have left in the file back to the disk; return how many bytes.

        Nothing is done up to 16 MiB or a quarter of the file, and 8 MiB, or an eighth of what is in use, are left for
        reuse; but all of it goes when the disk has little more room than is kept free for acknowledgements (32 MiB), so
        that jobs are taken again. The file is cut when `checkpoint_wal` has copied the log back.
        """
        self._store.refuse_inside()
        left, page_bytes = self._look(partial(upkeep.surplus, is_short_of_room=self._store.is_short_of_room()))
        freed_bytes = 0
        while left > 0:
            shrunk = self._step(partial(upkeep.shrink, most=left))
            left -= shrunk.unused
            freed_bytes += shrunk.pages * page_bytes
            if shrunk.unused == 0:  # somebody uses them again
                break
        return freed_bytes

    def pull_in(self) -> int:
        """Shorten back-offs that a backward step of the wall clock made longer; return how many (contract §5)."""
        self._store.refuse_inside()
        pulled = 0
        after = None
        while True:
            found, after = self._look(partial(upkeep.distant, after=after))
            for start in range(0, len(found), upkeep.STEP):
                pulled += self._step(partial(upkeep.pull_in, found=found[start : start + upkeep.STEP]))
            if after is None:
                return pulled

    def backup(
        self, target: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None
    ) -> Copied:
        """Copy the whole file, your own tables included, as it is at one moment, while it is in use.

        At `target` stands the whole copy, checked and synced, or what stood there before. Leases in the copy belong to
        nobody: they have lapsed when it is opened. `progress` is called with how many pages of how many are copied. As
        long as they are, the write-ahead log is not copied back; do not fork meanwhile.

        Raises:
            CannotOpen: the target exists (unless `overwrite`), is the queue itself or another one in use, or cannot be
                written.
            QueueFull: the disk is full.
            StorageCorrupt: the queue is damaged, and so would the copy be.
        """
        self._store.refuse_inside()
        self._look(lambda _: None)  # the file at the path is still the one of this handle
        return backing_up.back_up(self._store.place, self._store.clock, target, overwrite=overwrite, progress=progress)

    def checkpoint_wal(self) -> int:
        """Copy the write-ahead log back into the file; cut it beyond 64 MiB, or when the disk is short of room.

        Returns the pages that are left in it, because a reader still needs them or has kept it from being cut.
        """
        self._store.refuse_inside()
        return self._store.checkpoint(0 if self._store.is_short_of_room() else WAL_TRUNCATE_BYTES)

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log's file."""
        return self._store.log.size_bytes

    @property
    def wal_held_s(self) -> int:
        """For how many seconds one reader has kept the log from being copied back, by what this handle has seen."""
        return self._store.log.held_us // 1_000_000

    def until_work(self, kinds: Iterable[str] | None = None, scope: ManyScopes = None) -> float:
        """Return in how many seconds, by the handle's clock, a lease call may find something; 0 is now, infinity never.

        Others' commits make it sooner. A pure read, for who moves a clock by hand.

        Raises:
            UsageError: an argument out of its bounds.
        """
        where, filters = self._stored_scopes(scope), arguments.kind_filters(kinds)
        return self._look(lambda reader: reading.until_work(reader, where, filters))

    def reaper_interval(self) -> float:
        """Return the setting of that name: the pause between two passes of maintenance, in seconds."""
        return self._look(lambda reader: reader.settings.reaper_interval_us) / 1_000_000

    # --- inside

    def _step(self, work: Callable[[Context], T]) -> T:
        """Do one step of upkeep, a transaction of its own."""
        done = self._do(work, durable=False)
        if self.between_steps is not None:
            self.between_steps()
        return done

    def _dead_holders(self) -> list[int]:
        return self._look(partial(upkeep.dead_holders, place=self._store.place))

    def _in_steps(self, has_more: Callable[[Reader], bool], step: Callable[[Context], int]) -> int:
        """Repeat a bounded step, each a transaction, while a look without the lock finds more to do."""
        moved = 0
        while self._look(has_more):
            in_step = self._step(step)
            moved += in_step
            if in_step == 0:  # another process was faster
                break
        return moved
