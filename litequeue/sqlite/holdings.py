"""What one handle holds: its leases, and its name among the holders.

Invariants: a lease counts from the commit that took it until the commit that ended it; closing needs no scan of all
leases; the byte of an id is locked before its row is committed, and no longer than the id is this handle's.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from litequeue.sqlite import settling
from litequeue.sqlite.context import Context
from litequeue.sqlite.place import Place
from litequeue.sqlite.presence import Presence
from litequeue.sqlite.statements import SQL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litequeue.lease import Fence, Lease


class Holdings:
    """The leases of one handle, and its id as their holder once it has one."""

    def __init__(self, place: Place) -> None:
        self.leases: dict[bytes, Fence] = {}
        self.holder_id: int | None = None
        self.presence = Presence(place)

    def __bool__(self) -> bool:
        """Whether there is anything to give back."""
        return bool(self.leases) or self.holder_id is not None

    def new_holder(self, context: Context) -> int:
        """Take the next id and lock its byte, in the transaction of the first lease: nobody sees the id unlocked."""
        while True:
            sidecar = self.presence.sidecar()
            context.write(SQL.holder_add, (os.getpid(), platform.node(), context.now, sidecar))
            holder_id = context.connection.last_insert_rowid()
            if self.presence.hold(holder_id):
                return holder_id
            context.write(SQL.holder_remove, (holder_id,))

    def committed(self, context: Context) -> None:
        """Remember what a transaction has taken and ended."""
        for lease in context.leases:
            self.leases[lease.raw_job_id] = lease.fence
        for lease in context.settled:
            lease.found_settled()
        for lease in context.dropped:
            lease.found_lost()
        for ended in (context.settled, context.dropped):
            if ended:
                self.forget(ended)
        self.holder_id = context.known_holder_id

    def forget(self, leases: Iterable[Lease]) -> None:
        """Forget leases that this handle has no more, unless a later one of the same job has come."""
        for lease in leases:
            if self.leases.get(lease.raw_job_id) == lease.fence:
                del self.leases[lease.raw_job_id]

    def ended(self) -> None:
        """At the end of every transaction: without a commit an id is not this handle's, nor is its byte."""
        if self.presence.holder_id != self.holder_id:
            self.presence.release()

    def give_back(self, context: Context) -> None:
        """Release every lease, attempts given back, and leave no holder behind."""
        settling.give_back(context, list(self.leases.values()))
        if self.holder_id is not None:
            context.write(SQL.holder_remove, (self.holder_id,))

    def gave_back(self) -> None:
        """After `give_back` has committed: whoever leases by this handle now is a new holder."""
        self.leases = {}
        self.holder_id = None
        self.presence.release()

    def start_afresh(self, *, is_open: bool) -> None:
        """Hold nothing: in a forked child, where all of it is the parent's. An open handle is open there as well."""
        self.presence.close()
        if is_open:
            self.presence.attend()
        self.holder_id = None
        self.leases = {}
