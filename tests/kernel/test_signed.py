"""Chains of signed rows against their model and against Spark's SQL, epoch by epoch, with a crash and a restart."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.kernel import signed
from millrace.kernel.calling import unpacked
from millrace.kernel.signed import DIFF, ROW, TAG
from millrace.kernel.values import Unfit
from millrace.model import signed as model
from millrace.model.signed import Bag, Measure, canonical, difference
from millrace.testing.checkpoints import forget_commit
from tests.kernel.epochs import drained, put
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

COLUMNS = f"t string, {DIFF} long, w int, k double, g string, x long, d decimal(20,2), f double"
# Names of their own in each table, so that those of a join are all different.
TABLES = {
    "a": {"aw": "w", "ak": "k", "ag": "g", "ax": "x", "ad": "d", "af": "f"},
    "b": {"bw": "w", "bk": "k", "bg": "g", "bx": "x"},
    "c": {"cw": "w", "ck": "k"},
}
WORLDS = 150
HOT = 0
KEYS = (None, -0.0, 0.0, 1.0, math.nan)
GROUPS = (None, "\uffee", "\U0001f409")
WHOLE = (None, -3, 0, 1, 2**40, -(2**40))
DECIMALS = (None, "-0.10", "0.00", "1.25", f"{10**17}.99")
REALS = (None, -0.0, 0.1, 0.2, 1e16, -1e16, 5e-324, 1e308, math.inf, -math.inf, math.nan)

MEASURES = (
    Measure("rows", "count"),
    Measure("known", "count", ("ax",)),
    Measure("wholes", "sum", ("ax",)),
    Measure("mean", "avg", ("ax",)),
    Measure("exact", "sum", ("ad",)),
    Measure("exact_mean", "avg", ("ad",)),
    Measure("reals", "sum", ("af",)),
    Measure("real_mean", "avg", ("af",)),
    Measure("least", "min", ("ax",)),
    Measure("greatest", "max", ("ax",)),
    Measure("last_real", "max", ("af",)),
    Measure("last_exact", "min", ("ad",)),
    Measure("last_text", "max", ("ag",)),
    Measure("different", "distinct", ("ax",)),
    Measure("pairs", "distinct", ("ax", "af")),
)


@dataclass(frozen=True)
class OnSpark:
    """The kernel's chain by the names that the model has, so that one plan makes both."""

    chain: signed.Chain

    def select(
        self, name: str, columns: Mapping[str, str], *, into: str, where: Callable[..., Any] | None = None
    ) -> OnSpark:
        condition = None if where is None else where(**{each: F.col(each) for each in self._columns(name)})
        return OnSpark(
            self.chain.select(name, [F.col(old).alias(new) for new, old in columns.items()], where=condition, into=into)
        )

    def aggregate(self, name: str, *, by: Sequence[str], measures: Sequence[Measure], into: str) -> OnSpark:
        own = [
            signed.Measure(
                each.name,
                each.kind,  # type: ignore[arg-type]
                tuple(F.col(of) for of in each.of),
                tuple((F.col(by), descending, first) for by, descending, first in each.order),
            )
            for each in measures
        ]
        return OnSpark(self.chain.aggregate(name, by=by, measures=own, into=into))

    def __getattr__(self, step: str) -> Any:
        return lambda *args, **options: OnSpark(getattr(self.chain, step)(*args, **options))

    def _columns(self, name: str) -> list[str]:
        return self.chain.tables[name].schema.fieldNames()


