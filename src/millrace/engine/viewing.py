"""A view as a query: the changes of all that it reads as signed rows in one DataFrame, its chain, and its rows by key.

Spark allows no keyed operator before a union, so all records go through one latest-by-key, by topic and key; events of
topics and streams pass it. An epoch ends where transactions of the captured database do (`WholeKafka.java`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace import kernel
from millrace.capture import reading
from millrace.capture.reading import CHANGED, UNREADABLE
from millrace.engine.definition import AnySource
from millrace.engine.output import TIMES
from millrace.engine.sources import DEAD, FIRST_RECORDS_AN_EPOCH, PROMPT, ROWS, Source, ddl, newest
from millrace.engine.tables import TableSource
from millrace.engine.viewed import ViewedSource, space_of
from millrace.flow import View
from millrace.flow.operators import note
from millrace.kernel.calling import quoted
from millrace.kernel.clock import install
from millrace.kernel.signed import DIFF
from millrace.log import Log
from millrace.sinks.contract import DIFF as TABLE_DIFF
from millrace.views import Plan
from millrace.views.run import chain
from millrace.views.steps import CLOCK

WHOLE = "millrace.kernel.WholeKafka"

# Before the name of a topic whose records are events (`RecordKey.java`), which have no key: they are spread over some.
_EVENTS, _KEYS = "+", 64
# As a topic, the time that a view is true of; no topic's name has an @.
TICKS, _CLOCK = "millrace.kernel.Ticks", f"{_EVENTS}@now"
_SHOWN = "view"

Tables = Mapping[str, tuple[Column, Mapping[str, Column]]]

# A chain packs and unpacks rows from one step to the next. To have a condition looked at earlier, Spark would write out
# in it how each of its columns came to be, all the way back to the parsing, once for every column: minutes of planning,
# for each epoch. The conditions are where they belong (docs/design/0023), and Kafka takes none of them.
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
# The last one computes the day of a timestamp's end, which stands for infinity, and fails: no such day has a timestamp.
_LEFT_OUT = ("PushDownPredicates", "InferFiltersFromConstraints", "UnwrapCastInBinaryComparison")
_SESSION = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.excludedRules": ",".join(f"{_OPTIMIZER}.{rule}" for rule in _LEFT_OUT),
    "spark.sql.constraintPropagation.enabled": "false",
}


def suit(spark: SparkSession) -> None:
    """Sets a session up for a view."""
    for name, value in _SESSION.items():
        spark.conf.set(name, value)


def rows(
    spark: SparkSession,
    view: View,
    plan: Plan,
    sources: Sequence[AnySource],
    log: Log,
    clocks: Path | None = None,
    once: bool = False,
) -> DataFrame:
    """The view's columns and DIFF: of each key that changed in an epoch one row, +1, or if it is gone -1."""
    note(f"view {view.known_as} by {', '.join(view.key)}: {plan}", "")
    changes, tables = signed(spark, view, sources, log, [plan], clocks, once)
    made = chain(plan, changes, tables)
    return made.only(plan.output, by=view.key, into=_SHOWN).table(_SHOWN)


def signed(
    spark: SparkSession,
    view: View,
    sources: Sequence[AnySource],
    log: Log,
    plans: Sequence[Plan],
    clocks: Path | None = None,
    once: bool = False,
) -> tuple[DataFrame, Tables]:
    """Signed rows of all that a view reads, and where each table's columns are in them, by its name in the SQL: those
    that its plans need, and no other is kept. Of a view that changes as time passes, the time too: an event each
    second."""
    install(spark)
    timed = any(plan.is_timed for plan in plans)
    names: dict[Any, str] = dict(zip(view.reads, view.names, strict=True))
    changing = [source for source in sources if not isinstance(source, Source)]
    events = [source for source in sources if isinstance(source, Source)]
    ticks = [spark.readStream.format(TICKS).load()] if timed else []
    if not changing:
        return _events_alone(spark, names, events, clocks, once, ticks)
    records = _records(spark, view, changing, log)
    for each in events:
        records = records.unionByName(_as_records(each, each.stream(spark, clocks, once)))
    for tick in ticks:
        records = records.unionByName(_records_of(_CLOCK, tick.select(F.col("ms").cast("string").alias("value"))))
    wanted = _wanted(plans)
    narrowed = {source.outside: source.narrowed(wanted[names[source.readable]]) for source in changing}
    left_out = {outside: unread for outside, (_, unread) in narrowed.items()}
    shapes = {each.outside: each.captured.shapes for each in changing if isinstance(each, TableSource)}
    latest = kernel.latest_by_key(records, net=True, left_out=left_out, shapes=shapes)
    frame = _understood(latest, view, changing).select("topic", "row", F.col(TABLE_DIFF).alias(DIFF))
    tables: dict[str, tuple[Column, Mapping[str, Column]]] = {}
    for place, source in enumerate(sources):
        slot, own = f"__t{place}", F.col("topic") == _topic(source)
        frame, columns = _slotted(frame, slot, own, *narrowed.get(_topic(source), (source, ())))
        tables[names[source.readable]] = (own, {name: F.col(slot)[name] for name in columns})
    if timed:
        tables[CLOCK] = (F.col("topic") == _CLOCK, {"now": F.timestamp_millis(F.col("row").cast("long"))})
    return frame, tables


