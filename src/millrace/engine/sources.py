"""Topics as DataFrames: read as committed, parsed by their schema, with what does not fit told apart and counted.

What counts as fitting: the value is one JSON object in UTF-8 whose fields have the types of the schema. A field that
is absent is null, a field that the schema does not name is ignored, a string column takes any JSON value as its text.
A null where the schema says NOT NULL, and an event without its time, do not fit: Spark's windows would drop the latter
without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

from millrace import durations
from millrace.engine.replay import WHOLE, Bounds
from millrace.errors import SchemaInvalid, TimeInvalid
from millrace.flow import Topic
from millrace.flow.histories import TOPIC
from millrace.flow.time import Adaptive, Fixed, Marked
from millrace.kernel.calling import is_utf8, json_row, quoted
from millrace.kernel.clock import Clock, install
from millrace.log import DataSource, Log

# An epoch's size has a limit from the first one on, so that a backlog does not become one giant batch that fills memory
# and disk. The kernel (`Pace.java`) moves the limit by how long epochs take.
FIRST_RECORDS_AN_EPOCH = 50_000

# Kafka as it is read in real time (`PromptKafka.java`): an epoch is as long as was asked for, and has no other limit.
PROMPT = "millrace.kernel.PromptKafka"

# After each poll Spark's connector asks the broker twice how far a topic reaches; with Kafka's 500 records a poll that
# is as much work as everything else.
MOST_RECORDS_A_POLL = 10_000

# After each poll Spark's reader asks where the partition begins and ends. Kafka's client has asked for the records that
# follow by then, and a broker answers one request of a connection after the other: where none follow, that question
# waits for as long as this. A reader in real time waits for records, and asks nothing in between.
FETCH_WAIT = "kafka.fetch.max.wait.ms"
FETCH_WAIT_MS = 5
REALTIME_FETCH_WAIT_MS = 500

ROWS, DEAD, MARKERS, ARRIVED = "rows", "dead", "markers", "arrived"
# When the oldest change of a table was made.
CHANGED = "changed"

# Nothing a person calls an event happens outside these years; a number of milliseconds read as seconds does, and would
# drive the watermark to a place from which it never comes back.
_FIRST_TIME, _LAST_TIME = "1970-01-01 00:00:00", "9999-12-31 23:59:59.999999"

_CORRUPT, _END, _ROW, _PARSED = "__corrupt", "__end", "__row", "__parsed"
_DEAD, _PARTITION, _ARRIVAL = "__dead", "__partition", "__arrival"
_PARSING = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


@dataclass(frozen=True)
class Source:
    """One topic as a flow reads it. `metric` is the name under which Spark reports how many rows were dead."""

    topic: Topic
    schema: StructType
    outside: str
    metric: str
    data: DataSource
    bounds: Bounds = WHOLE

    @classmethod
    def of(cls, topic: Topic, log: Log, group: str, bounds: Bounds | None = None) -> Source:
        outside = log.settings.named(topic.name)
        data = reading(log, outside, group)
        return cls(topic, schema_of(topic), outside, f"millrace.{topic.name}", data, bounds or WHOLE)

    @property
    def readable(self) -> Topic:
        return self.topic

    @property
    def name(self) -> str:
        """The topic's, without the prefix of the settings."""
        return self.topic.name

    @property
    def recorded(self) -> str:
        """What of its columns a checkpoint depends on."""
        headers = "".join(f", {column} from header {name}" for column, name in self.topic.headers)
        return ddl(self.schema) + headers

    def stream(self, spark: SparkSession, clocks: Path | None = None, once: bool = False) -> DataFrame:
        """The rows that fit, with the watermark on the time column; how many did not is observed on the way.

        `clocks` is the folder where the clock's state is kept; `once`, that the query reads what is there and stops.
        """
        install(spark)
        limit = {} if self.data.format == PROMPT else {"maxOffsetsPerTrigger": FIRST_RECORDS_AN_EPOCH}
        raw = (
            spark.readStream.format(self.data.format)
            .options(**self.data.options, **limit)
            .option("startingOffsets", self._start())
            .option("includeHeaders", str(bool(self.topic.headers)).lower())
            .load()
        )
        # Each field is a column of its own: what follows copies every row, and a struct within a row costs more.
        fields = [F.col(_PARSED)[_ROW][field.name].alias(field.name) for field in self.schema.fields]
        place = [F.col("partition").alias(_PARTITION), F.col("timestamp").alias(_ARRIVAL)]
        headers = [_header(name).alias(column) for column, name in self.topic.headers]
        told = [*fields, *headers, self._misfit().alias(_DEAD), *place]
        parsed = self._parsed(before_end(raw, self.bounds)).select(*told)
        dead = F.col(_DEAD)
        counts = [F.count(F.lit(1)).alias(ROWS), F.count(F.when(dead, 1)).alias(DEAD), newest(_ARRIVAL)]
        names = [*self.schema.names, *(column for column, _ in self.topic.headers)]
        columns = [F.col(quoted(name)) for name in names]
        # The observation also keeps Spark from pushing the filter below the parsing, which would parse twice.
        if self.topic.time is None:
            return parsed.observe(self.metric, *counts).where(~dead).select(*columns)
        clock, marks = clock_of(self.topic, clocks, once, self.data.time), marks_of(self.topic)
        tells = F.col(quoted(self.topic.time if marks is None else marks))
        seen = clock.seen(F.when(~dead, F.col(_PARTITION)), F.when(~dead, tells), F.col(_ARRIVAL))
        markers = F.lit(None) if marks is None else F.when(~dead & tells.isNotNull(), 1)
        observed = parsed.observe(self.metric, *counts, F.count(markers).alias(MARKERS), seen)
        events = observed.where(~dead if marks is None else ~dead & tells.isNull())
        return clock.on(events.select(*map(self._timed, columns, names)), self.topic.time)

    def _timed(self, column: Column, name: str) -> Column:
        """Says of the time column that it is never null, as is known here: nobody behind has to look for such rows;
        and whose it is."""
        if name != self.topic.time:
            return column
        timed = F.coalesce(column, F.lit(_FIRST_TIME).cast("timestamp"))
        return timed.alias(name, metadata={TOPIC: self.topic.name})

    def misfits(
        self, spark: SparkSession, start: Mapping[str, int], end: Mapping[str, int], options: Mapping[str, str]
    ) -> DataFrame:
        """The records of these offsets (per partition) that do not fit, as Kafka holds them, each with its `reason`.
        `options` are for the reading."""
        raw = (
            spark.read.format(self.data.format)
            .options(**{**self.data.options, **options})
            .option("startingOffsets", json.dumps({self.outside: start}))
            .option("endingOffsets", json.dumps({self.outside: end}))
            .option("includeHeaders", "true")
            .load()
        )
        return self._parsed(raw).where(self._misfit()).withColumn("reason", self._reason()).drop(_PARSED)

    def _start(self) -> str:
        start = self.bounds.start
        return "earliest" if start is None else json.dumps({self.outside: {str(n): o for n, o in start.items()}})

    def _parsed(self, raw: DataFrame) -> DataFrame:
        """Adds the parsed value. Spark reads what the kernel leaves to it, inside an object of our own whose last field
        must be reached: alone, Spark would take the first JSON value and ignore whatever follows it."""
        nullable = StructType([StructField(field.name, field.dataType) for field in self.schema.fields])
        whole = StructType(
            [
                StructField(_ROW, nullable),
                StructField(_END, BooleanType()),
                StructField(_CORRUPT, StringType()),
            ]
        )
        text = F.concat(F.lit(f'{{"{_ROW}":'), F.col("value").cast("string"), F.lit(f',"{_END}":true}}'))
        utc = raw.sparkSession.conf.get("spark.sql.session.timeZone") == "UTC"
        plain = json_row(F.col("value"), whole, utc=utc)
        return raw.withColumn(_PARSED, F.coalesce(plain, F.from_json(text, whole, _PARSING)))

    def _misfit(self) -> Column:
        parsed = F.col(_PARSED)
        misfit = parsed[_ROW].isNull() | parsed[_CORRUPT].isNotNull() | parsed[_END].isNull() | ~is_utf8(F.col("value"))
        for field in self._needed():
            misfit = misfit | (self._event() & parsed[_ROW][field.name].isNull())
        if self.topic.time:
            misfit = misfit | ~self._possible(self._told())
        if self.topic.ahead_ms is not None:
            misfit = misfit | self._ahead()
        return F.coalesce(misfit, F.lit(True))

    def _event(self) -> Column:
        marks = marks_of(self.topic)
        return F.lit(True) if marks is None else F.col(_PARSED)[_ROW][marks].isNull()

    def _told(self) -> Column:
        """What a record says about time: a marker up to when all is there, an event when it happened."""
        row = F.col(_PARSED)[_ROW]
        return F.coalesce(row[marks_of(self.topic) or self.topic.time], row[self.topic.time])

    def _possible(self, time: Column) -> Column:
        return time.between(F.lit(_FIRST_TIME).cast("timestamp"), F.lit(_LAST_TIME).cast("timestamp"))

    def _ahead(self) -> Column:
        """Whether the event says that it happened long after it arrived."""
        bound_us = F.lit((self.topic.ahead_ms or 0) * 1_000)
        return F.coalesce(F.unix_micros(self._told()) - F.unix_micros("timestamp") > bound_us, F.lit(False))

    def _reason(self) -> Column:
        """Says what does not fit. Only ever computed for records that do not, so it may take its time."""
        text, parsed = F.col("value").cast("string"), F.col(_PARSED)
        faults = [
            F.when(self._wrong_type(field), F.lit(f"{field.name!r} is not a {field.dataType.simpleString()}"))
            for field in self.schema.fields
        ]
        # Each column is fine by itself, and yet the whole was not read to its end.
        faults.append(F.when(parsed[_END].isNull(), F.lit("something follows the JSON object")))
        faults += [
            F.when(self._event() & parsed[_ROW][field.name].isNull(), F.lit(f"{field.name!r} is missing"))
            for field in self._needed()
        ]
        return (
            F.when(F.col("value").isNull(), "no value")
            .when(~F.is_valid_utf8(text), "not UTF-8")
            .when(~text.rlike(r"^\s*\{"), "not a JSON object")
            .when(parsed[_END].isNull() & F.try_parse_json(text).isNull(), "not JSON")
            .otherwise(F.coalesce(*faults, *self._wrong_clock()))
        )

    def _wrong_clock(self) -> list[Column]:
        impossible = F.lit(f"its time {self.topic.time!r} is not between the years 1970 and 9999")
        if self.topic.ahead_ms is None:
            return [impossible]
        bound = durations.spoken(self.topic.ahead_ms)
        told = f"its time {self.topic.time!r} is more than {bound} after its arrival: a clock is wrong"
        return [F.when(self._possible(self._told()) & self._ahead(), F.lit(told)), impossible]

    def _wrong_type(self, field: StructField) -> Column:
        alone = StructType([StructField(field.name, field.dataType), StructField(_CORRUPT, StringType())])
        return F.from_json(F.col("value").cast("string"), alone, _PARSING)[_CORRUPT].isNotNull()

    def _needed(self) -> list[StructField]:
        return [field for field in self.schema.fields if not field.nullable or field.name == self.topic.time]


