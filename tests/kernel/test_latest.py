"""Latest-by-key on Spark is the model: random histories, cuts and restarts; as a stream, in real time, as a batch."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from millrace import kernel
from millrace.config import Settings
from millrace.errors import KernelAbsent
from millrace.kernel.calling import operator
from millrace.log import Log
from millrace.model import Change, LatestByKey, Signed
from millrace.model.latest import unavailable_forms, without
from millrace.testing.checkpoints import forget_commit
from tests.command import until
from tests.model.histories import BROKEN, TOPICS, History

pytestmark = pytest.mark.spark

SCHEMA = "topic string, key string, value string, partition int, offset long, timestamp timestamp"


# Columns that are left out of rows of {"a", "b"}, {"new"} and {}, and which of those are known.
WITHOUT: tuple[tuple[list[str], list[list[str]]], ...] = (
    ([], [["b", "a"]]),  # whoever gets rows whole sees for himself
    (["b"], []),
    (["a", "new"], [["a", "b"], []]),
    (["b", "new"], [["new"], ["b", "a"]]),
    (["a", "b", "new"], [["a"], ["new"], ["a", "b"]]),
)


def write(folder: Path, number: int, epoch: list[Change]) -> None:
    """One file is one epoch; Spark takes them in the order of their times."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:04}.json"
    coded = [
        change._replace(value=None if change.value is None else base64.b64encode(change.value).decode())._asdict()
        for change in epoch
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in coded), encoding="utf-8")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def decoded(records: DataFrame) -> DataFrame:
    return records.withColumn("value", F.unbase64("value"))


def signed(row: Row) -> Signed:
    return Signed(row.topic, row.key, row.row, row["__diff"], row.op, row.partition, row.offset, row.error)


def by_key(rows: list[Signed]) -> dict[tuple[str, str | None], list[Signed]]:
    """The rows of each key in the order in which they came out, which Spark keeps within a key."""
    found: dict[tuple[str, str | None], list[Signed]] = {}
    for row in rows:
        found.setdefault((row.topic, row.key), []).append(row)
    return found


