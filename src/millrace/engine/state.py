"""What the operators of a flow keep, read from its checkpoint as of the last epoch that was committed.

Reading needs no app and no broker: what the state means stands beside it (`flow.json`). A run goes on undisturbed: an
epoch that is committed stays as it is for the next hundred.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from millrace.engine import definition, failures
from millrace.engine.stopping import epochs
from millrace.errors import CheckpointEmpty, StateKeyAbsent, StateKeyUnfit, StateUnnamed
from millrace.kernel import kept
from millrace.kernel.calling import packed, quoted, unpacked

# How the keys and values of a map are called when it is read.
_MAP_KEY, _MAP_VALUE = "user_map_key", "user_map_value"


@dataclass(frozen=True)
class Size:
    """How much an operator keeps. `timers` are those that are set, by event time or the time of day."""

    operator: str
    where: str | None
    key: str
    keys: int
    rows: int
    bytes: int
    timers: int
    next_timer: datetime | None
    last_timer: datetime | None


@dataclass(frozen=True)
class Shown:
    """What an operator keeps for one key. Of `entries` there are `left_out` more."""

    operator: str
    where: str | None
    key: dict[str, Any]
    facts: dict[str, Any]
    what: str
    entries: list[dict[str, Any]]
    left_out: int


@dataclass(frozen=True)
class Kept:
    """One stateful step of a flow as Spark knows it: its number, its variables with their kinds (of Spark's own steps,
    its stores), whether it may have timers; and what it was told."""

    number: int
    variables: Mapping[str, str]
    timed: bool
    told: Mapping[str, Any]

    @property
    def ours(self) -> bool:
        return "by" in self.told or self.told["operator"] == "table"

    @property
    def key(self) -> str:
        return "its table's" if self.told["operator"] == "table" else ", ".join(self.told.get("by", ())) or "none"


class State:
    """The state of a flow with this folder, as of its last committed epoch. What its operators were `told` stands
    there, unless the query was no flow's."""

    def __init__(
        self, spark: SparkSession, folder: Path, flow: str, told: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        self.spark, self.flow = spark, flow
        self.checkpoint = folder / definition.CHECKPOINT
        committed = epochs(self.checkpoint / "commits")
        if not committed:
            raise CheckpointEmpty(flow=flow)
        self.epoch = committed[-1]
        remembered = definition.remembered(folder)
        self._told = told or (remembered.kept if remembered is not None else ())

    @cached_property
    def operators(self) -> list[Kept]:
        if not (self.checkpoint / "state").is_dir():
            return []
        rows = self.spark.read.format("state-metadata").load(str(self.checkpoint)).collect()
        found: dict[int, Kept] = {}
        for row in sorted(rows, key=lambda row: row.operatorId):
            properties = json.loads(row.operatorProperties or "{}")
            named = {each["stateName"]: each["stateVariableType"] for each in properties.get("stateVariables", ())}
            named = {name: kind for name, kind in named.items() if not name.startswith("$")}  # Spark's own: timers
            stores = found[row.operatorId].variables if row.operatorId in found else {}
            told = self._told[row.operatorId] if row.operatorId < len(self._told) else {"operator": row.operatorName}
            timed = properties.get("timeMode", "NoTime") != "NoTime"
            found[row.operatorId] = Kept(row.operatorId, named or {**stores, row.stateStoreName: ""}, timed, told)
        return list(found.values())

    def sizes(self) -> Iterator[Size]:
        for operator in self.operators:
            yield self._size(operator)

    def shown(self, given: Sequence[str], limit: int) -> tuple[list[Shown], bool]:
        """What is kept for a key, or without one for the first keys; and whether there are more keys. At most `limit`
        keys of an operator, and of each as many entries."""
        ours = [operator for operator in self.operators if operator.ours]
        if self.operators and not ours:
            raise StateUnnamed(flow=self.flow)
        ours = [operator for operator in ours if kept.variables(operator.told)]
        found: list[Shown] = []
        more, reasons = False, []
        for operator in ours:
            name = kept.variables(operator.told)[0]
            frame = self._read(operator, stateVarName=name)
            key = frame.schema["key"].dataType
            assert isinstance(key, StructType)
            wanted = self._wanted(operator, key, given)
            if isinstance(wanted, str):
                reasons.append(wanted)
                continue
            parts = [column.alias(part) for part, column, _ in _parts(operator, key)]
            named = [F.struct(*parts).alias("parts")] if parts else []
            keys = frame.where(wanted).orderBy("key").limit(limit + 1).select("*", _known(frame).alias("known"), *named)
            rows = keys.collect()
            more |= len(rows) > limit
            found += self._of_keys(operator, name, rows[:limit], limit)
        words = ", ".join(given)
        if given and reasons and len(reasons) == len(ours):
            raise StateKeyUnfit(flow=self.flow, given=words, reason="; ".join(dict.fromkeys(reasons)))
        if given and not found:
            raise StateKeyAbsent(flow=self.flow, given=words, epoch=self.epoch)
        return found, more

    def _of_keys(self, operator: Kept, name: str, keys: list[Row], limit: int) -> Iterator[Shown]:
        held: dict[bytes, dict[str, Any]] = {bytes(row.known): {name: _value(row.value)} for row in keys}
        for other in kept.variables(operator.told)[1:]:
            frame = self._read(operator, stateVarName=other)
            own = frame.select("*", _known(frame).alias("known")).where(F.col("known").isin(list(held)))
            for row in own.collect():
                held[bytes(row.known)].setdefault(other, {})[row[_MAP_KEY][0]] = row[_MAP_VALUE][0]
        for row in keys:
            try:
                read = kept.shown(self.spark, operator.told, held[bytes(row.known)])
            except Py4JError as error:
                raise failures.newer(self.flow, error) or error from None
            shown, rest = read.entries[:limit], read.entries[limit:]
            facts = {word: _cut(fact, limit) for word, fact in read.facts.items()}
            where = operator.told.get("where")
            yield Shown(operator.told["operator"], where, _named(operator, row), facts, read.what, shown, len(rest))

    def _size(self, operator: Kept) -> Size:
        if operator.ours and not kept.variables(operator.told):
            return Size(operator.told["operator"], operator.told.get("where"), operator.key, 0, 0, 0, 0, None, None)
        keys = rows = size = 0
        main = kept.variables(operator.told)[0] if operator.ours else next(iter(operator.variables))
        for name, kind in operator.variables.items():
            frame = self._read(operator, **({"stateVarName": name} if operator.timed or kind else {"storeName": name}))
            counted, more = _weighed(frame)
            rows, size = rows + counted, size + more
            keys = counted if name == main else keys
        timers, first, last = 0, None, None
        if operator.timed:
            at = F.col("expiration_timestamp_ms")
            frame = self._read(operator, readRegisteredTimers="true")
            timers, first, last = frame.agg(F.count(at), F.min(at), F.max(at)).collect()[0]
        told = operator.told
        return Size(
            told["operator"], told.get("where"), operator.key, keys, rows, size, timers, _moment(first), _moment(last)
        )

    def _read(self, operator: Kept, **options: str) -> DataFrame:
        reader = self.spark.read.format("statestore").option("batchId", self.epoch)
        return reader.option("operatorId", operator.number).options(**options).load(str(self.checkpoint))

    def _wanted(self, operator: Kept, key: StructType, given: Sequence[str]) -> Column | str:
        """The condition for the keys that begin with these values, or why there can be none."""
        if operator.told["operator"] == "table":
            return _of_record(key.fields[0].name, given)
        by = operator.told["by"]
        if len(given) > len(by):
            return f"the key of {operator.told['operator']} has {len(by)} columns ({', '.join(by) or 'none'})"
        conditions = [F.lit(True)]
        for text, (name, column, type_) in zip(given, _parts(operator, key), strict=False):
            value = F.lit(text).try_cast(type_)
            if text == "null":
                conditions.append(column.isNull() | F.coalesce(column == value, F.lit(False)))
            elif self.spark.range(1).select(value.isNull()).collect()[0][0]:
                return f"{name} is a {type_.simpleString()}"
            else:
                conditions.append(column == value)
        return reduce(lambda one, two: one & two, conditions)


def _of_record(field: str, given: Sequence[str]) -> Column:
    """A table's rows are known by the JSON of their keys: as it is, or the values in it. It is the first field of the
    state's key, whatever that is called: Spark writes a bean's fields in their own order, and names them in the
    grouping's."""
    if not given:
        return F.lit(True)
    text = F.col(f"key.{quoted(field)}").cast("string")
    values = F.map_values(F.from_json(text, "map<string,string>"))
    return (text == F.lit(given[0])) | (values == F.array(*map(F.lit, given)))


def _weighed(frame: DataFrame) -> tuple[int, int]:
    """How many rows, and their bytes as Spark has them."""
    own = frame.drop("partition_id")
    whole = packed(F.struct(*(F.col(quoted(name)) for name in own.columns)), own.schema)
    rows, size = own.agg(F.count(F.lit(1)), F.coalesce(F.sum(F.length(whole)), F.lit(0))).collect()[0]
    return rows, size


def _parts(operator: Kept, key: StructType) -> list[tuple[str, Column, DataType]]:
    """The columns of a key, by the names that its user knows; those of a step of signed rows are packed as one."""
    if "packedKey" in operator.told:
        schema = StructType.fromJson(json.loads(operator.told["packedKey"]))
        whole = unpacked(F.col(f"key.{quoted(key.fields[0].name)}"), schema)
        return [(field.name, whole[field.name], field.dataType) for field in schema]
    named = zip(operator.told.get("by", ()), key.fields, strict=False)
    return [(name, F.col(f"key.{quoted(field.name)}"), field.dataType) for name, field in named]


def _known(frame: DataFrame) -> Column:
    """A key as bytes: one of several types cannot always be compared, or be in a dictionary."""
    key = frame.schema["key"].dataType
    assert isinstance(key, StructType)
    return packed(F.struct(*(F.col(f"key.{quoted(field.name)}") for field in key)), key)


def _value(value: Row) -> Any:
    """Bytes of ours; a struct of Spark's own as its fields."""
    return value[0] if len(value) == 1 else value.asDict(recursive=True)


def _named(operator: Kept, row: Row) -> dict[str, Any]:
    if operator.told["operator"] == "table":
        return dict(json.loads(bytes(row.key[0]))) if row.key[0] is not None else {"key": None}
    return {name: _readable(row.parts[place]) for place, name in enumerate(operator.told["by"])}


def _readable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat()
    if isinstance(value, Row):
        return {name: _readable(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [_readable(each) for each in value]
    return value.hex() if isinstance(value, bytes | bytearray) else value


def _cut(fact: Any, limit: int) -> Any:
    if isinstance(fact, list) and len(fact) > limit:
        return [*fact[:limit], f"and {len(fact) - limit:,} more"]
    return fact


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1_000, UTC)
