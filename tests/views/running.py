"""Plans of the fuzzer as one flow: all queries of a world in one chain, over the topics of its captured tables.

An epoch is what a run of the flow would be given: whole transactions, by the marks of the capture. What each query's
signed rows add up to is kept by epoch, so that one that is done again after a crash counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from millrace.engine import viewing
from millrace.engine.epochs import positions
from millrace.engine.running import source_of
from millrace.engine.stopping import epochs
from millrace.errors import Where
from millrace.flow import App
from millrace.flow.views import View
from millrace.kernel import signed
from millrace.kernel.calling import quoted
from millrace.kernel.signed import DIFF, Chain
from millrace.model.signed import Bag, canonical
from millrace.views import Plan, types
from millrace.views.run import stepped
from tests.command import until
from tests.shop import Shop
from tests.views import on_spark


def lsn(shop: Shop) -> int:
    """Where the database is now; everything that was committed by now is before that."""
    ((found,),) = shop.run("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    return int(found)


def marked(shop: Shop, wanted: int) -> None:
    """Waits until the capture has marked a position."""
    topic, log = f"_millrace.marks.{shop.name}", shop.captures.log

    def reached() -> bool:
        shop.run("SELECT pg_logical_emit_message(true, 'tests', 'a commit')")
        end = log.topics.offsets(topic)[0][1]
        found = [record.json()["lsn"] for record in log.read(topic, max(end - 20, 0), partition=0)]
        return max(found, default=0) >= wanted

    until(reached, "a mark")


def together(plans: Sequence[Plan], changes: DataFrame, tables: viewing.Tables) -> Chain:
    """One chain for all of them: each plan has copies of the tables it reads, and names of its own."""
    needed: dict[str, dict[str, str]] = {}
    for plan in plans:
        for each in plan.inputs:
            needed.setdefault(each.relation, {}).update({name: types.spark(type_) for name, _, type_ in each.columns})
    begun = {
        name: (tables[name][0], [tables[name][1][column].cast(type_).alias(column) for column, type_ in own.items()])
        for name, own in needed.items()
    }
    chain = signed.begin(changes, begun, nudged=any(plan.nudged for plan in plans))
    for number, plan in enumerate(plans):
        for each in plan.inputs:
            mine = f"{number}.{each.relation}"
            chain = chain.copy(each.relation, into=mine)
            columns = [F.col(quoted(name)).cast(types.spark(type_)).alias(own) for name, own, type_ in each.columns]
            chain = chain.select(mine, columns, into=mine)
        for step in plan.steps:
            chain = stepped(chain, _named(step, number))
    return chain


_TABLES = ("table", "left", "right", "tables", "clock", "into")


def _named(step: Any, number: int) -> Any:
    given = {name: getattr(step, name) for name in _TABLES if hasattr(step, name)}
    made = {
        name: tuple(f"{number}.{each}" for each in value) if isinstance(value, tuple) else f"{number}.{value}"
        for name, value in given.items()
    }
    return replace(step, **made)


def shown_of(chain: Chain, rows: DataFrame, plan: Plan, number: int) -> Bag:
    """What an epoch's rows of that chain tell of one of its plans."""
    found, made = Bag(), replace(chain, rows=rows).table(f"{number}.{plan.output}")
    shown = [_shown(name, type_).alias(f"o{place}") for place, (name, type_) in enumerate(plan.columns)]
    for row in made.select(*shown, DIFF).collect():
        kinds = [type_ for _, type_ in plan.columns]
        values = zip(row[:-1], kinds, strict=True)
        found[tuple(canonical(on_spark.restored(value, type_)) for value, type_ in values)] += row[-1]
    return found


@dataclass
class Flow:
    """`results` has, for each epoch, what it told of each plan."""

    spark: SparkSession
    shop: Shop
    tables: Sequence[str]
    plans: Sequence[Plan]
    checkpoint: Path
    results: dict[int, list[Bag]] = field(default_factory=dict)
    query: StreamingQuery | None = None

    def start(self) -> None:
        app = App(f"fuzz-{self.shop.name}")
        db = app.capture(self.shop.name, [f"fuzz.{name}" for name in self.tables])
        reads = tuple(db[f"fuzz.{name}"] for name in self.tables)
        view = View("fuzz", "", (), tuple(self.tables), reads, Where("", 0))
        own, log = self.spark.newSession(), self.shop.captures.log
        viewing.suit(own)
        sources = [source_of(each, log, "fuzz") for each in reads]
        changes, found = viewing.signed(own, view, sources, log, self.plans)
        chain = together(self.plans, changes, found)

        def taken(rows: DataFrame, number: int) -> None:
            rows.persist()
            self.results[number] = [shown_of(chain, rows, plan, each) for each, plan in enumerate(self.plans)]
            rows.unpersist()

        writer = chain.rows.writeStream.foreachBatch(taken).outputMode("append")
        self.query = (
            writer.option("checkpointLocation", str(self.checkpoint)).trigger(processingTime="0 seconds").start()
        )

    def run(self, count: int, wanted: int) -> bool:
        """Starts it, and stops it in the middle of something after so many epochs; or when an epoch has that position,
        of which it tells."""
        begun = len(epochs(self.checkpoint / "commits"))
        self.start()
        assert self.query is not None

        def done() -> bool:
            if (error := self.query.exception()) is not None:  # type: ignore[union-attr]
                raise error
            return self._reached(wanted) or len(epochs(self.checkpoint / "commits")) >= begun + count

        try:
            until(done, "the epochs")
        finally:
            self.query.stop()
            # As after a crash: a task that is still ending would share its state with the next run.
            java: Any = self.spark._jvm
            getattr(getattr(java.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$").stop()
        return self._reached(wanted)

    def _reached(self, wanted: int) -> bool:
        done = epochs(self.checkpoint / "commits")
        return bool(done) and positions(self.checkpoint, done[-1]).get(self.shop.name, 0) >= wanted

    def held(self, without: int | None = None) -> Iterator[tuple[int, list[Bag]]]:
        """After each epoch its position, and what the view of each plan holds; as if the rows of one epoch were lost,
        if that is wanted."""
        found = [Bag() for _ in self.plans]
        for number, told in sorted(self.results.items()):
            for bag, each in zip(found, told, strict=True) if number != without else ():
                for row, diff in each.items():
                    bag[row] += diff
            yield positions(self.checkpoint, number).get(self.shop.name, 0), found


def _shown(name: str, type_: types.Type) -> Any:
    told = F.col(quoted(name))
    return told.cast(on_spark.told(type_)) if type_.kind in ("timestamp", "timestamptz", "array") else told
