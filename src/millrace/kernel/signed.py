"""Signed rows of several tables in one DataFrame, and the steps they take; `model/signed.py` says what it must do.

Spark allows no keyed operator before a union, so a plan over several tables is one chain: each row has a tag that says
whose it is, a step takes the rows of its tables and gives those of a new one, and all others pass through it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from millrace.kernel.calling import canonical, operator, packed, quoted, unpacked, words
from millrace.kernel.kept import About
from millrace.kernel.tallies import Measure, in_order, tallied
from millrace.kernel.values import Unfit

TAG, ROW, DIFF = "__tag", "__row", "__diff"
_RAW = (TAG, ROW, DIFF)

How: TypeAlias = Literal["inner", "left", "semi", "anti"]
Named: TypeAlias = "Column | str"

# Whose rows are no table's: they say that the chain has begun, so that an aggregate without a key has its empty row.
_NUDGE = -1
# Which of a step's tables a row is of, as in `SignedStep.java` and the steps.
_FOREIGN, _LEFT, _RIGHT, _LONE = -1, 0, 1, 2
# Over so many groups the rows that a step does not take are spread.
_GROUPS = 128
# Over so many keys the rows of a span are: each of them is told every time.
_SPANS = 32
_EVER = (-(2**63), 2**63 - 1)

_PLAIN = (
    BinaryType, BooleanType, DateType, DayTimeIntervalType, DecimalType, DoubleType, FloatType, IntegralType,
    StringType, TimestampNTZType, TimestampType, YearMonthIntervalType,
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table of a chain: the tag of its rows, and their columns."""

    tag: int
    schema: StructType


