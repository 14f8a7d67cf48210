"""When garbage is collected: not in the midst of what a test does step by step, or counts.

A collection closes the handles that other tests have left, in whatever step it comes; and one beneath a profile
function can end the whole process (seen with CPython 3.11, in the steps of `sys.setprofile`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect what there is, and nothing more before the end of the block, unless it asks for that."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