class Stream:
    """A query over the files of a folder whose epochs' rows are kept; it can be started again from its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, net: bool, left_out: dict[str, list[str]]) -> None:
        self.spark, self.folder, self.net, self.left_out = spark, folder, net, left_out
        self.rows: dict[int, list[Signed]] = {}

    def run(self) -> None:
        files = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder / "in"))
        query: StreamingQuery = (
            kernel.latest_by_key(decoded(files), net=self.net, left_out=self.left_out)
            .writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
            .outputMode("append")
            .foreachBatch(self._keep)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        self.rows[epoch] = [signed(row) for row in rows.collect()]


@pytest.mark.parametrize(
    ("seed", "net", "left_out"), [(11, False, {}), (12, True, {}), (15, True, {TOPICS[0]: ["id", "bytes", "map", "n"]})]
)
def test_a_stream_gives_what_the_model_gives_epoch_by_epoch(
    spark: SparkSession, tmp_path: Path, seed: int, net: bool, left_out: dict[str, list[str]]
) -> None:
    history = History(seed).grown(330)
    epochs = history.epochs(120)
    # Records of before, should they come once more, with content by which it would show that they were taken.
    whole = LatestByKey(left_out=left_out)
    whole.apply(history.changes)
    epochs.append([Change(*key, envelope("u", "{}"), held.partition, held.offset) for key, held in whole.state.items()])
    model = LatestByKey(net=net, left_out=left_out)
    expected = [model.apply(epoch) for epoch in epochs]
    assert len(epochs) > 5
    rows = {key: without(row, left_out.get(key[0], ())) for key, row in history.rows().items()}
    assert model.table() == rows
    stream = Stream(spark, tmp_path, net, left_out)
    half = len(epochs) // 2
    for number, epoch in enumerate(epochs[:half]):
        write(tmp_path / "in", number, epoch)
    stream.run()
    again = stream.rows[half - 1]
    forget_commit(stream.folder / "checkpoint")
    for number, epoch in enumerate(epochs[half:], half):
        write(tmp_path / "in", number, epoch)
    stream.run()
    assert Counter(again) == Counter(stream.rows[half - 1])
    for number, told in enumerate(expected):
        assert by_key(stream.rows[number]) == by_key(told), f"epoch {number}"


def test_a_batch_is_the_table_as_of_now(spark: SparkSession, tmp_path: Path) -> None:
    history = History(13).grown(400)
    model = LatestByKey()
    every = model.apply(history.changes)
    write(tmp_path / "in", 0, history.changes)
    records = decoded(spark.read.schema(SCHEMA).json(str(tmp_path / "in"))).repartition(3)
    now = [signed(row) for row in kernel.latest_rows(records).collect()]
    assert {(row.topic, row.key): row.row for row in now if row.diff == 1} == history.rows()
    assert Counter(row for row in now if row.diff != 1) == Counter(row for row in every if row.error)
    changes = [signed(row) for row in kernel.latest_by_key(records).collect()]
    assert by_key(changes) == by_key(every)


def test_what_a_row_tells_of_its_record(spark: SparkSession, tmp_path: Path) -> None:
    wrapped = '{"schema":{"type":"struct"},"payload":{"id":1.10}}'
    source = '"source":{"ts_ms":1700000000000,"ts_us":1700000000000001,"lsn":4711}'
    epoch = [
        Change("t", wrapped, f'{{"before":null,"after":{{"id":1.10}},"op":"c",{source}}}'.encode(), 0, 0),
        Change("t", '{"schema":"a","payload":"b"}', b'{"before":null,"after":{"id":2},"op":"c"}', 0, 1),
        Change("t", None, b'{"before":null,"after":{"id":3},"op":"c"}', 0, 2),
        *(Change("t", "broken", value, 0, 3 + place) for place, value in enumerate(BROKEN)),
    ]
    write(tmp_path / "in", 0, epoch)
    records = decoded(spark.read.schema(SCHEMA).json(str(tmp_path / "in"))).withColumn(
        "timestamp", F.lit("2026-01-02 03:04:05.678901").cast("timestamp")
    )
    rows = {row.offset: row for row in kernel.latest_by_key(records).orderBy("offset").collect()}
    # The schema around a key changes when a column's type does; a key is its columns alone.
    assert rows[0].key == '{"id":1.10}'
    assert rows[1].key == '{"schema":"a","payload":"b"}'
    assert (rows[0].lsn, rows[0].changed_at.microsecond, rows[0].timestamp.microsecond) == (4711, 1, 678901)
    assert (rows[0].error, rows[0].value, rows[1].lsn) == (None, None, None)
    assert rows[2].key is None
    for place, value in enumerate(BROKEN):
        assert bytes(rows[3 + place].value) == value


def test_rare_records_are_taken_as_the_model_takes_them(spark: SparkSession, tmp_path: Path) -> None:
    placeholder = "?>?>¿"  # of which base64 has two spellings, and bytes that Java takes for negative
    rows = [f'{{"a":{json.dumps(form)}, "b":0}}' for form in unavailable_forms(placeholder)]
    rows += [f'{{"a":"{placeholder}","b":"{placeholder}"}}', f'{{"new":"{placeholder}"}}', '{"a":"?>?>¿ "}', "{}"]
    values = [envelope("u", row) for row in rows]
    epoch = [Change("t", str(place), envelope("c", '{"a":1.10, "b":2}'), 0, 0) for place in range(len(values))]
    epoch += [Change("t", str(place), value, 0, 1) for place, value in enumerate(values)]
    epoch += [Change("t", "unknown", value, 0, place) for place, value in enumerate(values)]
    epoch += [
        Change("t", "0", envelope("c", rows[0]), 0, 2),
        Change("t", "1", envelope("u", '{"a":3}'), 1, 2),
        Change("t", "1", None, 1, 3),
        Change("t", None, envelope("u", '{"a":3}'), 0, 2),
        Change("t", None, None, 0, 3),
    ]
    write(tmp_path / "in", 0, epoch)
    records = decoded(spark.read.schema(SCHEMA).json(str(tmp_path / "in")))
    for net in (False, True):
        for given in (placeholder, f"hex:{placeholder.encode().hex()}", "other"):
            for names, shapes in WITHOUT:
                left: dict[str, Any] = {"left_out": {"t": names}, "shapes": {"t": shapes, "other": [["x"]]}}
                told: dict[str, Any] = {"net": net, "placeholder": given, **left}
                expected = LatestByKey(**told).apply(epoch)
                found = [signed(row) for row in kernel.latest_by_key(records, **told).collect()]
                assert by_key(found) == by_key(expected), told


def envelope(op: str, after: str) -> bytes:
    return f'{{"before":null,"after":{after},"op":"{op}"}}'.encode()


@pytest.mark.server
def test_in_real_time_it_is_the_same(spark: SparkSession, settings: Settings, bootstrap: str, tmp_path: Path) -> None:
    """One topic of one partition and one shuffle partition: the two task slots of the tests' session."""
    history = History(14).grown(120)
    changes = [
        change._replace(topic=settings.named("rt.in")) for change in history.changes if change.topic == TOPICS[0]
    ]
    log = Log(settings)
    for name in ("rt.in", "rt.out"):
        log.topics.create(name, partitions=1)
    with log.writer("rt.in") as writer:
        for change in changes:
            writer.write(change.value, key=change.key)
    model = LatestByKey()
    expected = [
        row
        for offset, change in enumerate(changes)
        for row in model.apply([change._replace(partition=0, offset=offset)])
    ]
    query = in_real_time(spark, settings, bootstrap, tmp_path)
    try:
        until(lambda: log.topics.offsets("rt.out")[0][1] >= len(expected), "all rows in real time")
    finally:
        query.stop()
    found = [Signed(**json.loads(record.value or b"")) for record in log.read("rt.out")]
    assert by_key(found) == by_key(expected)


def in_real_time(spark: SparkSession, settings: Settings, bootstrap: str, folder: Path) -> StreamingQuery:
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    records = (
        own.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", settings.named("rt.in"))
        .option("startingOffsets", "earliest")
        .load()
    )
    columns = ["topic", "key", "row", F.col("__diff").alias("diff"), "op", "partition", "offset", "error"]
    return (
        kernel.latest_by_key(records)
        .select(F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", settings.named("rt.out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("update")
        .trigger(realTime="5 minutes")
        .start()
    )


def test_a_session_without_the_kernel_is_told_so(spark: SparkSession) -> None:
    with pytest.raises(KernelAbsent, match=r"millrace-kernel\.jar"):
        operator(spark, "NoSuchOperator")
