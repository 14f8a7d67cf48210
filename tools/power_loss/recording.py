"""A virtual file system that writes down what SQLite asks of the disk, and when verbs were acknowledged.

Owns the log of one process and, beside it, the committed states: a trace of every connection sees each COMMIT end, and
a witness, on a connection of its own through the ordinary VFS, reads the state then. Invariants: a step is written down
when it has succeeded; the witness writes nothing and is closed again before the next statement, so that it holds up no
checkpoint and is never the last one out. One thread only. The VFS becomes the default of its process and never goes
away: run it in a process of its own.

Source: the unix VFS syncs the folder at the first sync of each journal or log that was opened with leave to create it
(`UNIXFILE_DIRSYNC`), which no shim sees; the log says it here.
"""

from __future__ import annotations

from random import Random
from typing import Final

import apsw

from litequeue.sqlite.examining import problems
from power_loss.committed import NOTHING_YET, digest, job_ids
from power_loss.disk import MAIN, SUFFIXES, Sort, Step

IGNORED_FSYNC: Final = "ignored-fsync"
FORGOTTEN_FOLDER: Final = "forgotten-folder"
EARLY_ACKNOWLEDGEMENT: Final = "early-acknowledgement"
SYNCHRONOUS_OFF: Final = "synchronous-off"

_ORDINARY: Final = "unix"
_SYNCS_FOLDER: Final = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL


class Recorder:
    """The log of one process on one database; `sabotage` is one of the negative controls."""

    def __init__(self, path: str, sabotage: str | None) -> None:
        self.steps: list[Step] = []
        self.sabotage = sabotage
        self.states = 0
        """Committed so far; the state before the first commit has number 0."""
        self.broken: list[str] = []
        """Rules that a committed state broke with nobody's help."""
        self._path = path
        self._existing: set[str] = set()
        self._fresh: list[apsw.Connection] = []
        self._digest = NOTHING_YET
        self._seen = 0
        self._is_witnessing = False
        self._begun_at = 0
        self._begun_in = 0
        self.add(Sort.COMMITTED, "", 0, self._digest)
        apsw.connection_hooks.append(self._watch)

    def suffix_of(self, name: str | None) -> str | None:
        """Return what follows the database's name, for a file that outlives a power loss."""
        if name is None or not name.startswith(self._path):
            return None
        suffix = name[len(self._path) :]
        return suffix if suffix in SUFFIXES else None

    def add(self, sort: Sort, suffix: str, number: int = 0, data: bytes = b"") -> None:
        """Write a step down."""
        self.steps.append(Step(sort, suffix, number, data))

    def opened(self, suffix: str) -> None:
        """Write down that a file came to be, if it did."""
        if suffix not in self._existing:
            self._existing.add(suffix)
            self.add(Sort.CREATED, suffix)

    def deleted(self, suffix: str, *, is_synced: bool) -> None:
        """Write down that a file went."""
        self._existing.discard(suffix)
        self.add(Sort.DELETED, suffix)
        if is_synced:
            self.add(Sort.FOLDER_SYNCED, "")

    # --- verbs

    def begin(self) -> None:
        """Remember where a verb begins."""
        self._begun_at, self._begun_in = len(self.steps), self.states

    def acknowledge(self, *, is_promised: bool, names: tuple[bytes, ...] = ()) -> None:
        """Write down that the verb has returned, and the ids of the jobs that it said are in the file.

        `is_promised` says that the mode promises to keep what the verb has committed, if it has committed anything.
        """
        is_kept = is_promised and self.states > self._begun_in
        marks = [Step(Sort.ACKNOWLEDGED if is_kept else Sort.ANSWERED, "", self.states, b"")]
        marks += [Step(Sort.NAMED, "", self.states, name) for name in names if is_promised]
        at = self._begun_at if self.sabotage == EARLY_ACKNOWLEDGEMENT else len(self.steps)
        self.steps[at:at] = marks

    def keep_all(self) -> None:
        """Write down that everything so far is promised in every mode: a whole checkpoint, a close, a creation.

        SQLite syncs the database only after a checkpoint that has copied the whole log.
        """
        self.add(Sort.ACKNOWLEDGED, "", self.states)

    def configure(self, *pragmas: str) -> None:
        """Run pragmas on the connections that were opened since the last time."""
        for connection in self._fresh:
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}").fetchall()
        self._fresh.clear()

    # --- commits

    def _watch(self, connection: apsw.Connection) -> None:
        if not self._is_witnessing and connection.filename == self._path:
            self._fresh.append(connection)
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ended)

    def _ended(self, event: dict[str, object]) -> None:
        """Hear that a statement has ended; a COMMIT before which something was written may have made a new state."""
        if event["sql"] == "COMMIT" and len(self.steps) > self._seen:
            self._witness()
            self._seen = len(self.steps)

    def _witness(self) -> None:
        self._is_witnessing = True
        try:
            connection = apsw.Connection(self._path, apsw.SQLITE_OPEN_READONLY, vfs=_ORDINARY)
        finally:
            self._is_witnessing = False
        try:
            found = digest(connection)
            if found != self._digest:
                self.states += 1
                self._digest = found
                self.add(Sort.COMMITTED, "", self.states, found)
                self.add(Sort.HELD, "", self.states, b"".join(job_ids(connection)))
                self.broken += [f"state {self.states}: {rule}" for rule in problems(connection)]
        finally:
            connection.close()


class RecordingVFS(apsw.VFS):
    """The ordinary file system, with a recorder; randomness comes from the seed, so that a log can be had again."""

    def __init__(self, recorder: Recorder, draw: Random) -> None:
        self._recorder = recorder
        self._draw = draw
        super().__init__("recording", _ORDINARY, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        """Open a file; those of the queue are recorded."""
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        suffix = self._recorder.suffix_of(text)
        if suffix is None:
            return apsw.VFSFile(_ORDINARY, name, flags)
        file = RecordedFile(self._recorder, suffix, name, flags)
        self._recorder.opened(suffix)
        return file

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802 - apsw's name
        """Delete a file."""
        super().xDelete(name, syncdir)
        suffix = self._recorder.suffix_of(name)
        if suffix is not None:
            self._recorder.deleted(suffix, is_synced=syncdir)

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802 - apsw's name
        """Give what the seed gives."""
        return self._draw.randbytes(numbytes)


class RecordedFile(apsw.VFSFile):
    """A file of the queue."""

    def __init__(self, recorder: Recorder, suffix: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._recorder = recorder
        self._suffix = suffix
        self._syncs_folder = bool(flags[0] & _SYNCS_FOLDER and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__(_ORDINARY, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's name
        """Write."""
        super().xWrite(data, offset)
        self._recorder.add(Sort.WRITTEN, self._suffix, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - apsw's name
        """Cut the file, or lengthen it."""
        super().xTruncate(newsize)
        self._recorder.add(Sort.TRUNCATED, self._suffix, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        """Sync, and the folder with it the first time."""
        if self._recorder.sabotage == IGNORED_FSYNC:
            return
        super().xSync(flags)
        self._recorder.add(Sort.SYNCED, self._suffix, flags)
        if self._syncs_folder and self._recorder.sabotage != FORGOTTEN_FOLDER:
            self._recorder.add(Sort.FOLDER_SYNCED, "")
        self._syncs_folder = False
        if self._suffix == MAIN:
            self._recorder.keep_all()
