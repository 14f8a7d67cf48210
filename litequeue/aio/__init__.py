"""The queue for asyncio: every verb a coroutine, done in a thread by the plain verb.

    import litequeue.aio

    async with litequeue.aio.open("app.queue") as q:
        await q.enqueue("mail:send", {"to": "a@b.c"})
        lease = await q.lease_next()
        if lease is not None:
            async with lease.transaction() as tx:  # completes the job at its end
                await tx.execute("INSERT INTO sent VALUES (?)", ["a@b.c"])

`open` takes what `litequeue.open` takes; it can also be awaited, and the queue closed by hand. `AsyncQueue`,
`AsyncTransaction` and `AsyncLease` have the verbs and the attributes of `Queue`, `Transaction` and `Lease`. Nothing
here is needed without asyncio, and `import litequeue` does not import it.
"""

from __future__ import annotations

from litequeue.aio.queue import AsyncQueue, Opening, open  # noqa: A004 - the contract's name
from litequeue.aio.verbs import AsyncLease, AsyncTransaction
from litequeue.aio.waiting import AsyncWaiter

__all__ = ["AsyncLease", "AsyncQueue", "AsyncTransaction", "AsyncWaiter", "Opening", "open"]
