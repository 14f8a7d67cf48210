"""The screen of `top`: frames on a terminal, until a key or a signal ends them.

Owns: the alternate screen, the keys, and the thread that looks at the files, so that a key is heard while a look takes
its time. Invariant: whatever ends the view, or stops it for a while (Ctrl-Z), the terminal is as it was before, unless
it takes nothing. Without `termios` (Windows) there are no keys, and only Ctrl-C ends it. Leaves out: what a frame shows
(`top_frame`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]

Seen = TypeVar("Seen")

TICK_S = 0.1
"""How soon a frame follows new figures, or a new size of the terminal."""
_END = b"qQ"
_STOP = b"\x1a"
_LOCAL_FLAGS, _CONTROL_CHARACTERS = 3, 6
"""Their places in what `termios` tells of a terminal."""


class View(Generic[Seen]):
    """Shows what is seen, again and again: `look` is called each `interval_s` seconds in a thread, `draw` draws it.

    `draw` is given the columns and rows that there are, and before the first look `None`.
    """

    def __init__(
        self,
        console: Console,
        look: Callable[[], Seen],
        draw: Callable[[Seen | None, int, int], RenderableType],
        interval_s: float,
    ) -> None:
        self._console = console
        self._look = look
        self._draw = draw
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._has_news = threading.Event()
        self._seen: Seen | None = None
        self._error: BaseException | None = None
        self._give_back: Callable[[], None] | None = None
        """Lets the terminal treat what is typed as it did before."""

    def stop(self) -> None:
        """End it."""
        self._is_over.set()
        self._has_news.set()

    def let_go(self) -> None:
        """Give the terminal back though it takes nothing: its modes, and it is let take what is still to be written.

        What waits in it is dropped for that; a Ctrl-S ends.
        """
        if termios is None:
            return
        descriptor = self._console.file.fileno()
        with contextlib.suppress(termios.error):  # it has gone
            if self._give_back is not None:
                self._give_back()
            termios.tcflush(descriptor, termios.TCOFLUSH)
            for action in (termios.TCOOFF, termios.TCOON):
                termios.tcflow(descriptor, action)

    def run(self) -> None:
        """Show frames until it is ended; what `look` raises ends it too, and is raised here."""
        looking = threading.Thread(target=self._look_again, name="litequeue-top", daemon=True)
        looking.start()
        try:
            keys = _keys()
            if keys is not None:
                self._give_back = partial(termios.tcsetattr, keys, termios.TCSANOW, termios.tcgetattr(keys))
            while not self._is_over.is_set():
                with contextlib.nullcontext() if keys is None else _unbuffered(keys), self._screen() as screen:
                    is_stopped = self._show(screen, keys)
                if is_stopped:  # the terminal is the shell's again; where there is none to go on in, nothing happens
                    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        except OSError as exc:
            if exc.errno != errno.EIO:  # the terminal has gone, and the view with it
                raise
        finally:
            self.stop()
            looking.join()
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def _screen(self) -> Iterator[Live]:
        with Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live:
            yield live

    def _show(self, screen: Live, keys: int | None) -> bool:
        """Draw until it is over, or until Ctrl-Z is pressed; tell whether that was it."""
        size = None
        while not self._is_over.is_set():
            now = _size(self._console)
            if self._has_news.is_set() or now != size:
                self._has_news.clear()
                size = self._console.size = now
                screen.update(self._draw(self._seen, now.width, now.height), refresh=True)
            if keys is None:
                self._has_news.wait(TICK_S)
                continue
            pressed = _pressed(keys)
            if pressed is None or any(key in pressed for key in _END):
                self.stop()
            elif _STOP in pressed:
                return True
        return False

    def _look_again(self) -> None:
        try:
            while not self._is_over.is_set():
                self._seen = self._look()
                self._has_news.set()
                self._is_over.wait(self._interval_s)
        except BaseException as exc:  # noqa: BLE001 - raised again by `run`
            self._error = exc
            self.stop()


def _size(console: Console) -> ConsoleDimensions:
    """Return the size of the terminal at this moment; one that does not tell is taken for a usual one."""
    columns, rows = os.get_terminal_size(console.file.fileno())
    return ConsoleDimensions(columns or 80, rows or 24)


def _keys() -> int | None:
    """Return the descriptor that keys come from, if any do."""
    if termios is None:
        return None
    try:
        descriptor = sys.stdin.fileno()
        return descriptor if os.isatty(descriptor) else None
    except (AttributeError, OSError, ValueError):  # there is no standard input, or none that is a file
        return None


@contextlib.contextmanager
def _unbuffered(keys: int) -> Iterator[None]:
    """Let each key come at once and unseen, Ctrl-Z as one of them; Ctrl-C stays a signal."""
    before = termios.tcgetattr(keys)
    changed = termios.tcgetattr(keys)
    changed[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
    changed[_CONTROL_CHARACTERS][termios.VSUSP] = os.fpathconf(keys, "PC_VDISABLE")
    termios.tcsetattr(keys, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # it has gone
            termios.tcsetattr(keys, termios.TCSAFLUSH, before)


def _pressed(keys: int) -> bytes | None:
    """Return the keys that are pressed within a moment; `None` when the terminal has gone."""
    ready, _, _ = select.select([keys], [], [], TICK_S)
    return (os.read(keys, 1024) or None) if ready else b""
