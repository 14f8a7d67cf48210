"""A file that is not finished: made beside its place, moved there in one step, removed when that failed.

Owns: the names of unfinished copies. Invariants: at its place stands nothing or the whole copy, on disk, whatever
dies when; what a kill leaves behind has a name that no queue may have (`opening` refuses it) and that `doctor` reports.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from litequeue.facilities import c_library
from litequeue.sqlite.connection import PARTIAL_SUFFIX

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_CANNOT = (errno.ENOSYS, errno.EINVAL)
"""The kernel, or the file system, has no such renaming."""
_WITH_LOG = ("", "-wal", "-shm", "-journal")


@contextmanager
def partial(path: str, mode: int) -> Iterator[str]:
    """Give the path of an empty file beside `path`, with these permissions; remove what is left of it at the end.

    Raises:
        OSError: no such folder, no permission, no room.
    """
    folder, name = os.path.split(path)
    made = os.path.join(folder, f".{name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
    maker = os.getpid()
    try:
        os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode))
        os.chmod(made, mode)  # the umask has no say in it
        yield made
    finally:
        if os.getpid() == maker:
            for suffix in _WITH_LOG:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(made + suffix)


def publish(made: str, path: str, *, overwrite: bool) -> None:
    """Move a finished file to its place, in one step, and make sure that it stays there.

    Raises:
        FileExistsError: there is something, and it is not to be overwritten.
    """
    if overwrite:
        os.replace(made, path)
    else:
        _move_if_free(made, path)
    sync_folder(os.path.dirname(path))


def leftovers(path: str) -> list[str]:
    """Return the names of unfinished copies beside `path`; one of them may be in the making just now."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        names = os.listdir(folder or ".")
        return sorted(found for found in names if found.startswith(f".{name}.") and found.endswith(PARTIAL_SUFFIX))
    return []


def sync_folder(folder: str) -> None:
    """Make what was moved into a folder survive a power loss, where the platform can."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_if_free(made: str, path: str) -> None:
    """Move a file without ever replacing one that somebody else has made meanwhile.

    Not by a second name and the removal of the first: killed between the two, it would leave a file of two names, which
    nobody may open as a queue. Where the platform cannot do it in one step, a look before it has to do.

    Raises:
        FileExistsError: there is something.
    """
    code = _rename_if_free(os.fsencode(made), os.fsencode(path))
    if code == 0:
        return
    if code not in _CANNOT:
        raise OSError(code, os.strerror(code), path)
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    os.rename(made, path)


def _rename_if_free(made: bytes, path: bytes) -> int:
    """Rename by `renameat2`, which may refuse to replace; return the error's number. Source: rename(2)."""
    libc = c_library("renameat2")
    if libc is None:
        return errno.ENOSYS
    libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return 0 if libc.renameat2(_AT_FDCWD, made, _AT_FDCWD, path, _RENAME_NOREPLACE) == 0 else ctypes.get_errno()