def _header(name: str) -> Column:
    """The last header of that name, as Kafka's own clients give it, if it is a text."""
    found = F.try_element_at(F.filter("headers", lambda header: header["key"] == name), F.lit(-1))["value"]
    return F.when(is_utf8(found), found.cast("string"))


def before_end(raw: DataFrame, bounds: Bounds) -> DataFrame:
    """Without the records from the end on: Spark reads a stream to wherever its topic ends."""
    if bounds.end is None:
        return raw
    if not bounds.end:
        return raw.where(F.lit(False))
    ends = F.create_map(*(F.lit(number) for pair in bounds.end.items() for number in pair))
    return raw.where(F.coalesce(F.col("offset") < ends[F.col("partition")], F.lit(False)))


def newest(arrival: str = "timestamp") -> Column:
    """To be observed: when the newest record arrived."""
    return F.unix_millis(F.max(arrival)).alias(ARRIVED)


def clock_of(topic: Topic, folder: Path | None, once: bool, time: str | None = None) -> Clock:
    """The kernel's clock for a topic with a time."""
    kept = None if folder is None else str((folder / topic.name).absolute())
    lateness = topic.lateness
    if isinstance(lateness, Adaptive):
        bounds = (lateness.quantile, lateness.least_ms, lateness.most_ms, lateness.margin_ms)
        return Clock(0, topic.idle_ms, *bounds, once=once, folder=kept, time=time)
    lag_ms = lateness.lag_ms if isinstance(lateness, Fixed) else 0
    return Clock(lag_ms, topic.idle_ms, once=once, folder=kept, time=time)


