"""Damaged queue files: the damage is said in the package's own words, and nothing is written (§6 "StorageCorrupt")."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import ANY, LiteQueueError, NewJob, NotAQueue, SchemaMismatch, StorageCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

PAGE_BYTES = 2048


def _queue_file(path: Path, jobs: int = 200) -> bytes:
    """Make a queue file with jobs in several states; it is closed, so all of it is in one file."""
    with litequeue.open(path) as queue:
        queue.enqueue_many(NewJob(f"kind {number % 7}", "x" * 300) for number in range(jobs))
        leases = queue.lease_many(jobs // 4)
        queue.complete_many(leases, [1] * len(leases))
        for lease in queue.lease_many(3):
            lease.fail("boom")
    return path.read_bytes()


@pytest.mark.parametrize("pages", [0.5, 1, 2, 5, -1])
def test_a_truncated_file_is_corrupt_and_left_as_it_is(
    path: Path, fingerprint: Callable[[], dict[str, str]], pages: float
) -> None:
    """A file that ends too early is `StorageCorrupt`, and not a byte is written to it (§6)."""
    whole = _queue_file(path)
    path.write_bytes(whole[: int(pages * PAGE_BYTES)])
    before = fingerprint()[path.name]
    with pytest.raises(StorageCorrupt):
        litequeue.open(path)
    assert fingerprint()[path.name] == before


def test_flipped_bytes_in_the_stored_schema_are_corrupt(path: Path, fingerprint: Callable[[], dict[str, str]]) -> None:
    """A schema that does not parse is `StorageCorrupt` (§6)."""
    path.write_bytes(_queue_file(path).replace(b"CREATE TABLE litequeue_", b"CREATE TIBLE litequeue_"))
    before = fingerprint()[path.name]
    with pytest.raises(StorageCorrupt):
        litequeue.open(path)
    assert fingerprint()[path.name] == before


def test_a_queue_file_whose_schema_seems_empty_is_not_made_anew(path: Path) -> None:
    """With our mark, with pages, and without tables, a file is damaged: a new queue would bury what is in it (§6)."""
    whole = bytearray(_queue_file(path))
    whole[100] = 13  # page 1 is a leaf …
    whole[103:105] = b"\0\0"  # … with no cells
    path.write_bytes(whole)
    with pytest.raises((StorageCorrupt, NotAQueue, SchemaMismatch)):
        litequeue.open(path)
    assert path.read_bytes() == whole


def _open_flipped(_parent: Parent, path: str, rounds: int) -> list[str]:
    """Flip bytes of the first pages, many times, and open; return what was wrong."""
    file = Path(path)
    whole = _queue_file(file)
    schema_pages = 1 + max(whole.rindex(b"CREATE VIEW"), whole.rindex(b"CREATE TABLE")) // PAGE_BYTES
    draw = random.Random(5)
    wrong: list[str] = []
    for _ in range(rounds):
        flipped = bytearray(whole)
        places = [draw.randrange(schema_pages * PAGE_BYTES) for _ in range(draw.choice([1, 1, 4, 40]))]
        for place in places:
            flipped[place] ^= draw.randrange(1, 256)
        file.write_bytes(flipped)
        try:
            litequeue.open(path).close()
        except (StorageCorrupt, NotAQueue, SchemaMismatch):
            if file.read_bytes() != flipped:
                wrong.append(f"{places}: refused and written to")
        except Exception as exc:  # noqa: BLE001 - told to the test
            wrong.append(f"{places}: {exc!r}")
        for suffix in ("-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)
    return wrong


def test_bytes_flipped_anywhere_in_the_schema_are_refused_or_do_no_harm(path: Path, processes: Children) -> None:
    """Whatever byte is hit, the opening answers in the package's words, and a refused file is not written to (§6)."""
    assert processes.run(_open_flipped, str(path), 400) == []


_BLANKS = {"zeros": bytes(PAGE_BYTES), "ones": b"\xff" * PAGE_BYTES}


def _use_with_a_lost_page(_parent: Parent, path: str, blank: str) -> list[str]:
    """Blank each page of a queue file, one after the other, and try every verb; return what was wrong."""
    file = Path(path)
    whole = _queue_file(file, jobs=40)
    wrong: list[str] = []

    def lease_and_complete(queue: litequeue.Queue) -> None:
        for lease in queue.lease_many(20):
            lease.complete()

    verbs: dict[str, Callable[[litequeue.Queue], object]] = {
        "list": lambda queue: [job.events for job in queue.list(scope=ANY, limit=1000)],
        "stats": lambda queue: queue.stats(scope=ANY),
        "lease": lease_and_complete,
        "enqueue": lambda queue: queue.enqueue("new"),
        "maintenance": lambda queue: litequeue.Maintenance(queue).run_once(),
    }
    for number, verb in itertools.product(range(1, len(whole) // PAGE_BYTES), verbs):
        file.write_bytes(whole[: number * PAGE_BYTES] + _BLANKS[blank] + whole[(number + 1) * PAGE_BYTES :])
        try:
            with litequeue.open(path) as queue:
                verbs[verb](queue)
        except LiteQueueError:
            pass
        except Exception as exc:  # noqa: BLE001 - told to the test
            wrong.append(f"{verb} without page {number + 1}: {exc!r}")
        for suffix in ("-wal", "-shm"):
            Path(path + suffix).unlink(missing_ok=True)
    return wrong


@pytest.mark.parametrize("blank", _BLANKS)
def test_a_lost_page_is_an_error_of_the_package_in_every_verb(path: Path, processes: Children, blank: str) -> None:
    """No verb answers damage with an exception that is not a `LiteQueueError` (§6)."""
    assert processes.run(_use_with_a_lost_page, str(path), blank) == []
