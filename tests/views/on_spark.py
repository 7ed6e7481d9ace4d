"""Plans of the fuzzer on Spark: all signed rows of a history in one batch, which is one epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine.viewing import suit
from millrace.kernel.signed import DIFF
from millrace.model.signed import Bag, Row, canonical
from millrace.views import types
from millrace.views.run import chain
from millrace.views.steps import CLOCK, Plan
from tests.views.worlds import Made

TABLE = "__table"


# The time, as a table of the same form as the others.
NOW = Made("clock", {"now": "timestamptz"})


def frame(spark: SparkSession, tables: Sequence[Made], changes: Mapping[str, Sequence[tuple[Row, int]]]) -> DataFrame:
    """Signed rows of all tables, side by side, with columns named after their table, in a session like a view's."""
    spark = spark.newSession()
    suit(spark)
    ddl = [f"{TABLE} string", f"{DIFF} int"]
    rows: list[tuple[Any, ...]] = []
    width = sum(len(table.columns) for table in tables)
    before = 0
    for table in tables:
        relation = table.relation
        ddl += [f"{table.name}_{name} {told(type_)}" for name, type_ in relation.columns.items()]
        for row, diff in changes[table.name]:
            values = [_plain(*each) for each in zip(row, relation.columns.values(), strict=True)]
            rows.append((table.name, diff, *[None] * before, *values, *[None] * (width - before - len(values))))
        before += len(table.columns)
    return spark.createDataFrame(rows, ", ".join(ddl))


def told(type_: types.Type) -> str:
    if type_.element is not None:
        return f"array<{told(type_.element)}>"
    return "string" if type_.kind in ("timestamp", "timestamptz") else types.spark(type_)


def _plain(value: Any, type_: types.Type) -> Any:
    """Moments as text: PySpark would take them for local ones. Numerics that have no scale are text in a chain."""
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo is not None else value).isoformat(sep=" ")
    return f"{value:f}" if isinstance(value, Decimal) and type_.is_wide else value


def answered(spark: SparkSession, plan: Plan, tables: Sequence[Made], changes: DataFrame) -> Bag:
    """What the signed rows of a view add up to."""
    begun = {}
    for table in tables:
        columns = {name: F.col(f"{table.name}_{name}") for name in table.columns}
        begun[CLOCK if table == NOW else table.name] = (F.col(TABLE) == table.name, columns)
    made = chain(plan, changes, begun).table(plan.output)
    shown = [
        F.col(f"`{name}`").cast(told(type_)).alias(f"o{place}")
        if type_.kind in ("timestamp", "timestamptz", "array")
        else F.col(f"`{name}`").alias(f"o{place}")
        for place, (name, type_) in enumerate(plan.columns)
    ]
    found = Bag()
    for row in made.select(*shown, DIFF).collect():
        values = tuple(
            canonical(restored(value, type_)) for value, (_, type_) in zip(row[:-1], plan.columns, strict=True)
        )
        found[values] += row[-1]
    assert all(count >= 0 for count in found.values()), found
    return Bag({row: count for row, count in found.items() if count})


def restored(value: Any, type_: types.Type) -> Any:
    if value is None:
        return None
    if type_.element is not None:
        return tuple(canonical(restored(each, type_.element)) for each in value)
    if type_.is_wide:
        return Decimal(value)
    if type_.kind in ("timestamp", "timestamptz"):
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if type_.kind == "timestamptz" else moment
    return value
