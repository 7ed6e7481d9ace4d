"""Views that change as time passes, on Spark: after each epoch what PostgreSQL answers, with the epoch's time as now().

Time is given as rows of a table: it stands still, goes in steps and leaps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine import viewing
from millrace.engine.epochs import now_ms
from millrace.kernel.calling import operator
from millrace.kernel.signed import DIFF
from millrace.model.signed import Bag
from millrace.testing.checkpoints import forget_commit
from millrace.views import Relation, named, planned
from millrace.views.steps import CLOCK
from tests.kernel.epochs import drained, put
from tests.rotation import seeded
from tests.views.fuzz import connected, plain
from tests.views.on_spark import TABLE
from tests.views.running import shown_of, together

COLUMNS = {"id": "integer", "who": "integer", "at": "timestamptz"}
VISITS = Relation("visits", {name: named(type_) for name, type_ in COLUMNS.items()}, ("id",))
SCHEMA = f"{TABLE} string, {DIFF} int, id int, who int, at string, now string"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
EPOCHS, STILL, RESTART = 6, 1, 3
QUERIES = (
    "SELECT id, who FROM visits WHERE at > now() - interval '1 hour'",
    "SELECT count(*) AS n, max(at) AS latest FROM visits WHERE at BETWEEN now() - interval '2 hours' AND now()",
    "SELECT who, count(*) AS n FROM visits GROUP BY who HAVING max(at) >= now() AND count(*) > 1",
    """SELECT a.id, b.id AS other FROM visits a JOIN visits b ON a.who = b.who
       WHERE a.at > now() AND b.at < now() - interval '10 minutes'""",
)


def history(connection: psycopg.Connection[Any]) -> Iterator[tuple[list[dict[str, Any]], list[Bag]]]:
    """Of each epoch the signed rows, and PostgreSQL's answers after it."""
    draw, now = seeded("spans"), FIRST
    held: dict[int, tuple[int, datetime | None]] = {}
    for number in range(EPOCHS):
        rows: list[dict[str, Any]] = []
        # It stands still once, and leaps where the query is started again, with nothing else.
        if number != STILL:
            now += timedelta(minutes=90 if number == RESTART else draw.choice((5, 10, 30)))
            rows.append({TABLE: "clock", DIFF: 1, "now": now.isoformat()})
        for _ in range(0 if number == RESTART else 40):
            key = draw.randint(1, 60)
            if key in held:
                who, at = held.pop(key)
                rows.append({TABLE: "visits", DIFF: -1, "id": key, "who": who, "at": at and at.isoformat()})
            if draw.random() < 0.8:
                # Many at the edge of what is in, exactly or a µs beside it; some far beyond, or never.
                edge = now + timedelta(minutes=draw.choice((-120, -60, -60, -30, -10, 0, 0, 5, 10, 30, 60)))
                at = None if draw.random() < 0.1 else edge + timedelta(microseconds=draw.choice((-1, 0, 0, 1)))
                held[key] = (draw.randint(1, 5), at)
                told = {"id": key, "who": held[key][0], "at": at and at.isoformat()}
                rows.append({TABLE: "visits", DIFF: 1, **told})
        connection.execute("DELETE FROM visits")
        for key, row in held.items():
            connection.execute("INSERT INTO visits VALUES (%s, %s, %s)", (key, *row))
        asked = [sql.replace("now()", f"TIMESTAMPTZ '{now.isoformat()}'") for sql in QUERIES]
        answers = [connection.execute(sql, binary=True).fetchall() for sql in asked]  # type: ignore[call-overload]
        yield rows, [Bag(tuple(plain(value) for value in row) for row in found) for found in answers]


@pytest.mark.server
@pytest.mark.spark
def test_rows_come_and_go_as_time_passes(spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    with connected(postgres) as connection:
        connection.execute("CREATE TEMPORARY TABLE visits (id integer, who integer, at timestamptz)")
        epochs = list(history(connection))
    plans = [planned("spans", sql, [VISITS]) for sql in QUERIES]
    own = spark.newSession()
    viewing.suit(own)
    told: dict[int, list[Bag]] = {}

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            put(tmp_path / "in", number, epochs[number][0])
        read = own.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        tables = {
            "visits": (F.col(TABLE) == "visits", {name: F.col(name) for name in COLUMNS}),
            CLOCK: (F.col(TABLE) == "clock", {"now": F.col("now")}),
        }
        chain = together(plans, read, tables)

        def keep(rows: DataFrame, epoch: int) -> None:
            rows.persist()
            told[epoch] = [shown_of(chain, rows, plan, number) for number, plan in enumerate(plans)]
            rows.unpersist()

        drained(chain.rows, tmp_path, keep)

    run(0, RESTART)
    again = told[RESTART - 1]
    forget_commit(tmp_path / "checkpoint")
    run(RESTART, EPOCHS)
    assert told[RESTART - 1] == again
    held = [Bag() for _ in plans]
    for number, (_, answers) in enumerate(epochs):
        for place, (found, sql) in enumerate(zip(told[number], QUERIES, strict=True)):
            for row, diff in found.items():
                held[place][row] += diff
            now = Bag({row: count for row, count in held[place].items() if count})
            assert now == answers[place], f"epoch {number}: {sql}"
    # Rows came and went in an epoch in which nothing but the time was told.
    assert any(diff > 0 for bag in told[RESTART] for diff in bag.values())
    assert any(diff < 0 for bag in told[RESTART] for diff in bag.values())


@pytest.mark.spark
def test_the_time_of_a_view_never_goes_back_and_is_the_same_when_an_epoch_is_done_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    ticks = operator(spark, "Ticks")
    assert [ticks.next(0, 50_000), ticks.next(50_000, 50_999), ticks.next(50_000, 51_000)] == [50_000, 50_000, 51_000]
    assert ticks.next(50_000, 20_000) == 50_000
    told: dict[int, list[int]] = {}

    def run() -> None:
        rows = spark.readStream.format(viewing.TICKS).load()
        drained(rows, tmp_path, lambda rows, epoch: told.update({epoch: [row.ms for row in rows.collect()]}))

    run()
    first = told[0]
    assert first == [now_ms(tmp_path / "checkpoint", 0)]
    forget_commit(tmp_path / "checkpoint")
    run()
    assert told[0] == first
    assert all(later[0] >= first[0] + 1_000 for epoch, later in told.items() if epoch)
