"""`events`: what happens to jobs, lately and as it happens.

Owns: the lines. Leaves out: where the events are found (`Queue.follower`), and what is missed.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from threading import Event as Flag

import click

from litequeue import Transition
from litequeue.cli.asides import remarks, tell
from litequeue.cli.commands import Command
from litequeue.cli.input import kind_option, many_scopes, scope_options
from litequeue.cli.jsonable import Json, dumps, jsonable
from litequeue.cli.layout import logged
from litequeue.cli.output import plain, scope_text
from litequeue.cli.running import signals
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.sqlite.following import Follower, Happened

_COLOURS = {
    Transition.LEASED: "cyan",
    Transition.COMPLETED: "green",
    Transition.FAILED: "yellow",
    Transition.REAPED: "yellow",
    Transition.DEAD: "red",
    Transition.EXPIRED: "red",
    Transition.CANCELLED: "bright_black",
}
_TRANSITION_CHARS = max(map(len, Transition))


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue events
litequeue --db app.queue events --kind mail: --json --follow
""",
)
@click.option("--follow", is_flag=True, help="Go on with what happens, until told to stop.")
@click.option("--limit", metavar="N", type=int, default=20, show_default=True, help="The last ones; 0 to 10,000.")
@kind_option("Only jobs of this kind, or with a ':' at its end of every kind that begins so.")
@scope_options(many=True)
@utc_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list; with --follow a JSON object a line.")
@pass_target
def events(
    target: Target,
    *,
    follow: bool,
    limit: int,
    kind: str | None,
    scope: str | None,
    system: bool,
    all_scopes: bool,
    utc: bool,
    as_json: bool,
) -> None:
    """Show what has happened to jobs lately, or what happens.

    The last events of the jobs that were enqueued last, whatever has become of them. With --follow new ones come as
    they are committed, by the bells, and within a second where none is rung; SIGTERM, SIGHUP or Ctrl-C ends it, with
    status 0. A run that begins and ends between two looks may be missed where other jobs of its scope and priority have
    overtaken it, and so may the end of a job that is removed at its end: see docs/guide/command.md.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    with target.queue() as queue:
        follower = queue.follower(kind, where)
        found = follower.latest(limit)
        if as_json and not follow:
            click.echo(dumps([_form(one) for one in found]))
            return
        lines = _Lines(utc=utc, as_json=as_json, with_scope=all_scopes)
        lines.write(found)
        if limit and not follow:
            tell(remarks(queue, where, found, "nothing has happened"))
        if follow:
            _follow(follower, lines)


class _Lines:
    """Writes events, a line each, as soon as there are any."""

    def __init__(self, *, utc: bool, as_json: bool, with_scope: bool) -> None:
        self._times = Times.now(utc=utc)
        self._as_json = as_json
        self._with_scope = with_scope

    def write(self, found: Iterable[Happened]) -> None:
        text = "\n".join(self._texts(found))
        if text:
            click.echo(text)

    def _texts(self, found: Iterable[Happened]) -> Iterator[str]:
        for one in found:
            yield dumps(_form(one)) if self._as_json else self._text(one)

    def _text(self, one: Happened) -> str:
        at, transition, detail = one.event
        colour = _COLOURS.get(transition)
        name = f"{transition:<{_TRANSITION_CHARS}}"
        shown = name if colour is None else click.style(name, fg=colour)
        place = [f"in {scope_text(one.scope)}"] if self._with_scope else []
        row = [[self._times.brief(at), shown, str(one.job_id), plain(one.kind), *place, plain(detail)]]
        return "\n".join(logged(row, names=[3, 4] if place else [3]))


def _follow(follower: Follower, lines: _Lines) -> None:
    is_over, is_unread = Flag(), Flag()

    def work() -> None:
        while not is_over.is_set():
            if follower.wait():
                lines.write(follower.news())
        if is_unread.is_set():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))  # as the next line would

    def stop() -> None:
        is_over.set()
        follower.interrupt()

    def stop_unread(asked: select.poll) -> None:
        asked.poll()
        is_unread.set()
        stop()

    reader = _reader()
    if reader is not None:
        threading.Thread(target=stop_unread, args=(reader,), name="litequeue-reader", daemon=True).start()
    with signals() as told:
        told.heed(work, stop, let_go=_nothing)


def _reader() -> select.poll | None:
    """Return what waits until nobody reads standard output any more, if that is a pipe."""
    try:
        descriptor = sys.stdout.fileno()
        if not hasattr(select, "poll") or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return None
    except (AttributeError, OSError, ValueError):  # there is none, or none that is a file
        return None
    asked = select.poll()
    asked.register(descriptor, 0)  # errors are told of in any case
    return asked


def _nothing() -> None:
    """Let go of output that is not taken: lines that were not read are lost."""


def _form(one: Happened) -> dict[str, Json]:
    at, transition, detail = one.event
    return {
        "at": at,
        "job_id": str(one.job_id),
        "scope": jsonable(one.scope),
        "kind": one.kind,
        "transition": str(transition),
        "detail": detail,
    }
