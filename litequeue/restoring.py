"""`restore`: the content of a backup, in place of a queue that nobody has open.

Leaves out: how (`sqlite.restoring`), and the backup itself, which is a verb of `Queue`.
"""

from __future__ import annotations

import os

from litequeue import arguments
from litequeue.model import Copied
from litequeue.sqlite import opening, restoring
from litequeue.sqlite.copying import Progress


def restore(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    mode: int = 0o600,
    allow_network: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Put the content of a backup at `path`, which is made when it is not there.

    Whatever happens on the way, the next opening finds the old queue or the new one. The backup is checked first, is
    left as it was, and counts with its write-ahead log if one lies beside it. `overwrite` allows for a queue that holds
    jobs to be replaced. `mode` is the permissions of a file that is made. All leases have lapsed when the file is
    opened; generations go on from where the backup stood, so tell nobody outside who remembers later ones.

    Raises:
        CannotOpen: the backup cannot be read, or the queue at `path` holds jobs (unless `overwrite`).
        QueueBusy: somebody has the file at `path` open, were it only an idle handle.
        NotAQueue, SchemaMismatch, StorageCorrupt: one of the two is something else, or damaged; neither was touched.
        QueueFull: the disk is full.
    """
    arguments.whole("mode", mode, 0o400, 0o777)
    place = opening.resolve(path, create=True, mode=mode, allow_network=allow_network)
    return restoring.restore(source, place, overwrite=overwrite, progress=progress)
