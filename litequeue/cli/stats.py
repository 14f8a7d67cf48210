"""`stats`: counts and sizes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from litequeue.cli.commands import Command
from litequeue.cli.input import many_scopes, scope_options
from litequeue.cli.jsonable import Json, dumps, stats_form
from litequeue.cli.layout import table, wide_or_narrow
from litequeue.cli.output import plain, scope_text, state_text
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times, utc_option
from litequeue.model import ANY, Stats


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

    When --db is given several times, before the command, each of these files has its counts.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    found: dict[str, tuple[Stats, str]] = {}
    others: set[str] = set()
    for path, queue in target.queues():
        place = queue.scope if where is None else where
        found[path] = queue.stats(where), scope_text(place)
        if place is not ANY and any(scope != place for scope in queue.scopes()):
            others.add(path)
    if as_json:
        forms: list[Json] = []
        for path, (one, _) in found.items():
            named: dict[str, Json] = {"db": path} if target.is_several else {}
            forms.append(named | stats_form(one))
        click.echo(dumps(forms if target.is_several else forms[0]))
        return
    times = Times.now(utc=utc)
    for number, (path, (one, name)) in enumerate(found.items()):
        if target.is_several:
            click.echo(f"{plain(path)}:" if number == 0 else f"\n{plain(path)}:")
        for line in _lines(one, name, times):
            click.echo(line)
        if path in others:
            click.echo("\nThere are jobs in other scopes, too: see `scopes`, or give --all-scopes.")


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
