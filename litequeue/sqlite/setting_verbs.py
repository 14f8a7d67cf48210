"""The verbs for what every process agrees on: settings, limits, weights and pauses.

Owns: the checking of their arguments. Leaves out: the rows (`settings_table`), and every other verb (`verbs`).
"""

from __future__ import annotations

from litequeue import arguments
from litequeue import settings as specs
from litequeue.errors import UsageError
from litequeue.limits import ALL_KINDS, ALL_SCOPES, EACH_SCOPE
from litequeue.model import ANY, Pause, Scope, SpecialScope, public_scope, storable_scope
from litequeue.settings import Value
from litequeue.sqlite import settings_table
from litequeue.sqlite.doing import Doing
from litequeue.sqlite.reader import Reader

KindValues = dict[str | None, dict[str, Value]]
Pauses = list[Pause]


class SettingVerbs(Doing):
    """What a queue and a transaction say of the whole file."""

    def settings(self, kind: str | None = None) -> dict[str, Value]:
        """Return the settings in force, for the file or for a kind; durations in seconds, `None` is forever.

        Raises:
            UsageError: a bad kind.
        """
        if kind is not None:
            arguments.kind(kind)
        return self._look(lambda reader: reader.settings.values(kind))

    def kind_settings(self) -> dict[str, dict[str, Value]]:
        """Return what kind filters have of their own."""
        return self._look(lambda r: {kind: dict(own) for kind, own in sorted(r.settings.by_kind.items())})

    def scope_settings(self) -> dict[Scope | SpecialScope, KindValues]:
        """Return what holds within scopes: by scope (`ANY` is each by itself), then by kind filter.

        A filter of `None` is every kind.
        """
        return self._look(
            lambda r: {
                ANY if scope == EACH_SCOPE else public_scope(scope): {
                    kind or None: dict(own) for kind, own in sorted(by_kind.items())
                }
                for scope, by_kind in sorted(r.settings.by_scope.items())
            }
        )

    def set(
        self, name: str, value: object, kind: str | None = None, *, scope: Scope | SpecialScope | None = None
    ) -> None:
        """Change a setting for every process, for the file or for a kind filter (exact, or a prefix ending in `:`).

        `concurrency` (1 to 10,000 jobs leased at a time) and `rate` (leases in a time, as in `"100/5m"`) limit the jobs
        of the kinds that the filter governs, all together: a kind belongs to the longest filter that matches, and
        counts only there. With a `scope`, a `concurrency` holds within that scope by itself; with `ANY`, within each
        scope, for the kinds for which it has none of its own. Jobs that are leased already stay so, and a rate that is
        changed, or set again, counts the leases that it has counted.

        Raises:
            UsageError: an unknown name, a value out of its bounds, or a kind or scope where the setting has none.
        """
        stored = _stored_scope(scope)
        checked = specs.check(name, value, kind, stored)
        self._do(lambda context: settings_table.put(context, name, checked, kind, stored), durable=True)

    def unset(self, name: str, kind: str | None = None, *, scope: Scope | SpecialScope | None = None) -> None:
        """Go back to a setting's default, or to what the file says for a kind filter, and each scope for a scope.

        Raises:
            UsageError: an unknown name, or a kind or scope where the setting has none.
        """
        stored = _stored_scope(scope)
        specs.check_name(name, kind, stored)
        self._do(lambda context: settings_table.remove(context, name, kind, stored), durable=True)

    def set_weight(self, scope: Scope, weight: int | None) -> None:
        """Let a scope be served so many jobs in a row (1 to 1,000) where leases go round the scopes (V12).

        `None`, like 1, is the default. It holds for every process, from its next lease on.

        Raises:
            UsageError: an argument out of its bounds.
        """
        stored = storable_scope(scope)
        checked = 1 if weight is None else arguments.whole("weight", weight, 1, specs.MAX_WEIGHT)
        self._do(lambda context: settings_table.set_weight(context, stored, checked), durable=True)

    def weights(self) -> dict[Scope, int]:
        """Return the weights of those scopes that have one other than 1, by name (V12)."""
        return self._look(lambda r: {public_scope(scope): weight for scope, weight in r.settings.weights.items()})

    def pause(self, kind: str | None = None, *, scope: Scope | SpecialScope | None = None) -> bool:
        """Lease no more jobs of a kind filter, of a scope, or of a filter within a scope, until `resume` (V15).

        Without a `scope` a `kind` is paused in all of them; `scope=ANY` alone pauses the whole file. Jobs that are
        leased go on, and new ones may be enqueued. Tells whether it was not paused so before.

        Raises:
            UsageError: neither a kind nor a scope, or a name that is none.
        """
        place = _paused_place(kind, scope)
        return self._do(lambda context: settings_table.pause(context, *place), durable=True)

    def resume(self, kind: str | None = None, *, scope: Scope | SpecialScope | None = None) -> bool:
        """Take back a pause, with the same arguments with which it was given; other pauses stay (V15).

        Tells whether there was such a pause.

        Raises:
            UsageError: neither a kind nor a scope, or a name that is none.
        """
        place = _paused_place(kind, scope)
        return self._do(lambda context: settings_table.resume(context, *place), durable=True)

    def pauses(self) -> Pauses:
        """Return what is paused, in the order of scope (`ANY` first), then of kind (V15)."""
        return self._look(_pauses)


def _pauses(reader: Reader) -> list[Pause]:
    found = [
        Pause(kind or None, ANY if scope == ALL_SCOPES else public_scope(scope), since)
        for scope, paused in reader.settings.pauses.by_scope.items()
        for kind, since in paused.items()
    ]
    return sorted(found, key=lambda pause: (pause.scope is not ANY, str(pause.scope), pause.kind or ""))


def _stored_scope(scope: Scope | SpecialScope | None) -> str | None:
    if scope is None:
        return None
    return EACH_SCOPE if scope is ANY else storable_scope(scope)


def _paused_place(kind: str | None, scope: Scope | SpecialScope | None) -> tuple[str, str]:
    if kind is None and scope is None:
        message = "nothing to pause or resume: give a kind filter, a scope, or scope=ANY for the whole file"
        raise UsageError(message, argument="kind", value=None, bounds="a kind filter, unless there is a scope")
    return (
        ALL_KINDS if kind is None else arguments.kind(kind),
        ALL_SCOPES if scope is None or scope is ANY else storable_scope(scope),
    )