@dataclass(frozen=True)
class Plan:
    """Several shapes in one chain, so that each step has others' rows to pass on: a join, its groups, and one row of
    all of those; rows with a partner, or without one, by fewer columns than tell them apart. `beside` is the table that
    is joined, `found` the one in which partners are looked for."""

    paired: str
    beside: str
    how: str
    found: str

    def __call__(self, chain: Any) -> Any:
        chain = chain.copy("a", into="a0").copy("a", into="a1")
        names = [name for name in TABLES[self.beside] if name[1:] in "wkgx"]
        chain = chain.copy(self.beside, into="b0").select("b0", dict(zip("1234", names, strict=True)), into="b0")
        if self.beside == "a":  # with itself: pairs of all rows of a busy key would be too many
            chain = chain.select("b0", {name: name for name in "1234"}, where=_is_not_hot, into="b0")
        chain = chain.join("a0", "b0", on=[("aw", "1"), ("ak", "2")], how=self.paired, into="joined")
        chain = chain.aggregate("joined", by=["aw", "ag"], measures=MEASURES, into="groups")
        chain = chain.copy("groups", into="g0").select(
            "g0", {"aw": "aw", "n": "rows", "e": "exact"}, where=_is_low, into="g0"
        )
        chain = chain.aggregate("g0", by=[], measures=OF_GROUPS, into="whole")
        # Rows that are alike in their order are the same.
        chain = chain.copy("a", into="first").select("first", {name: name for name in ("aw", "ag", "ax")}, into="first")
        chain = chain.top("first", by=["aw"], order=ORDER, count=3, number="n", into="first")
        chain = chain.copy("first", into="lists").aggregate("lists", by=["aw"], measures=LISTED, into="lists")
        other = {name[1:]: name for name in TABLES[self.found]}
        chain = chain.copy(self.found, into="c0")
        chain = chain.join("a1", "c0", on=[("aw", other["w"]), ("ak", other["k"])], how=self.how, into="found")
        chain = chain.select("found", {"aw": "aw", "ak": "ak", "ag": "ag"}, into="few").copy("few", into="once")
        return chain.consolidate("few", into="few").distinct("once", into="once").drop("a").drop("b").drop("c")

    @property
    def sql(self) -> dict[str, str]:
        beside = "(SELECT aw AS bw, ak AS bk FROM a WHERE aw <> 0)" if self.beside == "a" else self.beside
        key = {"b": "aw = bw AND ak = bk", "c": "aw = cw AND ak = ck"}[self.found]
        found = f"FROM a LEFT {self.how} JOIN {self.found} ON {key}"
        return {
            "groups": f"""
                SELECT aw, ag, count(*) AS rows, count(ax), sum(ax), avg(ax), sum(ad) AS exact, avg(ad), sum(af),
                    avg(af), min(ax), max(ax), max(af), min(ad), max(ag), count(DISTINCT ax), count(DISTINCT ax, af)
                FROM a {self.paired} JOIN {beside} ON aw = bw AND ak = bk GROUP BY aw, ag""",
            "whole": "SELECT max(rows), sum(exact), count(*) FROM groups WHERE aw < 3",
            "few": f"SELECT aw, ak, ag {found}",
            "once": f"SELECT DISTINCT aw, ak, ag {found}",
        }


def _is_not_hot(**row: Any) -> Any:
    return row["1"] != HOT


def _is_low(**row: Any) -> Any:
    return row["aw"] < 3


OF_GROUPS = [Measure("most", "max", ("n",)), Measure("sum", "sum", ("e",)), Measure("n", "count")]
ORDER = [("ag", True, True), ("ax", False, False)]
LISTED = [Measure("xs", "array", ("ax",), (("n", True, False),))]
ENDS = ("groups", "whole", "first", "lists", "few", "once")
PLANS = [Plan("inner", "b", "semi", "c"), Plan("left", "a", "anti", "b")]


