"""Handlers of messages that processes of a worker import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litequeue import Message

FOLDER = "LITEQUEUE_TEST_FOLDER"
"""The environment variable that says where to leave word."""


def send(message: Message) -> None:
    """Leave the key and the number of a message, in one write."""
    file = os.open(Path(os.environ[FOLDER]) / "told", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{message.key} {message.body}\n".encode())
    os.close(file)


class NotAFunction:
    """A class, of which each message would make an object and nothing else."""
