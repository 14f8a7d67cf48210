"""The command `litequeue`: the library's verbs for a person or a shell script.

Owns: the words of the command line, what is printed, and the exit status. Invariants: nothing is decided here, every
command is a translation of one or a few verbs of `Queue`; an error is one line, never a traceback; only `init`,
`enqueue` and `restore` create a file. Leaves out: everything that the contract says about jobs.
"""

from __future__ import annotations

import io
import os
import sys

import click

from litequeue import __version__
from litequeue.cli.bench import bench
from litequeue.cli.commands import Root
from litequeue.cli.copies import backup, restore
from litequeue.cli.dead import dead
from litequeue.cli.doctor import doctor
from litequeue.cli.enqueue import enqueue, init
from litequeue.cli.events import events
from litequeue.cli.failures import GivenBack
from litequeue.cli.jobs import jobs
from litequeue.cli.maintain import maintain
from litequeue.cli.metrics import metrics
from litequeue.cli.outbox import outbox
from litequeue.cli.overview import kinds, scopes
from litequeue.cli.pauses import pause, pauses, resume
from litequeue.cli.running import OutputStuck
from litequeue.cli.schedule import schedule
from litequeue.cli.settings import settings
from litequeue.cli.stats import stats
from litequeue.cli.target import Target
from litequeue.cli.top import top
from litequeue.cli.weight import weight
from litequeue.cli.work import work
from litequeue.cli.workers import workers


@click.group(
    cls=Root,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog="""
litequeue --db app.queue enqueue mail:send '{"to": "a@example.org"}'
LITEQUEUE_DB=app.queue litequeue stats
""",
)
@click.version_option(__version__, prog_name="litequeue")
@click.option(
    "--db",
    "paths",
    metavar="FILE",
    multiple=True,  # without click's `envvar`, which would take the one path in it apart at its spaces
    help="The queue file, before the command. `stats`, `top`, `dead ls`, `metrics` take several."
    "  [env var: LITEQUEUE_DB]",
)
@click.pass_context
def litequeue(context: click.Context, paths: tuple[str, ...]) -> None:
    """Work with a job queue in one SQLite file.

    Only `init`, `enqueue` and `restore` create the file. A duration is a number of seconds, or a
    number with s, m, h or d.

    Ends with status 0 when it is done (an empty listing is, too), 1 after an error, which one line on standard error
    tells, 2 for wrong usage, 3 when there was nothing to do (no line to enqueue, no job to retry or to work on, no
    upkeep due), 130 when it is interrupted; `work` has a status of its own, 4.
    """
    environment = os.environ.get("LITEQUEUE_DB")
    context.obj = Target(paths or ((environment,) if environment else ()))


COMMANDS = (
    init,
    enqueue,
    work,
    jobs,
    dead,
    schedule,
    outbox,
    stats,
    top,
    metrics,
    scopes,
    kinds,
    workers,
    events,
    maintain,
    settings,
    weight,
    pause,
    resume,
    pauses,
    bench,
    doctor,
    backup,
    restore,
)
for _command in COMMANDS:
    litequeue.add_command(_command)


def main() -> None:
    """Run the command on the arguments of this process, and end it with the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no error
    try:
        litequeue(prog_name="litequeue")
    except OutputStuck:
        os._exit(0)  # what is not taken would be waited for
    except SystemExit as end:
        _drop_unwritten()
        if end.code == GivenBack.exit_code:  # without waiting for threads: a handler that still runs must not
            os._exit(GivenBack.exit_code)  # do so beside whoever has its job by now
        raise


def _drop_unwritten() -> None:
    """Forget output that cannot be written, or the interpreter tries again at its end and changes the exit status."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (AttributeError, OSError, ValueError):  # not there, not writable, closed
            setattr(sys, name, None)