@dataclass(frozen=True, eq=False)
class Chain:
    """What is known of a chain at one place. A step takes the tables it names and puts a new one, `into`, in their
    place; for a table that is needed again, make a `copy` before.

    `rows` have TAG, ROW (packed) and DIFF. `state` are words for what each keyed step keeps: with other words, or in
    another order, it would be misread. `where` is the line that made it.
    """

    rows: DataFrame
    tables: Mapping[str, Table]
    state: tuple[str, ...] = ()
    nudged: bool = False
    tags: int = 0
    where: str = ""

    def table(self, name: str) -> DataFrame:
        """A table's columns and DIFF."""
        table = self.tables[name]
        own = self.rows.where(F.col(TAG) == table.tag)
        row = unpacked(F.col(ROW), table.schema)
        return own.select(*(row[field.name].alias(field.name) for field in table.schema), DIFF)

    def select(self, name: str, columns: Sequence[Named], *, where: Column | None = None, into: str) -> Chain:
        """Expressions over a table's columns, of the rows for which `where` is true."""
        table = self.tables[name]
        opened = _opened(self.rows, table)
        if where is not None:
            opened = opened.where((F.col(TAG) != table.tag) | where)
        wanted = [_column(column) for column in columns]
        schema = _plain(opened.select(*wanted).schema)
        row = F.when(_is(table), canonical(F.struct(*wanted), schema)).otherwise(F.col(ROW))
        rows = opened.select(TAG, row.alias(ROW), DIFF)
        return replace(self, rows=rows, tables={**self._without(name), into: Table(table.tag, schema)})

    def copy(self, name: str, *, into: str) -> Chain:
        """The same table once more, under another name: for a join with itself, or for two uses of it."""
        table = self.tables[name]
        both = F.array(F.lit(table.tag), F.lit(self.tags))
        tag = F.explode(F.when(_is(table), both).otherwise(F.array(TAG)))
        rows = self.rows.select(tag.alias(TAG), ROW, DIFF)
        tables = {**self._without(into), name: table, into: Table(self.tags, table.schema)}
        return replace(self, rows=rows, tables=tables, tags=self.tags + 1)

    def union(self, names: Sequence[str], *, into: str) -> Chain:
        """All rows of tables whose columns have the same types; named as those of the first."""
        first, *others = (self.tables[name] for name in names)
        for other in others:
            if [field.dataType for field in other.schema] != [field.dataType for field in first.schema]:
                raise Unfit(f"a union of {first.schema.simpleString()} and {other.schema.simpleString()}")
        tag = F.when(F.col(TAG).isin([table.tag for table in others]), F.lit(first.tag)).otherwise(F.col(TAG))
        rows = self.rows.select(tag.alias(TAG), ROW, DIFF)
        return replace(self, rows=rows, tables={**self._without(*names), into: first})

    def drop(self, name: str) -> Chain:
        return replace(self, rows=self.rows.where(~_is(self.tables[name])), tables=self._without(name))

    def join(self, left: str, right: str, *, on: Sequence[tuple[Named, Named]], how: How, into: str) -> Chain:
        """Rows of two tables whose keys are equal, of which a null never is. `on` has an expression over each table's
        columns; without any, every row meets every other. Of `semi` and `anti` come the columns of the left table, of
        the others those of both."""
        ours, theirs = self.tables[left], self.tables[right]
        pairs = how in ("inner", "left")
        schema = _plain(StructType([*ours.schema, *theirs.schema])) if pairs else ours.schema
        rows, key = _keyed(self.rows, ours, [mine for mine, _ in on], "__left")
        rows, other_key = _keyed(rows, theirs, [other for _, other in on], "__right")
        types, other_types = ([field.dataType.simpleString() for field in each] for each in (key, other_key))
        if types != other_types:
            raise Unfit(f"a join of {types} with {other_types}")
        lone = F.lit(_LONE) if how in ("left", "anti") else F.lit(None)
        side = (
            F.when(_is(ours), F.when(F.col("__left").isNotNull(), F.lit(_LEFT)).otherwise(lone))
            .when(_is(theirs), F.when(F.col("__right").isNotNull(), F.lit(_RIGHT)))
            .otherwise(F.lit(_FOREIGN))
        )
        sided = rows.select("*", side.alias("side")).where(F.col("side").isNotNull())
        packed_key = (
            F.when(F.col("side") == _LEFT, F.col("__left"))
            .when(F.col("side") == _RIGHT, F.col("__right"))
            .when(F.col("side") == _LONE, F.col(ROW))
            .otherwise(_spread())
        )
        # Only how many there are matters there.
        row = F.col(ROW) if pairs else F.when(F.col("side") == _RIGHT, F.lit(b"")).otherwise(F.col(ROW))
        flat = sided.select(
            packed_key.alias("key"), "side", F.col(TAG).alias("tag"), row.alias("row"), F.col(DIFF).alias("diff")
        )
        settings = {"how": how, "left": ours.schema.jsonValue(), "right": theirs.schema.jsonValue()}
        state = f"join {how} {ours.schema.simpleString()} {theirs.schema.simpleString()} on {_words(on)}"
        return self._stepped(flat, "join", key, settings, state, schema, (left, right), into)

    def aggregate(self, name: str, *, by: Sequence[Named], measures: Sequence[Measure], into: str) -> Chain:
        """One row for each group of a table's rows: the columns it is grouped `by`, and its measures. Without any `by`
        there is one row, also of no rows; then the chain has to be `nudged`."""
        if not by and not self.nudged:
            raise Unfit("an aggregate without a key in a chain that does not tell when it begins")
        table = self.tables[name]
        rows, key = _keyed(self.rows, table, by, "__key", nulls=True)
        opened = _opened(rows, table)
        groups = opened.select(*(_column(each) for each in by)).schema
        held = tallied(opened, measures)
        value = packed(F.struct(*held.values), opened.select(*held.values).schema) if held.values else F.lit(b"")
        nudge = F.lit(_RIGHT) if not by else F.lit(_FOREIGN)
        own = F.col("side") == _LEFT
        side = F.when(_is(table), F.lit(_LEFT)).when(F.col(TAG) == _NUDGE, nudge).otherwise(F.lit(_FOREIGN))
        packed_key = F.when(F.col("side") == _FOREIGN, _spread()).otherwise(F.coalesce(F.col("__key"), F.lit(b"")))
        flat = opened.select("*", side.alias("side")).select(
            packed_key.alias("key"),
            "side",
            F.col(TAG).alias("tag"),
            F.when(own, value).otherwise(F.col(ROW)).alias("row"),
            F.col(DIFF).alias("diff"),
        )
        schema = _plain(StructType([*groups, *held.results]))
        strict = str(rows.sparkSession.conf.get("spark.sql.ansi.enabled")).lower() == "true"
        settings = {**held.settings, "keys": len(by), "out": schema.jsonValue(), "strict": strict, "nudge": _NUDGE}
        grouped = f"{groups.simpleString()} {_words([(each,) for each in by])}"
        kind = "aggregate" if measures or not by else "distinct"
        return self._stepped(flat, kind, key, settings, f"aggregate {grouped}: {held.state}", schema, (name,), into)

    def distinct(self, name: str, *, into: str) -> Chain:
        """Each row of a table once."""
        names = [quoted(field.name) for field in self.tables[name].schema]
        return self.aggregate(name, by=[F.col(each) for each in names], measures=(), into=into)

    def top(
        self,
        name: str,
        *,
        by: Sequence[Named],
        order: Sequence[tuple[Named, bool, bool]],
        count: int,
        number: str | None = None,
        into: str,
    ) -> Chain:
        """The first `count` rows of each group. `order` has an expression, whether the greatest is first and whether
        nulls are; rows that are alike in all of it are in an order of their own. `number` is a column for a row's
        place, from 1 on."""
        table = self.tables[name]
        rows, key = _keyed(self.rows, table, by, "__key", nulls=True)
        opened = _opened(rows, table)
        placed = in_order(opened, [(_column(each), descending, first) for each, descending, first in order])
        both = F.struct(placed.alias("order"), F.col(ROW).alias("row"))
        pair = packed(both, opened.select(placed.alias("order"), F.col(ROW).alias("row")).schema)
        flat = opened.select(
            F.when(_is(table), F.col("__key")).otherwise(_spread()).alias("key"),
            F.when(_is(table), F.lit(_LEFT)).otherwise(F.lit(_FOREIGN)).alias("side"),
            F.col(TAG).alias("tag"),
            F.when(_is(table), pair).otherwise(F.col(ROW)).alias("row"),
            F.col(DIFF).alias("diff"),
        )
        numbers = [] if number is None else [StructField(number, LongType())]
        settings = {"count": count, "numbered": number is not None, "schema": table.schema.jsonValue()}
        words_of = ", ".join(f"{words(_column(each))} {down} {first}" for each, down, first in order)
        state = f"top {table.schema.simpleString()} by {_words([(each,) for each in by])} in {words_of}"
        schema = _plain(StructType([*table.schema, *numbers]))
        return self._stepped(flat, "first", key, settings, state, schema, (name,), into)

    def span(
        self,
        name: str,
        clock: str,
        *,
        since: Sequence[tuple[Named, int]] = (),
        until: Sequence[tuple[Named, int]] = (),
        into: str,
    ) -> Chain:
        """The rows that are in by the time that is: the last one that came in the one column of `clock`, a table that
        only grows. From every moment of `since` on, and before every one of `until`, both with µs that are added; where
        one is null a row is never in. The first epoch has to have a time."""
        table, times = self.tables[name], self.tables[clock]
        opened = _opened(self.rows, table)
        starts, ends = ([_moved(column, us) for column, us in each] for each in (since, until))
        first = F.greatest(F.lit(_EVER[0]), *starts) if starts else F.lit(_EVER[0])
        last = F.least(F.lit(_EVER[1]), *ends) if ends else F.lit(_EVER[1])
        for each in (*starts, *ends):  # which greatest and least would pass over
            first = F.when(each.isNotNull(), first)
        side = (
            F.when(_is(table), F.when(F.col("__since") < F.col("__until"), F.lit(_LEFT)))
            .when(_is(times), F.lit(_RIGHT))
            .otherwise(F.lit(_FOREIGN))
        )
        (moment,) = times.schema.fieldNames()
        now = F.unix_micros(F.when(_is(times), unpacked(F.col(ROW), times.schema))[moment])
        place = F.when(_is(table), F.pmod(F.xxhash64(ROW), F.lit(_SPANS)))
        every = F.array(*(F.lit(each).cast("long") for each in range(_SPANS)))
        places = F.explode(F.when(_is(times), every).otherwise(F.array(place))).alias("__place")
        sided = opened.select(*_RAW, first.alias("__since"), last.alias("__until")).select("*", side.alias("side"))
        spread = sided.where(F.col("side").isNotNull()).select("*", places)
        key = StructType([StructField("part", LongType())])
        own = F.struct(F.col("__since").alias("since"), F.col("__until").alias("until"), F.col(ROW).alias("row"))
        pair = packed(own, spread.select(own.alias("own")).select("own.*").schema)
        tick = packed(F.struct(now.alias("now")), StructType([StructField("now", LongType())]))
        flat = spread.select(
            F.when(F.col("side") == _FOREIGN, _spread())
            .otherwise(canonical(F.struct(F.col("__place").alias("part")), key))
            .alias("key"),
            "side",
            F.col(TAG).alias("tag"),
            F.when(_is(table), pair).when(_is(times), tick).otherwise(F.col(ROW)).alias("row"),
            F.col(DIFF).alias("diff"),
        )
        told = [[f"{words(_column(column))} + {us}" for column, us in each] for each in (since, until)]
        state = f"span {table.schema.simpleString()} from {', '.join(told[0])} until {', '.join(told[1])}"
        settings = {"schema": table.schema.jsonValue()}
        return self._stepped(flat, "span", key, settings, state, table.schema, (name, clock), into)

    def only(self, name: str, *, by: Sequence[Named], into: str) -> Chain:
        """The one row that each key has: of a key whose row changed, the row that it has now, +1, or if it has none the
        one that it had, -1. A key with two rows stops the query."""
        table = self.tables[name]
        rows, key = _keyed(self.rows, table, by, "__key", nulls=True)
        flat = rows.select(
            F.when(_is(table), F.col("__key")).otherwise(_spread()).alias("key"),
            F.when(_is(table), F.lit(_LEFT)).otherwise(F.lit(_FOREIGN)).alias("side"),
            F.col(TAG).alias("tag"),
            F.col(ROW).alias("row"),
            F.col(DIFF).alias("diff"),
        )
        state = f"only {table.schema.simpleString()} by {_words([(each,) for each in by])}"
        settings = {"schema": table.schema.jsonValue()}
        return self._stepped(flat, "only", key, settings, state, table.schema, (name,), into)

    def consolidate(self, name: str, *, into: str) -> Chain:
        """Opposite rows of an epoch cancel, and equal ones are one, with what they add up to. In real time that is
        within what comes at once."""
        table = self.tables[name]
        key = F.when(_is(table), F.col(ROW)).otherwise(_spread())
        row = F.when(_is(table), F.lit(b"")).otherwise(F.col(ROW))
        side = F.when(_is(table), F.lit(_LEFT)).otherwise(F.lit(_FOREIGN))
        flat = self.rows.select(
            key.alias("key"), side.alias("side"), F.col(TAG).alias("tag"), row.alias("row"), F.col(DIFF).alias("diff")
        )
        return self._stepped(flat, "consolidate", table.schema, {}, "consolidate", table.schema, (name,), into)

    def _stepped(
        self,
        flat: DataFrame,
        kind: str,
        key: StructType,
        settings: dict[str, Any],
        state: str,
        schema: StructType,
        taken: Iterable[str],
        into: str,
    ) -> Chain:
        spark = flat.sparkSession
        about = About(kind, self.where, tuple(key.fieldNames()), {"packedKey": key.json()})
        told = json.dumps({**about.told(), **settings, "tag": self.tags})
        found = DataFrame(operator(spark, "Signed").step(flat._jdf, told), spark)
        rows = found.select(F.col("tag").alias(TAG), F.col("row").alias(ROW), F.col("diff").alias(DIFF))
        tables = {**self._without(*taken), into: Table(self.tags, schema)}
        return replace(self, rows=rows, tables=tables, state=(*self.state, state), tags=self.tags + 1)

    def _without(self, *names: str) -> dict[str, Table]:
        return {name: table for name, table in self.tables.items() if name not in names}


