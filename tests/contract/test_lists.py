"""Verbs that take lists: what is no list is refused by name (§6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from litequeue import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Queue

VERBS: list[tuple[str, Callable[[Queue, Any], object]]] = [
    ("job_ids", lambda q, given: q.cancel_many(given)),
    ("job_ids", lambda q, given: q.retry_many(given)),
    ("leases", lambda q, given: q.complete_many(given)),
    ("leases", lambda q, given: q.fail_many(given, "error")),
    ("leases", lambda q, given: q.release_many(given)),
    ("leases", lambda q, given: q.extend_many(given)),
    ("results", lambda q, given: q.complete_many([], given)),
]


@pytest.mark.parametrize(("argument", "verb"), VERBS)
@pytest.mark.parametrize("given", [5, object(), "lease"])
def test_what_is_no_list_is_refused(
    queue: Queue, argument: str, verb: Callable[[Queue, Any], object], given: object
) -> None:
    """Before anything is done."""
    with pytest.raises(UsageError, match=rf"^{argument} must be a list of") as caught:
        verb(queue, given)
    assert caught.value.argument == argument


def test_one_lease_is_no_list(queue: Queue) -> None:
    """It was meant for the verb without `_many`."""
    queue.enqueue("work")
    lease = queue.lease_next()
    with pytest.raises(UsageError, match=r"^leases must be a list of leases"):
        queue.complete_many(cast("Any", lease))
