"""Captured tables as a flow reads them: signed rows, raw changes, or the rows as they are now. All from the topic."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace import config, durations, kernel
from millrace.capture import CapturedTable, Captures, reading
from millrace.capture.database import Column as TableColumn
from millrace.capture.reading import UNREADABLE
from millrace.config import Settings
from millrace.engine import lakes, sources
from millrace.engine.replay import WHOLE, Bounds, UpTo
from millrace.engine.session import session
from millrace.engine.sources import CHANGED, DEAD, FIRST_RECORDS_AN_EPOCH, ROWS, before_end, newest
from millrace.errors import SchemaInvalid, TableUnknown, nearest
from millrace.flow import Changes, LakeInput, Table
from millrace.flow.lookups import Known, offer
from millrace.flow.time import AHEAD
from millrace.kernel.calling import quoted
from millrace.kernel.clock import Clock, install
from millrace.log import DataSource, Log
from millrace.sinks.contract import DIFF as DIFF
from millrace.sinks.contract import VERSION

AWAITED = "awaited"
LOOKUP_METRIC = "millrace.lookup."
COMMITTED = "__committed"

_SOURCE = "struct<ts_us:bigint,ts_ms:bigint,lsn:bigint,txId:bigint>"

_numbers = count(1)


@dataclass(frozen=True)
class TableSource:
    """One table as a flow reads it. `readable` is the node, `captured` what is known of its columns."""

    readable: Table | Changes
    captured: CapturedTable
    outside: str
    metric: str
    data: DataSource
    bounds: Bounds = WHOLE

    @classmethod
    def of(cls, readable: Table | Changes, log: Log, group: str, upto: UpTo | None = None) -> TableSource:
        captured = known(readable.of if isinstance(readable, Changes) else readable, log)
        outside, topic = log.settings.named(captured.topic), captured.topic
        bounds = WHOLE if upto is None else upto.bounds(topic, log)
        return cls(readable, captured, outside, f"millrace.{topic}", sources.reading(log, outside, group), bounds)

    @property
    def table(self) -> Table:
        return self.readable.of if isinstance(self.readable, Changes) else self.readable

    @property
    def name(self) -> str:
        """The topic's, without the prefix of the settings."""
        return self.captured.topic

    @property
    def recorded(self) -> str:
        """What of its columns a checkpoint depends on: rows are kept as text, so columns may come and go."""
        kind = "changes" if isinstance(self.readable, Changes) else "table"
        return f"{kind} keyed by {', '.join(self.captured.key)}"

    def narrowed(self, wanted: Collection[str]) -> tuple[TableSource, tuple[str, ...]]:
        """The table with these columns of its rows, and what can be left out of them."""
        captured, left_out = reading.narrowed(self.captured, wanted)
        return replace(self, captured=captured), left_out

    def stream(
        self, spark: SparkSession, clocks: Path | None = None, once: bool = False, *, versioned: bool = False
    ) -> DataFrame:
        """`clocks` and `once` are as a topic's, for whoever asks when changes were committed. With `versioned`, each
        row has its place in the log, `__version`, for sinks."""
        install(spark)
        if isinstance(self.readable, Changes):
            raw = self._records(spark, FIRST_RECORDS_AN_EPOCH)
            return changes(raw.observe(self.metric, newest()), self.captured)
        signed = self._signed(kernel.latest_by_key(self._records(spark, FIRST_RECORDS_AN_EPOCH)), versioned=versioned)
        # A lookup reads all that there is: an event must not meet the table as it was.
        records = self._records(spark)
        return offer(
            signed,
            Known(self.captured, records, self._looked_up, lambda ms: self._clocked(records, ms, clocks, once)),
        )

    def _records(self, spark: SparkSession, most: int | None = None) -> DataFrame:
        """The topic as a stream, with at most so many records an epoch."""
        reader = spark.readStream.format(self.data.format).options(**self.data.options)
        reader = reader.option("startingOffsets", "earliest")
        found = (reader if most is None else reader.option("maxOffsetsPerTrigger", most)).load()
        return before_end(found, self.bounds)

    def _clocked(self, records: DataFrame, lateness_ms: int, clocks: Path | None, once: bool) -> DataFrame:
        """The records with a clock of when their changes were committed. A partition that was read to its end has, but
        for the lateness, everything: so long it is waited for. A commit long after its own arrival is a wrong clock's,
        and says nothing."""
        folder = None if clocks is None else str((clocks / f"{self.captured.topic}.{lateness_ms}").absolute())
        clock = Clock(lateness_ms, lateness_ms, once=once, folder=folder, time=self.data.time)
        timed = records.withColumn(COMMITTED, committed_at(envelope_source()))
        possible = F.unix_micros(COMMITTED) - F.unix_micros("timestamp") <= durations.milliseconds(AHEAD) * 1_000
        seen = clock.seen(F.col("partition"), F.when(possible, F.col(COMMITTED)), F.col("timestamp"))
        return clock.on(timed.observe(f"{LOOKUP_METRIC}{next(_numbers)}", seen, newest()), COMMITTED)

    def rows_now(self, spark: SparkSession, *, versioned: bool = False) -> DataFrame:
        """The table as a batch, as its topic has it now. Signed, all +1."""
        return self._signed(kernel.latest_rows(self._records_now(spark)), versioned=versioned)

    def keys_after(self, spark: SparkSession, offsets: Mapping[int, int]) -> DataFrame:
        """The keys of the records from these offsets on, by partition, as the columns of the key; some may be there
        more than once."""
        start = json.dumps({self.outside: {str(number): offset for number, offset in offsets.items()}})
        keys = self._records_now(spark, start).select(F.col("key").cast("string").alias("row"))
        alone = tuple(column for column in self.captured.columns if column.name in self.captured.key)
        return reading.typed(keys, replace(self.captured, columns=alone, shapes=()))

    def _records_now(self, spark: SparkSession, start: str = "earliest") -> DataFrame:
        """The topic as a batch, up to its end of now."""
        return (
            spark.read.format(self.data.format)
            .options(**self.data.options)
            .option("startingOffsets", start)
            .option("endingOffsets", "latest")
            .load()
        )

    def rows_held(self, spark: SparkSession, checkpoint: Path) -> DataFrame:
        """The table as a batch, as the flow with this checkpoint left it. Signed, all +1, with `__version`."""
        return self._signed(kernel.latest_held(spark, str(checkpoint)), versioned=True)

    def _signed(self, rows: DataFrame, *, versioned: bool = False) -> DataFrame:
        """Columns of the table and `__diff`."""
        if versioned:  # before the table's columns are there, one of which may be called `offset`
            rows = rows.withColumn(VERSION, F.col("offset"))
        there = self._understood(rows, self.metric, F.col("row").isNotNull(), waited_for=versioned)
        typed = reading.typed(there, self.captured)
        own = (DIFF, VERSION) if versioned else (DIFF,)
        return typed.select(*(F.col(quoted(column.name)) for column in self.captured.columns), *own)

    def _looked_up(self, found: DataFrame) -> DataFrame:
        return self._understood(found, f"{LOOKUP_METRIC}{next(_numbers)}", F.col("error").isNull())

    def _understood(self, rows: DataFrame, metric: str, kept: Column, *, waited_for: bool = False) -> DataFrame:
        """The rows that are `kept`. A record that cannot be understood stops the flow: a table without it would be
        untrue. Where somebody waits for them in a sink, it is told since when."""
        ours = isinstance(self.readable, Table) and self.readable.capture is not None
        # Debezium reads unlogged large values again from the database. Where the row is gone by then, its delete
        # follows in the log, and nothing is to be shown of it.
        awaited = F.col("error").startswith(kernel.UNFILLED) if ours else F.lit(False)
        told = F.concat(
            F.lit(f"{UNREADABLE} {self.captured.name} "),
            F.col("partition"),
            F.lit(":"),
            F.col("offset"),
            F.lit(" "),
            "error",
        )
        if rows.isStreaming:
            rows = rows.observe(
                metric,
                F.count(F.lit(1)).alias(ROWS),
                F.lit(0).cast("long").alias(DEAD),
                F.count(F.when(awaited, 1)).alias(AWAITED),
                *([newest()] if "timestamp" in rows.columns else []),  # of a lookup, the events tell
                *([F.unix_millis(F.min("changed_at")).alias(CHANGED)] if waited_for else []),
            )
        stops = F.col("error").isNotNull() & ~awaited
        return rows.where(F.when(stops, F.raise_error(told).cast("boolean")).otherwise(kept))


