"""`scopes` and `kinds`: what there is of what, and what is held back.

Invariant: each scope is counted in a snapshot of its own, so a listing of many is not of one moment. Leaves out: sizes
and times of the whole (`stats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from litequeue import JobState
from litequeue.arguments import matches
from litequeue.cli.asides import remarks, tell, tell_empty
from litequeue.cli.commands import Command
from litequeue.cli.input import many_scopes, scope_options
from litequeue.cli.jsonable import Json, dumps, jsonable
from litequeue.cli.layout import Rows, wide_or_narrow
from litequeue.cli.output import NOTHING, plain, scope_text, state_text
from litequeue.cli.target import Target, pass_target
from litequeue.cli.times import Times
from litequeue.model import ANY, Pause, Scope, Stats, storable_scope
from litequeue.sqlite.walks import whole


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue scopes
litequeue --db app.queue scopes --json
""",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list; its times are µs since the epoch, UTC.")
@pass_target
def scopes(target: Target, *, as_json: bool) -> None:
    """List the scopes that have jobs, with how many in which state.

    Also since when the oldest ready job of each waits, its weight, and whether all of it is paused.
    """
    with target.queue() as queue:
        found = {scope: queue.stats(scope) for scope in queue.scopes()}
        weights, pauses = queue.weights(), queue.pauses()
    rows = [
        (scope, stats, weights.get(scope, 1), _is_paused(pauses, scope=scope, kind=None))
        for scope, stats in found.items()
    ]
    if as_json:
        click.echo(dumps([_scope_form(*row) for row in rows]))
        return
    times = Times.now(utc=False)
    states = _states(stats.counts for stats in found.values())
    is_weighted = any(weight != 1 for _, _, weight, _ in rows)
    paused = [is_paused for *_, is_paused in rows]
    cells = [
        [
            scope_text(scope),
            *(str(stats.counts[state]) for state in states),
            times.distance(stats.oldest_ready_at),
            *([str(weight)] if is_weighted else []),
            *_pause_cell(is_paused, paused),
        ]
        for scope, stats, weight, is_paused in rows
    ]
    more = [*(["WEIGHT"] if is_weighted else []), *(["PAUSED"] if any(paused) else [])]
    for line in _lines("SCOPE", states, more, cells):
        click.echo(line)
    tell_empty(rows, "no scope has jobs")


@click.command(
    cls=Command,
    epilog="""
litequeue --db app.queue kinds
litequeue --db app.queue kinds --all-scopes --json
""",
)
@scope_options(many=True)
@click.option("--json", "as_json", is_flag=True, help="A JSON list; its times are µs since the epoch, UTC.")
@pass_target
def kinds(target: Target, *, scope: str | None, system: bool, all_scopes: bool, as_json: bool) -> None:
    """List the kinds of the jobs, with how many in which state.

    Also since when the oldest ready job of each has been so, and what is paused; `jobs show` says of one job what holds
    it back.
    """
    where = many_scopes(scope, system=system, all_scopes=all_scopes)
    with target.queue() as queue:
        found = queue.stats(where).by_kind
        pauses = queue.pauses()
        place = queue.scope if where is None else where
        beside = remarks(queue, where, found, "no job")
        oldest = whole(queue.surveyor().oldest(None if place is ANY else storable_scope(place)))
    paused = {kind: _is_paused(pauses, scope=place, kind=kind) for kind in found}
    if as_json:
        forms: list[Json] = [
            {
                "kind": kind,
                "counts": _counts_form(counts),
                "oldest_ready_at": oldest.get(kind),
                "is_paused": paused[kind],
            }
            for kind, counts in found.items()
        ]
        click.echo(dumps(forms))
        return
    times = Times.now(utc=False)
    states = _states(found.values())
    rows = [
        [
            plain(kind),
            *(str(counts.get(state, 0)) for state in states),
            times.distance(oldest.get(kind)),
            *_pause_cell(paused[kind], paused.values()),
        ]
        for kind, counts in found.items()
    ]
    for line in _lines("KIND", states, ["PAUSED"] if any(paused.values()) else [], rows):
        click.echo(line)
    tell(beside)


def _lines(name: str, states: Sequence[JobState], more: Sequence[str], rows: Rows) -> Iterator[str]:
    """Return a heading and the rows; nothing when there is none."""
    if rows:
        wide = [name, *map(state_text, states), "OLDEST READY", *more]
        narrow = [name, *(state_text(state, is_short=True) for state in states), "OLDEST", *more]
        yield from wide_or_narrow([wide, *rows], [narrow, *rows], names=[0])


def _pause_cell(is_paused: bool, all_paused: Iterable[bool]) -> list[str]:
    """Say that something is paused, where anything is."""
    return ["paused" if is_paused else NOTHING] if any(all_paused) else []


def _states(counted: Iterable[Mapping[JobState, int]]) -> list[JobState]:
    """Return the states that any job is in, in the order of their codes."""
    present = {state for counts in counted for state, count in counts.items() if count}
    return [state for state in JobState if state in present]


def _is_paused(pauses: Iterable[Pause], *, scope: object, kind: str | None) -> bool:
    """Tell whether a pause holds all jobs of a kind, or of every kind, in a scope, or in all of them."""
    return any(
        pause.scope in {ANY, scope} and (pause.kind is None or (kind is not None and matches(pause.kind, kind)))
        for pause in pauses
    )


def _scope_form(scope: Scope, stats: Stats, weight: int, is_paused: bool) -> Json:
    return {
        "scope": jsonable(scope),
        "counts": _counts_form(stats.counts),
        "oldest_ready_at": stats.oldest_ready_at,
        "weight": weight,
        "is_paused": is_paused,
    }


def _counts_form(counts: Mapping[JobState, int]) -> dict[str, Json]:
    return {state.name.lower(): counts.get(state, 0) for state in JobState}
