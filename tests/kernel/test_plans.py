"""Random plans of signed rows: after every epoch each table holds what Spark's SQL and the model say of the same plan.

A plan is a list of steps over three tables, each made by a draw; what comes of a step may be taken again by later ones.
One plan a day, `make test-all` takes many.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.kernel import signed
from millrace.kernel.signed import DIFF
from millrace.model import signed as model
from millrace.model.signed import Bag, Measure, canonical, difference
from millrace.testing.checkpoints import forget_commit
from tests.kernel.epochs import drained, put
from tests.kernel.test_signed import OnSpark, told_of
from tests.rotation import today

pytestmark = pytest.mark.spark

MANY = 12
DAY = today() % 1_000
SEEDS = range(MANY) if os.environ.get("TEST_ALL") else [DAY]

TYPES = {"w": "long", "k": "double", "g": "string", "x": "long", "d": "decimal(12,2)"}
VALUES: dict[str, tuple[Any, ...]] = {
    "w": (0, 1, 2, 3),
    "k": (None, -0.0, 0.0, 1.5, math.nan, -math.inf),
    "g": (None, "", "a", "\uffee", "\U0001f409"),
    "x": (None, -1, 0, 2**40),
    "d": (None, "-0.10", "0.00", "7.25"),
}
BASES = ("a", "b", "c")
EPOCHS = 4
DRAWN = ("select", "union", "join", "join", "aggregate", "aggregate", "distinct", "consolidate")
# Of keyed steps, and of the rows that a join may give.
MOST_STEPS, MOST_ROWS = 4, 3_000
HOWS = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}
MEASURES = {
    "w": ("sum", "avg", "min", "max", "count", "distinct"),
    "k": ("min", "max", "count", "distinct"),
    "g": ("min", "max", "count", "distinct"),
    "x": ("sum", "avg", "min", "max", "count", "distinct"),
    "d": ("sum", "min", "max", "count", "distinct"),
}


@dataclass
class Step:
    """A call of both chains, the tables it takes, and the same as SQL."""

    call: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    sql: str


@dataclass
class Plan:
    """`columns` are those of each table that can be taken, with what kind of values they have. Of the tables in `once`
    a row is told once an epoch."""

    draw: random.Random
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    once: set[str] = field(default_factory=set)
    keyed: int = 0
    numbers: int = 0

    @staticmethod
    def drawn(seed: int, bags: dict[str, Bag]) -> Plan:
        plan = Plan(random.Random(f"plan {seed}"))
        for name in BASES:
            plan.columns[name] = {f"{name}{kind}": kind for kind in TYPES}
        while plan.keyed < MOST_STEPS:
            known = (dict(plan.columns), list(plan.steps), set(plan.once), plan.keyed)
            getattr(plan, f"_{plan.draw.choice(DRAWN)}")()
            if any(bag.total() > MOST_ROWS for bag in plan.tables(bags).values()):
                plan.columns, plan.steps, plan.once, plan.keyed = known
        return plan

    def tables(self, bags: dict[str, Bag]) -> dict[str, Bag]:
        """What the tables beside the bases hold."""
        bases = {name: model.Table(tuple(f"{name}{kind}" for kind in TYPES), bag) for name, bag in bags.items()}
        ended: Any = self.on(model.Chain(bases))
        return {name: ended.table(name) for name in self.made}

    @property
    def made(self) -> list[str]:
        return [name for name in self.columns if name not in BASES]

    def on(self, chain: Any) -> Any:
        for step in self.steps:
            chain = getattr(chain, step.call)(*step.args, **step.options)
        return chain

    def _add(self, call: str, *args: Any, sql: str = "", **options: Any) -> None:
        self.steps.append(Step(call, args, options, sql))

    def _taken(self, name: str) -> str:
        """A copy, for the step to take: the table itself stays."""
        into = self._name()
        self._add("copy", name, into=into, sql=f"SELECT * FROM {name}")
        return into

    def _name(self) -> str:
        self.numbers += 1
        return f"t{self.numbers}"

    def _selected(self, name: str, kinds: list[str] | None = None) -> tuple[str, dict[str, str]]:
        """A table of some of its columns (of these kinds), all with new names, and perhaps not all rows."""
        own, taken, into = self.columns[name], self._taken(name), self._name()
        if kinds is None:
            chosen = self.draw.sample(list(own), self.draw.randint(1, len(own)))
        else:
            chosen = [self.draw.choice([each for each, kind in own.items() if kind == wanted]) for wanted in kinds]
        columns = {f"{into}_{place}": each for place, each in enumerate(chosen)}
        sure = [each for each, kind in own.items() if kind == "w"]
        picked = self.draw.choice(sure) if sure and self.draw.random() < 0.4 else None
        where = None if picked is None else _is_some(picked)
        named = ", ".join(f"{old} AS {new}" for new, old in columns.items())
        sql = f"SELECT {named} FROM {taken}" + (f" WHERE {picked} > 0" if picked else "")
        self._add("select", taken, columns, where=where, into=into, sql=sql)
        return into, {new: own[old] for new, old in columns.items()}

    def _any(self) -> str:
        """Mostly what a step has given, so that steps follow each other."""
        return self.draw.choice(self.made if self.made and self.draw.random() < 0.7 else BASES)

    def _select(self) -> None:
        into, columns = self._selected(self._any())
        self.columns[into] = columns

    def _union(self) -> None:
        one, two = self._any(), self._any()
        common = set(self.columns[one].values()) & set(self.columns[two].values())
        if not common:
            return
        kinds = self.draw.sample(sorted(common), self.draw.randint(1, len(common)))
        (left, columns), (right, _), into = self._selected(one, kinds), self._selected(two, kinds), self._name()
        self._add("union", [left, right], into=into, sql=f"SELECT * FROM {left} UNION ALL SELECT * FROM {right}")
        self.columns[into] = columns

    def _join(self) -> None:
        (left, ours), (right, theirs), into = self._selected(self._any()), self._selected(self._any()), self._name()
        pairs = [(one, two) for one, kind in ours.items() for two, other in theirs.items() if kind == other]
        if not pairs:
            return
        on = self.draw.sample(pairs, min(len(pairs), self.draw.choice((1, 1, 2))))
        how = self.draw.choice(list(HOWS))
        both = " AND ".join(f"{one} = {two}" for one, two in on)
        sql = f"SELECT * FROM {left} {HOWS[how]} {right} ON {both}"
        self._add("join", left, right, on=on, how=how, into=into, sql=sql)
        # Beside a row without a partner there are nulls.
        nullable = {name: "x" if kind == "w" and how == "left" else kind for name, kind in theirs.items()}
        self._keyed(into, {**ours, **(nullable if how in ("inner", "left") else {})})

    def _aggregate(self) -> None:
        (name, own), into = self._selected(self._any()), self._name()
        by = self.draw.sample(list(own), self.draw.randint(0, min(2, len(own))))
        measures, kinds = [Measure(f"{into}n", "count")], {f"{into}n": "w"}
        for place in range(self.draw.randint(0, 4)):
            of = self.draw.choice(list(own))
            kind = self.draw.choice(MEASURES[own[of]])
            measures.append(Measure(f"{into}m{place}", kind, (of,)))
            kinds[f"{into}m{place}"] = _kind(kind, own[of])
        said = [_sql(each) for each in measures]
        sql = f"SELECT {', '.join([*by, *said])} FROM {name}" + (f" GROUP BY {', '.join(by)}" if by else "")
        self._add("aggregate", name, by=by, measures=measures, into=into, sql=sql)
        self._keyed(into, {each: kind for each, kind in ({k: own[k] for k in by} | kinds).items() if kind})

    def _distinct(self) -> None:
        (name, columns), into = self._selected(self._any()), self._name()
        self._add("distinct", name, into=into, sql=f"SELECT DISTINCT * FROM {name}")
        self._keyed(into, columns)

    def _consolidate(self) -> None:
        (name, columns), into = self._selected(self._any()), self._name()
        self._add("consolidate", name, into=into, sql=f"SELECT * FROM {name}")
        self._keyed(into, columns)

    def _keyed(self, into: str, columns: dict[str, str]) -> None:
        self.columns[into] = columns
        self.once.add(into)
        self.keyed += 1


def _is_some(name: str) -> Any:
    return lambda **row: row[name] > 0


def _kind(measure: str, kind: str) -> str:
    """Of what kind a measure's values are; none of those that are not taken again: Spark widens their types."""
    if measure in ("count", "distinct"):
        return "w"
    return {"w": "x"}.get(kind, kind) if measure in ("min", "max") else ""


