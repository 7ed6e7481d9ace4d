"""Queries that others have written, as the views of one app over a captured database that changes all the time.

    python -m tests.views.known --scale 0.01 [--rounds 3] [--transactions 12] [--views tpch3,nexmark9]
    (make known SF=0.01)

One run has all of TPC-H's (`tpch.py`) and Nexmark's (`nexmark.py`) views. It fills them; then, round by round, random
transactions are committed while it runs, and the run ends: like a crash, or cleanly and without its last commits, so
that epochs are done again. Whenever a view's position in the view store has moved its rows are compared with what
PostgreSQL itself answered after exactly the transactions before that position; at the end of a round it must have all.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from millrace import config, local
from millrace.engine import Run
from millrace.engine.definition import CHECKPOINT
from millrace.engine.session import close, session
from millrace.flow import App
from millrace.model.signed import Bag
from millrace.testing.checkpoints import forget_commit
from millrace.testing.plugin import JAVA_OPTIONS, MASTER, TWO
from millrace.views import Relation, named, planned
from millrace.views.changelog import lsn_number
from millrace.views.store import Store
from tests.command import until
from tests.shop import Shop, opened
from tests.views import nexmark, tpch
from tests.views.fuzz import difference, misprinted, plain, same
from tests.views.nexmark import Nexmark
from tests.views.running import lsn, marked
from tests.views.tpch import Tpch

TABLES = {**tpch.TABLES, **nexmark.TABLES}
VIEWS = {**tpch.VIEWS, **nexmark.VIEWS}
ROUNDS, TRANSACTIONS = 3, 12
LIMIT_S = 3_600.0


@dataclass
class Checked:
    """`filled` is how many rows PostgreSQL's answers had, by view."""

    views: int = 0
    transactions: int = 0
    changes: int = 0
    restarts: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.views} views, {sum(self.answers.values())} answers of {sum(self.rows.values())} rows after"
            f" {self.transactions} transactions of {self.changes} changes, {self.restarts} restarts,"
            f" {len(self.faults)} faults"
        )

    def table(self) -> str:
        return "\n".join(f"{name:<12}{count:>6} answers{self.rows[name]:>10} rows" for name, count in
                         self.answers.items())  # fmt: skip


