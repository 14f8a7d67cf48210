"""The machine that a run's figures belong to."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path

from litequeue.sqlite import filesystem


def machine() -> dict[str, str | int]:
    """Say what it is, and how busy it is just now."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": str(filesystem.kind_of(tempfile.gettempdir())),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