def begin(
    changes: DataFrame,
    tables: Mapping[str, tuple[Column, Sequence[Named]]],
    *,
    nudged: bool = False,
    where: str = "",
) -> Chain:
    """A chain over signed rows, whose sign is their column DIFF; a row without one is left out. A table has the rows
    for which its condition is true, and of them its columns; a row is of the first such table.

    With `nudged`, an aggregate without a key has its row from the first epoch on, whatever comes in it.
    """
    found: dict[str, Table] = {}
    tag, row = F.lit(None).cast("int"), F.lit(None).cast("binary")
    for number, (name, (condition, columns)) in reversed(list(enumerate(tables.items()))):
        wanted = [_column(column) for column in columns]
        found[name] = Table(number, _plain(changes.select(*wanted).schema))
        tag = F.when(condition, F.lit(number)).otherwise(tag)
        row = F.when(F.col(TAG) == number, canonical(F.struct(*wanted), found[name].schema)).otherwise(row)
    tagged = changes.select("*", tag.alias(TAG))
    rows = tagged.select(TAG, row.alias(ROW), F.col(DIFF).cast("long").alias(DIFF))
    if nudged:
        rows = _nudging(rows)
    is_told = F.col(TAG).isNotNull() & ((F.col(DIFF) != 0) | (F.col(TAG) == _NUDGE))
    return Chain(rows.where(is_told), found, nudged=nudged, tags=len(tables), where=where)


