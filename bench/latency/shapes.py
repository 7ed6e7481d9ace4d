"""What is measured: the same work as a Millrace flow and as Flink SQL, from least to most.

Every shape gives a row for (almost) every event, with the moment at which that was sent. Flink's windows and patterns
are by the time of day: by event time they would wait for the watermark, which a lookback does not. Our patterns take
rows as they come, for the same reason.

What ends without an event (`absence`, `window`) waits for the watermark, and has the moment from which on it could be
told: its deadline and the topic's lateness. Flink's SQL has no absence at a pattern's end, and its windows are not
asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr

SCHEMA = "id long, k long, m long, n long, sent long, at timestamp"
FLINK_SCHEMA = "id BIGINT, k BIGINT, m BIGINT, n BIGINT, sent BIGINT, p AS PROCTIME()"
KEYS = 1_000
LATENESS_S = 5
DEADLINE_S = 2


@dataclass(frozen=True)
class Shape:
    flow: Callable[[DataFrame], DataFrame]
    sql: str | None  # of the table `e`
    at_ends: bool = False  # whether it is told when the watermark has moved


def _stateless(events: DataFrame) -> DataFrame:
    return events.where("n >= 0").select("id", (F.col("n") * 2).alias("twice"), "sent")


def _keyed(events: DataFrame) -> DataFrame:
    return mr.dedup(events, on="id", ttl="1 minute", late=mr.late.drop()).select("id", "n", "sent")


def _lookback(events: DataFrame) -> DataFrame:
    found = mr.lookback(
        events, by="k", c=mr.count(over="1 minute"), s=mr.sum("n", over="1 minute"), late=mr.late.drop()
    )
    return found.select("id", "c", "s", "sent")


def _chain(events: DataFrame) -> DataFrame:
    once = mr.dedup(events, on="id", ttl="1 minute", late=mr.late.drop())
    found = mr.lookback(once, by="k", c=mr.count(over="1 minute"), late=mr.late.drop())
    last = mr.lookback(found, by="m", s=mr.sum("c", over="1 minute"), late=mr.late.drop())
    return last.select("id", "c", "s", "sent")


def _match(events: DataFrame) -> DataFrame:
    return mr.match(
        events,
        by="k",
        pattern="low high",
        define={"low": "n < 5", "high": "n >= 5"},
        within="1 minute",
        order="arrival",
        measures={"id": mr.last("high.id"), "sent": mr.last("high.sent")},
        late=mr.late.drop(),
    )


def _absence(events: DataFrame) -> DataFrame:
    found = mr.match(
        events,
        by="k",
        pattern="low !high",
        define={"low": "n < 5", "high": "n >= 5"},
        within=f"{DEADLINE_S} seconds",
        measures={"id": mr.last("low.id"), "sent": mr.last("low.sent")},
        late=mr.late.drop(),
    )
    return found.select("id", (F.col("sent") + (DEADLINE_S + LATENESS_S) * 1_000_000).alias("sent"))


def _window(events: DataFrame) -> DataFrame:
    found = mr.window(events, "1 second", by="m", c=mr.count(), emit="final", late=mr.late.drop())
    return found.select("m", "c", (F.unix_micros("window_end") + LATENESS_S * 1_000_000).alias("sent"))


_RANGE = "ORDER BY p RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW"
_ONCE = (
    "SELECT id, k, m, n, sent, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY p) AS place FROM e) "
    "WHERE place = 1"
)

SHAPES = {
    "stateless": Shape(_stateless, "SELECT id, n * 2 AS twice, sent FROM e WHERE n >= 0"),
    "keyed": Shape(_keyed, f"SELECT id, n, sent FROM ({_ONCE})"),
    "lookback": Shape(
        _lookback,
        f"""SELECT id, COUNT(*) OVER w AS c, SUM(n) OVER w AS s, sent FROM e WINDOW w AS (PARTITION BY k {_RANGE})""",
    ),
    "chain": Shape(
        _chain,
        f"""SELECT id, c, SUM(c) OVER (PARTITION BY m {_RANGE}) AS s, sent FROM (
            SELECT id, m, sent, p, COUNT(*) OVER (PARTITION BY k {_RANGE}) AS c FROM ({_ONCE}))""",
    ),
    "match": Shape(
        _match,
        """SELECT id, sent FROM e MATCH_RECOGNIZE (PARTITION BY k ORDER BY p
            MEASURES LAST(high.id) AS id, LAST(high.sent) AS sent ONE ROW PER MATCH
            AFTER MATCH SKIP PAST LAST ROW PATTERN (low high) WITHIN INTERVAL '1' MINUTE
            DEFINE low AS low.n < 5, high AS high.n >= 5)""",
    ),
    "absence": Shape(_absence, None, at_ends=True),
    "window": Shape(_window, None, at_ends=True),
}