def changes(raw: DataFrame, captured: CapturedTable) -> DataFrame:
    """Every change: op, before and after as the table's columns, when it was committed, and its place in the log."""
    fields = f"op string, before string, after string, source {_SOURCE}"
    read = F.from_json(F.col("value").cast("string"), f"{fields}, payload struct<{fields}>")
    parsed = raw.where("value is not null").withColumn("read", read)
    # With schemas on, the envelope is inside.
    envelope = F.when(F.col("read.payload").isNotNull(), F.col("read.payload")).otherwise(
        F.struct(*(F.col(f"read.{name}").alias(name) for name in ("op", "before", "after", "source")))
    )
    unreadable = F.concat(
        F.lit(f"{UNREADABLE} {captured.name} "), "partition", F.lit(":"), "offset", F.lit(" it is no change of a row")
    )
    frame = parsed.select(
        F.col("key").cast("string").alias("key"),
        # Spark may look at this before it leaves out tombstones.
        F.when(F.col("value").isNotNull() & envelope["op"].isNull(), F.raise_error(unreadable))
        .otherwise(envelope)
        .alias("envelope"),
        "partition",
        "offset",
        "timestamp",
    )
    flat = frame.select(
        F.col("envelope.op").alias("op"),
        F.col("envelope.before").alias("before"),
        F.col("envelope.after").alias("after"),
        committed_at(F.col("envelope.source")).alias("at"),
        "key",
        "partition",
        "offset",
        F.col("envelope.source.lsn").alias("lsn"),
        F.col("envelope.source.txId").alias("transaction"),
    )
    return reading.structs(flat, captured, "before", "after")