def _nudging(rows: DataFrame) -> DataFrame:
    """Of each task's first row, whatever it is, one more comes that only says so."""
    is_first = Column(operator(rows.sparkSession, "FirstOfTask").of(F.lit(0).cast("long")._jc))
    itself = F.struct(*_RAW)
    nudge = F.struct(F.lit(_NUDGE).alias(TAG), F.lit(b"").alias(ROW), F.lit(0).cast("long").alias(DIFF))
    told = F.explode(F.when(F.col("__first"), F.array(itself, nudge)).otherwise(F.array(itself)))
    return rows.select("*", is_first.alias("__first")).select(told.alias("told")).select("told.*")


def _opened(rows: DataFrame, table: Table) -> DataFrame:
    """With the table's columns, which are null in rows of others."""
    own = F.when(_is(table), unpacked(F.col(ROW), table.schema))
    return rows.select("*", *(own[field.name].alias(field.name) for field in table.schema))


def _keyed(
    rows: DataFrame, table: Table, by: Sequence[Named], name: str, *, nulls: bool = False
) -> tuple[DataFrame, StructType]:
    """With a key of a table's rows, as bytes; null of other tables' rows, and where a value is unless `nulls`. And the
    key's columns."""
    if not by:
        return rows.select("*", F.when(_is(table), F.lit(b"")).alias(name)), StructType([])
    opened = _opened(rows, table)
    keys = [_column(each) for each in by]
    schema = opened.select(*(key.alias(f"k{place}") for place, key in enumerate(keys))).schema
    for field in schema:
        _check(field.dataType, key=True)
    found = canonical(F.struct(*(key.alias(f"k{place}") for place, key in enumerate(keys))), schema)
    there = _is(table)
    for key in keys:
        there = there if nulls else there & key.isNotNull()
    named = zip(opened.select(*keys).columns, schema, strict=True)
    own = StructType([StructField(word, field.dataType) for word, field in named])
    return opened.select(*(quoted(each) for each in rows.columns), F.when(there, found).alias(name)), own


