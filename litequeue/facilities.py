"""What an operating system offers beyond what Python has on all of them, told by what is there, not by its name.

Owns: where Linux tells of its processes and locks (`PROC`), and the way to the functions of the C library. Invariant:
each facility is looked for in one place, at run time: these two here, the others in the one module that uses them (the
table is docs/platforms.md); where it is missing, the caller has another way, or goes on without.
"""

from __future__ import annotations

import ctypes

PROC = "/proc"
"""What is told there is read when it is wanted; where there is nothing, the reading fails."""


def c_library(*functions: str, kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL | None:
    """Return the C library of this process, as long as it has all of these functions; else `None`."""
    try:
        library = kind(None, use_errno=True)
    except (OSError, TypeError):  # Windows has no library without a name
        return None
    return library if all(hasattr(library, name) for name in functions) else None
