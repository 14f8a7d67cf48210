"""What callers give for a connection, and the DB-API connection in it.

Owns the shapes of SQLAlchemy and Django that are known, by their attributes: neither is imported. Invariant: where such
a library keeps a transaction of its own around the connection's, that one is begun, so that its commit is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from litequeue.dbapi.engine import Given
from litequeue.errors import UsageError

RINGS = "litequeue.rings"
"""In the `info` of an SQLAlchemy session: the files to ring for once it has committed."""
_NEEDED = ("cursor", "commit", "rollback", "in_transaction", "total_changes", "text_factory")
_WANTED = (
    "a connection to an SQLite database: one of sqlite3, an SQLAlchemy Session or Connection, or a Django connection"
)


class Caller(NamedTuple):
    """A DB-API connection, and how to have something done after its commit."""

    connection: Given
    after_commit: Callable[[str, Callable[[], None]], None] | None
    """Takes the file, and what rings for it; `None` where the connection tells nobody of its commit."""


def of(given: object) -> Caller:
    """Find the connection in what a caller gives.

    Raises:
        UsageError: there is none of SQLite's.
    """
    if _has(given, "sync_session") or _has(given, "sync_connection"):
        raise UsageError.of("connection", given, _WANTED, "not one of asyncio")
    if _has(given, "ensure_connection", "on_commit", "vendor"):
        return _of_django(given)
    if _has(given, "get_bind", "connection", "info"):
        return Caller(_of_sqlalchemy(_call(given, "connection")), _note_in(given))
    if _has(given, "dialect", "in_transaction", "begin") and _has(type(given), "connection"):  # it may be closed
        return Caller(_of_sqlalchemy(given), None)
    if _has(given, "dbapi_connection"):  # what SQLAlchemy's pool hands out
        return Caller(_plain(getattr(given, "dbapi_connection", None), given), None)
    return Caller(_plain(given, given), None)


def _of_django(wrapper: object) -> Caller:
    _refuse_other("vendor", getattr(wrapper, "vendor", None))
    _call(wrapper, "ensure_connection")
    connection = _plain(getattr(wrapper, "connection", None), wrapper)
    if not getattr(wrapper, "in_atomic_block", False):  # Django does not see the end of what it has not begun
        return Caller(connection, None)
    on_commit = cast("Callable[[Callable[[], None]], None]", getattr(wrapper, "on_commit", None))
    return Caller(connection, lambda _, ring: on_commit(ring))


def _of_sqlalchemy(connection: object) -> Given:
    _refuse_other("dialect", getattr(getattr(connection, "dialect", None), "name", None))
    if not _call(connection, "in_transaction"):
        _call(connection, "begin")  # as its own `execute` would
    pooled = getattr(connection, "connection", None)
    return _plain(getattr(pooled, "dbapi_connection", None), connection)


def _note_in(session: object) -> Callable[[str, Callable[[], None]], None]:
    """Return what notes in a session that it is to ring: `ring`, listening to its commits, does so."""

    def after_commit(path: str, _: Callable[[], None]) -> None:
        info = cast("dict[object, object]", getattr(session, "info", None))
        cast("set[str]", info.setdefault(RINGS, set())).add(path)

    return after_commit


def _plain(connection: object, given: object) -> Given:
    if not _has(type(connection), *_NEEDED):  # the attributes of one that is closed raise
        raise UsageError.of("connection", given, _WANTED)
    return cast("Given", connection)


def _refuse_other(what: str, found: object) -> None:
    if found != "sqlite":
        raise UsageError.of(f"connection.{what}", found, _WANTED)


def _has(given: object, *names: str) -> bool:
    return all(hasattr(given, name) for name in names)


def _call(given: object, name: str) -> object:
    """Call a method.

    Raises:
        UsageError: SQLAlchemy says that what was given cannot be used so: it is closed, or bound to no engine.
    """
    try:
        return cast("Callable[[], object]", getattr(given, name))()
    except Exception as exc:
        if any(kind.__name__ == "InvalidRequestError" for kind in type(exc).__mro__):
            raise UsageError(f"the connection cannot be used here: {exc}") from exc
        raise