def _sql(measure: Measure) -> str:
    if not measure.of:
        return f"count(*) AS {measure.name}"
    of = f"DISTINCT {measure.of[0]}" if measure.kind == "distinct" else measure.of[0]
    return f"{'count' if measure.kind == 'distinct' else measure.kind}({of}) AS {measure.name}"


def history(draw: random.Random) -> list[tuple[list[dict[str, Any]], dict[str, Bag]]]:
    """What each epoch says, and what the tables then hold. Few different values, so that rows are there repeatedly."""
    bags, found = {name: Bag() for name in BASES}, []
    for number in range(EPOCHS):
        changes = []
        for name in BASES:
            held = list(bags[name].elements())
            gone = draw.sample(held, len(held) * draw.choice((0, 1, 2, 4)) // 4) if number else []
            changes += [_change(name, row, -1) for row in gone]
            made = [
                tuple(_value(kind, draw.choice(VALUES[kind])) for kind in TYPES) for _ in range(draw.choice((3, 15)))
            ]
            changes += [_change(name, row, 1) for row in made]
            bags[name] = Bag({row: count for row, count in (bags[name] + Bag(made) - Bag(gone)).items() if count})
        draw.shuffle(changes)
        found.append((changes, dict(bags)))
    return found


def _value(kind: str, value: Any) -> Any:
    return Decimal(value) if kind == "d" and value is not None else canonical(value)


def _change(name: str, row: tuple[Any, ...], diff: int) -> dict[str, Any]:
    values = dict(zip(TYPES, row, strict=True))
    return {"t": name, DIFF: diff, **values, "d": None if values["d"] is None else str(values["d"])}


def begun(changes: DataFrame) -> OnSpark:
    tables = {name: (F.col("t") == name, [F.col(kind).alias(f"{name}{kind}") for kind in TYPES]) for name in BASES}
    return OnSpark(signed.begin(changes, tables, nudged=True))


def compared_with_sql(spark: SparkSession, plan: Plan, bags: dict[str, Bag]) -> None:
    for name in BASES:
        schema = ", ".join(f"{name}{kind} {type_}" for kind, type_ in TYPES.items())
        spark.createDataFrame(list(bags[name].elements()), schema).createOrReplaceTempView(name)
    for step in plan.steps:
        spark.sql(step.sql).createOrReplaceTempView(step.options["into"])
    expected = plan.tables(bags)
    for name in plan.made:
        found = Counter(tuple(map(canonical, row)) for row in spark.table(name).collect())
        assert found == expected[name], f"{name} of {[each.sql for each in plan.steps]}"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_plan_holds_what_sql_says(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    epochs = history(random.Random(f"history {seed}"))
    plan = Plan.drawn(seed, epochs[-1][1])
    told: dict[int, dict[str, list[tuple[model.Row, int]]]] = {}

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            put(tmp_path / "in", number, epochs[number][0])
        schema = f"t string, {DIFF} long, " + ", ".join(f"{kind} {type_}" for kind, type_ in TYPES.items())
        read = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        chain: signed.Chain = plan.on(begun(read)).chain
        for name in BASES:
            chain = chain.drop(name)
        drained(chain.rows, tmp_path, lambda rows, epoch: told.update({epoch: told_of(chain, rows)}))

    run(0, 2)
    forget_commit(tmp_path / "checkpoint")
    run(2, EPOCHS)
    before = {name: Bag() for name in plan.made}
    for number, (_, bags) in enumerate(epochs):
        after = plan.tables(bags)
        for name in plan.made:
            added: Counter[model.Row] = Counter()
            for row, diff in told[number][name]:
                added[row] += diff
            where = f"{name} in epoch {number} of {[each.sql for each in plan.steps]}"
            assert {row: diff for row, diff in added.items() if diff} == difference(before[name], after[name]), where
            assert name not in plan.once or len(told[number][name]) == len(added), where
        before = after
    compared_with_sql(spark.newSession(), plan, epochs[-1][1])
