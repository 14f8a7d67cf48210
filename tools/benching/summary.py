"""What many samples say: medians, spreads, and ratios to the floor.

Invariants: a ratio is taken within a round, and its median over the rounds is what is shown; never across what was
measured at another durability: a subject belongs to the durability that its live connection reports, whatever it was
asked for. Works on plain values, so that a run can be read back from its JSON.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from litequeue.bench import Spread

FLOOR = "bare"
_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "full"}
_WAL = "wal"
_ACKNOWLEDGED = "at least once"


class Key(NamedTuple):
    """What was measured, and who."""

    workload: str
    cell: str
    asked: str
    """The durability that was asked for."""
    subject: str


@dataclass(frozen=True, slots=True)
class Row:
    """What one subject did at one cell."""

    key: Key
    is_peer: bool
    held: str
    """The durability that it had: `normal`, `full`, or another one, by its pragmas."""
    rounds: int
    figures: dict[str, Spread]
    to_floor: dict[str, Spread]
    """How many times the floor's figure, where the floor held the same durability."""
    why_not: str | None
    has: Mapping[str, object]
    """What the live connection said, the last time."""

    @property
    def delivery(self) -> str:
        """What is promised of a job that was handed out; a peer says it, and of ours it is this."""
        return str(self.has.get("delivery", _ACKNOWLEDGED))

    @property
    def who(self) -> str:
        """The subject as it is shown, with what it does not promise."""
        return self.key.subject if self.delivery == _ACKNOWLEDGED else f"{self.key.subject} ({self.delivery})"


def held(has: Mapping[str, object]) -> str:
    """Name the durability that a connection has."""
    if not has:
        return "unknown"
    mode, synchronous = str(has.get("journal_mode", "?")).lower(), has.get("synchronous")
    level = _SYNCHRONOUS.get(synchronous, str(synchronous)) if isinstance(synchronous, int) else str(synchronous)
    return level if mode == _WAL else f"{level}, journal {mode}"


def summarise(samples: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Summarise samples (`Sample.as_dict`), in the order in which they came."""
    by_key: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for sample in samples:
        by_key[Key(sample["workload"], sample["cell"], sample["durability"], sample["subject"])].append(sample)
    return [_row(key, found, by_key.get(key._replace(subject=FLOOR), [])) for key, found in by_key.items()]


def _row(key: Key, samples: list[Mapping[str, Any]], floor: list[Mapping[str, Any]]) -> Row:
    done = [sample for sample in samples if sample["figures"]]
    failed = [str(sample["failed"]).strip().rpartition("\n")[2] for sample in samples if sample["failed"]]
    unsupported = [str(sample["unsupported"]) for sample in samples if sample["unsupported"]]
    why_not = f"{len(failed)} of {len(samples)} failed: {failed[0]}" if failed else next(iter(unsupported), None)
    now_held = held(done[-1]["has"]) if done else "unknown"
    floors = {sample["round"]: sample for sample in floor if sample["figures"] and held(sample["has"]) == now_held}
    names = list(dict.fromkeys(name for sample in done for name in sample["figures"]))
    ratios: dict[str, list[float]] = defaultdict(list)
    for sample in done:
        beside = floors.get(sample["round"], {}).get("figures", {})
        for name, value in sample["figures"].items():
            if beside.get(name):
                ratios[name].append(value / beside[name])
    return Row(
        key,
        bool(samples[0]["is_peer"]),
        now_held,
        len(done),
        {name: Spread.of(s["figures"][name] for s in done if name in s["figures"]) for name in names},
        {name: Spread.of(values) for name, values in ratios.items()},
        why_not,
        done[-1]["has"] if done else {},
    )
