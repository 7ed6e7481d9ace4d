"""Windows whose rows Spark adds up before the shuffle are the model too: results, and every late row counted.

The same play as in test_windows, with aggregates that can be added up, over windows that overlap evenly or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.flow import aggregates as mr
from millrace.flow import late
from millrace.flow.edges import Edges
from millrace.flow.windows import window
from millrace.kernel import windows as kernel
from millrace.kernel.windows import COMBINED_METRIC
from millrace.model.windows import Row, Windows
from tests.kernel import test_windows as play
from tests.kernel.epochs import with_input
from tests.kernel.test_windows import POLICIES, SECOND, hopping
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

AGGREGATES = {
    "rows": mr.count(),
    "positive": mr.count("whole > 0"),
    "whole": mr.sum("whole"),
    "price": mr.sum("price"),
    "mean": mr.avg("whole"),
    "mean_price": mr.avg("price"),
    "least": mr.min("whole"),
    "dearest": mr.max("price"),
    "newest": mr.max("at"),
}


def aggregate(rows: list[Row]) -> tuple[Any, ...]:
    wholes = [row.value[0] for row in rows if row.value[0] is not None]
    prices = [row.value[2] for row in rows if row.value[2] is not None]
    mean = sum(prices, Decimal(0)) / len(prices) if prices else None
    return (
        len(rows),
        sum(whole > 0 for whole in wholes),
        sum(wholes) if wholes else None,
        sum(prices, Decimal(0)) if prices else None,
        sum(wholes) / len(wholes) if wholes else None,
        None if mean is None else mean.quantize(Decimal("0.000001"), "ROUND_HALF_UP"),
        min(wholes, default=None),
        max(prices, default=None),
        max(row.time for row in rows),
        5 * len(rows),
    )


KINDS: dict[str, tuple[Callable[..., DataFrame], Callable[[int], list[tuple[int, int]]]]] = {
    "tumbling": (lambda rows, /, **given: window(rows, "1 minute", **given), hopping(60, 60)),
    "hopping": (lambda rows, /, **given: window(rows, "1 minute", every="20 seconds", **given), hopping(60, 20)),
}
CASES = [
    (kind, policy, emit) for kind in KINDS for policy in ("drop", "allow", "update") for emit in ("final", "updates")
]


@pytest.mark.parametrize(("kind", "policy", "emit"), todays(CASES, 2))
def test_added_up_before_the_shuffle_windows_are_still_the_models(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, policy: str, emit: str
) -> None:
    monkeypatch.setattr(play, "AGGREGATES", {**AGGREGATES, "always": mr.sum(F.lit(5))})
    draw = seeded(f"{kind} {policy} {emit}")
    build, edges = KINDS[kind]
    query = Query(spark, tmp_path, build, POLICIES[policy], emit)
    # Many rows of few keys, so that there is something to add up.
    parts = [[Row(row.key[-1], *row[1:]) for row in play.made(draw, number, 40)] for number in range(6)]
    for number, rows in enumerate(parts):
        query.write(number, rows)
    query.run()

    twin = Windows(edges, 0, POLICIES[policy].grace_ms * 1_000, emit == "final", aggregate)
    todo, counted = list(parts), Counter[str]()
    for number in sorted(query.epochs):
        rows = todo.pop(0) if number in with_input(tmp_path) else []
        expected, found = twin.epoch(rows, query.watermarks[number] * 1_000), query.epochs[number]
        told = play.as_told(expected.results, "sliding", POLICIES[policy])
        assert Counter(found.results) == Counter(told), f"epoch {number}"
        assert (found.late_refused, found.late_allowed) == (expected.late_refused, expected.late_allowed)
        counted += Counter(refused=found.late_refused, allowed=found.late_allowed)
    assert not todo
    assert counted["refused"] > 10
    assert (counted["allowed"] > 10) == (policy != "drop")


class Query(play.Query):
    """Times of results as the model has them."""

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        newest = F.unix_micros("newest").alias("newest")
        super()._keep(rows.select(*(newest if name == "newest" else name for name in rows.columns)), epoch)


def test_a_task_sends_one_row_a_key_and_step(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1_000).selectExpr("id % 3 AS key", "timestamp_seconds(id % 120) AS at").coalesce(1).write.json(
        str(tmp_path / "in")
    )
    rows = spark.readStream.schema("key long, at timestamp").json(str(tmp_path / "in")).withWatermark("at", "1 second")
    counts = window(rows, "1 minute", every="30 seconds", by="key", n=mr.count(), emit="updates", late=late.drop())
    query = counts.writeStream.format("memory").queryName("counts").option("checkpointLocation", str(tmp_path / "c"))
    running = query.outputMode("update").trigger(availableNow=True).start()
    running.awaitTermination()
    observed = [report["observedMetrics"] for report in running.recentProgress if report["numInputRows"]]
    assert [each[name].rows for each in observed for name in each if name.startswith(COMBINED_METRIC)] == [3 * 4]
    assert sum(row.n for row in spark.table("counts").collect()) == 2 * 1_000


@pytest.mark.parametrize(
    ("shape", "aggregates", "keeps_refused"),
    [
        (Edges(50 * SECOND, 20 * SECOND), {"n": ("count", "whole")}, False),
        (Edges(86_400 * SECOND, 86_400 * SECOND, zone="Europe/Berlin"), {"n": ("count", "whole")}, False),
        (Edges(60 * SECOND, 60 * SECOND), {"n": ("max", "text")}, False),
        (Edges(60 * SECOND, 60 * SECOND), {"n": ("last", "whole")}, False),
        (Edges(60 * SECOND, 60 * SECOND), {"n": ("sum", "large")}, False),
        (Edges(60 * SECOND, 60 * SECOND), {"n": ("count", "whole")}, True),
    ],
)
def test_what_cannot_be_added_up_goes_over_the_shuffle_as_it_is(
    spark: SparkSession, shape: Edges, aggregates: dict[str, tuple[str, str]], keeps_refused: bool
) -> None:
    rows = spark.readStream.format("rate").load().select(
        F.col("timestamp").alias("at"), F.col("value").alias("whole"), F.lit("a").alias("text"),
        F.col("value").cast("decimal(30,2)").alias("large"),
    )  # fmt: skip
    values = {name: kernel.Value(kind, F.col(column)) for name, (kind, column) in aggregates.items()}
    settings = kernel.WindowSettings(0, 0, once=True, keeps_refused=keeps_refused)
    found = kernel.windows(
        rows.withWatermark("at", "1 second"), keys={}, time=F.col("at"), edges=shape, values=values, settings=settings
    )
    assert COMBINED_METRIC not in found._jdf.queryExecution().logical().toString()
