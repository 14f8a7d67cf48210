"""Enqueueing in transactions of Django, each test in a process that is a Django application (V14)."""

from __future__ import annotations

import sqlite3
import sys
import warnings
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

from litequeue import QueueBusy, UsageError, dbapi
from litequeue.dbapi import bells

if TYPE_CHECKING:
    from tests.faults.children import Children, Parent


def committed(path: str) -> list[list[object]]:
    """Return the kinds of the jobs, and the orders, that everybody sees."""
    with closing(sqlite3.connect(path)) as connection:
        kinds = connection.execute("SELECT kind FROM litequeue_job ORDER BY created_at").fetchall()
        ids = connection.execute("SELECT id FROM orders ORDER BY id").fetchall()
    return [[kind for (kind,) in kinds], [number for (number,) in ids]]


def django_on(path: str, **options: object) -> Any:  # noqa: ANN401 - Django has no types
    """Be a Django application with this database; return its model."""
    import django  # noqa: PLC0415 - it belongs to the process that it is set up in
    from django.conf import settings  # noqa: PLC0415 - the same
    from django.db import models  # noqa: PLC0415 - the same

    warnings.filterwarnings("ignore", "this process writes")
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options}
    settings.configure(DATABASES={"default": database}, USE_TZ=True)
    django.setup()

    class Order(models.Model):  # type: ignore[misc] # noqa: DJ008 - the base is not typed, and nobody shows it
        id = models.IntegerField(primary_key=True)

        class Meta:
            app_label = "shop"
            db_table = "orders"

    return Order


def heard() -> list[str]:
    """Return what is rung for from here on."""
    rings: list[str] = []
    pytest.MonkeyPatch().setattr(bells, "ring_for", rings.append)
    return rings


def _commit_and_roll_back(_parent: Parent, path: str, options: dict[str, object]) -> list[object]:
    order = django_on(path, **options)
    from django.db import connection, transaction  # noqa: PLC0415 - not before it is set up

    rings = heard()
    told: list[object] = []
    with transaction.atomic():
        order.objects.create(id=1)
        dbapi.enqueue(connection, "mail", {"order": 1})
        told += [committed(path), list(rings)]
    told += [committed(path), list(rings)]
    with suppress(ArithmeticError), transaction.atomic():
        dbapi.enqueue(connection, "mail")
        order.objects.create(id=2)
        raise ArithmeticError
    with transaction.atomic():
        with suppress(ArithmeticError), transaction.atomic():
            dbapi.enqueue(connection, "mail")
            raise ArithmeticError
        order.objects.create(id=3)
    told += [committed(path), list(rings)]
    told.append("apsw" in sys.modules)
    return told


@pytest.mark.parametrize("options", [{}, {"transaction_mode": "IMMEDIATE"}])
def test_row_and_job_are_committed_or_rolled_back_together(
    path: str, processes: Children, options: dict[str, object]
) -> None:
    """In `atomic`, and in a part of it; the bell is rung after the commit, and only then (V14, DESIGN §4)."""
    told = processes.run(_commit_and_roll_back, path, options)
    assert told == [[[], []], [], [["mail"], [1]], [path], [["mail"], [1, 3]], [path], False]


def _outside_of_atomic(_parent: Parent, path: str) -> list[object]:
    django_on(path)
    from django.db import connection, transaction  # noqa: PLC0415 - not before it is set up

    rings = heard()
    told: list[object] = []
    try:
        dbapi.enqueue(connection, "mail")
    except UsageError as exc:
        told.append(str(exc))
    transaction.set_autocommit(False)
    dbapi.enqueue(connection, "mail")
    transaction.commit()
    told += [committed(path), list(rings)]
    dbapi.ring(connection)
    return [*told, rings]


def test_outside_of_atomic_it_is_refused(path: str, processes: Children) -> None:
    """There each statement is committed by itself; without autocommit a transaction is open, rung by hand (V14)."""
    said, *rest = cast("list[object]", processes.run(_outside_of_atomic, path))
    assert "transaction.atomic()" in str(said)
    assert rest == [[["mail"], []], [], [path]]


def _with_other_tools(_parent: Parent, path: str) -> list[object]:
    order = django_on(path)
    from django.db import connection, connections, transaction  # noqa: PLC0415 - not before it is set up

    with transaction.atomic():
        for given in (connections["default"], connection.connection):
            dbapi.enqueue(given, "mail")
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM litequeue_job")
            seen = cursor.fetchone()[0]
        order.objects.create(id=1)
    connection.close()
    with transaction.atomic():  # opened anew by Django
        dbapi.enqueue(connection, "again")
    return [seen, committed(path)]


def test_what_django_has_for_a_connection_will_do(path: str, processes: Children) -> None:
    """Its proxy, its wrapper, and the connection of `sqlite3` in it."""
    assert processes.run(_with_other_tools, path) == [2, [["mail", "mail", "again"], [1]]]


def _migrate(_parent: Parent, path: str) -> list[object]:
    django_on(path)
    from django.db import connection, transaction  # noqa: PLC0415 - not before it is set up
    from django.db.migrations import Migration, RunPython, RunSQL  # noqa: PLC0415 - the same
    from django.db.migrations.state import ProjectState  # noqa: PLC0415 - the same

    class WithQueue(Migration):  # type: ignore[misc] # the base is not typed
        operations = (
            RunSQL("CREATE TABLE orders (id INTEGER PRIMARY KEY)"),
            RunPython(lambda _, editor: dbapi.create_tables(editor.connection)),
        )

    with connection.schema_editor(atomic=True) as editor:
        WithQueue("0001", "shop").apply(ProjectState(), editor)
    with transaction.atomic():
        dbapi.enqueue(connection, "mail")
    return committed(path)  # type: ignore[return-value] # JSON


def test_a_migration_makes_the_tables(processes: Children, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In its own transaction, with the application's (issue "create tables")."""
    path = str(tmp_path_factory.mktemp("new") / "db.sqlite3")
    assert processes.run(_migrate, path) == [["mail"], []]


def _while_another_writes(_parent: Parent, path: str) -> list[object]:
    django_on(path, timeout=0)
    from django.db import connection, transaction  # noqa: PLC0415 - not before it is set up

    told: list[object] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            with transaction.atomic():
                dbapi.enqueue(connection, "mail")
        except QueueBusy as exc:
            told.append(str(exc))
        other.execute("COMMIT")
    with transaction.atomic():
        dbapi.enqueue(connection, "mail")
    return [*told, committed(path)]


def test_a_lock_that_another_has_is_queue_busy(path: str, processes: Children) -> None:
    """And the next `atomic` is a new transaction (§6)."""
    said, found = cast("list[object]", processes.run(_while_another_writes, path))
    assert "roll your transaction back" in str(said)
    assert found == [["mail"], []]
