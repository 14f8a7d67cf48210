"""Payloads: a number of fixed width, and then as many letters as are wanted.

The number tells jobs apart, or says when one was enqueued. Plain ASCII, so that no library has to encode it for its
file in a way of its own.
"""

from __future__ import annotations

DIGITS = 20


def payload(number: int, size: int = 100) -> bytes:
    """Return `size` bytes, `DIGITS` of them at the least."""
    return b"%020d" % number + b"x" * (size - DIGITS)


def number_of(made: bytes) -> int:
    """Return the number in a payload."""
    return int(made[:DIGITS])
