"""What each guarantee costs: the same epochs exactly once, at least once and at most once, side by side, in one run.

    python -m bench.sinks.guarantees [--records N] [--epochs N] [--rounds N]

- **topic**: as a flow writes its topic, epoch by epoch.
- **postgres**: as a flow's lane writes a table, with its thread and its notes.

Rows are held by Spark, and the same for all. Rows a second over all epochs but the first; ratios are of at least once.
The sides take turns; the first round warms up. Both targets are checked to hold every row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from bench.sinks.rows import ROW
from millrace import config, local
from millrace.config import Settings
from millrace.engine.held import holding
from millrace.engine.lane import Lane
from millrace.engine.session import close, session
from millrace.engine.topic_sink import TopicSink
from millrace.errors import caller
from millrace.flow import App, Delivery
from millrace.flow.nodes import TOPIC_GUARANTEES, TopicGuarantee
from millrace.kernel import delivering
from millrace.log import Log
from millrace.sinks import DIFF, VERSION, Epoch, Feed
from millrace.sinks.postgres import postgres

PARTITIONS = 2

_numbers = count(1)


class Bench:
    def __init__(self, settings: Settings, folder: Path, records: int, epochs: int) -> None:
        self.settings, self.folder, self.records, self.epochs = settings, folder, records, epochs
        self.log = Log(settings)
        self.spark: SparkSession = session(settings, f"local[{PARTITIONS}]", "bench")
        self._app = App("bench")

    def rate(self, write: Callable[[int], None]) -> float:
        """Rows a second of all epochs but the first."""
        write(0)
        began = monotonic()
        for number in range(1, self.epochs):
            write(number)
        return round(self.records * (self.epochs - 1) / (monotonic() - began))

    def rows(self, *columns: str) -> DataFrame:
        return self.spark.range(0, self.records, 1, PARTITIONS).selectExpr(*columns)

    def topic(self, guarantee: TopicGuarantee) -> float:
        name, exactly = f"out-{next(_numbers)}", guarantee == "exactly once"
        checkpoint = self.folder / "checkpoints" / name
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "metadata").write_text('{"id":"bench"}')
        self.log.topics.create(name, partitions=PARTITIONS)
        sink = TopicSink(self.log, f"bench.{name}", checkpoint, exactly, at_most_once=guarantee == "at most once")

        def write(number: int) -> None:
            (checkpoint / "offsets" / str(number)).write_text("v1\n{}\n{}")
            sink.put(records, number)

        with holding(self.rows("to_json(struct(id, concat('customer ', id) as name)) as value")) as held:
            records = held.rows.selectExpr("cast(null as string) key", "value", f"'{name}' topic")
            found = self.rate(write)
        delivering.end(checkpoint)
        self._checked(name, sum(1 for _ in self.log.read(name)))
        self.log.topics.delete(name)
        return found

    def postgres(self, guarantee: TopicGuarantee) -> float:
        name = f"rows{next(_numbers)}"
        of = self._app.topic(name, "id long")
        delivery = Delivery(of, postgres(name), guarantee, caller())
        with holding(self.rows(*ROW, f"1 {DIFF}", f"0L {VERSION}")) as held:
            feed = Feed(held.rows.drop(DIFF, VERSION).schema)
            lane = Lane(delivery, feed, "bench", self.folder / "sinks" / name, self.log, owes=False)
            lane.begin(self.spark)

            def write(number: int) -> None:
                epoch = Epoch("bench", number, "[]")
                lane.offer(epoch, held.rows, held)
                lane.settle(epoch, held.rows)

            found = self.rate(write)
            lane.end()
        with psycopg.connect(local.address(self.settings, "postgres")) as connection:
            (rows,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone() or (0,)  # type: ignore[call-overload]
            connection.execute(f"DROP TABLE {name}")  # type: ignore[call-overload]
        self._checked(name, rows)
        return found

    def _checked(self, name: str, rows: int) -> None:
        assert rows == self.records * self.epochs, f"{name} holds {rows} of {self.records * self.epochs} rows"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=50_000, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        settings = config.load(Path(name))
        with local.held(settings, ("kafka", "postgres")):
            bench = Bench(settings, Path(name), args.records, args.epochs)
            try:
                run(bench, args.rounds)
            finally:
                close(bench.spark)


def run(bench: Bench, rounds: int) -> None:
    figures: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    for side, write in (("topic", bench.topic), ("postgres", bench.postgres)):
        found: dict[str, list[float]] = {guarantee: [] for guarantee in TOPIC_GUARANTEES}
        for number in range(rounds + 1):
            for guarantee in TOPIC_GUARANTEES if number % 2 else reversed(TOPIC_GUARANTEES):
                each = write(guarantee)
                if number:
                    found[guarantee].append(each)
        figures[side] = found
        base = statistics.median(found["at least once"])
        for guarantee, values in found.items():
            ratios[f"{side} {guarantee}"] = round(statistics.median(values) / base, 2)
            print(f"{side:9} {guarantee:14} {values} rows/s")
    peer = "the same at least once"
    print(json.dumps({"bench": "guarantees", "ratios": ratios, "figures": figures, "peer": peer}))


if __name__ == "__main__":
    main()
