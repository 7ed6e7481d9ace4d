"""Events and a table that changes: each event with the row that the table had at the event's time.

On streams it is the kernel's, which keeps as much of the table's past as events can still ask for; on batches it is a
join with intervals of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StructType

from millrace import durations
from millrace.capture import CapturedTable, reading
from millrace.errors import OptionInvalid, Where, nearest
from millrace.flow import lateness as lateness_
from millrace.flow import leaving
from millrace.flow.as_of_batch import batch
from millrace.flow.columns import WATERMARK, named, refuse_key, taken_out, time_of
from millrace.flow.histories import TOPIC, kept_of
from millrace.flow.late import Late
from millrace.flow.lookups import KINDS, How, Known, kept_type, key_of, keyed, keys_as, known_of
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.flow.time import Duration, duration_ms
from millrace.flow.windows import EMISSIONS
from millrace.kernel import as_of as kernel
from millrace.kernel.calling import packed, quoted, unpacked
from millrace.kernel.kept import About
from millrace.kernel.told import KIND, RESULT, ROW
from millrace.kernel.values import alike

if TYPE_CHECKING:
    from millrace.flow.nodes import Emit

Moment: TypeAlias = str | datetime

CORRECTED, REPLACES = "corrected", "replaces"
_ROW, _OLD = "__row_found", "__row_replaced"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST = -(2**63)


@dataclass(frozen=True)
class _Asked:
    """What was asked for and is the same for all kinds of tables."""

    on: list[str]
    once: bool
    inner: bool
    late: Late
    since_us: int | None
    prefix: str
    where: Where

    @property
    def corrects(self) -> bool:
        """Whether an event may be told again."""
        return not self.once or self.late.grace_ms > 0

    def refused(self, option: str, given: object, remedy: str) -> OptionInvalid:
        return OptionInvalid(name="as_of", option=option, given=given, remedy=remedy, where=self.where)


def as_of(
    events: DataFrame,
    table: DataFrame,
    /,
    *,
    on: str | Sequence[str],
    emit: Emit | None = None,
    late: Late | None = None,
    lateness: Duration | None = None,
    how: How = "left",
    key: str | Sequence[str] | None = None,
    deleted: str | Column | None = None,
    since: Moment | None = None,
    prefix: str = "table_",
    times: tuple[str | None, str | None] = (None, None),
    order: str | None = None,
) -> DataFrame:
    """Each event with the row of the table that its `on` columns name, as it was at the event's time.

    The table is a captured one, as the function was given it: `on` holds its primary key, a change counts from its
    commit on, and `lateness` says how long changes are waited for. Or it is a stream of rows with a time, the newest
    of which is the row from then on: `key` names its columns (unless they are called as `on`), and a row for which
    `deleted` holds says that it is gone; of two with the same time, that with the greater `order` counts, a column.

    `emit="final"` tells an event once the watermark of both has passed its time; `emit="updates"` at once, and again
    when a change comes that it should have seen. `late` says what is done with events (and changes) that come after
    the watermark: `mr.late.drop()`, `.allow(…)`, `.side(…)`. Events from before `since`, or from before what the topic
    keeps of the table, are refused. `how="inner"` leaves out events without a row. Columns: the event's, then the
    table's without its key (one whose name is taken gets the prefix) and, where an event may be told again,
    `corrected`: whether it was told before, and `replaces`: with which row.
    """
    where = caller()
    asked = _checked(events, on, emit, late, how, since, prefix, where)
    if table.isStreaming and not events.isStreaming:
        raise asked.refused("events", "a batch", "events that stream too, or the table as a batch")
    known = known_of(table)
    at = F.col(quoted(time_of(events, times[0], "as_of", where)))
    lateness_ms = None if lateness is None else duration_ms("as_of", "lateness", lateness, where)
    if known is not None:
        if known.records is None:
            raise asked.refused("table", "a table as it is now", "rows with their times: this one has no past")
        if deleted is not None:
            raise asked.refused("deleted", deleted, "leave it out: the capture says what was deleted")
        if order is not None:
            raise asked.refused("order", order, "leave it out: a log has an order")
        if lateness_ms is None:
            remedy = 'say how long after its commit a change may come, for example "5 seconds"'
            raise asked.refused("lateness", lateness, remedy)
        return _captured(events, at, table, known, key, lateness_ms, asked)
    if table.isStreaming and not any(WATERMARK in field.metadata for field in table.schema):
        remedy = (
            "a captured table as the function was given it (what is to be changed or left out of its rows comes "
            "after), or rows of a topic with a time"
        )
        raise asked.refused("table", "a stream whose rows have no time", remedy)
    if lateness_ms is not None and table.isStreaming:
        raise asked.refused("lateness", lateness, "leave it out: the table's topic says it")
    return _stream(events, at, table, key, deleted, times[1], order, asked)


def _checked(
    events: DataFrame,
    on: str | Sequence[str],
    emit: Emit | None,
    late: Late | None,
    how: How,
    since: Moment | None,
    prefix: str,
    where: Where,
) -> _Asked:
    columns = [on] if isinstance(on, str) else list(on)
    chosen = lateness_.chosen("as_of", late, where)
    asked = _Asked(columns, emit == "final", how == "inner", chosen, None, prefix, where)
    if emit not in EMISSIONS:
        remedy = (
            'choose "final" (once, when the watermark has passed the event) or "updates" (at once, corrections later)'
        )
        raise asked.refused("emit", emit, remedy)
    if how not in KINDS:
        raise asked.refused("how", how, 'choose "left" (loses no event) or "inner"')
    if chosen.corrects:
        remedy = "choose drop, allow or side: corrections name what they replace anyway"
        raise asked.refused("late", str(late), remedy)
    if asked.inner and asked.corrects:
        remedy = 'choose "left": an event that was told may lose its row, which "inner" could not say'
        raise asked.refused("how", how, remedy)
    for name in (CORRECTED, REPLACES) if asked.corrects else ():
        if name in events.columns:
            raise asked.refused("events", name, "rename that column: results have one of that name")
    return _Asked(columns, asked.once, asked.inner, chosen, _since_us(since, asked), prefix, where)


def _since_us(since: Moment | None, asked: _Asked) -> int | None:
    if since is None:
        return None
    try:
        found = datetime.fromisoformat(since) if isinstance(since, str) else since
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        return (zoned - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, AttributeError):
        raise asked.refused(
            "since", since, 'a time, for example "2026-01-01 12:00"; UTC unless it says a zone'
        ) from None


def _captured(
    events: DataFrame,
    at: Column,
    table: DataFrame,
    known: Known,
    key: str | Sequence[str] | None,
    lateness_ms: int,
    asked: _Asked,
) -> DataFrame:
    assert known.clocked is not None
    clocked = known.clocked
    parts = key_of("as_of", table, known, asked.on, key, asked.where)
    kinds = {part: kept_type(table.schema[part]) for part in parts}
    keys = keys_as("as_of", events, asked.on, list(kinds.values()), asked.where)
    others = [column.name for column in known.table.columns if column.name not in parts]
    names = _names(events, others, asked)
    by = ", ".join(f"{part} {kind.simpleString()}" for part, kind in kinds.items())
    _note(f"{known.table.name} by {by}, rows as text", events, asked)
    about = About("as_of", str(asked.where), tuple(parts))
    timed = lateness_.timed(events, at)

    def build() -> DataFrame:
        records, record_keys = keyed(known.table, clocked(lateness_ms), kinds)
        place = F.col("partition"), F.col("offset")
        changes = kernel.Changes(records, record_keys, F.col("timestampUs"), F.col("value"), *place)
        settings = _settings(known.table.topic, asked, captured=True)
        return known.understood(kernel.as_of(timed, keys, at, changes, settings, about))

    told = lateness_.told("as_of", build, asked.late, asked.where)
    return _texts(told.where(F.col(KIND) == RESULT), events.schema, known.table, names, asked)


def _stream(
    events: DataFrame,
    at: Column,
    table: DataFrame,
    key: str | Sequence[str] | None,
    deleted: str | Column | None,
    time: str | None,
    order: str | None,
    asked: _Asked,
) -> DataFrame:
    """A table that is a stream of rows, or a batch of them."""
    parts = _key(table, key, asked)
    for part in parts if table.isStreaming else ():
        refuse_key(table.schema[part], "as_of", "key", asked.where)
    kinds = [kept_type(table.schema[part]) for part in parts]
    keys = keys_as("as_of", events, asked.on, kinds, asked.where)
    names = _names(events, [name for name in table.columns if name not in parts], asked)
    table_time = time_of(table, time, "as_of", asked.where)
    schema, topic = kernel.plain(table.schema), table.schema[table_time].metadata.get(TOPIC)
    row = packed(F.struct(*(F.col(quoted(name)) for name in table.columns)), schema)
    value = row
    if deleted is not None:
        gone = F.expr(deleted) if isinstance(deleted, str) else deleted
        value = F.when(F.coalesce(gone, F.lit(False)), F.lit(None)).otherwise(row)
    table_keys = [alike(F.col(quoted(part)).cast(kind), kind) for part, kind in zip(parts, kinds, strict=True)]

    tie = F.xxhash64(row) if order is None else _order(table, order, asked)

    def changes() -> kernel.Changes:
        rows = lateness_.timed(table, F.col(quoted(table_time)))
        if any(table.schema[part].nullable for part in parts):
            # No event can ask for them: a null in the key finds nothing.
            rows = leaving.without(rows, reduce(or_, (table_key.isNull() for table_key in table_keys)))
        micros = F.unix_micros(quoted(table_time))
        return kernel.Changes(rows, table_keys, micros, value, F.lit(0), tie, schema)

    timed = lateness_.timed(events, at)
    if not table.isStreaming:
        if asked.since_us is not None:
            timed = lateness_.without(timed, F.unix_micros(at) < asked.since_us)
        found = batch(timed, keys, at, changes(), inner=asked.inner)
        unchanged = {kernel.CORRECTED: F.lit(False), kernel.REPLACES: F.lit(None).cast("binary")}
        return _rows(found.withColumns(unchanged), events.schema, schema, names, asked)
    by = ", ".join(f"{part} {kind.simpleString()}" for part, kind in zip(parts, kinds, strict=True))
    _note(f"{topic or 'rows'} by {by}: {schema.simpleString()}", events, asked)

    def build() -> DataFrame:
        settings = _settings(topic, asked, captured=False)
        about = About("as_of", str(asked.where), tuple(parts))
        return kernel.as_of(timed, keys, at, changes(), settings, about).drop("error", "partition", "offset")

    told = lateness_.told("as_of", build, asked.late, asked.where)
    return _rows(told.where(F.col(KIND) == RESULT), events.schema, schema, names, asked)


def _key(table: DataFrame, key: str | Sequence[str] | None, asked: _Asked) -> list[str]:
    parts = [key] if isinstance(key, str) else list(key or asked.on)
    for part in parts:
        if part not in table.columns:
            remedy = f"name the table's columns that `on` is compared with{nearest(part, table.columns)}"
            raise asked.refused("key", part, remedy)
    if not parts or len(parts) != len(asked.on):
        raise asked.refused("key", key, f"as many columns as `on` has: {len(asked.on) or 'at least one'}")
    return parts


def _order(table: DataFrame, order: str, asked: _Asked) -> Column:
    """By which of two rows of the same time one counts; a null is before all others."""
    if order not in table.columns:
        raise asked.refused("order", order, f"name a column of the table{nearest(order, table.columns)}")
    if not isinstance(table.schema[order].dataType, IntegralType):
        kind = table.schema[order].dataType.simpleString()
        raise asked.refused("order", order, f"a whole number, which a {kind} is not")
    return F.coalesce(F.col(quoted(order)).cast("long"), F.lit(_LEAST))


def _names(events: DataFrame, others: list[str], asked: _Asked) -> dict[str, str]:
    """What the table's columns are called in results."""
    taken = [*events.columns, *((CORRECTED, REPLACES) if asked.corrects else ())]
    return named("as_of", taken, others, asked.prefix, asked.where)


