"""The fuzzer on Spark: many random views in one flow over captured tables, against PostgreSQL at the same LSN.

    python -m tests.views.flows --seeds 20        (make fuzz-flows SEEDS=20)

Some views of each world are `app.view`s too, in a run of their own into the view store (`stored.py`). And each world
shows that a fault would be seen: a plan with a broken step, and an epoch whose rows are lost, have to be told from what
PostgreSQL answers. Prints how often each production met a null, an insert, an update and a delete.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from millrace import config, local
from millrace.capture import capture
from millrace.engine import viewing
from millrace.engine.session import close, session
from millrace.errors import ViewRefused
from millrace.model.signed import Bag
from millrace.testing.checkpoints import forget_commit
from millrace.testing.plugin import JAVA_OPTIONS, MASTER, TWO
from millrace.views import planned
from millrace.views.numerics import NoAnswer, Unsure
from millrace.views.steps import CLOCK, Plan, Select
from millrace.views.twin import answer
from tests.shop import Shop, opened
from tests.views import queries
from tests.views.fuzz import EVENTS, Report, connected, difference, misprinted, plain, same
from tests.views.running import Flow, lsn, marked
from tests.views.stored import Stored
from tests.views.worlds import World, tables

QUERIES, TRANSACTIONS = 10, 30
# So that a flow's epochs end at many positions: at first so many records each, then twice as many.
RECORDS_AN_EPOCH = 8
EPOCHS_A_RUN = 3
STORED = 2
# So many worlds, and each production has met everything.
ENOUGH = 10
# Some rows are in and some are not, whatever was drawn.
CONTROL = "SELECT id, k FROM t0 WHERE k > 0"


@dataclass
class Asked:
    """A query, its plan, and the rows of PostgreSQL's answer after each transaction. What is `stored` has a key."""

    sql: str
    plan: Plan
    used: set[str] = field(default_factory=set)
    key: tuple[str, ...] = ()
    answers: list[list[tuple[Any, ...]]] = field(default_factory=list)


@dataclass
class Checked:
    """`broken` and `lost` are the plans with a broken step and the epochs without their rows that were seen."""

    worlds: int = 0
    views: int = 0
    positions: int = 0
    answers: int = 0
    rows: int = 0
    restarts: int = 0
    stored: int = 0
    broken: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)
    report: Report = field(default_factory=Report, repr=False)

    def __str__(self) -> str:
        return (
            f"{self.worlds} worlds, {self.views} views, {self.answers} answers of {self.rows} rows at {self.positions} "
            f"positions, {self.stored} of them in the view store, {self.restarts} restarts, {len(self.faults)} faults; "
            f"{self.broken} broken steps and {self.lost} lost epochs were seen"
        )

    def compare(self, asked: Asked, place: int, rows: Sequence[tuple[Any, ...]] | Bag, at: str) -> None:
        """With PostgreSQL's answer after so many transactions; `rows` may have some that are fewer than none."""
        expected = Bag(asked.answers[place])
        found = Bag({row: number for row, number in Bag(rows).items() if number})
        self.answers, self.rows = self.answers + 1, self.rows + expected.total()
        printed = misprinted(found, asked.answers[place], asked.plan)
        if printed or any(number < 0 for number in found.values()) or not same(found, expected):
            told = difference(found, expected, printed)
            self.faults.append(
                f"{at}, after {place} of {len(asked.answers) - 1} transactions: {told}\n  {asked.sql}\n{asked.plan}"
            )


def check(
    spark: SparkSession,
    shop: Shop,
    seed: int,
    folder: Path,
    checked: Checked,
    *,
    count: int = QUERIES,
    transactions: int = TRANSACTIONS,
    stored: int = STORED,
) -> None:
    """One world: first PostgreSQL answers after each transaction, then the flow reads them all, cut in many epochs,
    interrupted again and again. The views in the store are filled before the transactions, and read them at the end."""
    draw, happened = random.Random(seed), []
    with connected(shop.url) as connection:
        # All that is written is long past: the flow's own time gives the same answers.
        world = World(connection, draw, tables(draw), now=datetime.now(UTC))
        world.create()
        world.transaction()
        names = [table.name for table in world.tables]
        shop.captures.add(capture(shop.name, [f"fuzz.{name}" for name in names]))
        shop.captures.wait(shop.captures.get(shop.name).capture)
        marked(shop, 1)  # then the rows of before are read
        asked = [each for each in _queries(world, count * 3, checked.report) if _answered(world, each)]
        control = Asked(CONTROL, planned("fuzz", CONTROL, [table.relation for table in world.tables]))
        _answered(world, control)
        in_store = Stored(spark, shop, names, list(_stored(world, asked, stored)))
        in_store.run()
        commits: list[int] = []
        for _ in range(transactions):
            happened.append(world.transaction())
            commits.append(world.before)
            _answered(world, control)
            asked = [each for each in asked if _answered(world, each)]
            in_store.asked = [each for each in in_store.asked if _answered(world, each)]
    asked = asked[:count]
    _count(asked, happened, checked.report)
    last = lsn(shop)
    marked(shop, last)
    broken = replace(control, plan=replace(control.plan, steps=tuple(map(_broken, control.plan.steps))))
    shown = [*asked, control, broken]
    flow = Flow(spark, shop, names, [each.plan for each in shown], folder / f"checkpoint-{seed}")
    checked.worlds, checked.views = checked.worlds + 1, checked.views + len(asked)
    while not flow.run(EPOCHS_A_RUN, last):
        checked.restarts += 1
        if draw.random() < 0.5:
            forget_commit(flow.checkpoint)
    _compare(flow.held(), shown[:-1], commits, checked, f"seed {seed}")
    _proven(flow, shown, commits, checked, draw)
    if draw.random() < 0.5:
        in_store.forget()
    in_store.run()
    in_store.compare(commits, checked, f"seed {seed}")


