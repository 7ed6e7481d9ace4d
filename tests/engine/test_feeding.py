"""What a sink is given: of each key the last, by a plain computation over random changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

import millrace as mr
from millrace.engine.feeding import fed, feed_of
from millrace.errors import SinkKeyMissing, SinkKeyUnknown
from millrace.flow import App, Delivery
from millrace.sinks import DIFF, VERSION, Feed, Sink

COLUMNS = StructType().add("id", LongType()).add("a b", StringType())


def delivery(sink: Sink) -> Delivery:
    views = App("shop").topic("views", "id long").to(sink)
    return views.deliveries[0]


@pytest.mark.spark
def test_one_row_of_each_key_the_last(spark: SparkSession) -> None:
    random, held = Random(7), dict[Any, str]()
    signed: list[tuple[Any, str, int, int]] = []
    for version in range(2_000):
        key = random.choice([None, *range(300)])
        if key in held:
            signed.append((key, held[key], -1, version))
        if key not in held or random.random() < 0.7:
            held[key] = f"v{version}"
            signed.append((key, held[key], 1, version))
        else:
            del held[key]
    schema = StructType([*COLUMNS]).add(DIFF, IntegerType()).add(VERSION, LongType())
    shuffled = random.sample(signed, len(signed))
    rows = fed(spark.createDataFrame(shuffled, schema).repartition(3), Feed(COLUMNS, ("id",), signed=True), 5).collect()
    assert len(rows) == len({key for key, *_ in signed})
    assert {row["id"]: row["a b"] for row in rows if row[DIFF] > 0} == held
    last = {key: version for key, _, _, version in signed}
    assert {row["id"]: row[VERSION] for row in rows} == last

    # A stream's: in the order in which one task gave them.
    plain = spark.createDataFrame([(n % 10, f"v{n}") for n in range(100)], COLUMNS).coalesce(1)
    rows = fed(plain, Feed(COLUMNS, ("id",)), 5).collect()
    assert sorted((row["id"], row["a b"], row[DIFF], row[VERSION]) for row in rows) == [
        (n, f"v{90 + n}", 1, 5) for n in range(10)
    ]


def test_by_which_key_a_sink_is_fed() -> None:
    plain = StructType().add("id", LongType()).add("name", StringType())
    signed = StructType([*plain]).add(DIFF, IntegerType())
    table, stream = ("id",), ("name",)
    upserting, appending = mr.postgres("held", key="id"), mr.postgres("held")
    assert feed_of(delivery(appending), COLUMNS).key == ()
    assert feed_of(delivery(appending), COLUMNS, stream=stream).key == ()
    assert feed_of(delivery(upserting), COLUMNS).key == ("id",)
    assert feed_of(delivery(appending), signed, table=table).key == ("id",)
    assert feed_of(delivery(appending), signed, stream=stream).key == ("name",)
    assert feed_of(delivery(mr.files("out")), signed, table=table) == Feed(plain, (), signed=True)
    with pytest.raises(SinkKeyMissing):
        feed_of(delivery(appending), signed)
    with pytest.raises(SinkKeyUnknown, match=r"did you mean 'id'\?"):
        feed_of(delivery(mr.postgres("held", key="idd")), COLUMNS)
