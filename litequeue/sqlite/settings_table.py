"""The settings as rows: read whole, written one by one.

Invariants: every change grows the settings version in the same transaction, which is how other handles hear of it; one
that changes which leases a limit counts has them counted anew in it, and one that may let jobs go rings. Leaves out:
names, values and bounds (`settings`), and what limits and pauses lead to (`limits`, `admission`).
"""

from __future__ import annotations

from collections import defaultdict

from litequeue import limits
from litequeue.errors import StorageCorrupt, UsageError
from litequeue.settings import SPECS, Settings, Value
from litequeue.sqlite import slots
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL


def read(reader: Reader) -> Settings:
    """Read every setting of the file."""
    own = {name: loaded(name, value) for name, value in reader.all(SQL.settings) if name in SPECS}
    by_kind: dict[str, dict[str, Value]] = defaultdict(dict)
    for kind, name, value in reader.all(SQL.kind_settings):
        if name in SPECS:
            by_kind[_text("kind", kind)][name] = loaded(name, value)
    by_scope: dict[str, dict[str, dict[str, Value]]] = defaultdict(lambda: defaultdict(dict))
    for scope, kind, name, value in reader.all(SQL.scope_settings):
        if name in SPECS:
            by_scope[_text("scope", scope)][_text("kind", kind)][name] = loaded(name, value)
    paused: dict[str, dict[str, int]] = defaultdict(dict)
    for scope, kind, since in reader.all(SQL.pauses):
        paused[_text("scope", scope)][_text("kind", kind)] = since
    weights = {_text("scope", scope): _weight(weight) for scope, weight in reader.all(SQL.weights)}
    has_chains = bool(reader.all(SQL.is_chained)[0][0])
    return Settings(own, dict(by_kind), dict(by_scope), limits.Pauses(dict(paused)), weights, has_chains)


def put(context: Context, name: str, value: Value, kind: str | None, scope: str | None) -> None:
    """Store a checked setting, for the file, a kind filter or a scope."""
    if scope is not None:
        context.write(SQL.scope_setting_put, (scope, kind or limits.ALL_KINDS, name, value))
    elif kind is not None:
        context.write(SQL.kind_setting_put, (kind, name, value))
    else:
        context.write(SQL.setting_put, (name, value))
    _setting_changed(context, name, kind)


def remove(context: Context, name: str, kind: str | None, scope: str | None) -> None:
    """Go back to the default, or to what the file says for a kind filter, or each scope for a scope."""
    if scope is not None:
        context.write(SQL.scope_setting_remove, (scope, kind or limits.ALL_KINDS, name))
    elif kind is not None:
        context.write(SQL.kind_setting_remove, (kind, name))
    else:
        context.write(SQL.setting_remove, (name,))
    _setting_changed(context, name, kind)


def set_weight(context: Context, scope: str, weight: int) -> None:
    """Store the checked weight of a scope; 1 is the default, and is not stored."""
    if weight == 1:
        context.write(SQL.weight_remove, (scope,))
    else:
        context.write(SQL.weight_put, (scope, weight))
    _changed(context)


def pause(context: Context, kind: str, scope: str) -> bool:
    """Pause what a filter takes; tell whether it was not paused so before."""
    is_new = context.write(SQL.pause_put, (scope, kind, context.now)) > 0
    if is_new:
        _changed(context)
    return is_new


def resume(context: Context, kind: str, scope: str) -> bool:
    """Take back a pause, exactly as it was given; tell whether there was one."""
    is_gone = context.write(SQL.pause_remove, (scope, kind)) > 0
    if is_gone:
        _changed(context)
        context.rings = True
    return is_gone


def chains_begin(context: Context) -> None:
    """Let everybody know that there is a job that waits for others, or has."""
    _changed(context)


def _setting_changed(context: Context, name: str, kind: str | None) -> None:
    before = context.settings.limits
    _changed(context)
    if name == "concurrency":
        slots.count_anew(context)
        context.rings = True
    elif name == "rate":
        _exchange_bucket(context, kind or limits.ALL_KINDS, before)
        context.rings = True


def _exchange_bucket(context: Context, kind: str, before: limits.Limits) -> None:
    """Let the bucket of a rate that was changed lack what it lacked; one that is new, or was taken back, is full."""
    old, new = before.rates.get(kind), context.settings.limits.rates.get(kind)
    found = context.one(SQL.bucket, kind)
    if found is None:
        return
    if old is None or new is None:
        context.write(SQL.bucket_remove, (kind,))
    else:
        bucket = limits.exchanged(old, new, limits.Bucket(*found), context.lease_now)
        context.write(SQL.bucket_put, (kind, bucket.credit, bucket.at))


def _changed(context: Context) -> None:
    context.write(SQL.settings_changed, ())
    context.settings = read(context)


def loaded(name: str, value: Value) -> Value:
    """Give back a value as it was stored: SQLite lacks booleans.

    Raises:
        StorageCorrupt: it is none that could be read again.
    """
    match SPECS[name].form:
        case "flag":
            return bool(value)
        case "rate" if value is not None:
            try:
                return limits.rate_text(name, value)
            except UsageError as exc:
                raise StorageCorrupt(f"a setting is damaged: {exc}") from None
        case _:
            return value


def _weight(value: object) -> int:
    if not isinstance(value, int):
        raise StorageCorrupt(f"the weight of a scope is damaged: it is stored as {type(value).__name__}")
    return value


def _text(column: str, value: object) -> str:
    if not isinstance(value, str):
        raise StorageCorrupt(f"the {column} of a setting is damaged: it is stored as {type(value).__name__}")
    return value
