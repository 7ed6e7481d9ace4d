"""How fresh a view is, measured: what nobody saw is told, and counts as waited for until the end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from bench.views_fresh import Phase, Totals, alone

pytestmark = pytest.mark.server

RATE, SECONDS = 40, 0.5


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("CREATE DATABASE fresh")
    own = postgres.rpartition("/")[0] + "/fresh"
    with psycopg.connect(own) as connection:
        connection.execute("CREATE TABLE customers (id integer PRIMARY KEY, region text)")
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount numeric(12, 2))")
        connection.execute("INSERT INTO customers SELECT n, 'region ' || n FROM generate_series(0, 7) n")
        connection.execute("INSERT INTO orders SELECT n, n % 8, 1 FROM generate_series(1, 40) n")
    yield own
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("DROP DATABASE fresh WITH (FORCE)")


def test_a_rate_that_is_not_seen_by_all_is_not_held(url: str) -> None:
    def table() -> Iterator[Totals]:
        with psycopg.connect(url, autocommit=True) as connection:
            while True:
                sums = "SELECT region, sum(amount) FROM orders JOIN customers c ON c.id = customer_id GROUP BY region"
                yield dict(connection.execute(sums).fetchall())

    def stuck() -> Iterator[Totals]:
        first = next(table())
        while True:
            yield first
            time.sleep(0.01)

    found = Phase(url, RATE, SECONDS).run({"table": table})
    assert found["held"]
    assert found["changes"] == RATE * SECONDS
    assert "unseen" not in found
    found = Phase(url, RATE, SECONDS, limit_s=0.3).run({"table": table, "stuck": stuck})
    assert not found["held"]
    assert found["unseen"] == {"table": 0, "stuck": RATE * SECONDS}
    assert found["stuck"]["p50"] >= max(300, found["table"]["p50"])


def test_a_rate_that_is_not_written_is_not_held(url: str) -> None:
    most = alone(url, 0.3)
    assert most > 0
    found = Phase(url, 1_000_000, 0.1).run({})
    assert not found["held"]
    assert 0 < found["written_per_s"] < 1_000_000
