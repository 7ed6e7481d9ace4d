"""Fraud, with customers as a bank has them: in a PostgreSQL, whose table is captured.

python -m millrace.demo.fraud_captured           the database and its customers, who change, until Ctrl-C
millrace run millrace.demo.fraud_captured:app    payments are made up and judged, in another terminal, the same folder
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql

from millrace.demo.fraud import CARDS, application, customer

app = application("fraud_captured", database="fraud_captured", mode="realtime")

TABLE = (
    "CREATE TABLE IF NOT EXISTS customers "
    "(customer bigint PRIMARY KEY, country text NOT NULL, usual double precision NOT NULL)"
)
CHANGE_S = 0.5


def stock(connection: psycopg.Connection[Any]) -> None:
    """Every customer; who is there already stays as he is."""
    connection.execute(TABLE)
    known = [customer(number, datetime.now(UTC)) for number in range(CARDS // 2)]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO customers VALUES (%(customer)s, %(country)s, %(usual)s) ON CONFLICT DO NOTHING", known
        )


def change(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Somebody spends a little more than before, or less."""
    factor = chance.choice((0.95, 1.05))
    connection.execute(
        "UPDATE customers SET usual = usual * %s WHERE customer = %s", (factor, chance.randrange(CARDS // 2))
    )


@contextmanager
def database() -> Iterator[str]:
    """Its URL. Its server ends with the block, unless it ran before."""
    from millrace import config, local

    with local.held(config.load(), ("postgres",)) as addresses:
        server = addresses["postgres"]
        with psycopg.connect(server, autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", (app.name,)).fetchall():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(app.name)))
        yield f"{server.rpartition('/')[0]}/{app.name}"


def main() -> None:
    chance = random.Random(1)  # noqa: S311 -- made-up customers want to be repeatable, not secret
    with database() as url, psycopg.connect(url, autocommit=True) as connection:
        stock(connection)
        print("customers change until Ctrl-C", flush=True)
        while not threading.Event().wait(CHANGE_S):
            change(connection, chance)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
