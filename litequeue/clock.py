"""Time: the wall clock, the monotonic clock and the identity of this boot.

Owns: what a clock is and the one that asks the operating system. Invariant: nothing else in the package reads a
clock for a decision about jobs; every handle has its clock injected (contract G8). All times are integers in
microseconds. Leaves out: the lease clock's offset (kept in the file) and the waiting for locks, which is real time.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from functools import cache
from typing import Protocol, cast

from litequeue.errors import UsageError
from litequeue.facilities import PROC, c_library

_WANTED = "an object whose methods wall_us and monotonic_us return whole µs and boot_id text, or None for the system's"
_RAISED = "litequeue: the clock that was given has raised this"


class Clock(Protocol):
    """What a queue handle asks for the time."""

    def wall_us(self) -> int:
        """Return µs since the epoch, UTC; may step in either direction."""
        ...

    def monotonic_us(self) -> int:
        """Return µs that never go backwards within one boot and stand still while the machine sleeps."""
        ...

    def boot_id(self) -> str:
        """Return text that differs from boot to boot."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall_us(self) -> int:
        """Return the wall clock in µs since the epoch."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Return the monotonic clock in µs; on Linux and macOS it does not count suspended time."""
        return time.monotonic_ns() // 1000

    def boot_id(self) -> str:
        """Return the identity that the kernel gave this boot; where it tells none, when that was."""
        return _boot_id()


def checked(value: object) -> Clock:
    """Accept a clock, or `None` for the system's, without asking it anything.

    Raises:
        UsageError: it is none.
    """
    if value is None:
        return SystemClock()
    methods = (getattr(value, name, None) for name in ("wall_us", "monotonic_us", "boot_id"))
    if isinstance(value, type) or not all(map(callable, methods)):
        raise UsageError.of("clock", value, _WANTED)
    return cast("Clock", value)


def tried(value: object) -> Clock:
    """Accept a clock that answers, or `None`; what it raises is its owner's to see.

    Raises:
        UsageError: it is none, or does not say times.
    """
    clock = checked(value)
    now(clock)
    boot_id: object = clock.boot_id()
    if not isinstance(boot_id, str):
        raise UsageError.of("clock", value, _WANTED, f"it says {boot_id!r}")
    return clock


def now(clock: Clock) -> tuple[int, int]:
    """Return the wall clock and the monotonic clock; what a clock raises has a note of that, and is no sign of damage.

    A wall clock before 1970, that of a machine without a battery, is taken to say 1970: no stored time is negative.

    Raises:
        UsageError: they are no times.
    """
    try:
        answers: tuple[object, object] = clock.wall_us(), clock.monotonic_us()
    except Exception as exc:
        exc.add_note(_RAISED)
        raise
    wall_us, monotonic_us = answers
    if isinstance(wall_us, int) and isinstance(monotonic_us, int):
        return max(0, wall_us), monotonic_us
    raise UsageError.of("clock", clock, _WANTED, f"it says {answers!r}")


def has_raised(exc: BaseException) -> bool:
    """Tell whether an exception is a clock's own."""
    return _RAISED in getattr(exc, "__notes__", ())


@cache
def _boot_id() -> str:
    """Ask the platform once; a process cannot outlive its boot."""
    for ask in (_told_by_proc, _told_by_registry, _told_by_sysctl):
        with contextlib.suppress(OSError):
            found = ask()
            if found:
                return found
    return _moment_of_boot()


def _told_by_proc() -> str:
    """Ask Linux; in bytes, since a codec is loaded at its first use, and a child that is forked meanwhile hangs."""
    with open(f"{PROC}/sys/kernel/random/boot_id", "rb") as file:
        return file.read().strip().decode("ascii")


def _told_by_registry() -> str | None:
    """Ask Windows, which counts its boots."""
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415 - exists on Windows only

        key = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as handle:
            return f"windows-{winreg.QueryValueEx(handle, 'BootId')[0]}"
    return None


def _told_by_sysctl() -> str | None:
    """Ask macOS, by one text value of its kernel's state."""
    libc = c_library("sysctlbyname")
    if libc is None:
        return None
    size = ctypes.c_size_t(256)
    buffer = ctypes.create_string_buffer(size.value)
    if libc.sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return None
    return buffer.value.decode()


def _moment_of_boot() -> str:
    """Return when the machine was started, by its own clocks: another text after each boot, as far as they are right.

    After a step of the wall clock it is another text too, and then what was leased before it is taken back, unless a
    process that lives is known to hold a lease. To the second: no machine boots twice in one, and clocks that are read
    one after the other do not differ by more.
    """
    return f"booted-{(time.time_ns() - _since_boot_ns()) // 10**9}"


def _since_boot_ns() -> int:
    """Return how long the machine has been up, the time that it slept included where that is told."""
    of_boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if of_boot is None else time.clock_gettime_ns(of_boot)
