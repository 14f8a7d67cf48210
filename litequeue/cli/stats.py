"""`stats`: counts and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from litequeue import Queue
from litequeue.cli.asides import OTHER_SCOPES, has_others
from litequeue.cli.commands import Command
from litequeue.cli.failures import fail_quietly
from litequeue.cli.input import many_scopes, scope_options
from litequeue.cli.jsonable import Json, dumps, stats_form
from litequeue.cli.layout import table, wide_or_narrow
from litequeue.cli.output import plain, scope_text, state_text
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.model import Stats


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue stats
litequeue --db app.queue stats --all-scopes --json
""",
)
@scope_options(many=True)
@utc_option
@click.option(
    "--json", "as_json", is_flag=True, help="A JSON object (of several files a list); its times are µs since the epoch."
)
@pass_target
def stats(target: Target, *, scope: str | None, system: bool, all_scopes: bool, utc: bool, as_json: bool) -> None:
    """Count jobs by state and kind; show the file's sizes.

    When --db is given several times, before the command, each of these files has its counts; one that cannot be
    read has a line on standard error, and the status is then 1.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)

    def look(queue: Queue) -> _Counted:
        name = scope_text(queue.scope if where is None else where)
        return _Counted(name, queue.stats(where), has_others(queue, where))

    looked = target.look(look)
    if as_json:
        forms: list[Json] = []
        for path, one in looked.found.items():
            named: dict[str, Json] = {"db": path} if target.is_several else {}
            forms.append(named | stats_form(one.stats))
        click.echo(dumps(forms if target.is_several else forms[0]))
    else:
        times = Times.now(utc=utc)
        for number, (path, one) in enumerate(looked.found.items()):
            if target.is_several:
                click.echo(f"{plain(path)}:" if number == 0 else f"\n{plain(path)}:")
            for line in _lines(one.stats, one.scope, times):
                click.echo(line)
            if one.has_others:
                click.echo(f"\n{OTHER_SCOPES}")
    if not looked.is_whole:
        fail_quietly()


class _Counted(NamedTuple):
    """The counts of a file."""

    scope: str
    stats: Stats
    has_others: bool


def _lines(stats: Stats, scope: str, times: Times) -> Iterator[str]:
    facts = [
        ("scope", scope),
        *((state_text(state), str(count)) for state, count in stats.counts.items()),
        ("total", str(stats.total)),
        ("lapsed", str(stats.lapsed)),
        ("oldest ready", times.full(stats.oldest_ready_at)),
        ("next due", times.full(stats.next_due_at)),
        ("file", f"{stats.file_bytes:,} bytes, {stats.free_bytes:,} of them free"),
        ("write-ahead log", f"{stats.wal_bytes:,} bytes"),
    ]
    yield from table(facts)
    if stats.by_kind:
        yield ""
        states = [state for state in stats.counts if stats.counts[state]]
        rows = [
            [plain(kind), *(str(counts.get(state, 0)) for state in states)] for kind, counts in stats.by_kind.items()
        ]
        headings = [["KIND", *(state_text(state, is_short=short) for state in states)] for short in (False, True)]
        yield from wide_or_narrow(*([heading, *rows] for heading in headings), names=[0])
