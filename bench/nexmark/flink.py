"""The peer: the same queries in Flink SQL over the same topics, results to `blackhole`.

Flink's process lives as long as the benchmark, so that its JVM is as warm as Spark's. q5 and q7 take the first of a
window in one pass, as the flows do: the published ones join each window with itself, which costs Flink more. The others
are as published, but for two that Flink 2.3 does not take. q6 has an OVER of rows that may change; here auctions count
once the ten seconds in which they began are over, and an interval joins them with their bids. q13 looks up in a file;
here it is a table with versions, of which each key has one.

As published, the joins of q3, q4, q9, q20 and q23 keep the rows of all sides for ever, where the flows have bounds;
`BOUNDED` are these queries with the same bounds. What stands behind the join in q4 and q9 keeps a row for each auction
in both.
"""

from __future__ import annotations

from pathlib import Path

from bench import flink
from bench.nexmark import flows
from millrace.flow import Topic
from millrace.flow.schema import columns

OPTIONS = {
    "parallelism.default": "2",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "restart-strategy.type": "none",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "table.local-time-zone": "UTC",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "1 gb",
    "taskmanager.memory.network.max": "256 mb",
}

_TYPES = {"long": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP_LTZ(3)"}
_HOPS = "HOP(TABLE bids, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
_BIDS, _PERSONS, _AUCTIONS = (
    f"TUMBLE(TABLE {table}, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)"
    for table in ("bids", "more_persons", "more_auctions")
)

_COUNTS = ", ".join(f"COUNT(*) FILTER (WHERE {condition}) AS {rank}_bids" for rank, condition in flows.RANKS.items())
_DIFFERENT = ", ".join(
    f"COUNT(DISTINCT {column}) FILTER (WHERE {condition}) AS {rank}_{column}s"
    for column in ("bidder", "auction")
    for rank, condition in flows.RANKS.items()
)
_DAY = "DATE_FORMAT(dateTime, 'yyyy-MM-dd')"

VIEWS = {
    "pairs": """
        SELECT a.id, a.seller, a.dateTime AS opened, b.price FROM auctions a, bids b
        WHERE a.id = b.auction AND b.dateTime <= a.expires
            AND b.dateTime BETWEEN a.dateTime AND a.dateTime + INTERVAL '10' SECOND""",
    "sold": """
        SELECT id, seller, MAX(price) AS price, window_time AS closed
        FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(opened), INTERVAL '10' SECOND))
        GROUP BY id, seller, window_start, window_end, window_time""",
}

SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bids",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM more_auctions a JOIN more_persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category, AVG(highest) AS price FROM (
            SELECT a.id, a.category, MAX(b.price) AS highest FROM auctions a JOIN bids b ON a.id = b.auction
            WHERE b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY a.id, a.category)
        GROUP BY category""",
    "q5": f"""
        SELECT window_start, window_end, auction, bids FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY bids DESC, auction DESC) AS n
            FROM (SELECT window_start, window_end, auction, COUNT(*) AS bids FROM TABLE({_HOPS})
                  GROUP BY window_start, window_end, auction))
        WHERE n = 1""",
    "q6": """
        SELECT seller, closed, AVG(price) OVER (
            PARTITION BY seller ORDER BY closed ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS price
        FROM sold""",
    "q7": f"""
        SELECT price, auction, bidder, dateTime, extra, window_end FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
            FROM TABLE({_BIDS}))
        WHERE place = 1""",
    "q8": f"""
        SELECT p.id, p.name, p.window_start, p.window_end, a.auctions FROM (
            SELECT id, name, window_start, window_end FROM TABLE({_PERSONS})
            GROUP BY id, name, window_start, window_end) p
        JOIN (
            SELECT seller, window_start, window_end, COUNT(*) AS auctions FROM TABLE({_AUCTIONS})
            GROUP BY seller, window_start, window_end) a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": """
        SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra, bidder,
            price, offered, bid_extra
        FROM (
            SELECT a.*, b.bidder, b.price, b.dateTime AS offered, b.extra AS bid_extra,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime ASC) AS place
            FROM auctions a JOIN bids b ON a.id = b.auction WHERE b.dateTime BETWEEN a.dateTime AND a.expires)
        WHERE place <= 1""",
    "q11": """
        SELECT bidder, window_start, window_end, COUNT(*) AS bids
        FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q12": """
        SELECT bidder, window_start, window_end, COUNT(*) AS bids
        FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(arrival), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end""",
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.dateTime, s.item
        FROM (SELECT *, MOD(auction, 10000) AS number FROM bids) b
        JOIN side_input FOR SYSTEM_TIME AS OF b.dateTime AS s ON b.number = s.number""",
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'day'
                 WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'night' ELSE 'other' END AS bidTimeType,
            dateTime, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bids WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY} AS d, {_COUNTS}, {_DIFFERENT} FROM bids GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY} AS d, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS m, {_COUNTS}, {_DIFFERENT}
        FROM bids GROUP BY channel, {_DAY}""",
    "q17": f"""
        SELECT auction, {_DAY} AS d, {_COUNTS}, MIN(price) AS min_price, MAX(price) AS max_price,
            AVG(price) AS avg_price, SUM(price) AS sum_price
        FROM bids GROUP BY auction, {_DAY}""",
    "q18": """
        SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place FROM bids)
        WHERE place <= 1""",
    "q19": """
        SELECT auction, bidder, price, channel, url, dateTime, extra, place FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bids)
        WHERE place <= 10""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, a.itemName, a.description,
            a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10""",
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
            SPLIT_INDEX(url, '/', 5) AS dir3
        FROM bids""",
    "q23": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, p.name, p.emailAddress,
            p.creditCard, p.city, p.state, p.dateTime AS joined, p.extra AS person_extra, a.id, a.itemName,
            a.description, a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.category,
            a.extra AS auction_extra
        FROM bids b JOIN persons p ON p.id = b.bidder JOIN auctions a ON a.seller = b.bidder""",
}


# With the bounds of `flows.py`: intervals, which Flink's joins forget by.
_OFFERS = """a.id = b.auction
            AND b.dateTime BETWEEN a.dateTime AND a.dateTime + INTERVAL '10' SECOND
        WHERE b.dateTime <= a.expires"""

BOUNDED = {
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM more_auctions a JOIN more_persons p ON a.seller = p.id
            AND p.dateTime BETWEEN a.dateTime - INTERVAL '10' MINUTE AND a.dateTime + INTERVAL '1' MINUTE
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT category, AVG(highest) AS price FROM (
            SELECT a.id, a.category, MAX(b.price) AS highest FROM auctions a JOIN bids b ON {_OFFERS}
            GROUP BY a.id, a.category)
        GROUP BY category""",
    "q9": f"""
        SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra, bidder,
            price, offered, bid_extra
        FROM (
            SELECT a.*, b.bidder, b.price, b.dateTime AS offered, b.extra AS bid_extra,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime ASC) AS place
            FROM auctions a JOIN bids b ON {_OFFERS})
        WHERE place <= 1""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, a.itemName, a.description,
            a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bids b JOIN auctions a ON b.auction = a.id
            AND b.dateTime BETWEEN a.dateTime - INTERVAL '1' SECOND AND a.dateTime + INTERVAL '10' SECOND
        WHERE a.category = 10""",
    "q23": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, p.name, p.emailAddress,
            p.creditCard, p.city, p.state, p.dateTime AS joined, p.extra AS person_extra, a.id, a.itemName,
            a.description, a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.category,
            a.extra AS auction_extra
        FROM auctions a JOIN persons p ON p.id = a.seller
            AND p.dateTime BETWEEN a.dateTime - INTERVAL '3' MINUTE AND a.dateTime + INTERVAL '1' MINUTE
        JOIN bids b ON b.bidder = a.seller
            AND b.dateTime BETWEEN a.dateTime - INTERVAL '3' MINUTE AND a.dateTime + INTERVAL '3' MINUTE""",
}


class Flink(flink.Flink):
    def __init__(self, bootstrap: str, work: Path, *, bounded: bool = False) -> None:
        self._sql = {**SQL, **BOUNDED} if bounded else SQL
        tables = [_table(topic, bootstrap, topic.name) for topic in (flows.persons, flows.auctions, flows.bids)]
        tables += [_table(topic, bootstrap, more(topic.name)) for topic in (flows.persons, flows.auctions)]
        tables += [_side_input(work), *(f"CREATE TEMPORARY VIEW {name} AS {sql}" for name, sql in VIEWS.items())]
        super().__init__(work, OPTIONS, [_escaped(table) for table in tables])

    def seconds(self, query: str) -> float:
        """How long it takes to read what is there."""
        made = f"CREATE TABLE {query} WITH ('connector' = 'blackhole') AS {self._sql[query]}"
        return float(self.ask(insert=_escaped(made), after=[f"DROP TABLE {query}"])["seconds"])


def more(table: str) -> str:
    """What a topic for queries without bids is called."""
    return f"more_{table}"


def _side_input(work: Path) -> str:
    """As in `flows.side_input`."""
    file = work / "side_input.csv"
    file.write_text("".join(f"{n},item {n}\n" for n in range(10_000)), encoding="utf-8")
    columns = "number BIGINT, item STRING, since AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR since AS since"
    options = f"'connector' = 'filesystem', 'path' = '{file.as_uri()}', 'format' = 'csv'"
    known = "PRIMARY KEY (number) NOT ENFORCED"
    return f"CREATE TABLE side_input ({columns}, {known}) WITH ({options})"


def _escaped(statement: str) -> str:
    """A word of SQL to Flink."""
    return statement.replace("dateTime", "`dateTime`")


def _table(topic: Topic, bootstrap: str, name: str) -> str:
    assert topic.schema is not None
    named = columns(topic.name, topic.schema, topic.where)
    fields = [f"{name} {_TYPES[kind]}" for name, kind in named.items()]
    told = ["arrival AS PROCTIME()", "WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND"]
    options = {
        "connector": "kafka",
        "topic": name,
        "properties.bootstrap.servers": bootstrap,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    words = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({', '.join(fields + told)}) WITH ({words})"
