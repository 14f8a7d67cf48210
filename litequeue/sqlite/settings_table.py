"""The settings as rows: read whole, written one by one.

Invariant: every change grows the settings version in the same transaction, which is how other handles hear of it.
"""

from __future__ import annotations

from collections import defaultdict

from litequeue.errors import StorageCorrupt
from litequeue.settings import SPECS, Settings, Value
from litequeue.sqlite.context import Context
from litequeue.sqlite.reader import Reader
from litequeue.sqlite.statements import SQL


def read(reader: Reader) -> Settings:
    """Read every setting of the file."""
    own = {name: loaded(name, value) for name, value in reader.all(SQL.settings) if name in SPECS}
    by_kind: dict[str, dict[str, Value]] = defaultdict(dict)
    for kind, name, value in reader.all(SQL.kind_settings):
        if not isinstance(kind, str):
            raise StorageCorrupt(f"the kind of a setting is damaged: it is stored as {type(kind).__name__}")
        if name in SPECS:
            by_kind[kind][name] = loaded(name, value)
    return Settings(own, dict(by_kind))


def put(context: Context, name: str, value: Value, kind: str | None) -> None:
    """Store a checked setting, for the file or for a kind filter."""
    if kind is None:
        context.write(SQL.setting_put, (name, value))
    else:
        context.write(SQL.kind_setting_put, (kind, name, value))
    _changed(context)


def remove(context: Context, name: str, kind: str | None) -> None:
    """Go back to the default, or for a kind filter to what the file says."""
    if kind is None:
        context.write(SQL.setting_remove, (name,))
    else:
        context.write(SQL.kind_setting_remove, (kind, name))
    _changed(context)


def _changed(context: Context) -> None:
    context.write(SQL.settings_changed, ())
    context.settings = read(context)


def loaded(name: str, value: Value) -> Value:
    """Give back a boolean, which SQLite lacks; everything else comes back as it went in."""
    return bool(value) if SPECS[name].form == "flag" else value
