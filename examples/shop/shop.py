"""A shop: a Flask application that enqueues in the transaction of its request.

    $ pip install flask sqlalchemy
    $ python shop.py shop.db 8000
    $ litequeue --db shop.db work worker:handlers        # in another process, from this folder
    $ curl http://127.0.0.1:8000/orders --json '{"article": "tea", "email": "a@example.org"}'
    $ curl http://127.0.0.1:8000/orders/1                # it tells of the receipt as soon as that is sent

Each request is one transaction of SQLAlchemy: the order, what is left of the article, and the job that sends the
receipt are committed together. When the article is sold out the request fails after the order and the job have been
written, and nothing is left of either. This process never loads apsw, since it has the file open through `sqlite3`.
"""

from __future__ import annotations

import sys

from flask import Flask, Response, abort, jsonify, request
from sqlalchemy import CheckConstraint, ForeignKey, create_engine, event, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from werkzeug.serving import make_server

import litequeue.dbapi


class Base(DeclarativeBase):
    """The shop's own tables."""


class Article(Base):
    """What there is to buy."""

    __tablename__ = "articles"
    name: Mapped[str] = mapped_column(primary_key=True)
    stock: Mapped[int] = mapped_column(CheckConstraint("stock >= 0"))


class Order(Base):
    """What was bought."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str] = mapped_column(ForeignKey("articles.name"))
    email: Mapped[str]
    receipt: Mapped[str | None]


def create_app(path: str) -> Flask:
    """Make the application, and its tables and the queue's where they are missing."""
    engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": "IMMEDIATE"})
    sessions = sessionmaker(engine)
    event.listen(sessions, "after_commit", litequeue.dbapi.ring)  # a waiting worker begins at once
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        litequeue.dbapi.create_tables(connection)
    with sessions.begin() as session:
        if session.get(Article, "tea") is None:
            session.add_all([Article(name="tea", stock=3), Article(name="snow", stock=0)])

    app = Flask(__name__)

    @app.post("/orders")
    def place() -> tuple[Response, int]:
        wanted = request.get_json()
        with sessions.begin() as session:
            if session.get(Article, wanted["article"]) is None:
                abort(404)
            order = Order(article=wanted["article"], email=wanted["email"])
            session.add(order)
            session.flush()  # gives it its id
            litequeue.dbapi.enqueue(session, "mail:receipt", order.id)
            taken = update(Article).where(Article.name == order.article).values(stock=Article.stock - 1)
            session.execute(taken)  # sold out: this raises, and the job goes with the order
            answer = jsonify(order=order.id)
        return answer, 201

    @app.get("/orders/<int:number>")
    def show(number: int) -> Response:
        with sessions() as session:
            order = session.get(Order, number)
            if order is None:
                abort(404)
            return jsonify(article=order.article, receipt=order.receipt)

    @app.errorhandler(IntegrityError)
    def refuse(_: IntegrityError) -> tuple[Response, int]:
        return jsonify(error="sold out"), 409

    return app


def main() -> None:
    """Serve."""
    path, port = sys.argv[1], int(sys.argv[2])
    server = make_server("127.0.0.1", port, create_app(path), threaded=True)
    print(f"http://127.0.0.1:{server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
