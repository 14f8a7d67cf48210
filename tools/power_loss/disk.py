"""What a disk may hold after a power loss, from a log of what was asked of it.

Owns the log (`Step`) and the model of a disk. The model: what was synced is there. Of what a file was told after its
last sync nothing is sure, in no order: each 512-byte sector of each write is old or new by itself, a truncation has
happened or not, the file may have grown without its contents. Names are apart from files: a file's entry in its folder
is sure only after the folder was synced, and until then each name stands where it stood at some moment since. SQLite's
unix VFS syncs the folder at the first sync of a rollback journal or a write-ahead log that it may have created, and at
a deletion that asks for it; `recording` writes that down as steps of their own.

The one assumption (SQLite's `SQLITE_IOCAP_POWERSAFE_OVERWRITE`): a write damages no byte outside of its own range.
Leaves out: disks that lie about a sync (a negative control shows that they lose data), and bits that rot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, cast

import msgpack

SECTOR_BYTES: Final = 512
MAIN, WAL, JOURNAL = "", "-wal", "-journal"
SUFFIXES: Final = (MAIN, WAL, JOURNAL)
"""The files of a queue that outlive a power loss, by what follows the database's name; `-shm` is memory."""


class Sort(IntEnum):
    """What a step of the log is."""

    CREATED = 0
    """A file came to be."""
    WRITTEN = 1
    """`data` was written at `number`."""
    TRUNCATED = 2
    """The file was cut, or lengthened, to `number` bytes."""
    SYNCED = 3
    """The file was synced, as the flags in `number` say; its entry in the folder was not."""
    DELETED = 4
    """The file's entry was removed."""
    FOLDER_SYNCED = 5
    """All entries of the folder are as they are, from here on."""
    COMMITTED = 6
    """State `number` was committed; `data` is its digest."""
    ACKNOWLEDGED = 7
    """A verb has returned, with state `number` in the file; the mode promises to keep it."""
    ANSWERED = 8
    """The same of a verb whose effect the mode does not promise to keep."""
    NAMED = 9
    """An enqueue has answered that the job `data` is in the file, in state `number`; the mode promises to keep it."""
    HELD = 10
    """The ids of all jobs in state `number`, one after the other."""


class Step(NamedTuple):
    """One entry of the log."""

    sort: Sort
    suffix: str
    number: int
    data: bytes


def dump(path: Path, steps: Iterable[Step]) -> None:
    """Write a log to a file."""
    path.write_bytes(msgpack.packb([tuple(step) for step in steps]))


def load(path: Path) -> list[Step]:
    """Read a log from a file."""
    found = cast("list[tuple[int, str, int, bytes]]", msgpack.unpackb(path.read_bytes(), use_list=False))
    return [Step(Sort(sort), suffix, number, data) for sort, suffix, number, data in found]


class Change(NamedTuple):
    """Something that a file was told: bytes at a place, or (`data` is `None`) a new length."""

    at: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class Inode:
    """A file apart from its name."""

    synced: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)
    """Since the last sync."""

    def sync(self) -> None:
        """Make sure of all changes."""
        for change in self.changes:
            _make(self.synced, change)
        self.changes.clear()


@dataclass(slots=True, eq=False)
class Name:
    """An entry of the folder."""

    synced: Inode | None = None
    since: list[Inode | None] = field(default_factory=list)
    """What the name has stood for since the folder was synced; `None`: for nothing."""

    @property
    def now(self) -> Inode | None:
        """The file of that name, for the running system."""
        return self.since[-1] if self.since else self.synced


class Image(NamedTuple):
    """What a disk may hold."""

    files: Mapping[str, bytes]
    """Contents by suffix; a file that is not there is left out."""
    story: str
    """What became of each file, in a few words."""
    misplaced: frozenset[str]
    """Files that are missing, come back or older than the running system had them."""


