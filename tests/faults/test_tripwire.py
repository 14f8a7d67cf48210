"""The file, or a file that belongs to it, is deleted, renamed or replaced while handles are open.

Whoever does that is a backup script, a deployment or a person; the promise is that no handle then acknowledges what is
nowhere, or harms the file that has taken the place (§6). A handle that notices is of no more use.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import litequeue
from litequeue import LiteQueueError, Maintenance, StorageLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from litequeue import Lease, Queue
    from tests.faults.children import Children, Parent

pytestmark = pytest.mark.slow

HARMS = ["delete", "rename", "replace"]


def _do_harm(how: str, path: str) -> None:
    match how:
        case "delete":
            os.unlink(path)  # noqa: PTH108 - a path of text
        case "rename":
            os.rename(path, f"{path}.moved")  # noqa: PTH104 - a path of text
        case _:
            shutil.copyfile(f"{path}.spare", f"{path}.copy")
            os.replace(f"{path}.copy", path)  # noqa: PTH105 - a path of text


def _prepare_spares(path: str) -> None:
    """Make another queue file, and a log for it, to put in the place of the first."""
    with litequeue.open(f"{path}.spare") as spare:
        spare.enqueue("of the other file")
    Path(f"{path}-wal.spare").write_bytes(b"")


def _outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except LiteQueueError as exc:
        return f"{type(exc).__name__}{' committed' if getattr(exc, 'committed', False) else ''}"
    return "answered"


def _transact(queue: Queue) -> None:
    with queue.transaction() as tx:
        tx.enqueue("work")


def _use_after(_parent: Parent, path: str, how: str, which: str) -> dict[str, list[str]]:
    """Try each verb, on a handle of its own, after the harm; then the verbs again, and the close."""
    _prepare_spares(path)
    verbs: dict[str, Callable[[Queue], object]] = {
        "enqueue": lambda queue: queue.enqueue("work"),
        "lease_next": lambda queue: queue.lease_next(),
        "transaction": _transact,
        "set": lambda queue: queue.set("lease_ttl", 7),
        "get": lambda queue: queue.get(job_id),
        "list": lambda queue: queue.list(),
        "stats": lambda queue: queue.stats(),
        "settings": lambda queue: queue.settings(),
        "maintenance": lambda queue: Maintenance(queue).run_once(),
    }
    handles = {name: litequeue.open(path) for name in verbs}
    job_id = handles["get"].enqueue("work").job_id
    for queue in handles.values():
        queue.list()
    _do_harm(how, path + which)
    found = {name: [_outcome(lambda name=name: verbs[name](handles[name]))] for name in verbs}  # type: ignore[misc]
    for name, queue in handles.items():
        said = found[name]
        said.append(_outcome(lambda queue=queue: queue.enqueue("work")))  # type: ignore[misc]
        said.append(_outcome(lambda queue=queue: queue.get(job_id)))  # type: ignore[misc]
        said.append(_outcome(queue.close))
        said.append(_outcome(lambda queue=queue: queue.get(job_id)))  # type: ignore[misc]
    return found


@pytest.mark.parametrize("which", ["", "-wal"], ids=["the file", "its -wal"])
@pytest.mark.parametrize("how", HARMS)
def test_every_verb_after_the_file_was_lost_says_so(path: str, processes: Children, how: str, which: str) -> None:
    """The next write and the next read are `StorageLost`, never an acknowledgement; so is all that follows (§6, G11).

    The close of such a handle is quiet, and the process ends well.
    """
    found = processes.run(_use_after, path, how, which)
    assert isinstance(found, dict)
    expected = ["StorageLost"] * 3 + ["answered", "QueueClosed"]
    assert found == {verb: expected for verb in found}  # noqa: C420 - one list for all is what is meant


def _lose_inside(_parent: Parent, path: str, how: str, which: str) -> list[str]:
    """Lose the file in the middle of a transaction."""
    _prepare_spares(path)
    queue = litequeue.open(path)
    queue.enqueue("work")
    leases: list[Lease] = []

    def work() -> None:
        with queue.transaction() as tx:
            leases.extend(tx.lease_many(1))
            _do_harm(how, path + which)

    return [_outcome(work), _outcome(leases[0].complete), _outcome(queue.list)]


@pytest.mark.parametrize("which", ["", "-wal"], ids=["the file", "its -wal"])
@pytest.mark.parametrize("how", HARMS)
def test_a_transaction_that_lost_its_file_meanwhile_says_that_it_had_committed(
    path: str, processes: Children, how: str, which: str
) -> None:
    """`StorageLost` after COMMIT says so by `committed`; it is no acknowledgement (G11, §6)."""
    found = processes.run(_lose_inside, path, how, which)
    assert found == ["StorageLost committed", "StorageLost", "StorageLost"]


def _exit_after(_parent: Parent, path: str, how: str, which: str, when: str) -> None:
    """End in the ordinary way, with leases and no close, after the file was lost."""
    _prepare_spares(path)
    queue = litequeue.open(path)
    queue.enqueue("work")
    queue.lease_next()
    _do_harm(how, path + which)
    if when == "noticed":
        assert _outcome(queue.list) == "StorageLost"


@pytest.mark.parametrize("when", ["noticed", "unnoticed"])
@pytest.mark.parametrize("which", ["", "-wal"], ids=["the file", "its -wal"])
@pytest.mark.parametrize("how", HARMS)
def test_a_process_ends_well_after_its_file_was_lost(
    path: str, processes: Children, how: str, which: str, when: str
) -> None:
    """An exit with an open handle on a lost file neither crashes nor hangs (§6, DESIGN §3)."""
    processes.run(_exit_after, path, how, which, when)


def _hold_open(parent: Parent, path: str) -> None:
    """Keep a handle open; close it without another verb."""
    queue = litequeue.open(path)
    queue.enqueue("work")
    parent.say("open")
    parent.hear()
    queue.close()
    parent.say("closed")
    parent.hear()


def _work_on_the_new_file(parent: Parent, path: str) -> list[str]:
    queue = litequeue.open(path)
    queue.enqueue("before")
    parent.say("written")
    parent.hear()
    queue.enqueue("after")
    return sorted(job.kind for job in queue.list())


def test_the_close_of_a_handle_on_a_replaced_file_leaves_the_new_one_alone(path: str, processes: Children) -> None:
    """A close that has not noticed does not remove the write-ahead log of the file that took the place (§6)."""
    _prepare_spares(path)
    old = processes.start(_hold_open, path)
    assert old.hear() == "open"
    for suffix in ("", "-wal", "-shm"):
        os.rename(path + suffix, f"{path}.old{suffix}")  # noqa: PTH104 - a path of text
    _do_harm("replace", path)
    new = processes.start(_work_on_the_new_file, path)
    assert new.hear() == "written"
    old.say("close")
    assert old.hear() == "closed"
    new.say("go on")
    assert new.result() == ["after", "before", "of the other file"]


def _write_and_wait(parent: Parent, path: str) -> list[str]:
    """Enqueue in turns with the test; return what was acknowledged."""
    queue = litequeue.open(path)
    acknowledged = [str(queue.enqueue("first").job_id)]
    parent.say("written")
    while parent.hear() == "write":
        try:
            acknowledged += [str(queue.enqueue("more").job_id) for _ in range(5)]
        except StorageLost:
            parent.say("lost")
            os._exit(0)  # what it had acknowledged is the test's to look for
        parent.say(" ".join(acknowledged))
    return acknowledged


@pytest.mark.parametrize("suffix", ["-shm", "-lock"])
def test_losing_a_sidecar_loses_no_job(path: str, processes: Children, suffix: str) -> None:
    """When the shared memory or the gate's file is deleted, nobody acknowledges what is lost (G2, §6)."""
    first = processes.start(_write_and_wait, path)
    assert first.hear() == "written"
    os.unlink(path + suffix)  # noqa: PTH108 - a path of text
    second = processes.start(_write_and_wait, path)
    assert second.hear() == "written"
    acknowledged: set[str] = set()
    for child in (second, first, second, first):
        if child.is_running():
            child.say("write")
            said = child.hear()
            if said == "lost":
                child.status()  # it ends by itself
            else:
                acknowledged.update(said.split())
    for child in (first, second):
        if child.is_running():
            child.say("end")
            child.status()
    with litequeue.open(path) as queue:
        stored = {str(job.job_id) for job in queue.list(limit=1000)}
    assert acknowledged - stored == set()


def test_a_folder_that_is_gone_is_a_lost_file(path: str, tmp_path: Path, processes: Children) -> None:
    """The whole folder is removed: `StorageLost` from every handle, and words from maintenance too (§6)."""
    found = processes.run(_remove_the_folder, path, str(tmp_path))
    assert isinstance(found, list)
    assert found.pop(2) in ("StorageLost", "CannotOpen"), "maintenance may notice by its own sidecar first"
    assert found == ["StorageLost"] * 2 + ["answered"] * 3


def _remove_the_folder(_parent: Parent, path: str, folder: str) -> list[str]:
    handles = [litequeue.open(path) for _ in range(3)]
    handles[0].enqueue("work")
    shutil.rmtree(folder)
    said = [_outcome(lambda queue=queue: queue.enqueue("work")) for queue in handles[:2]]  # type: ignore[misc]
    said.append(_outcome(lambda: Maintenance(handles[2]).run(0.1)))
    return [*said, *[_outcome(queue.close) for queue in handles]]
