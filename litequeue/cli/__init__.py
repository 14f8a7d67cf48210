"""The command `litequeue`."""

from __future__ import annotations


def main() -> None:
    """Run the command."""