def marks_of(topic: Topic) -> str | None:
    """The column by which a source says how far it is complete."""
    return topic.lateness.column if isinstance(topic.lateness, Marked) else None


def schema_of(topic: Topic) -> StructType:
    """The schema as Spark's own parser reads it."""
    assert topic.schema is not None, "the graph refuses inputs without a schema"
    try:
        schema = StructType.fromDDL(topic.schema)
        assert isinstance(schema, StructType)
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise SchemaInvalid(name=topic.name, reason=reason, where=topic.where) from None
    for column in (topic.time, marks_of(topic)):
        if column and not isinstance(schema[column].dataType, TimestampType):
            kind = schema[column].dataType.simpleString()
            raise TimeInvalid(name=topic.name, column=column, reason=f"is a {kind}", hint="", where=topic.where)
    return schema


def reading(log: Log, outside: str, group: str) -> DataSource:
    """The log, for reading one topic of it as committed."""
    options = {
        **log.data_source.options,
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": str(MOST_RECORDS_A_POLL),
        FETCH_WAIT: str(FETCH_WAIT_MS),
        "groupIdPrefix": log.settings.named(group),
        "failOnDataLoss": "true",
        "subscribe": outside,
    }
    return replace(log.data_source, options=options)


def ddl(schema: StructType) -> str:
    """One spelling for the same schema, whatever spaces and words the user chose."""
    fields = (
        f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' not null'}"
        for field in schema.fields
    )
    return ", ".join(fields)
