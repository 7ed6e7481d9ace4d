"""The fuzzer on Spark: many random views in one flow over captured tables, against PostgreSQL at the same LSN.

python -m tests.views.flows --seeds 20        (make fuzz-flows SEEDS=20)
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

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
from millrace.views.steps import Plan
from millrace.views.twin import answer
from tests.shop import Shop, opened
from tests.views import queries
from tests.views.fuzz import connected, plain, same
from tests.views.running import Flow, lsn, marked
from tests.views.worlds import World, tables

QUERIES, TRANSACTIONS = 10, 30
# So that a flow's epochs end at many positions: at first so many records each, then twice as many.
RECORDS_AN_EPOCH = 8
EPOCHS_A_RUN = 3


@dataclass
class Asked:
    """A query, its plan, and PostgreSQL's answer after each transaction."""

    sql: str
    plan: Plan
    answers: list[Bag] = field(default_factory=list)


@dataclass
class Checked:
    worlds: int = 0
    views: int = 0
    positions: int = 0
    answers: int = 0
    rows: int = 0
    restarts: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.worlds} worlds, {self.views} views, {self.answers} answers of {self.rows} rows at {self.positions} "
            f"positions, {self.restarts} restarts, {len(self.faults)} faults"
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
) -> None:
    """One world: first PostgreSQL answers after each transaction, then the flow reads them all, cut in many epochs,
    interrupted again and again."""
    draw = random.Random(seed)
    with connected(shop.url) as connection:
        # All that is written is long past: the flow's own time gives the same answers.
        world = World(connection, draw, tables(draw), now=datetime.now(UTC))
        world.create()
        world.transaction()
        names = [table.name for table in world.tables]
        shop.captures.add(capture(shop.name, [f"fuzz.{name}" for name in names]))
        shop.captures.wait(shop.captures.get(shop.name).capture)
        marked(shop, 1)  # then the rows of before are read
        asked = [each for each in (_asked(world) for _ in range(count * 3)) if each is not None]
        asked = [each for each in asked if _answered(world, each)]
        commits: list[int] = []
        for _ in range(transactions):
            world.transaction()
            commits.append(world.before)
            asked = [each for each in asked if _answered(world, each)]
    asked = asked[:count]
    last = lsn(shop)
    marked(shop, last)
    flow = Flow(spark, shop, names, [each.plan for each in asked], folder / f"checkpoint-{seed}")
    checked.worlds, checked.views = checked.worlds + 1, checked.views + len(asked)
    while not flow.run(EPOCHS_A_RUN, last):
        checked.restarts += 1
        if draw.random() < 0.5:
            forget_commit(flow.checkpoint)
    _compare(flow, asked, commits, checked, seed)


def _asked(world: World) -> Asked | None:
    query = queries.query(world.draw, world.tables)
    try:
        return Asked(query.sql, planned("fuzz", query.sql, [table.relation for table in world.tables]))
    except ViewRefused:
        return None


def _answered(world: World, asked: Asked) -> bool:
    """Whether PostgreSQL and the plan have an answer to the tables as they are; otherwise the flow would stop."""
    try:
        rows = world.connection.execute(asked.sql, binary=True).fetchall()  # type: ignore[call-overload]
        answer(asked.plan, world.held())
    except (psycopg.Error, NoAnswer, Unsure):
        return False
    finally:
        world.connection.rollback()
    asked.answers.append(Bag(tuple(plain(value) for value in row) for row in rows))
    return True


def _compare(flow: Flow, asked: Sequence[Asked], commits: Sequence[int], checked: Checked, seed: int) -> None:
    for position, found in flow.held():
        if position <= 1:  # rows of the snapshot are missing
            continue
        checked.positions += 1
        place = sum(before < position for before in commits)
        for each, held in zip(asked, found, strict=True):
            expected, shown = each.answers[place], Bag({row: number for row, number in held.items() if number})
            checked.answers, checked.rows = checked.answers + 1, checked.rows + expected.total()
            if any(number < 0 for number in shown.values()) or not same(shown, expected):
                lack, more = list((expected - shown).elements())[:3], list((shown - expected).elements())[:3]
                at = f"seed {seed}, after {place} of {len(commits)} transactions"
                checked.faults.append(f"{at}: PostgreSQL also has {lack}, the view {more}\n  {each.sql}\n{each.plan}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
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
    for fault in checked.faults[:5]:
        print(fault)
    return 1 if checked.faults else 0


if __name__ == "__main__":
    sys.exit(main())
