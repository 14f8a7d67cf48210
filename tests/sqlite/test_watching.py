"""Waiting for work when something goes wrong: a closed handle, an interrupt, a bell that is gone (DESIGN §4)."""

from __future__ import annotations

import errno
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litequeue import QueueClosed, StorageLost
from litequeue.sqlite import arrivals, watching
from litequeue.sqlite.watching import WATCHER

if TYPE_CHECKING:
    from litequeue import Queue
    from tests.conftest import MakeQueue
    from tests.sqlite.conftest import Asleep, StartWaiting

PATIENCE_S = 20.0
FAR_S = 3600.0

pytestmark = pytest.mark.usefixtures("no_net")


def test_a_waiter_of_a_handle_that_is_closed_is_told_at_once(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """`QueueClosed`; who waits on another handle of the same file waits on (§6)."""
    closed, other = make_queue(), make_queue()
    waiting, going_on = start_waiting(lambda: closed.wait(FAR_S)), start_waiting(lambda: other.wait(FAR_S))
    asleep.wait()
    asleep.wait()
    closed.close()
    assert isinstance(waiting.answer(), QueueClosed)
    asleep.wait()
    going_on.assert_waiting()
    other.enqueue("work")
    assert going_on.answer() is True
    with pytest.raises(QueueClosed):
        closed.wait(0)


def test_an_interrupt_ends_a_wait(queue: Queue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the main thread is its `KeyboardInterrupt`, and leaves nothing behind.

    Python does not notice a signal that comes in the few steps before a thread blocks; then the next look does.
    """
    monkeypatch.setattr(arrivals, "_NET_S", 1.0)
    began = time.monotonic()

    def press() -> None:
        asleep.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    pressing = threading.Thread(target=press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
    try:
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            queue.wait(PATIENCE_S)
        pressing.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert WATCHER._listeners == {}
    queue.enqueue("work")
    assert queue.wait(0)


def test_an_interrupt_after_the_commit_still_rings(
    make_queue: MakeQueue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, start_waiting: StartWaiting
) -> None:
    """The job is there, and who waits for it hears of it (DESIGN §4, G11)."""
    waiter, enqueuer = make_queue(), make_queue()
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    asleep.wait()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(enqueuer._store.holdings, "ended", enqueuer._store.holdings.ended)
    monkeypatch.setattr(type(enqueuer._store._writer.agreement), "committed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        enqueuer.enqueue("work")
    monkeypatch.undo()
    assert waiting.answer() is True


def test_a_bell_that_is_removed_is_watched_again(
    queue: Queue, make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """A waiter hears that, and watches a new one (DESIGN §4)."""
    queue.enqueue("others")
    waiting = start_waiting(lambda: queue.wait(FAR_S, ["mine"]))
    asleep.wait()
    Path(f"{queue.path}-bell").unlink()
    asleep.wait()
    make_queue().enqueue("mine")
    assert waiting.answer() is True


def test_a_ringer_finds_the_new_bell(
    queue: Queue, make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """Within as long as a waiter goes without a look, here at once (DESIGN §4)."""
    queue.enqueue("others")
    waiting = start_waiting(lambda: make_queue().wait(FAR_S, ["mine"]))
    asleep.wait()
    Path(f"{queue.path}-bell").unlink()
    asleep.wait()
    queue._store._bell._look_again_at = 0
    queue.enqueue("mine")
    assert waiting.answer() is True


def _no_source() -> None:
    return None


def _no_more_sources() -> None:
    raise OSError(errno.EMFILE, "too many")


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let the kernel tell nothing."""
    monkeypatch.setattr(arrivals, "WATCHER", watching.Watcher())
    monkeypatch.setattr(watching, "_open_source", request.param)


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("deaf", [_no_source, _no_more_sources], indirect=True)
def test_where_the_kernel_tells_nothing_a_waiter_asks(
    make_queue: MakeQueue, asleep: Asleep, start_waiting: StartWaiting
) -> None:
    """First each millisecond, then ever more slowly (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    assert [asleep.wait() for _ in range(8)] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
    enqueuer.enqueue("work")
    assert waiting.answer() is True


def test_a_source_that_fails_is_given_up(
    make_queue: MakeQueue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, start_waiting: StartWaiting
) -> None:
    """Who waits is woken, and asks from then on (DESIGN §4)."""

    class Failing:
        def __init__(self) -> None:
            self.fail = threading.Event()

        def arm(self, path: str, descriptor: int) -> int:
            assert path
            assert descriptor
            return 1

        def heard(self) -> list[int]:
            self.fail.wait(PATIENCE_S)
            raise OSError(errno.EIO, "broken")

        def close(self) -> None:
            pass

    source = Failing()
    monkeypatch.setattr(arrivals, "WATCHER", watching.Watcher())
    monkeypatch.setattr(watching, "_open_source", lambda: source)
    waiter, enqueuer = make_queue(), make_queue()
    waiting = start_waiting(lambda: waiter.wait(FAR_S))
    assert asleep.wait() > 60
    source.fail.set()
    assert asleep.wait() < 0.1
    enqueuer.enqueue("work")
    assert waiting.answer() is True


def test_waiting_again_and_again_leaves_nothing_behind(queue: Queue) -> None:
    """No listener, no watch and no thread more than one (DESIGN §4)."""
    for _ in range(200):
        assert not queue.wait(0)
    assert WATCHER._listeners == {}
    assert sum(thread.name == "litequeue-bell" for thread in threading.enumerate()) == 1


def test_a_waiter_on_a_file_that_is_removed_is_told(
    queue: Queue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, start_waiting: StartWaiting
) -> None:
    """`StorageLost`, at its next look (§6)."""
    monkeypatch.setattr(arrivals, "_NET_S", 0.01)
    waiting = start_waiting(lambda: queue.wait(FAR_S))
    asleep.wait()
    Path(queue.path).unlink()
    assert isinstance(waiting.answer(), StorageLost)


def test_a_process_that_does_not_wait_is_not_woken_by_every_ring(
    make_queue: MakeQueue, asleep: Asleep, monkeypatch: pytest.MonkeyPatch, start_waiting: StartWaiting
) -> None:
    """A watch is for one ring: a worker that is busy hears at most the first of a thousand (DESIGN §4)."""
    waiter, enqueuer = make_queue(), make_queue()
    heard: list[int] = []
    wake = WATCHER._wake

    def count(key: int) -> None:
        heard.append(key)
        wake(key)

    monkeypatch.setattr(WATCHER, "_wake", count)
    assert not waiter.wait(0)
    for _ in range(100):
        enqueuer.enqueue("others")
    waiting = start_waiting(lambda: waiter.wait(FAR_S, ["mine"]))
    asleep.wait()
    enqueuer.enqueue("mine")
    assert waiting.answer() is True
    assert len(heard) <= 4, "an event, and that its watch is gone, for each of two"