def envelope_source() -> Column:
    """Of a record's value, where and when its change was made; with schemas on, the envelope is inside."""
    read = F.from_json(F.col("value").cast("string"), f"source {_SOURCE}, payload struct<source:{_SOURCE}>")
    return F.coalesce(read["source"], read["payload"]["source"])


def committed_at(source: Column) -> Column:
    """When a change was committed; as the kernel's envelope says it, otherwise when its record was written."""
    return F.coalesce(F.timestamp_micros(source["ts_us"]), F.timestamp_millis(source["ts_ms"]), F.col("timestamp"))


def known(table: Table, log: Log) -> CapturedTable:
    """What a table's columns are: as its capture remembers them, or as the user said."""
    if table.capture is None:
        return _foreign(table)
    found = Captures(log.settings, log).get(table.capture.name)
    fitting = [each for name, each in found.tables.items() if table.table in (name, name.partition(".")[2])]
    if len(fitting) != 1:
        hint = nearest(table.table, found.tables)
        raise TableUnknown(table=table.table, database=table.capture.name, hint=hint, where=table.where)
    return fitting[0]


def _foreign(table: Table) -> CapturedTable:
    from pyspark.errors import PySparkException

    try:
        schema = StructType.fromDDL(table.schema or "")
        assert isinstance(schema, StructType)
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise SchemaInvalid(name=table.name, reason=reason, where=table.where) from None
    columns = tuple(
        TableColumn(field.name, field.dataType.simpleString(), field.dataType.simpleString(), field.nullable)
        for field in schema.fields
    )
    return CapturedTable(table.name, table.name, table.key, columns)


def now(table: Table | LakeInput, spark: SparkSession | None = None, settings: Settings | None = None) -> DataFrame:
    """The rows of a table as they are now, as a batch: from its topic, without touching the database; of a table of the
    lake, from its files."""
    settings = settings or config.load()
    if isinstance(table, LakeInput):
        return lakes.rows(table, spark or session(settings), settings)
    source = TableSource.of(table, Log(settings), "now")
    return offer(source.rows_now(spark or session(settings)).drop(DIFF), Known(source.captured))
