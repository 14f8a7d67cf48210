"""Other systems, as the package would find them: what it imports is without what they lack, and has what they have.

Owns: the stand-ins for `os`, `sys`, `signal` and so on that the modules of `litequeue` get for the real ones.
Invariant: nobody else gets them, so pytest, the tests and the standard library go on as ever. Entered by
`sitecustomize`, before anything of the package is loaded, in every process that inherits the environment. Leaves out
what cannot be played: locks that bind, what the kernels do, the loops of asyncio, terminals (docs/platforms.md).
"""

from __future__ import annotations

import builtins
import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "LITEQUEUE_TESTS_WORLD"
"""In the environment: the name of one of `WORLDS`."""
_PACKAGE = "litequeue"
NOWHERE = "/nowhere/proc"
"""What stands for `/proc`."""

_NO_FORK = ("fork", "register_at_fork")
_NO_POSIX_FILES = ("mknod", "fchmod", "pread", "pwrite", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY")
_NO_POSIX_USERS = ("getuid", "geteuid", "getgid", "chown", "umask", "tcgetpgrp", "getpgrp", "statvfs")
_NO_POSIX_PROCESSES = ("waitid", "wait4", "set_blocking", "killpg", "getppid")
_NO_SIGNALS = ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGTSTP", "SIGHUP", "SIGUSR1", "SIGALRM", "SIGCHLD")
_NO_SIGNAL_CALLS = ("pthread_sigmask", "pthread_kill", "siginterrupt", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK")
_LINUX_ONLY = frozenset({"inotify_init1", "inotify_add_watch", "inotify_rm_watch", "statx", "renameat2", "prctl"})


class StandIn(ModuleType):
    """A module in the eyes of the package: the real one, less some names, and with others instead."""

    def __init__(self, real: ModuleType, without: Sequence[str] = (), **instead: object) -> None:
        super().__init__(real.__name__)
        _own(self).update(_real=real, _without=frozenset(without), _instead=instead)

    def __getattribute__(self, name: str) -> object:
        own = _own(self)
        if name in own["_without"]:
            raise AttributeError(f"there is no {own['_real'].__name__}.{name} here")
        return own["_instead"][name] if name in own["_instead"] else getattr(own["_real"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_own(self)["_real"], name, value)


def _own(module: ModuleType) -> dict[str, Any]:
    own: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    return own


World = Mapping[str, ModuleType | None]
"""By name, what a module of the package gets when it imports it; `None` where there is no such module."""


def windows() -> World:
    """No `fcntl`, no fork, no `/proc`; most signals are missing, and no file is removed or replaced that is open."""
    import ctypes  # noqa: PLC0415 - only where a world is entered, as all of these
    import multiprocessing  # noqa: PLC0415
    import select  # noqa: PLC0415
    import signal  # noqa: PLC0415
    import time  # noqa: PLC0415
    from multiprocessing import connection, resource_tracker  # noqa: PLC0415

    descriptors: set[object] = set()

    def pipe() -> tuple[int, int]:
        descriptors.update(ends := os.pipe())
        return ends

    def wait(objects: Sequence[Any], timeout: float | None = None) -> list[Any]:
        if descriptors.intersection(objects):  # what a process is waited for by is a number, too
            raise OSError(errno.EBADF, "The handle is invalid")
        return list(connection.wait(objects, timeout))

    def ensure_running() -> None:
        raise ImportError("there is no _posixsubprocess here")

    without = (*_NO_FORK, *_NO_POSIX_FILES, *_NO_POSIX_USERS, *_NO_POSIX_PROCESSES)
    of_files = {name: _closed_only(name) for name in ("unlink", "remove", "rename", "replace")}
    return {
        "fcntl": None,
        "os": StandIn(os, without, pipe=pipe, **of_files),
        "sys": StandIn(sys, platform="win32"),
        "signal": StandIn(signal, (*_NO_SIGNALS, *_NO_SIGNAL_CALLS)),
        "select": StandIn(select, ("poll", "epoll", "kqueue")),
        "time": StandIn(time, ("clock_gettime", "clock_gettime_ns", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC")),
        "ctypes": StandIn(ctypes, CDLL=_no_library, PyDLL=_no_library),
        "multiprocessing": StandIn(
            multiprocessing,
            connection=StandIn(connection, wait=wait),
            resource_tracker=StandIn(resource_tracker, ensure_running=ensure_running),
        ),
        "winreg": _registry(),
    }


def macos() -> World:
    """With `flock`, but no such locks on bytes as Linux has; no inotify, a kqueue; no `/proc`."""
    import ctypes  # noqa: PLC0415
    import select  # noqa: PLC0415
    import time  # noqa: PLC0415

    import kqueues  # noqa: PLC0415

    def mknod(path: str, mode: int = 0o600, device: int = 0) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path, mode, device)

    class Library(ctypes.CDLL):
        """The C library, without what is Linux's, and with what tells of the kernel."""

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the class that it is one of
            if name in _LINUX_ONLY:
                raise AttributeError(name)
            return _sysctlbyname if name == "sysctlbyname" else super().__getattr__(name)

    return {
        "os": StandIn(os, ("waitid", "posix_fadvise", "memfd_create"), mknod=mknod),
        "sys": StandIn(sys, platform="darwin"),
        "select": StandIn(select, ("epoll",), **kqueues.names()),
        "time": StandIn(time, ("CLOCK_BOOTTIME",)),
        "ctypes": StandIn(ctypes, CDLL=Library, PyDLL=Library),
    }


WORLDS: Mapping[str, Callable[[], World]] = {"windows": windows, "macos": macos}


def enter(of: str) -> None:
    """Let the package import what that world has, from here on in this process."""
    world: World = {}
    really = builtins.__import__

    def importing(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - some say these names
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        nonlocal world
        importer = str((globals or {}).get("__name__", ""))
        if importer != _PACKAGE and not importer.startswith(f"{_PACKAGE}."):
            return really(name, globals, locals, fromlist, level)
        if not world:
            world = WORLDS[of]()
        if name in world:
            found = world[name]
            if found is None:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return found
        loaded = really(name, globals, locals, fromlist, level)
        if name == f"{_PACKAGE}.facilities":
            vars(loaded)["PROC"] = NOWHERE
        return loaded

    builtins.__import__ = importing


def _closed_only(name: str) -> Callable[..., None]:
    """Return a function of `os` that refuses a file, or what it would replace, which this process has open."""
    really = getattr(os, name)

    def act(*paths: str | bytes) -> None:
        open_files = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                status = os.fstat(int(descriptor.name))
            except OSError:  # that of the listing itself
                continue
            open_files.add((status.st_dev, status.st_ino))
        for path in paths:
            if os.path.lexists(path):
                status = os.lstat(path)
                if (status.st_dev, status.st_ino) in open_files:
                    raise PermissionError(errno.EACCES, "The process cannot access the file, it is open", path)
                if name == "rename" and path == paths[-1]:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        really(*paths)

    return act


def _no_library(name: str | None, **_: object) -> None:
    raise TypeError(f"a library needs a name, not {name!r}")


def _registry() -> ModuleType:
    """Return a module `winreg` that knows of this boot."""
    import contextlib  # noqa: PLC0415

    registry = ModuleType("winreg")
    registry.__dict__.update(
        HKEY_LOCAL_MACHINE=0,
        OpenKey=lambda _root, _key: contextlib.nullcontext("key"),
        QueryValueEx=lambda _key, name: ({"BootId": 7}[name], 4),
    )
    return registry


def _sysctlbyname(name: bytes, buffer: object, size: object, *_: object) -> int:
    """Tell the boot's id, as macOS does."""
    if name != b"kern.bootsessionuuid":
        return -1
    buffer.value = b"0B8E1F0C-BOOT"  # type: ignore[attr-defined] # a buffer of ctypes, and a size by reference
    assert size is not None
    return 0