@dataclass
class Known:
    """The views of `names` over the database of a shop. `answers` has PostgreSQL's rows after each transaction, for
    those views that may still have to be compared with them."""

    spark: SparkSession
    shop: Shop
    names: Sequence[str]
    scale: float
    checked: Checked = field(default_factory=Checked)
    befores: list[int] = field(default_factory=list)
    answers: list[dict[str, list[tuple[Any, ...]]]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tpch, self.nexmark = Tpch(self.scale), Nexmark(self.scale)
        self.draw = random.Random(3)
        self.checked.views = len(self.names)
        self._seen: dict[str, int] = {}
        self._compared: dict[str, tuple[int, int]] = {}

    @property
    def app(self) -> App:
        app = App(f"known-{self.shop.name}")
        app.capture(self.shop.name, list(TABLES))
        for name in self.names:
            key, sql = VIEWS[name]
            app.view(self._topic(name), key=key, sql=sql)
        return app

    def _topic(self, name: str) -> str:
        return f"{self.shop.name}-{name}"

    def check(self, rounds: int = ROUNDS, transactions: int = TRANSACTIONS) -> Checked:
        with psycopg.connect(self.shop.url) as connection:
            self.tpch.fill(connection)
            self.nexmark.fill(connection)
            connection.commit()
            tables = relations(connection)
            self._plans = {name: planned(name, VIEWS[name][1], tables) for name in self.names}
            self._asked(connection)
            captured = self.app.graph().databases[0].capture
            self.shop.captures.ensure(captured)
            self.shop.captures.wait(captured)
            marked(self.shop, 1)  # then the rows of before are read
            for number in range(rounds):
                with self._running() as run:
                    self._reached(run)
                    print(f"filled: {self.checked}", flush=True)
                    for _ in range(transactions):
                        self._commit(connection)
                        self._look(run)
                    self._reached(run)
                    folders = [run._folder(flow) / CHECKPOINT for flow in run.planned]
                    if number % 2:
                        run.stop()
                        for folder in folders:
                            forget_commit(folder)
                    else:
                        run._applying.end()
                        run.abandon()
                self.checked.restarts += 1
                print(f"round {number + 1}: {self.checked}", flush=True)
            with self._running() as run:
                self._commit(connection)
                self._reached(run)
                run.stop()
        return self.checked

    @contextlib.contextmanager
    def _running(self) -> Iterator[Run]:
        self._seen.clear()
        app = self.app
        with (
            contextlib.closing(Store(self.shop.settings, app.name)) as self.store,
            Run(app, self.shop.settings, spark=self.spark, traffic=False) as run,
        ):
            yield run

    def _commit(self, connection: Any) -> None:
        """A transaction, its place in the log, and what PostgreSQL then answers."""
        for _ in range(changes := self.draw.choice((1, 2, 5, 12))):
            self.draw.choice((self.tpch, self.nexmark)).change(connection)
        if self.draw.random() < 0.1:  # one that never was
            connection.rollback()
            return
        ((before,),) = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
        connection.commit()
        self.befores.append(int(before))
        self.checked.transactions, self.checked.changes = self.checked.transactions + 1, self.checked.changes + changes
        self._asked(connection)

    def _asked(self, connection: Any) -> None:
        found = {name: connection.execute(VIEWS[name][1], binary=True).fetchall() for name in self.names}
        connection.commit()
        self.answers.append(found)

    def _reached(self, run: Run) -> None:
        """Until every view has all that was committed."""
        wanted = lsn(self.shop)
        self.shop.run("SELECT pg_logical_emit_message(true, 'tests', 'a commit')")

        def reached() -> bool:
            self._look(run)
            assert not run.failed, run.failed
            positions = {each.view: lsn_number(each.lsn or "0/0") for each in self.store.positions()}
            return all(positions.get(self._topic(name), 0) >= wanted for name in self.names)

        until(reached, "all views", LIMIT_S)
        self._look(run)
        late = {name: place for name, place in self.places.items() if place < len(self.befores)}
        assert not late, f"of {len(self.befores)} transactions these have fewer: {late}"

    def _look(self, run: Run) -> None:
        run.poll()
        for position in self.store.positions():
            name = position.view.removeprefix(self._topic(""))
            if self._seen.get(name) != position.epoch:
                self._compare(name)

    def _compare(self, name: str) -> None:
        _, rows, position = self.store.rows(self._topic(name))
        self._seen[name] = position.epoch
        place = sum(before < lsn_number(position.lsn or "0/0") for before in self.befores)
        if self._compared.get(name) == (place, self.checked.restarts):
            return  # nothing was committed in between
        self._compared[name] = place, self.checked.restarts
        assert place >= self.places.get(name, 0), f"{name} has gone back from {self.places[name]} to {place}"
        asked = [tuple(map(plain, row)) for row in self.answers[place][name]]
        expected, found = Bag(asked), Bag(tuple(map(plain, row)) for row in rows)
        self.checked.answers[name] += 1
        self.checked.rows[name] += expected.total()
        printed = misprinted(found, asked, self._plans[name])
        if printed or not same(found, expected):
            at = f"{name} after {place} of {len(self.befores)} transactions, {self.checked.restarts} restarts"
            self.checked.faults.append(f"{at}: {difference(found, expected, printed)}")
        for passed in range(self.places.get(name, 0), place):
            self.answers[passed].pop(name, None)
        self.places[name] = place


def relations(connection: Any) -> list[Relation]:
    """The tables as PostgreSQL describes them."""
    found = []
    for name in TABLES:
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            (name,),
        ).fetchall()
        key = connection.execute(
            "SELECT attname FROM pg_index, pg_attribute WHERE indrelid = %s::regclass AND indisprimary"
            " AND attrelid = indrelid AND attnum = ANY(indkey) ORDER BY attnum",
            (name,),
        ).fetchall()
        types = {column: named(type_) for column, type_ in columns}
        found.append(Relation(name, types, tuple(column for (column,) in key)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    parser.add_argument("--views", default=",".join(VIEWS))
    args = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-known-") as folder:
        settings = config.load(Path(folder))
        options = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.driver.memory": "4g", **TWO}
        settings = replace(settings, spark=replace(settings.spark, options=options))
        with local.held(settings, ("kafka", "connect", "postgres")):
            spark = session(settings, MASTER, "known")
            try:
                with opened(settings) as shop:
                    checked = Known(spark, shop, args.views.split(","), args.scale).check(
                        args.rounds, args.transactions
                    )
            finally:
                close(spark)
                local.down(settings)
    print(checked.table())
    print(f"scale {args.scale}: {checked} in {time.monotonic() - began:.0f} s")
    for fault in checked.faults[:5]:
        print(fault)
    empty = [name for name in args.views.split(",") if not checked.rows[name]]
    if empty:
        print(f"without a row all the time: {', '.join(empty)}")
    return 1 if checked.faults or empty else 0


if __name__ == "__main__":
    sys.exit(main())
