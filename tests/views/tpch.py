"""TPC-H as a database that changes: its tables but for parts, rows like those of its generator, and six of its queries.

Rows are drawn here, the same ones each time: not those of dbgen, but as many, with the same keys, days and rules
between columns. Scale 0.01 is 15,000 orders with some 60,000 lines. Bounds of queries are the standard's, but for the
lines of a large order (300, of which there are too few here). What changes is anything, within small neighbourhoods so
that changes meet each other: the standard's own two, orders that come and go with their lines, are among them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]

TABLES = {
    "region": "r_regionkey integer PRIMARY KEY, r_name char(25), r_comment varchar(152)",
    "nation": "n_nationkey integer PRIMARY KEY, n_name char(25), n_regionkey integer, n_comment varchar(152)",
    "supplier": """s_suppkey integer PRIMARY KEY, s_name char(25), s_address varchar(40), s_nationkey integer,
        s_phone char(15), s_acctbal numeric(15,2), s_comment varchar(101)""",
    "customer": """c_custkey integer PRIMARY KEY, c_name varchar(25), c_address varchar(40), c_nationkey integer,
        c_phone char(15), c_acctbal numeric(15,2), c_mktsegment char(10), c_comment varchar(117)""",
    "orders": """o_orderkey integer PRIMARY KEY, o_custkey integer, o_orderstatus char(1), o_totalprice numeric(15,2),
        o_orderdate date, o_orderpriority char(15), o_clerk char(15), o_shippriority integer, o_comment varchar(79)""",
    "lineitem": """l_orderkey integer, l_partkey integer, l_suppkey integer, l_linenumber integer,
        l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2),
        l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date,
        l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44), PRIMARY KEY (l_orderkey, l_linenumber)""",
}

VIEWS = {
    "tpch1": (("l_returnflag", "l_linestatus"), """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
            count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90' day
        GROUP BY l_returnflag, l_linestatus"""),
    "tpch3": (("l_orderkey",), """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10"""),
    "tpch4": (("o_orderpriority",), """
        SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= date '1993-07-01' AND o_orderdate < date '1993-07-01' + interval '3' month
            AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority"""),
    "tpch5": (("n_name",), """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
            AND r_name = 'ASIA' AND o_orderdate >= date '1994-01-01'
            AND o_orderdate < date '1994-01-01' + interval '1' year
        GROUP BY n_name"""),
    "tpch13": (("c_count",), """
        SELECT c_count, count(*) AS custdist
        FROM (SELECT c_custkey, count(o_orderkey) FROM customer LEFT OUTER JOIN orders
                ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey)
            AS c_orders (c_custkey, c_count)
        GROUP BY c_count"""),
    "tpch18": (("o_orderkey",), """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 200)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100"""),
}  # fmt: skip

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = 25
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
WORDS = ("blithely", "deposits", "express", "final", "ironic", "packages", "quickly", "requests", "sleep", "special")
FIRST_DAY, ORDER_DAYS = date(1992, 1, 1), 2_406
CURRENT_DAY = date(1995, 6, 17)
# Of each table at scale 1.
SUPPLIERS, CUSTOMERS, ORDERS, PARTS = 10_000, 150_000, 1_500_000, 200_000
# Where the queries' days are: changes go there more often than elsewhere.
BUSY_DAYS = (date(1993, 8, 1), date(1994, 6, 1), date(1995, 3, 10))


class Tpch:
    """Rows of a scale. `fill` makes the tables; `change` is one random change of some rows."""

    def __init__(self, scale: float, seed: int = 1) -> None:
        self.draw = random.Random(seed)
        self.suppliers, self.customers, self.orders, self.parts = (
            max(round(scale * many), NATIONS) for many in (SUPPLIERS, CUSTOMERS, ORDERS, PARTS)
        )
        self._last = self.orders

    def fill(self, connection: Any) -> None:
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
        made: dict[str, Iterator[Row]] = {
            "region": ((number, name, self._words(4)) for number, name in enumerate(REGIONS)),
            "nation": (
                (number, f"NATION {number}", number % len(REGIONS), self._words(4)) for number in range(NATIONS)
            ),
            "supplier": (self._supplier(number) for number in range(1, self.suppliers + 1)),
            "customer": (self._customer(number) for number in range(1, self.customers + 1)),
        }
        for name, rows in made.items():
            copy(connection, name, rows)
        orders = [self._order(number) for number in range(1, self.orders + 1)]
        copy(connection, "orders", (order for order, _ in orders))
        copy(connection, "lineitem", (line for _, lines in orders for line in lines))

    def _words(self, count: int) -> str:
        return " ".join(self.draw.choices(WORDS, k=count))

    def _cents(self, least: int, most: int) -> Decimal:
        return Decimal(self.draw.randint(least, most)) / 100

    def _supplier(self, number: int) -> Row:
        nation = self.draw.randrange(NATIONS)
        return number, f"Supplier#{number:09}", "", nation, "", self._cents(-99_999, 999_999), self._words(5)

    def _customer(self, number: int) -> Row:
        nation, segment = self.draw.randrange(NATIONS), self.draw.choice(SEGMENTS)
        return number, f"Customer#{number:09}", "", nation, "", self._cents(-99_999, 999_999), segment, self._words(5)

    def _order(self, number: int) -> tuple[Row, list[Row]]:
        """With its lines; a third of the customers have none."""
        day = FIRST_DAY + timedelta(days=self.draw.randrange(ORDER_DAYS))
        lines = [self._line(number, place, day) for place in range(1, self.draw.randint(1, 7) + 1)]
        total = sum(price * (1 + tax) * (1 - discount) for _, _, _, _, _, price, discount, tax, *_ in lines)
        customer = self.draw.randint(1, self.customers)
        customer -= customer % 3 == 0
        statuses = {line[9] for line in lines}
        status = statuses.pop() if len(statuses) == 1 else "P"
        priority, clerk = self.draw.choice(PRIORITIES), f"Clerk#{self.draw.randint(1, 1_000):09}"
        return (number, customer, status, round(total, 2), day, priority, clerk, 0, self._words(6)), lines

    def _line(self, order: int, place: int, day: date) -> Row:
        part, quantity = self.draw.randint(1, self.parts), self.draw.randint(1, 50)
        price = Decimal(90_000 + part // 10 % 20_001 + 100 * (part % 1_000)) / 100 * quantity
        shipped = day + timedelta(days=self.draw.randint(1, 121))
        received = shipped + timedelta(days=self.draw.randint(1, 30))
        flag = self.draw.choice("RA") if received <= CURRENT_DAY else "N"
        return (
            order, part, self.draw.randint(1, self.suppliers), place, Decimal(quantity), price, self._cents(0, 10),
            self._cents(0, 8), flag, "O" if shipped > CURRENT_DAY else "F", shipped,
            day + timedelta(days=self.draw.randint(30, 90)), received, self.draw.choice(INSTRUCTIONS),
            self.draw.choice(MODES), self._words(3),
        )  # fmt: skip

    def change(self, connection: Any) -> None:
        """Some of an order, of its lines, or of who it is between. Nothing is asked for, so it may hit no row."""
        changes = (
            self._come, self._come, self._go, self._go, self._move, self._move, self._reline, self._reline,
            self._reline, self._rekey, self._unknown, self._people, self._people, self._places,
        )  # fmt: skip
        self.draw.choice(changes)(connection)

    def _some(self) -> int:
        return self.draw.randint(1, self._last)

    def _day(self) -> date:
        return self.draw.choice(BUSY_DAYS) + timedelta(days=self.draw.randint(-60, 60))

    def _come(self, connection: Any) -> None:
        self._last += 1
        order, lines = self._order(self._last)
        insert(connection, "orders", order)
        for line in lines:
            insert(connection, "lineitem", line)

    def _go(self, connection: Any) -> None:
        """An order with all its lines, or lines alone, or the order alone."""
        order, what = self._some(), self.draw.choice(("both", "both", "lineitem", "orders"))
        if what != "orders":
            connection.execute("DELETE FROM lineitem WHERE l_orderkey = %s", (order,))
        if what != "lineitem":
            connection.execute("DELETE FROM orders WHERE o_orderkey = %s", (order,))

    def _move(self, connection: Any) -> None:
        """To another customer, and to days at which queries look."""
        connection.execute(
            "UPDATE orders SET o_custkey = %s, o_orderdate = %s, o_orderpriority = %s, o_comment = %s,"
            " o_totalprice = o_totalprice + %s WHERE o_orderkey = %s",
            (
                self.draw.randint(1, self.customers), self._day(), self.draw.choice(PRIORITIES), self._words(6),
                self._cents(-5_000, 5_000_000), self._some(),
            ),
        )  # fmt: skip

    def _reline(self, connection: Any) -> None:
        """All lines of an order, or one."""
        one = "" if self.draw.random() < 0.5 else " AND l_linenumber = 1"
        shipped = self._day()
        connection.execute(
            "UPDATE lineitem SET l_quantity = l_quantity + %s, l_extendedprice = l_extendedprice * 1.01,"
            " l_discount = %s, l_suppkey = %s, l_returnflag = %s, l_shipdate = %s, l_receiptdate = %s"
            f" WHERE l_orderkey = %s{one}",
            (
                self.draw.randint(-5, 40), self._cents(0, 10), self.draw.randint(1, self.suppliers),
                self.draw.choice("RAN"), shipped, shipped + timedelta(days=self.draw.randint(1, 30)), self._some(),
            ),
        )  # fmt: skip

    def _rekey(self, connection: Any) -> None:
        order, self._last = self._some(), self._last + 1
        connection.execute("UPDATE orders SET o_orderkey = %s WHERE o_orderkey = %s", (self._last, order))
        if self.draw.random() < 0.8:
            connection.execute("UPDATE lineitem SET l_orderkey = %s WHERE l_orderkey = %s", (self._last, order))

    def _unknown(self, connection: Any) -> None:
        column = self.draw.choice(("o_custkey", "o_orderdate", "o_comment", "o_orderpriority", "o_totalprice"))
        connection.execute(f"UPDATE orders SET {column} = NULL WHERE o_orderkey = %s", (self._some(),))
        column = self.draw.choice(("l_suppkey", "l_discount", "l_quantity", "l_shipdate", "l_returnflag"))
        connection.execute(f"UPDATE lineitem SET {column} = NULL WHERE l_orderkey = %s", (self._some(),))

    def _people(self, connection: Any) -> None:
        if self.draw.random() < 0.2:
            connection.execute("DELETE FROM customer WHERE c_custkey = %s", (self.draw.randint(1, self.customers),))
        if self.draw.random() < 0.1:
            connection.execute("DELETE FROM supplier WHERE s_suppkey = %s", (self.draw.randint(1, self.suppliers),))
        connection.execute(
            "UPDATE customer SET c_nationkey = %s, c_mktsegment = %s WHERE c_custkey = %s",
            (self.draw.randrange(NATIONS), self.draw.choice(SEGMENTS), self.draw.randint(1, self.customers)),
        )
        connection.execute(
            "UPDATE supplier SET s_nationkey = %s WHERE s_suppkey = %s",
            (self.draw.randrange(NATIONS), self.draw.randint(1, self.suppliers)),
        )

    def _places(self, connection: Any) -> None:
        """A nation that moves takes all lines between its people along."""
        connection.execute(
            "UPDATE nation SET n_regionkey = %s WHERE n_nationkey = %s",
            (self.draw.choice((2, 2, *range(len(REGIONS)))), self.draw.randrange(NATIONS)),
        )


def copy(connection: Any, table: str, rows: Iterator[Row]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as into:
        for row in rows:
            into.write_row(row)


def insert(connection: Any, table: str, row: Row) -> None:
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))}) ON CONFLICT DO NOTHING", row)
