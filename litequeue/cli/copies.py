"""`backup` and `restore`: whole files."""

from __future__ import annotations

import click

import litequeue
from litequeue.cli.commands import Command
from litequeue.cli.output import count_of, plain
from litequeue.cli.progress import progress
from litequeue.cli.target import Target, pass_target
from litequeue.model import Copied


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue backup app.backup
litequeue --db app.queue backup app.backup --overwrite
""",
)
@click.argument("file")
@click.option("--overwrite", is_flag=True, help="Replace FILE when it exists; never a queue in use.")
@pass_target
def backup(target: Target, *, file: str, overwrite: bool) -> None:
    """Copy the whole queue file to FILE, while it is in use.

    FILE is what the queue was at one moment, your own tables included, checked and synced to disk. When anything goes
    wrong on the way, what stood there before stands there still. Leases in the copy have lapsed when it is opened.
    """
    with target.queue() as queue, progress("copying") as drawn:
        copied = queue.backup(file, overwrite=overwrite, progress=drawn)
    click.echo(_text(copied))


@click.command(
    cls=Command,
    epilog="""
litequeue --db new.queue restore app.backup
litequeue --db app.queue restore app.backup --overwrite
""",
)
@click.argument("file")
@click.option("--overwrite", is_flag=True, help="Replace a queue that holds jobs.")
@pass_target
def restore(target: Target, *, file: str, overwrite: bool) -> None:
    """Put the content of FILE, a backup, in place of the queue.

    The backup is checked first. A queue that any program has open is not replaced; one that holds jobs only with
    --overwrite. When anything goes wrong on the way, the old queue is there as it was.
    """
    path = target.required_path()
    with progress("copying") as drawn:
        copied = litequeue.restore(file, path, overwrite=overwrite, progress=drawn)
    click.echo(_text(copied))


def _text(copied: Copied) -> str:
    return f"{plain(copied.path)}: {count_of(copied.jobs, 'job')}, {copied.file_bytes:,} bytes"
