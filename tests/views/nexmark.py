"""Nexmark as a database that changes: persons, auctions and bids in tables, and those of its queries that ask for the
state of all of them. Where Nexmark's own text needs a streaming dialect (TOP-N, deduplication) it is said in SQL.

Rows are drawn here, the same ones each time, in Nexmark's shares: of fifty events one person, three auctions, and bids.
Scale 0.01 is 10,000 of them. They are of three days, so that queries by day have groups that come and go.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.views.tpch import Row, copy, insert

TABLES = {
    "person": "p_id bigint PRIMARY KEY, p_name text, p_email text, p_city text, p_state text, p_at timestamp",
    "auction": """a_id bigint PRIMARY KEY, a_item text, a_initial bigint, a_reserve bigint, a_at timestamp,
        a_expires timestamp, a_seller bigint, a_category bigint""",
    "bid": """b_id bigint PRIMARY KEY, b_auction bigint, b_bidder bigint, b_price bigint, b_channel text, b_url text,
        b_at timestamp""",
}

_DAY = "date_trunc('day', b_at)::date AS day"
_RANKS = ", ".join(
    f"count({what}) FILTER (WHERE b_price {which}) AS {name}"
    for name, what, which in (
        ("low", "*", "< 10000"), ("mid", "*", ">= 10000 AND b_price < 1000000"), ("high", "*", ">= 1000000"),
        ("bidders", "DISTINCT b_bidder", ">= 0"), ("low_bidders", "DISTINCT b_bidder", "< 10000"),
        ("mid_bidders", "DISTINCT b_bidder", ">= 10000 AND b_price < 1000000"),
        ("high_bidders", "DISTINCT b_bidder", ">= 1000000"), ("auctions", "DISTINCT b_auction", ">= 0"),
        ("low_auctions", "DISTINCT b_auction", "< 10000"),
        ("mid_auctions", "DISTINCT b_auction", ">= 10000 AND b_price < 1000000"),
        ("high_auctions", "DISTINCT b_auction", ">= 1000000"),
    )
)  # fmt: skip

VIEWS = {
    "nexmark3": (("a_id",), """
        SELECT p_name, p_city, p_state, a_id FROM auction JOIN person ON a_seller = p_id
        WHERE a_category = 10 AND p_state IN ('OR', 'ID', 'CA')"""),
    "nexmark4": (("category",), """
        SELECT category, avg(final) AS price FROM (
            SELECT max(b_price) AS final, a_category AS category FROM auction, bid
            WHERE a_id = b_auction AND b_at BETWEEN a_at AND a_expires GROUP BY a_id, a_category) q
        GROUP BY category"""),
    "nexmark6": (("seller",), """
        SELECT seller, avg(final) AS price FROM (
            SELECT seller, final, row_number() OVER (PARTITION BY seller ORDER BY ended DESC, id) AS place FROM (
                SELECT a_id AS id, a_seller AS seller, a_expires AS ended, max(b_price) AS final FROM auction, bid
                WHERE a_id = b_auction AND b_at BETWEEN a_at AND a_expires GROUP BY a_id, a_seller, a_expires) won) q
        WHERE place <= 10 GROUP BY seller"""),
    "nexmark9": (("a_id",), """
        SELECT a_id, b_id, b_price FROM (
            SELECT a_id, b_id, b_price, row_number() OVER (PARTITION BY a_id ORDER BY b_price DESC, b_at, b_id) AS place
            FROM auction, bid WHERE a_id = b_auction AND b_at BETWEEN a_at AND a_expires) q
        WHERE place <= 1"""),
    "nexmark15": (("day",), f"SELECT {_DAY}, count(*) AS bids, {_RANKS} FROM bid GROUP BY 1"),
    "nexmark16": (("b_channel", "day"), f"""
        SELECT b_channel, {_DAY}, max(b_at) AS latest, count(*) AS bids, {_RANKS} FROM bid GROUP BY b_channel, 2"""),
    "nexmark17": (("b_auction", "day"), f"""
        SELECT b_auction, {_DAY}, count(*) AS bids, count(*) FILTER (WHERE b_price < 10000) AS low,
            min(b_price) AS least, max(b_price) AS most, avg(b_price) AS mean, sum(b_price) AS total
        FROM bid GROUP BY b_auction, 2"""),
    "nexmark18": (("b_bidder", "b_auction"), """
        SELECT b_auction, b_bidder, b_price, b_channel FROM (
            SELECT *, row_number() OVER (PARTITION BY b_bidder, b_auction ORDER BY b_at DESC, b_id) AS n FROM bid) q
        WHERE n = 1"""),
    "nexmark19": (("b_auction", "n"), """
        SELECT b_auction, b_price, n FROM (
            SELECT *, row_number() OVER (PARTITION BY b_auction ORDER BY b_price DESC, b_id) AS n FROM bid) q
        WHERE n <= 10"""),
    "nexmark20": (("b_id",), """
        SELECT b_id, b_price, b_channel, a_id, a_item, a_category FROM bid INNER JOIN auction ON b_auction = a_id
        WHERE a_category = 10"""),
    "nexmark23": (("b_id", "a_id"), """
        SELECT b_id, b_price, p_name, a_id, a_item FROM bid b INNER JOIN person p ON b.b_bidder = p.p_id
        INNER JOIN auction a ON a.a_seller = p.p_id"""),
}  # fmt: skip

EVENTS = 1_000_000
PERSONS, AUCTIONS, BIDS = 1, 3, 46  # of fifty
BEGINS, LASTS_S = datetime(2024, 1, 1), 3 * 86_400
CATEGORIES = (10, 11, 12, 13, 14)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Bend", "Boise", "Cheyenne", "Kent", "Phoenix", "Portland")
CHANNELS = ("Apple", "Baidu", "Facebook", "Google", "channel-1", "channel-2")


class Nexmark:
    """Rows of a scale. `fill` makes the tables; `change` is one random change of some rows."""

    def __init__(self, scale: float, seed: int = 2) -> None:
        self.draw = random.Random(seed)
        fiftieths = max(round(scale * EVENTS / 50), 2)
        self.last = {"person": fiftieths * PERSONS, "auction": fiftieths * AUCTIONS, "bid": fiftieths * BIDS}
        self._rows: dict[str, Callable[[int], Row]] = {
            "person": self._person, "auction": self._auction, "bid": self._bid,
        }  # fmt: skip

    def fill(self, connection: Any) -> None:
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
            copy(connection, name, map(self._rows[name], range(1, self.last[name] + 1)))

    def _at(self) -> datetime:
        return BEGINS + timedelta(seconds=self.draw.randrange(LASTS_S))

    def _some(self, table: str) -> int:
        """Half of the time one of the few that everybody wants."""
        most = self.last[table] if self.draw.random() < 0.5 else max(self.last[table] // 10, 1)
        return self.draw.randint(1, most)

    def _price(self) -> int:
        return round(10 ** (self.draw.random() * 6) * 100)

    def _person(self, number: int) -> Row:
        city, state = self.draw.choice(CITIES), self.draw.choice(STATES)
        return number, f"Person {number}", f"{number}@example.org", city, state, self._at()

    def _auction(self, number: int) -> Row:
        at, price = self._at(), self._price()
        expires = at + timedelta(hours=self.draw.randint(1, 48))
        return (
            number, f"item {number}", price, price * 2, at, expires, self._some("person"), self.draw.choice(CATEGORIES)
        )  # fmt: skip

    def _bid(self, number: int) -> Row:
        channel = self.draw.choice(CHANNELS)
        url = f"https://example.org/{number}"
        return number, self._some("auction"), self._some("person"), self._price(), channel, url, self._at()

    def change(self, connection: Any) -> None:
        table = self.draw.choice(("person", "auction", "bid", "bid", "bid"))
        changes = (self._come, self._come, self._go, self._update, self._update, self._update, self._rekey)
        self.draw.choice(changes)(connection, table)

    def _come(self, connection: Any, table: str) -> None:
        self.last[table] += 1
        insert(connection, table, self._rows[table](self.last[table]))

    def _go(self, connection: Any, table: str) -> None:
        connection.execute(f"DELETE FROM {table} WHERE {table[0]}_id = %s", (self._some(table),))

    def _update(self, connection: Any, table: str) -> None:
        """One column or all of them, now and then to nothing."""
        key, *values = self._rows[table](self._some(table))
        names = [part.split()[0] for part in TABLES[table].replace("\n", " ").split(",")][1:]
        places = self.draw.sample(range(len(names)), self.draw.choice((1, 1, len(names))))
        given = {names[place]: None if self.draw.random() < 0.1 else values[place] for place in places}
        listed = ", ".join(f"{name} = %s" for name in given)
        connection.execute(f"UPDATE {table} SET {listed} WHERE {table[0]}_id = %s", (*given.values(), key))

    def _rekey(self, connection: Any, table: str) -> None:
        self.last[table] += 1
        key = f"{table[0]}_id"
        connection.execute(f"UPDATE {table} SET {key} = %s WHERE {key} = %s", (self.last[table], self._some(table)))