def _note(table: str, events: DataFrame, asked: _Asked) -> None:
    """With a longer grace, versions would be gone that it asks for."""
    grace = f" {durations.spoken(asked.late.grace_ms)} back" if asked.late.grace_ms else ""
    waiting = f"{'waiting' if asked.once else 'told'} events: {kernel.plain(events.schema).simpleString()}"
    emits = "final" if asked.once else "updates"
    note(f"the past{grace} of {table}; {waiting}", f"emits {emits}, late rows: {asked.late}")


def _settings(topic: str | None, asked: _Asked, *, captured: bool) -> kernel.Settings:
    kept = kept_of(topic)
    known = [each for each in (kept.since_us, asked.since_us) if each is not None]
    grace_us = asked.late.grace_ms * 1_000
    return kernel.Settings(asked.once, asked.inner, captured, kept.whole, max(known, default=None), grace_us)


def _texts(
    told: DataFrame, events: StructType, table: CapturedTable, names: dict[str, str], asked: _Asked
) -> DataFrame:
    """Results whose rows are the text of records."""
    old = {_OLD: kernel.REPLACES} if asked.corrects else {}
    texts = told.select(
        ROW,
        kernel.CORRECTED,
        *(F.col(each).cast("string").alias(new) for new, each in {_ROW: kernel.FOUND, **old}.items()),
    )
    return _results(reading.structs(texts, table, _ROW, *old), events, names, asked)


def _rows(told: DataFrame, events: StructType, table: StructType, names: dict[str, str], asked: _Asked) -> DataFrame:
    """Results whose rows were packed."""
    rows = {_ROW: kernel.FOUND, **({_OLD: kernel.REPLACES} if asked.corrects else {})}
    found = told.select(ROW, kernel.CORRECTED, *(unpacked(F.col(each), table).alias(new) for new, each in rows.items()))
    return _results(found, events, names, asked)


def _results(found: DataFrame, events: StructType, names: dict[str, str], asked: _Asked) -> DataFrame:
    """What is told when the watermark has passed it has no watermark any more: all of it would be late."""
    schema = kernel.plain(events) if asked.once else events
    again = []
    if asked.corrects:
        old = F.struct(*(F.col(f"{_OLD}.{quoted(name)}").alias(new) for name, new in names.items()))
        again = [
            F.col(kernel.CORRECTED).alias(CORRECTED),
            F.when(F.col(_OLD).isNotNull(), old).alias(REPLACES),
        ]
    return found.select(
        *taken_out(ROW, schema),
        *(F.col(f"{_ROW}.{quoted(name)}").alias(new) for name, new in names.items()),
        *again,
    )