def _records(spark: SparkSession, view: View, sources: Sequence[AnySource], log: Log) -> DataFrame:
    """All changes in the columns of Spark's Kafka source, in epochs that hold whole transactions."""
    spaces: dict[str, dict[str, list[str]]] = {}
    for source in sources:
        node = source.table if isinstance(source, TableSource) else source.readable
        if (space := space_of(node)) is not None:  # type: ignore[arg-type]
            name, marks = space
            own = spaces.setdefault(name, {"marks": [], "topics": []})
            own["topics"].append(source.outside)
            own["marks"] = sorted({*own["marks"], log.settings.named(marks)})
    options = {**sources[0].data.options, "subscribe": ",".join(sorted(source.outside for source in sources))}
    reader = spark.readStream.format(WHOLE).options(**options).option("marks", json.dumps(spaces))
    reader = reader.option("view", view.name).option("startingOffsets", "earliest")
    if sources[0].data.format != PROMPT:
        reader = reader.option("maxOffsetsPerTrigger", FIRST_RECORDS_AN_EPOCH)
    return reader.load().select("topic", "key", "value", "partition", "offset", "timestamp")


def _as_records(source: Source, events: DataFrame) -> DataFrame:
    value = F.to_json(F.struct(*(F.col(quoted(name)) for name in source.schema.names)), TIMES)
    return _records_of(_topic(source), events.select(value.alias("value")))


def _records_of(topic: str, events: DataFrame) -> DataFrame:
    """Texts as records of a topic whose records have no key."""
    value = F.col("value")
    return events.select(
        F.lit(topic).alias("topic"),
        F.pmod(F.xxhash64(value), F.lit(_KEYS)).cast("string").cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.lit(0).alias("partition"),
        F.lit(0).cast("long").alias("offset"),
        F.lit(None).cast("timestamp").alias("timestamp"),
    )


def _topic(source: AnySource) -> str:
    return f"{_EVENTS}{source.outside}" if isinstance(source, Source) else source.outside


def _wanted(plans: Sequence[Plan]) -> Mapping[str, set[str]]:
    """The columns that are read of each table, by its name in the SQL."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for each in (each for plan in plans for each in plan.inputs):
        found[each.relation] |= {name for name, _, _ in each.columns}
    return found


def _slotted(
    frame: DataFrame, slot: str, own: Column, source: AnySource, left_out: Collection[str]
) -> tuple[DataFrame, list[str]]:
    """With a column that has the source's rows as structs, and is null in others'."""
    text = F.when(own, F.col("row"))
    if isinstance(source, TableSource):
        made = reading.structs(frame.withColumn(slot, text), source.captured, slot, left_out=left_out)
        return made, [column.name for column in source.captured.columns]
    if isinstance(source, ViewedSource):
        return frame.withColumn(slot, F.when(own, source.row(text))), [name for name, _ in source.columns]
    parsed = F.from_json(text, ddl(source.schema), {**TIMES, "mode": "FAILFAST"})
    return frame.withColumn(slot, parsed), source.schema.names


def _events_alone(
    spark: SparkSession,
    names: Mapping[Any, str],
    sources: Sequence[Source],
    clocks: Path | None,
    once: bool,
    ticks: Sequence[DataFrame],
) -> tuple[DataFrame, Tables]:
    frames: list[DataFrame] = []
    tables: dict[str, tuple[Column, Mapping[str, Column]]] = {}
    for tick in ticks:
        now = F.timestamp_millis("ms").alias("__now")
        frames.append(tick.select(F.lit(_CLOCK).alias("topic"), now, F.lit(1).alias(DIFF)))
        tables[CLOCK] = (F.col("topic") == _CLOCK, {"now": F.col("__now")})
    for place, source in enumerate(sources):
        slot, columns = f"__t{place}", source.schema.names
        row = F.struct(*(F.col(quoted(name)) for name in columns))
        own = F.lit(source.outside).alias("topic"), row.alias(slot), F.lit(1).alias(DIFF)
        frames.append(source.stream(spark, clocks, once).select(*own))
        there = F.col("topic") == source.outside
        tables[names[source.readable]] = (there, {name: F.col(slot)[name] for name in columns})
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames), tables


def _understood(changes: DataFrame, view: View, sources: Sequence[AnySource]) -> DataFrame:
    """The rows that were understood. A record that cannot be stops the flow: the view without it would be untrue."""
    awaited = F.col("error").startswith(kernel.UNFILLED) & F.col("topic").isin(
        [each.outside for each in sources if isinstance(each, TableSource) and each.table.capture is not None]
    )
    named = reduce(
        lambda found, each: F.when(F.col("topic") == each.outside, F.lit(_name(each))).otherwise(found),
        sources,
        F.col("topic"),
    )
    place = F.concat(F.col("partition"), F.lit(":"), F.col("offset"))
    told = F.concat(F.lit(f"{UNREADABLE} "), named, F.lit(" "), place, F.lit(" "), F.col("error"))
    columns = F.substr("error", F.lit(len(kernel.STRANGE) + 1))
    changed = F.concat(F.lit(f"{CHANGED} "), named, F.lit(" "), columns)
    told = F.when(F.col("error").startswith(kernel.STRANGE), changed).otherwise(told)
    observed = changes.observe(
        f"millrace.view.{view.known_as}",
        F.count(F.nullif(F.col("topic"), F.lit(_CLOCK))).alias(ROWS),
        F.lit(0).cast("long").alias(DEAD),
        newest(),
    )
    stops = F.col("error").isNotNull() & ~F.coalesce(awaited, F.lit(False))
    kept = F.when(stops, F.raise_error(told).cast("boolean")).otherwise(F.col("row").isNotNull())
    return observed.where(kept)


def _name(source: AnySource) -> str:
    return source.captured.name if isinstance(source, TableSource) else source.name