class Disk:
    """A disk while the log is played to it."""

    def __init__(self) -> None:
        self._names = {suffix: Name() for suffix in SUFFIXES}

    def play(self, step: Step) -> None:
        """Do what the log says; marks of commits and answers are nothing to a disk."""
        name = self._names.get(step.suffix)
        match step.sort:
            case Sort.CREATED:
                self._names[step.suffix].since.append(Inode())
            case Sort.DELETED:
                self._names[step.suffix].since.append(None)
            case Sort.FOLDER_SYNCED:
                for other in self._names.values():
                    other.synced = other.now
                    other.since.clear()
            case Sort.WRITTEN | Sort.TRUNCATED | Sort.SYNCED:
                if name is None or name.now is None:
                    raise ValueError(f"the log has a step on a file that is not there: {step[:3]}")
                if step.sort is Sort.SYNCED:
                    name.now.sync()
                else:
                    name.now.changes.append(Change(step.number, step.data if step.sort is Sort.WRITTEN else None))
            case _:
                pass

    def after_loss(self, draw: Random, manner: str | None = None) -> Image:
        """Return what the disk may hold when the power goes now; `manner` is one of `MANNERS`, else each file's own."""
        files: dict[str, bytes] = {}
        told: list[str] = []
        misplaced: set[str] = set()
        for suffix, name in self._names.items():
            inode = _entry(name, draw, manner)
            shown = suffix or "file"
            if inode is not name.now:
                misplaced.add(suffix)
                told.append(f"{shown} {'missing' if inode is None else 'of before'}")
            if inode is not None:
                chosen = manner or draw.choices(MANNERS, _WEIGHTS)[0]
                files[suffix] = _contents(inode, draw, chosen)
                told.append(f"{shown} {chosen if inode.changes else 'synced'} of {len(inode.changes)}")
        return Image(files, ", ".join(told), frozenset(misplaced))


NOTHING, EVERYTHING = "nothing", "everything"
MANNERS: Final = (NOTHING, EVERYTHING, "the first", "all but the last", "some", "all but one", "some sectors")
"""What survives of the changes since the last sync."""
_WEIGHTS: Final = (1, 2, 3, 3, 2, 3, 3)
_MOST_LAST: Final = 8


def _entry(name: Name, draw: Random, manner: str | None) -> Inode | None:
    match manner:
        case "nothing":
            return name.synced
        case "everything":
            return name.now
        case _:
            return draw.choice([name.synced, *name.since])


def _contents(inode: Inode, draw: Random, manner: str) -> bytes:
    """Return a file's contents after the loss."""
    contents = bytearray(inode.synced)
    count = len(inode.changes)
    cut, share = count, 1.0
    torn: Sequence[int] = ()
    match manner:
        case "nothing":
            cut = 0
        case "everything":
            pass
        case "the first":
            cut = draw.randint(0, count)
            torn = (cut,)
        case "all but the last":
            cut = count - draw.randint(0, min(count, _MOST_LAST))
            torn = range(cut, count)
        case "all but one":
            torn = (draw.randrange(count),) if count else ()
        case _:
            share = draw.choice((0.5, 0.9, 0.98))
            torn = range(count) if manner == "some sectors" else ()
    grows = manner != NOTHING and draw.random() < 0.25  # noqa: PLR2004 - the length is metadata, and may come alone
    for index, change in enumerate(inode.changes):
        if index in torn and change.data is not None:
            _tear(contents, change, draw, 0.5 if share == 1.0 else share)
        elif index in torn or index >= cut or draw.random() >= share:
            if grows and change.data is not None:
                _lengthen(contents, change.at + len(change.data))
        else:
            _make(contents, change)
    return bytes(contents)


def _tear(contents: bytearray, change: Change, draw: Random, share: float) -> None:
    """Let each sector of a write survive by itself."""
    data = change.data or b""
    at = change.at
    end = change.at + len(data)
    while at < end:
        sector_end = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if draw.random() < share:
            _make(contents, Change(at, data[at - change.at : sector_end - change.at]))
        at = sector_end


def _make(contents: bytearray, change: Change) -> None:
    if change.data is None:
        _lengthen(contents, change.at)
        del contents[change.at :]
    else:
        _lengthen(contents, change.at)
        contents[change.at : change.at + len(change.data)] = change.data


def _lengthen(contents: bytearray, size: int) -> None:
    if len(contents) < size:
        contents.extend(bytes(size - len(contents)))
