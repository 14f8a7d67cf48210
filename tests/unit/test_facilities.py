"""What is looked for at run time, one by one, and what there is instead (§8, docs/platforms.md)."""

from __future__ import annotations

import contextlib
import ctypes
import ntpath
import os
import shutil
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from litequeue import clock, facilities
from litequeue.sqlite import filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator

NS = 10**9


@pytest.fixture
def nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no kernel tell the boot's id."""
    monkeypatch.setattr(clock, "PROC", "/nowhere")
    monkeypatch.setattr(clock, "c_library", lambda *_: None)


@pytest.fixture
def booted_at(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Give the clocks of a machine: `wall` and `up`, in seconds."""
    clocks = SimpleNamespace(wall=1_000_000.4, up=100.2)
    monkeypatch.setattr(time, "time_ns", lambda: int(clocks.wall * NS))
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(clocks.up * NS))
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    return clocks


def boot_id() -> str:
    """Ask anew."""
    return clock._boot_id.__wrapped__()


@pytest.mark.usefixtures("nobody_tells")
def test_where_no_kernel_tells_a_boot_is_known_by_its_moment(booted_at: SimpleNamespace) -> None:
    """The same for as long as the machine is up, and another after each boot, so that old leases lapse (§8)."""
    first = boot_id()
    booted_at.wall += 86_400
    booted_at.up += 86_400
    assert boot_id() == first
    booted_at.wall += 5  # it was down for a while, and has been up for a moment
    booted_at.up = 3
    assert boot_id() != first


@pytest.mark.usefixtures("nobody_tells")
def test_a_machine_that_slept_has_not_booted() -> None:
    """By the clock that counts sleep, where there is one (§8)."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this platform has no such clock")
    told = int(boot_id().removeprefix("booted-"))
    assert abs(told - (time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))) < 2


def test_macos_tells_by_sysctl(monkeypatch: pytest.MonkeyPatch) -> None:
    """One text value of its kernel (§8); where that is missing, as on a BSD, the moment has to do."""
    asked: list[bytes] = []

    def sysctlbyname(name: bytes, buffer: ctypes.Array[ctypes.c_char], *_: object) -> int:
        asked.append(name)
        buffer.value = b"F00D"
        return 0

    library = SimpleNamespace(sysctlbyname=sysctlbyname)
    monkeypatch.setattr(clock, "PROC", "/nowhere")
    monkeypatch.setattr(clock, "c_library", lambda *_: library)
    assert (boot_id(), asked) == ("F00D", [b"kern.bootsessionuuid"])
    library.sysctlbyname = lambda *_: -1
    assert boot_id().startswith("booted-")


@contextlib.contextmanager
def _key(_root: object, _path: str) -> Iterator[str]:
    yield "key"


def _no_value(_key: str, name: str) -> tuple[int, int]:
    raise FileNotFoundError(name)


@pytest.mark.usefixtures("nobody_tells")
@pytest.mark.parametrize(
    ("query", "told"), [(lambda _key, name: ({"BootId": 7}[name], 4), "windows-7"), (_no_value, "booted-")]
)
def test_windows_tells_by_its_registry(monkeypatch: pytest.MonkeyPatch, query: object, told: str) -> None:
    """It counts its boots there, if it does (§8)."""
    registry = ModuleType("winreg")
    vars(registry).update(HKEY_LOCAL_MACHINE=0, OpenKey=_key, QueryValueEx=query)
    monkeypatch.setitem(sys.modules, "winreg", registry)
    monkeypatch.setattr(sys, "platform", "win32")
    assert boot_id().startswith(told)


def test_a_library_without_a_function_is_none() -> None:
    """So whoever needs it knows before it is called."""
    here = facilities.c_library()
    assert (here is None) == (sys.platform == "win32")
    assert facilities.c_library("there_is_no_such_function") is None


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_a_platform_without_a_nameless_library_has_none(error: type[Exception]) -> None:
    """Windows has none (`TypeError`), nor has a program that is linked statically."""

    class Unnamed(ctypes.CDLL):
        def __init__(self, name: str | None, *, use_errno: bool) -> None:
            raise error(f"{name} {use_errno}")

    assert facilities.c_library(kind=Unnamed) is None


def test_where_free_space_is_not_told_there_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enqueue goes on until the disk is full (§6)."""
    monkeypatch.delattr(shutil, "disk_usage")
    assert filesystem.free_bytes("/") is None


def test_a_path_of_another_machine_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where drives have names, so on Windows; elsewhere it is a name as any other (§6)."""
    share = r"\\server\share\folder"
    assert filesystem.kind_of(share) != "smbfs"
    monkeypatch.setattr(os.path, "splitdrive", ntpath.splitdrive)
    assert filesystem.kind_of(share) == "smbfs"