@dataclass
class History:
    """Random changes of tables that are bags of rows. `bags` is what they hold now."""

    draw: random.Random
    bags: dict[str, Bag] = field(default_factory=lambda: {name: Bag() for name in TABLES})

    def epoch(self, number: int) -> list[dict[str, Any]]:
        changes = [change for world in range(1, WORLDS) for change in self._world(world)]
        if number:  # the first epoch has nothing for the aggregate without a key
            changes += self._hot(number)
        else:
            changes = [each for each in changes if each["w"] >= 3]
        changes += [opposite for each in self.draw.sample(changes, 20) for opposite in (each, _back(each))]
        self.draw.shuffle(changes)
        self.bags = {name: bag.copy() for name, bag in self.bags.items()}
        for change in changes:
            self.bags[change["t"]][_row(change)] += change[DIFF]
        self.bags = {name: Bag({row: n for row, n in bag.items() if n}) for name, bag in self.bags.items()}
        assert all(count > 0 for bag in self.bags.values() for count in bag.values())
        return changes

    def _world(self, world: int) -> list[dict[str, Any]]:
        found = []
        for name in self.draw.choices(("a", "b", "c"), (4, 2, 1), k=self.draw.choice((0, 1, 3, 6))):
            held = [row for row in self._held(name, world) if row not in map(_row, found)]
            if held and self.draw.random() < 0.5:
                row = self.draw.choice(held)
                found.append(_change(name, row, -self.draw.randint(1, self.bags[name][row])))
                if self.draw.random() < 0.5:
                    continue
            found.append(self._made(name, world, self.draw.choice((1, 1, 2))))
        return found

    def _held(self, name: str, world: int) -> list[model.Row]:
        return [row for row in self.bags[name] if row[0] == world]

    def _hot(self, number: int) -> list[dict[str, Any]]:
        """Of one key and group hundreds of rows, which then go again."""
        if number < 3:
            others = {"k": 1.0, "g": "", "d": "1.25", "f": 0.1}
            rows = [{**self._made("a", HOT, 1), "x": self.draw.randrange(10**6), **others} for _ in range(150)]
            return [*rows, self._made("b", HOT, 1) | {"k": 1.0}]
        held = [(name, row) for name in ("a", "b") for row in self._held(name, HOT)]
        gone = self.draw.sample(held, len(held) * 2 // 3) if number < 4 else held
        return [_change(name, row, -self.bags[name][row]) for name, row in gone]

    def _made(self, name: str, world: int, diff: int) -> dict[str, Any]:
        pick = self.draw.choice
        values = {"k": pick(KEYS), "g": pick(GROUPS), "x": pick(WHOLE), "d": pick(DECIMALS), "f": pick(REALS)}
        if world % 4:  # sums of others are lost in infinities
            values["f"] = pick([each for each in REALS if each is None or math.isfinite(each)])
        return {"t": name, DIFF: diff, "w": world, **values}


def _value(column: str, value: Any) -> Any:
    return Decimal(value) if column == "d" and value is not None else canonical(value)


def _row(change: dict[str, Any]) -> model.Row:
    return tuple(_value(old, change[old]) for old in TABLES[change["t"]].values())


def _change(name: str, row: model.Row, diff: int) -> dict[str, Any]:
    values = dict.fromkeys(("k", "g", "x", "d", "f")) | dict(zip(TABLES[name].values(), row, strict=True))
    return {"t": name, DIFF: diff, **values, "d": None if values["d"] is None else str(values["d"])}


def _back(change: dict[str, Any]) -> dict[str, Any]:
    return {**change, DIFF: -change[DIFF]}


def compared_with_sql(spark: SparkSession, bags: Mapping[str, Bag], plan: Plan) -> None:
    """The model says what Spark's SQL says, sums of doubles apart, which Spark rounds as it goes."""
    types = {"w": "int", "k": "double", "g": "string", "x": "long", "d": "decimal(20,2)", "f": "double"}
    for name, bag in bags.items():
        schema = ", ".join(f"{new} {types[old]}" for new, old in TABLES[name].items())
        spark.createDataFrame(list(bag.elements()), schema).createOrReplaceTempView(name)
    expected = twin(bags, plan)
    for name, query in plan.sql.items():
        answer = spark.sql(query)
        answer.createOrReplaceTempView(name)
        inexact = (8, 9) if name == "groups" else ()
        found = Counter(_rounded(_canonical(row), inexact) for row in answer.collect())
        assert found == Counter(_rounded(row, inexact) for row in expected[name].elements()), name


def _rounded(row: model.Row, inexact: Sequence[int]) -> model.Row:
    """What is beyond a double's reach is just that: on the way there SQL may have met both infinities."""
    beyond = {place: row[place] is not None and not abs(row[place]) < 1e300 for place in inexact}
    return tuple(beyond.get(place, value) for place, value in enumerate(row))


def begun(changes: DataFrame) -> OnSpark:
    columns = {name: [F.col(old).alias(new) for new, old in named.items()] for name, named in TABLES.items()}
    tables = {name: (F.col("t") == name, columns[name]) for name in TABLES}
    return OnSpark(signed.begin(changes, tables, nudged=True))


def twin(bags: Mapping[str, Bag], plan: Plan) -> dict[str, Bag]:
    chain = model.Chain({name: model.Table(tuple(TABLES[name]), bag) for name, bag in bags.items()})
    ended = plan(chain)
    return {name: ended.table(name) for name in ENDS}


def told_of(chain: signed.Chain, rows: DataFrame) -> dict[str, list[tuple[model.Row, int]]]:
    """What an epoch tells of each table, in one pass."""
    of = [
        F.when(F.col(TAG) == table.tag, unpacked(F.col(ROW), table.schema)).alias(name)
        for name, table in chain.tables.items()
    ]
    told: dict[str, list[tuple[model.Row, int]]] = {name: [] for name in chain.tables}
    for each in rows.select(DIFF, *of).collect():
        for name in chain.tables:
            if each[name] is not None:
                told[name].append((tuple(_told(value) for value in each[name]), each[DIFF]))
    return told


def _told(value: Any) -> Any:
    return tuple(map(canonical, value)) if isinstance(value, list) else canonical(value)


@pytest.mark.parametrize("plan", todays(PLANS, 1), ids=str)
def test_after_every_epoch_a_chain_holds_what_its_plan_gives(spark: SparkSession, tmp_path: Path, plan: Plan) -> None:
    told: dict[int, dict[str, list[tuple[model.Row, int]]]] = {}
    history = History(seeded(f"signed {plan}"))
    epochs = [(history.epoch(number), history.bags) for number in range(5)]

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            put(tmp_path / "in", number, epochs[number][0])
        read = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        chain: signed.Chain = plan(begun(read)).chain
        assert set(chain.tables) == set(ENDS)

        def keep(rows: DataFrame, epoch: int) -> None:
            told[epoch] = told_of(chain, rows)

        drained(chain.rows, tmp_path, keep)

    run(0, 2)
    again = told[1]
    forget_commit(tmp_path / "checkpoint")
    run(2, 5)
    assert {name: Counter(rows) for name, rows in again.items()} == {
        name: Counter(rows) for name, rows in told[1].items()
    }
    before = {name: Bag() for name in ENDS}
    for number, (_, bags) in enumerate(epochs):
        after = twin(bags, plan)
        for name in ENDS:
            found = told[number][name]
            assert dict(found) == difference(before[name], after[name]), f"{name} in epoch {number}"
            # Each row is told once: nothing of it cancels.
            assert len(found) == len(dict(found)), f"{name} in epoch {number}"
        before = after
    assert all(len(before[name]) > (60 if name != "whole" else 0) for name in ENDS)
    compared_with_sql(spark, epochs[3][1], plan)


def alone(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str, **options: Any) -> signed.Chain:
    """A chain of one table `t`, as a batch, which is one epoch."""
    frame = spark.createDataFrame(rows, f"{schema}, {DIFF} int")
    columns = [name for name in frame.columns if name != DIFF]
    return signed.begin(frame, {"t": (F.lit(True), columns)}, **options)


def test_a_row_that_goes_before_it_has_come_is_owed(spark: SparkSession, tmp_path: Path) -> None:
    """In real time two tasks may tell it in this order. A group that has no rows meanwhile, or fewer, knows of both."""
    told: dict[int, list[tuple[model.Row, int]]] = {}
    for number, (x, diff) in enumerate([(7, -1), (5, 1), (7, 1), (5, -1)]):
        put(tmp_path / "in", number, [{"k": 1, "x": x, DIFF: diff}])
    read = spark.readStream.schema(f"k long, x long, {DIFF} int").option("maxFilesPerTrigger", 1)
    chain = signed.begin(read.json(str(tmp_path / "in")), {"t": (F.lit(True), ["k", "x"])})
    measures = [
        signed.Measure("n", "count"), signed.Measure("total", "sum", (F.col("x"),)),
        signed.Measure("least", "min", (F.col("x"),)),
    ]  # fmt: skip
    chain = chain.aggregate("t", by=["k"], measures=measures, into="groups")
    drained(chain.rows, tmp_path, lambda rows, epoch: told.update({epoch: told_of(chain, rows)["groups"]}))
    assert told == {0: [], 1: [], 2: [((1, 1, 5, 5), 1)], 3: [((1, 1, 5, 5), -1)]}


VALUES: list[tuple[str, list[Any]]] = [
    ("long", [-(2**63), -1, 0, 2**63 - 1]),
    ("int", [-(2**31), 0, 2**31 - 1]),
    ("short", [-32768, 0, 32767]),
    ("byte", [-128, 0, 127]),
    ("boolean", [False, True]),
    ("double", [-math.inf, -1.5, 5e-324, 1e300, math.inf, math.nan]),
    ("float", [-0.5, 0.0, 0.25, math.nan]),
    ("string", ["", "\0", "a\0\0b", "é", "\uffee", "\U0001f409"]),
    ("binary", [b"", b"\0", b"\0\xff\0", b"\xff"]),
    ("decimal(38,2)", [Decimal(f"{n}.25") for n in (-(10**35), -128, 0, 10**35)]),
    ("decimal(9,4)", [Decimal("-1.2500"), Decimal("0.0001")]),
    ("date", [date(1, 1, 1), date(2026, 1, 1)]),
    ("timestamp", [datetime(1900, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1)]),
    ("timestamp_ntz", [datetime(1, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)]),
]


def test_the_least_and_the_greatest_of_every_type_and_every_type_as_a_key(spark: SparkSession) -> None:
    longest = max(len(values) for _, values in VALUES)
    schema = ", ".join(f"v{place} {type_}" for place, (type_, _) in enumerate(VALUES))
    rows = [(*(values[n] if n < len(values) else None for _, values in VALUES), 1) for n in range(longest)]
    chain = alone(spark, rows, schema, nudged=True)
    names = [f"v{place}" for place in range(len(VALUES))]
    measures = [signed.Measure(f"{kind}{name}", kind, (F.col(name),)) for name in names for kind in ("min", "max")]
    chain = chain.copy("t", into="u").distinct("u", into="distinct")
    chain = chain.aggregate("t", by=[], measures=measures, into="ends")
    (found,) = chain.table("ends").collect()
    for name, (type_, values) in zip(names, VALUES, strict=True):
        ends = (canonical(found[f"min{name}"]), canonical(found[f"max{name}"]))
        assert ends == (values[0], canonical(values[-1])), type_
    assert Counter(map(_canonical, chain.table("distinct").collect())) == Counter(map(_canonical, rows))


def _canonical(row: Sequence[Any]) -> model.Row:
    return tuple(canonical(value) for value in row)


@pytest.mark.parametrize("strict", [True, False])
def test_a_sum_that_does_not_fit_is_what_spark_says(spark: SparkSession, strict: bool) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", str(strict).lower())
    large = Decimal("9" * 38)
    rows = [("fits", 2**63 - 1, large, 1), ("fits", 1, large, 1), ("fits", 1, large, -1), ("not", 2**63 - 1, large, 2)]
    for group in ("fits", "not"):
        chain = alone(own, [row for row in rows if row[0] == group], "g string, x long, d decimal(38,0)")
        measures = [signed.Measure("x", "sum", (F.col("x"),)), signed.Measure("d", "sum", (F.col("d"),))]
        table = chain.aggregate("t", by=["g"], measures=measures, into="sums").table("sums")
        if group == "not" and strict:
            with pytest.raises(Exception, match="a sum does not fit BIGINT"):
                table.collect()
        else:
            wrapped = (-2, None) if group == "not" else (2**63 - 1, large)
            assert [tuple(row) for row in table.collect()] == [(group, *wrapped, 1)]


def test_what_cannot_be_is_refused(spark: SparkSession) -> None:
    chain = alone(spark, [(1, "a", 1)], "x long, s string")
    with pytest.raises(Unfit, match="a column of map<string,int>"):
        alone(spark, [({"a": 1}, 1)], "m map<string,int>")
    with pytest.raises(Unfit, match=r"a join of \['bigint'\] with \['string'\]"):
        chain.copy("t", into="u").join("t", "u", on=[("x", "s")], how="semi", into="j")
    with pytest.raises(Unfit, match="two columns named x"):
        chain.copy("t", into="u").join("t", "u", on=[("x", "x")], how="inner", into="j")
    with pytest.raises(Unfit, match="does not tell when it begins"):
        chain.aggregate("t", by=[], measures=[signed.Measure("n", "count")], into="n")
    with pytest.raises(Unfit, match="sum of string"):
        chain.aggregate("t", by=["x"], measures=[signed.Measure("n", "sum", (F.col("s"),))], into="n")
    with pytest.raises(Unfit, match="min of array<bigint>"):
        chain.aggregate("t", by=["x"], measures=[signed.Measure("n", "min", (F.array("x"),))], into="n")
    with pytest.raises(Unfit, match="a union of"):
        chain.copy("t", into="u").select("u", ["x"], into="u").union(["t", "u"], into="both")


def test_the_words_of_a_state_change_with_what_is_kept(spark: SparkSession) -> None:
    chain = alone(spark, [(1, "a", 1)], "x long, s string").copy("t", into="u")

    def joined(how: Any, on: str) -> tuple[str, ...]:
        return chain.join("t", "u", on=[(on, on)], how=how, into="j").state

    def grouped(by: str, kind: Any, of: str) -> tuple[str, ...]:
        return chain.aggregate("t", by=[by], measures=[signed.Measure("m", kind, (F.col(of),))], into="a").state

    assert joined("semi", "x") == joined("semi", "x")
    assert len({joined("semi", "x"), joined("anti", "x"), joined("semi", "s")}) == 3
    assert (
        len({grouped("s", "min", "x"), grouped("s", "max", "x"), grouped("s", "min", "s"), grouped("x", "min", "x")})
        == 4
    )


def test_a_union_and_rows_in_structs_and_arrays(spark: SparkSession) -> None:
    rows = [((1, [0.0, None]), 1), ((1, [-0.0, None]), 1), ((None, None), 1), ((1, [0.0]), 1), ((1, [0.0]), -1)]
    chain = alone(spark, rows, "v struct<a: int, b: array<double>>").copy("t", into="u")
    both = chain.union(["t", "u"], into="both").consolidate("both", into="both").table("both")
    found = {(row.v.a, tuple(row.v.b or ())): row[DIFF] for row in both.collect()}
    assert found == {(1, (0.0, None)): 4, (None, ()): 2}


def test_the_only_row_of_a_key_is_told_as_it_is_now_and_a_second_one_stops_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    epochs: list[list[tuple[str | None, int, int]]] = [
        [("a", 1, 1), ("b", 1, 1), (None, 1, 1), ("gone", 1, 1), ("gone", 1, -1)],
        [("a", 1, -1), ("a", 2, 1), ("b", 1, -1), (None, 1, -1), (None, 1, 1)],
        [("a", 3, 1), ("a", 4, 1), ("a", 4, -1), ("a", 2, -1), ("b", 5, 1)],
        [("b", 6, 1)],
    ]
    for number, rows in enumerate(epochs):
        put(tmp_path / "in", number, [{"k": key, "x": x, DIFF: diff} for key, x, diff in rows])
    read = spark.readStream.schema(f"k string, x long, {DIFF} int").option("maxFilesPerTrigger", 1)
    chain = signed.begin(read.json(str(tmp_path / "in")), {"t": (F.lit(True), ["k", "x"])})
    only, told = chain.only("t", by=["k"], into="only"), []
    with pytest.raises(StreamingQueryException, match=r'MR-VIEW-KEY-REPEATED \{"k":"b","x":6\}'):
        drained(only.table("only"), tmp_path, lambda rows, _: told.append(set(map(tuple, rows.collect()))))
    assert told == [{("a", 1, 1), ("b", 1, 1), (None, 1, 1)}, {("a", 2, 1), ("b", 1, -1)}, {("a", 3, 1), ("b", 5, 1)}]
