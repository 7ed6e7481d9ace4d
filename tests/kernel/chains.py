"""Chains of signed rows over the events of specimens, on Spark and in the model."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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


def _pairs(chain: Any, *_: Any) -> Any:
    """The joins that tell no row of the right side, and the one that tells none alone."""
    chain = chain.copy("a", into="one").copy("a", into="two").copy("b", into="some").copy("b", into="none")
    chain = chain.join("a", "b", on=[("ak", "bk")], how="inner", into="both")
    chain = chain.join("one", "some", on=[("ak", "bk")], how="semi", into="met")
    return chain.join("two", "none", on=[("ak", "bk")], how="anti", into="alone")


def _spans(chain: Any, measures: Any, _: Any) -> Any:
    """Rows that are in for a time, and of groups of them the row that each has."""
    chain = chain.span("a", "b", since=[("since", 0)], until=[("since", LONG_S * 1_000_000), ("until", 0)], into="in")
    chain = chain.aggregate("in", by=["ag"], measures=measures, into="groups")
    return chain.only("groups", by=["ag"], into="groups")


COUNTED = (bags.Measure("n", "count"), bags.Measure("least", "min", ("ax",)))
# Of each chain its steps, measures and tables at the end.
CHAINS: dict[str, tuple[Any, tuple[bags.Measure, ...], tuple[str, ...]]] = {
    "signed": (_chain, SIGNED_MEASURES, ("groups", "once", "few")),
    "ranks": (_ranks, LISTED, ("lists", "first")),
    "pairs": (_pairs, (), ("both", "met", "alone")),
    "spans": (_spans, COUNTED, ("groups",)),
}
# By so many columns there is one row.
ONLY = {("spans", "groups"): 1}

# Seconds that a row is in at most.
LONG_S = 90


def _columns(chain: str) -> dict[str, tuple[Any, list[Any]]]:
    """Of each table which events are its rows, and its columns."""
    key = F.expr("if(id % 11 = 0, null, id % 5)")
    if chain == "spans":
        since, until = "id + id % 7 * 6 - 18", "id + 20 + id % 5 * 30"
        moments = [F.expr(f"timestamp_seconds(if(id % 13 = 0, null, {since}))").alias("since")]
        moments += [F.expr(f"timestamp_seconds({until})").alias("until")]
        return {
            # Time does not go back.
            "b": (F.expr(f"id % 4 = 1 AND {signed.DIFF} > 0"), [F.timestamp_seconds("id").alias("now")]),
            "a": (F.expr("id % 4 <> 1"), [F.expr("concat('g', id % 50) AS ag"), F.col("id").alias("ax"), *moments]),
        }
    group, real = F.expr("concat('g', id % 3)"), F.expr("cast(id % 7 as double) / 4")
    if chain == "pairs":
        key = F.expr(f"if(id % 11 = 0, null, id % {MEETING})")
    return {
        "b": (F.expr("id % 3 = 0"), [key.alias("bk"), F.col("id").alias("bx")]),
        "a": (F.lit(True), [key.alias("ak"), group.alias("ag"), F.col("id").alias("ax"), real.alias("af")]),
    }


# So many keys that rows of both sides have partners, lose them and find others.
MEETING = 97


def told(name: str, rows: DataFrame) -> DataFrame:
    said = F.expr(f"inline(array(struct(id, 1 AS diff), struct(id - {LAST} AS id, -1 AS diff)))")
    said_rows = rows.select(said).where("id > 0").withColumnRenamed("diff", signed.DIFF)
    tables = _columns(name)
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


def bases(last: int, chain: str = "signed") -> dict[str, bags.Table]:
    """The tables when this was the number of the last event."""
    a, b = bags.Bag(), bags.Bag()
    for number in range(max(1, last - LAST + 1), last + 1):
        if chain == "spans":
            moment = _moment(number)
            if number % 4 == 1:
                b[(moment,)] += 1
                continue
            since = None if number % 13 == 0 else moment + timedelta(seconds=number % 7 * 6 - 18)
            a[f"g{number % 50}", number, since, moment + timedelta(seconds=20 + number % 5 * 30)] += 1
            continue
        key = None if number % 11 == 0 else number % (MEETING if chain == "pairs" else 5)
        if number % 3 == 0:
            b[key, number] += 1
        else:
            a[key, f"g{number % 3}", number, number % 7 / 4] += 1
    if chain == "spans":
        return {"a": bags.Table(("ag", "ax", "since", "until"), a), "b": bags.Table(("now",), b)}
    return {"a": bags.Table(("ak", "ag", "ax", "af"), a), "b": bags.Table(("bk", "bx"), b)}


def _moment(second: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def twin(chain: str) -> tuple[dict[str, bags.Bag], Callable[[Part, int], list[Any]]]:
    """What the tables at the end hold, and what an epoch tells of them."""
    steps, measures, ends = CHAINS[chain]
    held: dict[str, bags.Bag] = {name: bags.Bag() for name in ends}

    def epoch(part: Part, _: int) -> list[Any]:
        if not part.events:
            return []
        begun = bags.Chain(bases(max(each.id for each in part.events), chain))
        ended, told = steps(begun, measures, {"ak": "ak", "ag": "ag"}), []
        for name in ends:
            after = ended.table(name)
            diffs = bags.difference(held[name], after)
            if (chain, name) in ONLY:
                diffs = bags.newest(diffs, ONLY[chain, name])
            told += [[name, list(row), diff] for row, diff in diffs.items()]
            held[name] = after
        return told

    return held, epoch
