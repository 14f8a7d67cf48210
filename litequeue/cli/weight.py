"""`weight`: how many jobs in a row a scope is served, where a worker goes round the scopes."""

from __future__ import annotations

import click

from litequeue.cli.asides import tell_empty
from litequeue.cli.commands import Command
from litequeue.cli.failures import Misuse
from litequeue.cli.input import one_scope, scope_options
from litequeue.cli.jsonable import dumps, jsonable
from litequeue.cli.layout import table
from litequeue.cli.output import scope_text
from litequeue.cli.target import Target, pass_target


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},  # so that -1 is a value, to be refused as one
    epilog="""
litequeue --db app.queue weight
litequeue --db app.queue weight 5 --scope acme
litequeue --db app.queue weight 1 --scope acme
""",
)
@click.argument("weight", metavar="[N]", required=False, type=int)
@scope_options(many=False)
@click.option("--json", "as_json", is_flag=True, help="Without N: a JSON array of scopes and weights.")
@pass_target
def weight(target: Target, *, weight: int | None, scope: str | None, system: bool, as_json: bool) -> None:
    """Let a scope be served N jobs in a row, or show the weights.

    N is 1 to 1,000. It counts where leases go round the scopes, as those of `work --all-scopes` do: with the
    weights 5 and 1, five jobs of the one are leased for one of the other. 1 is the weight of every scope that has
    been given no other.
    """
    where = one_scope(scope, system=system)
    if weight is not None and as_json:
        raise Misuse("--json is for the listing of weights, without N")
    if weight is None:
        if where is not None:
            raise Misuse("a scope goes with its weight, N; without N the weights of all scopes are shown")
        with target.queue() as queue:
            weights = queue.weights()
        if as_json:
            click.echo(dumps(jsonable([{"scope": name, "weight": number} for name, number in weights.items()])))
            return
        for line in table([(scope_text(name), str(number)) for name, number in weights.items()]):
            click.echo(line)
        tell_empty(weights, "every scope has the weight 1")
        return
    with target.queue() as queue:
        place = queue.scope if where is None else where
        queue.set_weight(place, weight)
    click.echo(f"{scope_text(place)} {weight}")
