"""What the shop's worker does; it has the file open as a queue, and uses no other connection to it."""

from __future__ import annotations

import litequeue


def send_receipt(lease: litequeue.Lease) -> None:
    """Send a receipt, and note in the same commit that the job is done and what was sent."""
    order = lease.payload
    assert isinstance(order, int)
    with lease.transaction() as tx:
        ((email,),) = tx.execute("SELECT email FROM orders WHERE id = ?", (order,))
        assert isinstance(email, str)  # here a program would send it
        tx.execute("UPDATE orders SET receipt = ? WHERE id = ?", (f"sent to {email}", order))


handlers = {"mail:receipt": send_receipt}
