"""What each query must give: the published SQL as a batch over the same topics; and what a flow's results amount to.

`persons`, `auctions` and `bids` are views of all records. A window that the last records leave open does not count:
those have nothing but a time, so that only windows without a key must be told apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.nexmark import flows
from millrace.engine.output import TIMES
from millrace.flow import Topic

_COUNTS = """
    counts AS (
        SELECT auction, explode(sequence(0, 8, 2)) AS back, floor(unix_millis(dateTime) / 2000) * 2 AS last
        FROM bids WHERE auction IS NOT NULL),
    windows AS (SELECT auction, last - back AS start, count(*) AS bids FROM counts GROUP BY auction, last - back)"""

# Of all prices and of some: how many bids, and of how many bidders and auctions.
_BIDS = ", ".join(f"count_if({condition}) AS {rank}_bids" for rank, condition in flows.RANKS.items())
_DIFFERENT = ", ".join(
    f"count(DISTINCT CASE WHEN {condition} THEN {column} END) AS {rank}_{column}s"
    for column in ("bidder", "auction")
    for rank, condition in flows.RANKS.items()
)
_SOLD = """
    offers AS (
        SELECT a.*, b.bidder, b.price, b.dateTime AS offered, row_number() OVER (
            PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS place
        FROM auctions a JOIN bids b ON a.id = b.auction WHERE b.dateTime BETWEEN a.dateTime AND a.expires),
    sold AS (SELECT * FROM offers WHERE place = 1)"""

# Queries that tell a result again when it has changed, and what it is known by.
UPDATES = {
    "q4": ("category",),
    "q12": ("bidder", "window"),
    "q15": ("day",),
    "q16": ("channel", "day"),
    "q17": ("auction", "day"),
}
# Queries of which only some columns are compared: of a tie any row will do. q18 and q19 tell signed rows.
COMPARED = {
    "q9": ("auction", "seller", "category", "price", "offered"),
    "q18": ("bidder", "auction", "dateTime"),
    "q19": ("auction", "price", "rank"),
}

SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bids",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category, avg(final) AS price FROM (
            SELECT a.id, a.category, max(b.price) AS final FROM auctions a JOIN bids b ON a.id = b.auction
            WHERE b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY a.id, a.category)
        GROUP BY category""",
    "q5": f"""
        WITH {_COUNTS}, most AS (SELECT start, max(bids) AS bids FROM windows GROUP BY start)
        SELECT timestamp_seconds(w.start) AS window_start, timestamp_seconds(w.start + 10) AS window_end,
            max(w.auction) AS auction, w.bids
        FROM windows w JOIN most m ON w.start = m.start AND w.bids = m.bids GROUP BY w.start, w.bids""",
    "q6": f"""
        WITH {_SOLD}, lately AS (
            SELECT seller, expires AS closed, sort_array(collect_list(struct(expires, price)) OVER (
                PARTITION BY seller ORDER BY expires RANGE UNBOUNDED PRECEDING), false) AS sold
            FROM sold)
        SELECT seller, closed, aggregate(slice(sold, 1, 10), 0D, (sum, each) -> sum + each.price) / least(
            size(sold), 10) AS price
        FROM lately""",
    "q7": """
        WITH placed AS (
            SELECT *, floor(unix_millis(dateTime) / 10000) * 10 + 10 AS end FROM bids WHERE auction IS NOT NULL),
        most AS (SELECT end, max(price) AS price FROM placed GROUP BY end),
        ranked AS (
            SELECT b.*, row_number() OVER (
                PARTITION BY b.end ORDER BY auction DESC, bidder DESC, dateTime DESC, extra DESC) AS n
            FROM placed b JOIN most m ON b.end = m.end AND b.price = m.price)
        SELECT price, auction, bidder, dateTime, extra, timestamp_seconds(end) AS window_end FROM ranked WHERE n = 1""",
    "q8": """
        SELECT p.id, p.name, timestamp_seconds(p.start) AS window_start, timestamp_seconds(p.start + 10) AS window_end,
            a.auctions
        FROM (SELECT id, name, floor(unix_millis(dateTime) / 10000) * 10 AS start FROM persons) p
        JOIN (SELECT seller, floor(unix_millis(dateTime) / 10000) * 10 AS start, count(*) AS auctions FROM auctions
              GROUP BY seller, start) a
        ON p.id = a.seller AND p.start = a.start""",
    "q9": f"WITH {_SOLD} SELECT id AS auction, seller, category, price, offered FROM sold",
    "q11": """
        WITH timed AS (SELECT bidder, unix_millis(dateTime) AS at FROM bids WHERE bidder IS NOT NULL),
        begun AS (
            SELECT *, coalesce(at - lag(at) OVER (PARTITION BY bidder ORDER BY at) >= 10000, true) AS begins
            FROM timed),
        numbered AS (SELECT *, count_if(begins) OVER (PARTITION BY bidder ORDER BY at) AS number FROM begun)
        SELECT bidder, timestamp_millis(min(at)) AS window_start, timestamp_millis(max(at) + 10000) AS window_end,
            count(*) AS bids
        FROM numbered GROUP BY bidder, number""",
    "q12": "SELECT bidder, count(*) AS bids FROM bids GROUP BY bidder",
    "q13": """
        SELECT auction, bidder, price, dateTime, concat('item ', auction % 10000) AS value FROM bids
        WHERE auction IS NOT NULL""",
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'day'
                 WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'night' ELSE 'other' END AS bidTimeType,
            dateTime, extra, regexp_count(extra, 'c') AS c_counts
        FROM bids WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_BIDS}, {_DIFFERENT}, to_date(dateTime) AS day FROM bids GROUP BY day",
    "q16": f"""
        SELECT channel, max(date_format(dateTime, 'HH:mm')) AS minute, {_BIDS}, {_DIFFERENT}, to_date(dateTime) AS day
        FROM bids GROUP BY channel, day""",
    "q17": f"""
        SELECT auction, {_BIDS}, min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
            sum(price) AS sum_price, to_date(dateTime) AS day
        FROM bids GROUP BY auction, day""",
    "q18": "SELECT bidder, auction, max(dateTime) AS dateTime FROM bids GROUP BY bidder, auction",
    "q19": """
        SELECT auction, price, rank FROM (
            SELECT auction, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank FROM bids)
        WHERE rank <= 10""",
    "q20": """
        SELECT auction, itemName, description, initialBid, reserve, a.dateTime AS opened, expires, seller, category,
            a.extra, bidder, price, channel, url, b.dateTime, b.extra AS bid_extra
        FROM auctions a JOIN bids b ON a.id = b.auction WHERE category = 10""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3
        FROM bids""",
    "q23": """
        SELECT a.id, itemName, description, initialBid, reserve, a.dateTime AS opened, expires, seller, category,
            a.extra AS auction_extra, name, emailAddress, creditCard, city, state, p.dateTime AS joined, p.extra,
            auction, price, channel, url, b.dateTime, b.extra AS bid_extra
        FROM auctions a JOIN persons p ON a.seller = p.id JOIN bids b ON a.seller = b.bidder""",
}


