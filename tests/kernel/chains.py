"""Chains of signed rows over the events of specimens, on Spark and in the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from millrace.kernel import signed
from millrace.kernel.calling import unpacked
from millrace.model import signed as bags
from tests.kernel.parts import Part

# The tables hold what the last events say, whose numbers make their columns.
LAST = 200
SIGNED_MEASURES = (
    bags.Measure("n", "count"), bags.Measure("total", "sum", ("ax",)), bags.Measure("least", "min", ("bx",)),
    bags.Measure("most", "max", ("ax",)), bags.Measure("different", "distinct", ("ax",)),
    bags.Measure("mean", "avg", ("af",)),
)  # fmt: skip


def _chain(chain: Any, measures: Any, few: Any) -> Any:
    """The same steps on Spark and in the model."""
    chain = chain.copy("a", into="once").copy("a", into="few")
    chain = chain.join("a", "b", on=[("ak", "bk")], how="left", into="joined")
    chain = chain.aggregate("joined", by=["ag"], measures=measures, into="groups")
    chain = chain.select("once", few, into="once").distinct("once", into="once")
    return chain.select("few", few, into="few").consolidate("few", into="few")


LISTED = (bags.Measure("lately", "array", ("af",), (("ax", True, False),)),)


def _ranks(chain: Any, measures: Any, _: Any) -> Any:
    """Steps that keep rows in an order."""
    chain = chain.drop("b").copy("a", into="first")
    chain = chain.aggregate("a", by=["ag"], measures=measures, into="lists")
    return chain.top("first", by=["ak"], order=[("ax", True, False)], count=3, number="place", into="first")


# Of each chain its steps, measures and tables at the end.
CHAINS: dict[str, tuple[Any, tuple[bags.Measure, ...], tuple[str, ...]]] = {
    "signed": (_chain, SIGNED_MEASURES, ("groups", "once", "few")),
    "ranks": (_ranks, LISTED, ("lists", "first")),
}


def told(name: str, rows: DataFrame) -> DataFrame:
    said = F.expr(f"inline(array(struct(id, 1 AS diff), struct(id - {LAST} AS id, -1 AS diff)))")
    said_rows = rows.select(said).where("id > 0").withColumnRenamed("diff", signed.DIFF)
    key = F.expr("if(id % 11 = 0, null, id % 5)")
    group, real = F.expr("concat('g', id % 3)"), F.expr("cast(id % 7 as double) / 4")
    tables = {
        "b": (F.expr("id % 3 = 0"), [key.alias("bk"), F.col("id").alias("bx")]),
        "a": (F.lit(True), [key.alias("ak"), group.alias("ag"), F.col("id").alias("ax"), real.alias("af")]),
    }
    steps, wanted, _ = CHAINS[name]
    measures = []
    for each in wanted:
        order = tuple((F.col(column), down, first) for column, down, first in each.order)
        measures.append(signed.Measure(each.name, each.kind, tuple(map(F.col, each.of)), order))  # type: ignore[arg-type]
    chain = steps(signed.begin(said_rows, tables), measures, ["ak", "ag"])
    values = [
        F.when(F.col(signed.TAG) == table.tag, unpacked(F.col(signed.ROW), table.schema)).alias(name)
        for name, table in chain.tables.items()
    ]
    found: DataFrame = chain.rows.select(signed.DIFF, *values)
    return found


def row(row: Row) -> Any:
    (name,) = (each for each, value in row.asDict().items() if each != signed.DIFF and value is not None)
    return [name, list(row[name]), row[signed.DIFF]]


def bases(last: int) -> dict[str, bags.Table]:
    """The tables when this was the number of the last event."""
    a, b = bags.Bag(), bags.Bag()
    for number in range(max(1, last - LAST + 1), last + 1):
        key = None if number % 11 == 0 else number % 5
        if number % 3 == 0:
            b[key, number] += 1
        else:
            a[key, f"g{number % 3}", number, number % 7 / 4] += 1
    return {"a": bags.Table(("ak", "ag", "ax", "af"), a), "b": bags.Table(("bk", "bx"), b)}


def twin(chain: str) -> tuple[dict[str, bags.Bag], Callable[[Part, int], list[Any]]]:
    """What the tables at the end hold, and what an epoch tells of them."""
    steps, measures, ends = CHAINS[chain]
    held: dict[str, bags.Bag] = {name: bags.Bag() for name in ends}

    def epoch(part: Part, _: int) -> list[Any]:
        if not part.events:
            return []
        begun = bags.Chain(bases(max(each.id for each in part.events)))
        ended, told = steps(begun, measures, {"ak": "ak", "ag": "ag"}), []
        for name in ends:
            after = ended.table(name)
            told += [[name, list(row), diff] for row, diff in bags.difference(held[name], after).items()]
            held[name] = after
        return told

    return held, epoch