def _plain(schema: StructType) -> StructType:
    """Without what Spark knows of columns beside their types. Names are told apart as Spark does."""
    names = [field.name.lower() for field in schema]
    for field in schema:
        _check(field.dataType)
        if names.count(field.name.lower()) > 1:
            raise Unfit(f"two columns named {field.name}")
    return StructType([StructField(field.name, field.dataType) for field in schema])


def _check(type_: DataType, *, key: bool = False) -> None:
    """Refuses types of which equal values may have different bytes."""
    if isinstance(type_, StructType):
        for field in type_:
            _check(field.dataType, key=key)
    elif isinstance(type_, ArrayType):
        _check(type_.elementType, key=key)
    elif not isinstance(type_, _PLAIN) or (key and isinstance(type_, StringType) and type_ != StringType()):
        raise Unfit(f"{'a key' if key else 'a column'} of {type_.simpleString()}")


def _is(table: Table) -> Column:
    return F.col(TAG) == table.tag


def _spread() -> Column:
    """One byte: the rows that a step does not take, in groups that no key of its own has."""
    return F.char(F.pmod(F.xxhash64(ROW), F.lit(_GROUPS))).cast("binary")


def _moved(moment: Named, us: int) -> Column:
    """In µs; what would be beyond them is at their end, where infinite moments are."""
    own = F.unix_micros(_column(moment).cast("timestamp"))
    moved = F.coalesce(F.try_add(own, F.lit(us).cast("long")), F.lit(_EVER[us > 0]))
    return F.when(own.isNotNull(), F.when(own.isin(*_EVER), own).otherwise(moved))


def _column(column: Named) -> Column:
    return F.col(quoted(column)) if isinstance(column, str) else column


def _words(columns: Iterable[Sequence[Named]]) -> str:
    return ", ".join(" = ".join(words(_column(each)) for each in pair) for pair in columns)