def views(spark: SparkSession, kafka: Mapping[str, str], named: Callable[[str], str]) -> None:
    """Makes the topics known as views. `named` gives the name that a topic has in Kafka."""
    for topic in (flows.persons, flows.auctions, flows.bids):
        _rows(spark, kafka, topic, named(topic.name)).createOrReplaceTempView(topic.name)


def _rows(spark: SparkSession, kafka: Mapping[str, str], topic: Topic, outside: str) -> DataFrame:
    raw = spark.read.format("kafka").options(**kafka).option("subscribe", outside).load()
    assert topic.schema is not None
    return raw.select(F.from_json(F.col("value").cast("string"), topic.schema).alias("row")).select("row.*")


@dataclass
class Sums:
    """What tells two sets of rows apart without holding them: how many, and two sums of a hash of each. Signed rows
    take away what they take back."""

    rows: int = 0
    total: Decimal = Decimal(0)
    mixed: int = 0

    def add(self, rows: DataFrame) -> Sums:
        sign = F.col("__diff") if "__diff" in rows.columns else F.lit(1)
        values = [F.col(name).cast("string") for name in rows.columns if name != "__diff"]
        hashed = rows.select(F.xxhash64(*values).alias("hash"), sign.cast("long").alias("sign"))
        total = F.sum(F.col("hash").cast("decimal(20,0)") * F.col("sign"))
        found = hashed.agg(F.coalesce(F.sum("sign"), F.lit(0)), total, F.bit_xor("hash")).first()
        assert found is not None
        self.rows, self.total, self.mixed = (
            self.rows + found[0],
            self.total + (found[1] or 0),
            self.mixed ^ (found[2] or 0),
        )
        return self


def compared(query: str, rows: DataFrame) -> DataFrame:
    """The columns that are compared."""
    if query not in COMPARED:
        return rows
    return rows.select(*COMPARED[query], *(["__diff"] if "__diff" in rows.columns else []))


def as_json(rows: DataFrame) -> list[str]:
    """Rows as a flow writes them."""
    return [row.value for row in rows.select(F.to_json(F.struct("*"), TIMES).alias("value")).collect()]


def expected(spark: SparkSession, query: str) -> Counter[str]:
    return Counter(as_json(spark.sql(SQL[query])))


def last_of(query: str, rows: Iterable[str]) -> Counter[str]:
    """What a flow's results amount to: where it tells updates, the last of each."""
    if query in COMPARED:
        held: Counter[str] = Counter()
        for row in map(json.loads, rows):
            known = {name: row[name] for name in COMPARED[query]}
            held[json.dumps(known, separators=(",", ":"))] += row.get("__diff", 1)
        return Counter({row: count for row, count in held.items() if count})
    if query not in UPDATES:
        return Counter(rows)
    last: dict[str, str] = {}
    for row in rows:
        told = json.loads(row)
        last[json.dumps([told[name] for name in UPDATES[query]])] = row
    return _added_up(last.values()) if query == "q12" else Counter(last.values())


def _added_up(rows: Iterable[str]) -> Counter[str]:
    """q12's windows are those of the day's clock: what they are depends on it, but not what they come to."""
    sums: Counter[int | None] = Counter()
    for row in map(json.loads, rows):
        sums[row["bidder"]] += row["count"]
    return Counter(f'{{"bidder":{json.dumps(bidder)},"bids":{count}}}' for bidder, count in sums.items())