def _queries(world: World, count: int, report: Report) -> Iterator[Asked]:
    """Those first that have a production of which something was not met yet."""
    relations = [table.relation for table in world.tables]
    unmet = {name for name in queries.productions() if not all(report.met[name][event] for event in EVENTS)}
    for _ in range(count):
        query = queries.query(world.draw, world.tables, unmet)
        try:
            yield Asked(query.sql, planned("fuzz", query.sql, relations), query.used)
        except ViewRefused:
            continue
        unmet -= query.used


def _stored(world: World, asked: Sequence[Asked], count: int) -> Iterator[Asked]:
    """The same with a key: rows that are alike are counted, and all columns tell a row apart from others."""
    relations = [table.relation for table in world.tables]
    for each in asked:
        names = tuple(name for name, _ in each.plan.columns)
        listed = ", ".join(f"q.{name}" for name in names)
        sql = f"SELECT {listed}, count(*) AS times FROM ({each.sql}) AS q GROUP BY {listed}"
        try:
            found = Asked(sql, planned("fuzz", sql, relations), key=names)
        except ViewRefused:  # an array is nothing to be grouped by
            continue
        if count > 0 and _answered(world, found):
            count -= 1
            yield found


def _answered(world: World, asked: Asked) -> bool:
    """Whether PostgreSQL and the plan have an answer to the tables as they are; otherwise the flow would stop."""
    try:
        rows = world.connection.execute(asked.sql, binary=True).fetchall()  # type: ignore[call-overload]
        answer(asked.plan, world.held())
    except (psycopg.Error, NoAnswer, Unsure):
        return False
    finally:
        world.connection.rollback()
    asked.answers.append([tuple(map(plain, row)) for row in rows])
    return True


def _count(asked: Sequence[Asked], happened: Sequence[Mapping[str, Counter[str]]], report: Report) -> None:
    for each in asked:
        for name in each.used:
            report.met[name]["queries"] += 1
            for relation in {found.relation for found in each.plan.inputs} - {CLOCK}:
                for told in happened:
                    report.met[name].update({event: told[relation][event] for event in EVENTS})


def _compare(
    held: Iterator[tuple[int, list[Bag]]], asked: Sequence[Asked], commits: Sequence[int], checked: Checked, at: str
) -> None:
    for position, found in held:
        if position <= 1:  # rows of the snapshot are missing
            continue
        checked.positions += 1
        place = sum(before < position for before in commits)
        for each, rows in zip(asked, found, strict=False):
            checked.compare(each, place, rows, at)


def _broken(step: Any) -> Any:
    return replace(step, where=None) if isinstance(step, Select) else step


def _proven(flow: Flow, shown: Sequence[Asked], commits: Sequence[int], checked: Checked, draw: random.Random) -> None:
    """What is wrong is seen: in the last plan, which has a broken step, and when an epoch's rows are lost."""
    found = Checked()
    _compare(((position, bags[-1:]) for position, bags in flow.held()), shown[-1:], commits, found, "")
    checked.broken += bool(found.faults)
    if not found.faults:
        checked.faults.append("a condition was left out of a plan, and nobody saw it")
    *rest, control, _ = shown
    telling = [number for number, bags in flow.results.items() if any(bags[len(rest)].values())]
    found = Checked()
    _compare(flow.held(without=draw.choice(telling)), [*rest, control], commits, found, "")
    checked.lost += bool(found.faults)
    if not found.faults:
        checked.faults.append("the rows of an epoch were lost, and nobody saw it")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    args = parser.parse_args(arguments)
    checked = Checked()
    viewing.FIRST_RECORDS_AN_EPOCH = RECORDS_AN_EPOCH
    with tempfile.TemporaryDirectory(prefix="millrace-flows-") as folder:
        settings = config.load(Path(folder))
        options = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, **TWO}
        settings = replace(settings, spark=replace(settings.spark, options=options))
        with local.held(settings, ("kafka", "connect", "postgres")):
            spark = session(settings, MASTER, "fuzz")
            try:
                for seed in range(args.first, args.first + args.seeds):
                    with opened(settings) as shop:
                        check(spark, shop, seed, Path(folder), checked)
                    print(f"seed {seed}: {checked}", flush=True)
            finally:
                close(spark)
                local.down(settings)
    print(checked.report.table())
    for fault in checked.faults[:5]:
        print(fault)
    missing = checked.report.missing(queries.productions())
    print(f"{len(checked.faults)} faults; never met: {', '.join(missing) or 'none'}")
    return 1 if checked.faults or (missing and args.seeds >= ENOUGH) else 0


if __name__ == "__main__":
    sys.exit(main())
