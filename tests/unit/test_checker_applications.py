"""The rules for rows and jobs that commit together, on what applications may have left (V14, G2 to G6)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from applying.verdict import Done, Known, Rule, Shop, breaches

if TYPE_CHECKING:
    from collections.abc import Callable

    from applying.orders import Way

ONCE = ("enqueued", "leased", "completed")
WAYS: tuple[Way, ...] = ("outbox", "lease-in-transaction", "attach", "dbapi")


def known(name: str, **changes: object) -> Known:
    """Return a job that was done as it should be."""
    return Known(f"job {name}", name, "COMPLETED", 1, 1, ONCE)._replace(**changes)  # type: ignore[arg-type] # by name


def shop(way: Way) -> Shop:
    """Return what is left when nothing went wrong: three orders of one key, and one that was given up."""
    names = ("x", "y", "z")
    made = Shop(
        way,
        {name: ("a", place) for place, name in enumerate(names)},
        [Done(name, f"job {name}", 1) for name in names],
        jobs=[known(name) for name in names],
        acknowledged={"x", "y"},  # whoever placed z was killed before it heard
        given_up={"w"},
    )
    if way == "lease-in-transaction":
        made.followers = [known(name, job_id=f"follower {name}") for name in names]
        made.receipts = Counter(names)
    return made


@pytest.mark.parametrize("way", WAYS)
def test_what_is_as_it_should_be_breaks_no_rule(way: Way) -> None:
    """Nor does what a kill may leave: an order that nobody was told of; of a message, a second delivery."""
    made = shop(way)
    if way == "outbox":
        made.handled.append(Done("x", "job x", 1))
        made.jobs[0] = known("x", attempts=2, lease_generation=2)
    assert list(breaches(made)) == []


BROKEN: list[tuple[Way, Rule, Callable[[Shop], object]]] = [
    ("attach", Rule.BOTH, lambda shop: shop.jobs.pop()),
    ("dbapi", Rule.BOTH, lambda shop: shop.orders.pop("z")),
    ("outbox", Rule.BOTH, lambda shop: shop.jobs.append(known("x", job_id="another"))),
    ("attach", Rule.BOTH, lambda shop: shop.handled.append(Done("v", "job v", 1))),
    ("dbapi", Rule.EARLY, lambda shop: shop.handled.__setitem__(0, Done("x", "job x", 0))),
    ("outbox", Rule.EARLY, lambda shop: shop.handled.__setitem__(0, Done("x", "job x", 0))),
    ("attach", Rule.TRUTH, lambda shop: shop.acknowledged.add("v")),
    ("attach", Rule.TRUTH, lambda shop: shop.given_up.add("z")),
    ("dbapi", Rule.DONE, lambda shop: shop.jobs.__setitem__(0, known("x", state="LEASED"))),
    ("attach", Rule.DONE, lambda shop: shop.handled.append(Done("x", "job x", 1))),
    ("attach", Rule.DONE, lambda shop: shop.handled.pop()),
    ("lease-in-transaction", Rule.NO_TRACE, lambda shop: shop.jobs.__setitem__(0, known("x", attempts=2))),
    ("lease-in-transaction", Rule.NO_TRACE, lambda shop: shop.jobs.__setitem__(0, known("x", lease_generation=2))),
    (
        "lease-in-transaction",
        Rule.NO_TRACE,
        lambda shop: shop.jobs.__setitem__(0, known("x", transitions=("enqueued", "leased", "leased", "completed"))),
    ),
    ("lease-in-transaction", Rule.BOTH, lambda shop: shop.followers.pop()),
    ("lease-in-transaction", Rule.BOTH, lambda shop: shop.receipts.update(["x"])),
    ("lease-in-transaction", Rule.EARLY, lambda shop: setattr(shop, "early_receipts", 1)),
    ("outbox", Rule.DELIVERED, lambda shop: shop.handled.pop()),
    ("outbox", Rule.DELIVERED, lambda shop: setattr(shop, "waiting", 1)),
    ("outbox", Rule.ORDER, lambda shop: shop.handled.reverse()),
]


@pytest.mark.parametrize(("way", "rule", "spoil"), BROKEN)
def test_each_rule_is_seen_broken(way: Way, rule: Rule, spoil: Callable[[Shop], object]) -> None:
    """A rule that nothing breaks would prove nothing."""
    made = shop(way)
    spoil(made)
    assert rule in {breach.rule for breach in breaches(made)}


def test_every_rule_is_broken_by_one_of_these() -> None:
    """That the file is sound is what the examination of it says."""
    assert {rule for _, rule, _ in BROKEN} == set(Rule) - {Rule.SOUND}
