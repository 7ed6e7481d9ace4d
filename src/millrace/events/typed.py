"""`typed`: the captured events as typed columns, as the classes have them now, whichever version wrote them.

A flow that reads `data` as JSON sees each event in the version it was written in: after a change of fields an older one
gives null, and nobody notices. Here older versions go through the upcasters and newer ones are refused, as a load does
it. A class that has one version and no defaults needs no Python for that; then it runs in real time too.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from millrace.errors import EventFromFuture, EventInvalid, EventUnreadable
from millrace.events.checks import written
from millrace.events.kinds import Kind, kind_of
from millrace.events.values import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EVENT = "event"
DECIMALS = "decimal(38,18)"

_PLAIN = {
    "text": "string",
    "boolean": "boolean",
    "integer": "bigint",
    "number": "double",
    "time": "timestamp",
    "date": "date",
    "uuid": "string",
}


def typed(events: DataFrame, *kinds: type, decimals: str = DECIMALS) -> DataFrame:
    """Of the captured `events.event` the events of these classes, with their fields in a struct column `event` instead
    of `data`, `schema` and `seals`. Of several classes it has the fields of all; those of another class are null;
    where no class has any there is no such column.

    Personal fields are not in it: they are sealed. `decimals` is the type of `Decimal`: one with more digits stops the
    flow, and "string" keeps them all.
    """
    from pyspark.sql import functions as F

    known = {kind_of(each).name: kind_of(each) for each in kinds}
    fields = _fields(known, decimals)
    rows = events.where(F.col("type").isin(list(known)))
    if any(_needs_python(kind) for kind in known.values()):
        # By rows: what is faster needs pandas and pyarrow, which Millrace does not.
        current = F.udf(_current(tuple(kinds)), "string", useArrow=False)
        rows = rows.withColumn("data", current("type", "schema", "data", "seals", "position"))
    else:
        rows = rows.where(_of_now(known))
    if not fields:
        return rows.drop("data", "schema", "seals")
    parsed = F.from_json("data", f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in fields.items())}>", _EXACT)
    rows = rows.withColumn(EVENT, parsed).drop("data", "schema", "seals")
    return rows.withColumn(EVENT, _whole(known, fields, decimals))


# A value that does not fit its type stops the flow; otherwise Spark would make it null.
_EXACT = {"mode": "FAILFAST"}


def _fields(known: Mapping[str, Kind], decimals: str) -> dict[str, str]:
    """Name and type of each field of any class. Decimals at the top are read as text, and looked at before a cast."""
    found: dict[str, tuple[str, str]] = {}
    for kind in known.values():
        for name, shape in _open(kind).items():
            here = spark_type(shape, decimals)
            other, first = found.setdefault(name, (here, kind.name))
            if other != here:
                reason = f"its {name!r} is {here}, and that of {first!r} is {other}"
                raise EventInvalid(event=kind.name, reason=reason, remedy="ask for one of them at a time")
    shapes = {name: shape for kind in known.values() for name, shape in _open(kind).items()}
    return {name: "string" if _is_decimal(shapes[name]) else here for name, (here, _) in found.items()}


def _open(kind: Kind) -> dict[str, Shape]:
    return {name: shape for name, shape in kind.record.shape.items() if name not in kind.personal}


def _is_decimal(shape: Shape) -> bool:
    return shape == "decimal" or (isinstance(shape, dict) and shape.get("optional") == "decimal")


def spark_type(shape: Shape, decimals: str = DECIMALS) -> str:
    """The Spark type of a value of this shape (`values.py` has the table). Maps whose keys are no texts stay JSON."""
    if isinstance(shape, str):
        return decimals if shape == "decimal" else _PLAIN[shape]
    ((word, inner),) = shape.items()
    if word == "optional":
        return spark_type(inner, decimals)
    if word == "enum":
        return "string" if isinstance(inner[0], str) else "bigint"
    if word == "list":
        return f"array<{spark_type(inner, decimals)}>"
    if word == "map":
        return f"map<string, {spark_type(inner, decimals)}>"
    if word == "record":
        return f"struct<{', '.join(f'`{name}`: {spark_type(each, decimals)}' for name, each in inner.items())}>"
    return "string"


def _needs_python(kind: Kind) -> bool:
    """An older version needs the upcasters, and a field that is absent its default."""
    given = dataclasses.fields(kind.record.kind)
    return kind.version > 1 or any(_has_default(each) for each in given)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default not in (missing, None) or field.default_factory is not missing


def _of_now(known: Mapping[str, Kind]) -> Column:
    from pyspark.sql import functions as F

    found = F.lit(True)
    for kind in known.values():
        told = str(EventFromFuture(type=kind.name, found="later than that", known=kind.version))
        later = (F.col("type") == kind.name) & (F.col("schema") > kind.version)
        found = F.when(later, F.raise_error(F.lit(told)).cast("boolean")).otherwise(found)
    return found


def _current(kinds: tuple[type, ...]) -> Callable[[str, int, str, str | None, int], str]:
    """Data of any version, as JSON of the classes' own; called by Spark's workers, row by row."""

    def current(name: str, version: int, data: str, seals: str | None, position: int) -> str:
        kind = next(kind_of(each) for each in kinds if kind_of(each).name == name)
        given = json.loads(data)
        for hidden in json.loads(seals) if seals else ():
            given[hidden] = kind.instead.get(hidden)  # an upcaster sees it as if it were forgotten
        event = kind.decode(given, version, position)
        return written({field: value for field, value in kind.encode(event).items() if field not in kind.personal})

    return current


def _whole(known: Mapping[str, Kind], fields: Mapping[str, str], decimals: str) -> Column:
    """The parsed fields. One that its class has and the event has not, or a number with too many digits, stops the
    flow."""
    from pyspark.sql import functions as F

    columns = []
    for name, here in fields.items():
        value, owners = F.col(EVENT)[name], [kind for kind in known.values() if name in _open(kind)]
        checked = value
        if _is_decimal(_open(owners[0])[name]) and decimals != "string":
            cast, most = value.try_cast(decimals), value.try_cast(DECIMALS)
            lost = value.isNotNull() & (cast.isNull() | (most.isNotNull() & (cast != most)))
            checked = F.when(lost, _fault(f"its {name!r} does not fit {decimals}").cast(decimals)).otherwise(cast)
            here = decimals
        needed = [kind.name for kind in owners if "optional" not in _open(kind)[name]]
        if needed:
            missing = F.col("type").isin(needed) & value.isNull()
            checked = F.when(missing, _fault(f"it has no {name!r}").cast(here)).otherwise(checked)
        columns.append(checked.alias(name))
    return F.struct(*columns)


def _fault(reason: str) -> Column:
    from pyspark.sql import functions as F

    told = str(EventUnreadable(type="%s", version="of this class", position="%d", reason=reason))
    return F.raise_error(F.format_string(told, "type", "position"))
