"""Where a queue file really is, and how it may be opened there."""

from __future__ import annotations

import os
from dataclasses import dataclass

LOGS = ("-wal", "-shm", "-journal")
"""What SQLite has beside a file that is in use."""
MARKERS = ("-lock", "-maintenance", "-schedules", "-bell", "-done")
"""What the queue may make beside the file: empty, to be locked or to be touched."""
SIDECARS = (*LOGS, *MARKERS)
"""Everything that SQLite or the queue may make beside the file."""


@dataclass(frozen=True, slots=True)
class Place:
    """A queue file's real path, and how it may be opened."""

    path: str
    mode: int
    create: bool
    has_presence: bool
    """Whether a lock on a byte of a file here tells of the life of its holder."""

    @property
    def folder(self) -> str:
        """The folder that holds the file."""
        return os.path.dirname(self.path)

    @property
    def lock_path(self) -> str:
        """The sidecar of the write gate, and of presence."""
        return f"{self.path}-lock"

    @property
    def bell_path(self) -> str:
        """The sidecar that tells waiting processes of new work."""
        return f"{self.path}-bell"

    @property
    def done_path(self) -> str:
        """The sidecar that tells who waits for the end of a job; there since somebody first did."""
        return f"{self.path}-done"
