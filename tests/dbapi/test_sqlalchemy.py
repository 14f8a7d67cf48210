"""Enqueueing in transactions of SQLAlchemy, as applications begin and end them (V14)."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from litequeue import NewJob, QueueBusy, UsageError, dbapi
from litequeue.dbapi import bells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore:this process writes")


class Base(DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """One of them."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


def begun_by_hand(engine: Engine, how: str) -> Engine:
    """Let SQLAlchemy begin transactions itself, as its documentation shows for `sqlite3` of old."""

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
        connection.exec_driver_sql(how)

    return engine


ENGINES: dict[str, Callable[[str], Engine]] = {
    "as it comes": create_engine,
    "BEGIN": lambda url: begun_by_hand(create_engine(url), "BEGIN"),
    "BEGIN IMMEDIATE": lambda url: begun_by_hand(create_engine(url), "BEGIN IMMEDIATE"),
    "autocommit off": lambda url: create_engine(url, connect_args={"autocommit": False}),
}


@pytest.fixture(params=ENGINES)
def engine(path: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Give an engine of each sort; its connections are closed after the test."""
    if request.param == "autocommit off" and sys.version_info < (3, 12):
        pytest.skip("sqlite3 has no autocommit before Python 3.12")
    engine = ENGINES[request.param](f"sqlite:///{path}")
    yield engine
    engine.dispose()


@pytest.fixture
def rings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the files that are rung for, in order."""
    heard: list[str] = []
    monkeypatch.setattr(bells, "ring_for", heard.append)
    return heard


def committed(path: str) -> tuple[list[str], list[int]]:
    """Return the kinds of the jobs, and the orders, that everybody sees."""
    with closing(sqlite3.connect(path)) as connection:
        kinds = connection.execute("SELECT kind FROM litequeue_job ORDER BY created_at").fetchall()
        ids = connection.execute("SELECT id FROM orders ORDER BY id").fetchall()
    return [kind for (kind,) in kinds], [number for (number,) in ids]


def test_a_session_commits_rows_and_jobs_together(engine: Engine, path: str) -> None:
    """Whichever comes first, and whether the row has been flushed or not."""
    with Session(engine) as session:
        session.add(Order(id=1))
        dbapi.enqueue(session, "first", {"order": 1})
        assert committed(path) == ([], [])
        session.commit()
        assert committed(path) == (["first"], [1])
        dbapi.enqueue(session, "second")
        session.add(Order(id=2))
        session.flush()
        session.commit()
    assert committed(path) == (["first", "second"], [1, 2])


def test_a_session_that_does_nothing_else_commits_its_job(engine: Engine, path: str) -> None:
    """SQLAlchemy knows of the transaction, though it has run no statement in it."""
    with sessionmaker(engine).begin() as session:
        dbapi.enqueue(session, "work")
    assert committed(path) == (["work"], [])


def test_a_session_that_is_rolled_back_leaves_neither(engine: Engine, path: str) -> None:
    """By an exception, or by being closed (V14)."""
    with suppress(ArithmeticError), sessionmaker(engine).begin() as session:
        session.add(Order(id=1))
        dbapi.enqueue(session, "work")
        raise ArithmeticError
    with Session(engine) as session:
        dbapi.enqueue(session, "work")
    assert committed(path) == ([], [])


def test_what_is_refused_leaves_the_session_as_it_was(engine: Engine, path: str) -> None:
    """It commits what came before, and after (G11)."""
    with sessionmaker(engine).begin() as session:
        session.add(Order(id=1))
        session.flush()
        with pytest.raises(UsageError):
            dbapi.enqueue(session, "work", priority=999)
        with pytest.raises(UsageError):
            dbapi.enqueue_many(session, [NewJob("work"), NewJob("work", job_id="never")])
        dbapi.enqueue(session, "work")
    assert committed(path) == (["work"], [1])


def test_a_savepoint_that_is_rolled_back_takes_its_job_along(engine: Engine, path: str) -> None:
    """Where SQLAlchemy begins the transaction, or a write of its own has (see the page)."""
    with sessionmaker(engine).begin() as session:
        session.add(Order(id=1))
        session.flush()
        with suppress(ArithmeticError), session.begin_nested():
            dbapi.enqueue(session, "lost")
            raise ArithmeticError
        with session.begin_nested():
            dbapi.enqueue(session, "kept")
        assert committed(path) == ([], [])
    assert committed(path) == (["kept"], [1])


def test_a_connection_commits_as_it_goes_or_at_its_end(engine: Engine, path: str) -> None:
    """Both of SQLAlchemy's ways, though it has run no statement itself."""
    with engine.connect() as connection:
        dbapi.enqueue(connection, "lost")
        connection.rollback()
        dbapi.enqueue(connection, "first")
        connection.commit()
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO orders VALUES (1)"))
        dbapi.enqueue(connection, "second")
    assert committed(path) == (["first", "second"], [1])


def test_a_connection_of_the_pool_will_do(engine: Engine, path: str) -> None:
    """With, and without, what SQLAlchemy wraps it in."""
    with closing(engine.raw_connection()) as raw:
        if raw.isolation_level is None:  # nobody begins for it
            raw.cursor().execute("BEGIN")
        dbapi.enqueue(raw, "first")
        assert raw.dbapi_connection is not None
        dbapi.enqueue(raw.dbapi_connection, "second")
        raw.commit()
    assert committed(path) == (["first", "second"], [])


def test_a_session_of_a_thread_will_do(engine: Engine, path: str) -> None:
    """As of `scoped_session`, which Flask's extension has, too."""
    session = scoped_session(sessionmaker(engine))
    session.add(Order(id=1))
    dbapi.enqueue(session, "work")
    session.commit()
    session.remove()
    assert committed(path) == (["work"], [1])


def test_one_line_rings_after_each_commit_with_jobs(engine: Engine, path: str, rings: list[str]) -> None:
    """Not before it, not for one without jobs, not after a rollback (DESIGN §4)."""
    heard_before: list[int] = []
    factory = sessionmaker(engine)
    event.listen(factory, "before_commit", lambda _: heard_before.append(len(rings)))
    event.listen(factory, "after_commit", dbapi.ring)
    with factory.begin() as session:
        session.add(Order(id=1))
    assert rings == []
    with factory.begin() as session:
        dbapi.enqueue_many(session, [NewJob("work"), NewJob("work", delay=9)])
    assert rings == [path]
    with factory() as session:
        dbapi.enqueue(session, "work")
        session.rollback()
    with factory.begin() as session:
        assert not session.in_nested_transaction()
    assert rings == [path]
    assert heard_before == [0, 0, 1]


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_released_savepoint_rings_for_nobody(engine: Engine, path: str, rings: list[str], *, is_inside: bool) -> None:
    """SQLAlchemy calls it a commit; only the outermost is one, and that one rings (DESIGN §4)."""
    factory = sessionmaker(engine)
    event.listen(factory, "after_commit", dbapi.ring)
    with factory.begin() as session:
        session.add(Order(id=1))
        session.flush()
        if not is_inside:
            dbapi.enqueue(session, "work")
        with session.begin_nested():
            with session.begin_nested():
                session.add(Order(id=2))
            if is_inside:
                dbapi.enqueue(session, "work")
        assert rings == []
    assert rings == [path]
    assert committed(path) == (["work"], [1, 2])


def test_what_is_closed_or_bound_to_nothing_is_refused(engine: Engine) -> None:
    """In our words, not SQLAlchemy's."""
    closed = engine.connect()
    closed.close()
    for given in (closed, Session(), Session(engine, autobegin=False)):
        with pytest.raises(UsageError, match="cannot be used here"):
            dbapi.enqueue(given, "work")


def test_a_lock_that_another_has_is_queue_busy(path: str) -> None:
    """And the session goes on after its rollback (§6)."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
    with closing(sqlite3.connect(path, isolation_level=None)) as other, Session(engine) as session:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(QueueBusy, match="try again"):
            dbapi.enqueue(session, "work")
        session.rollback()
        other.execute("COMMIT")
        dbapi.enqueue(session, "work")
        session.commit()
    engine.dispose()
    assert committed(path) == (["work"], [])


def test_an_engine_that_commits_each_statement_is_refused(path: str) -> None:
    """The job would be there whatever becomes of the session (issue "both or neither")."""
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(UsageError, match="commits each statement by itself"):
        dbapi.enqueue(session, "work")
    engine.dispose()
    assert committed(path) == ([], [])


@pytest.mark.parametrize(
    "make",
    [
        lambda path: create_engine(f"sqlite:///{path}"),
        lambda path: SimpleNamespace(sync_session=Session(create_engine(f"sqlite:///{path}"))),  # as AsyncSession has
        lambda _: SimpleNamespace(
            dialect=SimpleNamespace(name="postgresql"), connection=None, in_transaction=bool, begin=bool
        ),
    ],
    ids=["engine", "asyncio", "another database"],
)
def test_what_is_no_connection_to_sqlite_is_refused(path: str, make: Callable[[str], object]) -> None:
    """By one error that says what is (§6)."""
    with pytest.raises(UsageError, match="connection to an SQLite database"):
        dbapi.enqueue(make(path), "work")
