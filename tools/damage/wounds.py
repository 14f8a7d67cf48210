"""Wounds: what is done to a file before a program opens it, or under its hands.

Owns the drawing of them. Invariant: a wound is a pure function of the draw, so that a seed repeats a run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from damage.specimens import Made, Specimen

SECTOR_BYTES = 512
PAGE_BYTES = 2048
SHARED_BYTES = 32_768
"""The first part of a shared memory file; a small log needs no other."""
_FORMS = ("a bit", "a bit", "a bit", "a bit", "a byte", "a byte", "a sector", "a sector", "cut", "a log")


@dataclass(frozen=True, slots=True)
class Wound:
    """New bytes for a part of one file; or a file that is cut, or replaced."""

    form: str
    specimen: Specimen
    suffix: str
    """Which file: the queue file itself, its `-wal`, its `-shm` or a `-journal`."""
    place: int
    flips: bytes
    """To be combined by XOR with what stands there; empty when the file is cut at `place`."""
    whole: bytes | None = None
    """What to put in place of the whole file."""
    live: bool = False
    """Whether it comes while the file is open."""

    @property
    def where(self) -> str:
        """The file that is hit, in words."""
        return f"{self.specimen.name} {self.suffix or 'file'}{' in use' if self.live else ''}"

    def __str__(self) -> str:
        if self.whole is not None:
            return f"{self.form} as the {self.where}"
        return f"{self.form} at {self.place} of the {self.where}" + (
            f" by {self.flips[:4].hex()}" if self.flips else ""
        )

    def lay_out(self, folder: Path) -> Path:
        """Write the files of the specimen, wounded unless that is to come later; return the queue file's path."""
        folder.mkdir(parents=True)
        path = folder / "app.queue"
        for suffix, content in self.specimen.files.items():
            Path(f"{path}{suffix}").write_bytes(content)
        if not self.live:
            self.inflict(path)
        return path

    def inflict(self, path: Path) -> None:
        """Wound the files at a path; never in a process that has them open."""
        file = Path(f"{path}{self.suffix}")
        if self.whole is not None:
            file.write_bytes(self.whole)
            return
        if not file.exists():  # a log that the last one out has removed, a shared memory that nobody has made
            return
        with file.open("r+b") as opened:
            if not self.flips:
                opened.truncate(self.place)
                return
            opened.seek(self.place)
            old = opened.read(len(self.flips))
            opened.seek(self.place)
            opened.write(bytes(a ^ b for a, b in zip(old, self.flips, strict=False)))


def draw_wound(draw: random.Random, made: Made) -> Wound:
    """Draw a wound."""
    form = draw.choice(_FORMS)
    specimen = draw.choice(made.whole)
    if form == "a log":
        name = draw.choice(sorted(made.logs))
        return Wound(name, specimen, "-wal", 0, b"", whole=made.logs[name])
    suffix = draw.choice([*specimen.files, "-shm"])
    if form == "cut" and suffix == "-shm":
        suffix = ""  # a mapped file that is cut kills every program that reads it: SQLite's own limit
    live = suffix == "-shm" or draw.random() < _LIVE_SHARE
    size = SHARED_BYTES if suffix == "-shm" else len(specimen.files[suffix])
    if form == "cut":
        return Wound(form, specimen, suffix, _cut_place(draw, size), b"")
    if form == "a bit":
        return Wound(form, specimen, suffix, draw.randrange(size), bytes([1 << draw.randrange(8)]), live=live)
    if form == "a byte":
        return Wound(form, specimen, suffix, draw.randrange(size), bytes([draw.randrange(1, 256)]), live=live)
    place = draw.randrange(size) // SECTOR_BYTES * SECTOR_BYTES
    return Wound(form, specimen, suffix, place, draw.randbytes(SECTOR_BYTES), live=live)


def _cut_place(draw: random.Random, size: int) -> int:
    """Draw where a file ends too early: anywhere, at a page, or in its first bytes."""
    match draw.randrange(3):
        case 0:
            return draw.randrange(size)
        case 1:
            return draw.randrange(size // PAGE_BYTES + 1) * PAGE_BYTES
        case _:
            return draw.randrange(min(size, 1000))


_LIVE_SHARE = 0.2
"""Of the wounds to the file and its log, those that come while it is open."""
