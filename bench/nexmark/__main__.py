"""Nexmark on Millrace, on Flink SQL and on PySpark by hand, over the same topics and cores.

    python -m bench.nexmark [--events N] [--rounds N] [--queries q1,q5] [--no-flink] [--bounded] [--unchecked]

The events are written once, persons, auctions and bids to a topic each with two partitions. Eight of a hundred events
are no bids: queries that read no bids have topics of their own, with the persons and auctions of ten times as many
events, or their seconds would be those of a query's start. Before it is measured, every query is checked against a
batch over the same topics. A round runs every query on each engine in turn, from the
beginning of its topics to their end; a first round warms up. Seconds are those of the whole query, its start included;
CPU seconds those of the engine's processes, without Kafka's. Results go nowhere: to `noop` on Spark, to `blackhole` on
Flink. Spark works in epochs of a bounded size and commits each; Flink makes a checkpoint every ten seconds. With
`--bounded` Flink's joins have the bounds of the flows; as published some keep their rows for ever.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from bench.flink import JAVA, VERSION
from bench.kernel import cpu_s
from bench.nexmark import batch, by_hand, flink, flows
from bench.nexmark.events import Model
from bench.sides import full_epochs_from_the_first
from millrace import config, local
from millrace.engine import output
from millrace.engine.session import close, session
from millrace.engine.sources import Source
from millrace.flow import Stream, Topic
from millrace.log import Log

PARTITIONS = 2
MASTER = "local[2]"
MILLRACE, BY_HAND, FLINK = "millrace", "by hand", "flink"
TABLES = [topic.name for topic in (flows.persons, flows.auctions, flows.bids)]
STREAMS = {stream.name: stream for stream in flows.app.graph().streams}
# For queries that read no bids.
MORE = {topic.name: flink.more(topic.name) for topic in (flows.persons, flows.auctions)}
TIMES_MORE = 10

Frame: TypeAlias = Callable[[SparkSession], tuple[DataFrame, str]]


@dataclass
class Measures:
    """Of one engine and query, round by round."""

    per_s: list[float] = field(default_factory=list)
    cpu_s_per_million: list[float] = field(default_factory=list)


class Bench:
    def __init__(self, folder: Path, model: Model) -> None:
        found = config.load(folder)
        options = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "3g"}
        self.settings = replace(found, spark=replace(found.spark, options=options))
        self.model, self.folder, self._count = model, folder, 0
        self.larger = replace(model, events=model.events * TIMES_MORE)
        self.kafka = Log(self.settings).data_source.options
        full_epochs_from_the_first()
        self.spark = session(self.settings, MASTER, "bench")
        log = Log(self.settings)
        for table in (*TABLES, *MORE.values()):
            log.topics.create(table, partitions=PARTITIONS)
        started = time.monotonic()
        model.write(self.spark, self.kafka, {table: table for table in TABLES}, PARTITIONS)
        self.larger.write(self.spark, self.kafka, MORE, PARTITIONS)
        print(f"{model.events:,} events written in {time.monotonic() - started:.0f} s", flush=True)

    def events(self, query: str) -> int:
        model = self.model if reads_bids(query) else self.larger
        return sum(model.count(topic.name) for topic in STREAMS[query].reads)

    def batch(self, query: str) -> SparkSession:
        """A session that knows the query's topics as views."""
        own = self.spark.newSession()
        batch.views(own, self.kafka, str if reads_bids(query) else lambda name: MORE.get(name, name))
        return own

    def flow(self, stream: Stream) -> Frame:
        def built(spark: SparkSession) -> tuple[DataFrame, str]:
            self._count += 1
            log = Log(self.settings)
            read = [Source.of(topic, log, f"bench-{self._count}") for topic in topics(stream)]
            clocks = self.folder / f"clocks-{self._count}"
            result = stream.body(*(source.stream(spark, clocks, once=True) for source in read))
            return result, output.output_mode(stream, result)

        return built

    def by_hand(self, query: str) -> Frame:
        own = by_hand.QUERIES[query]
        return lambda spark: (own.frame(spark, self.kafka), own.mode)

    def run(self, frame: Frame, keep: Callable[[DataFrame], None] | None = None) -> float:
        """The seconds from its start to its end. What it gives is kept, or goes nowhere."""
        self._count += 1
        result, mode = frame(self.spark.newSession())
        writer = result.writeStream.outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{self._count}"))
        started = time.monotonic()
        writer = writer.format("noop") if keep is None else writer.foreachBatch(lambda rows, _: keep(rows))
        writer.start().awaitTermination()
        return time.monotonic() - started

    def check(self, query: str) -> None:
        """Of updates the last ones are compared row by row, of everything else the sums over all rows."""
        if query in batch.UPDATES:
            found: list[str] = []
            self.run(self.flow(STREAMS[query]), lambda rows: found.extend(batch.as_json(rows)))
            told, expected = batch.last_of(query, found), batch.expected(self.batch(query), query)
            same, rows = told == expected, told.total()
        else:
            sums = batch.Sums()
            self.run(self.flow(STREAMS[query]), lambda rows: sums.add(batch.compared(query, rows)))  # type: ignore[arg-type,return-value]
            same, rows = sums == batch.Sums().add(self.batch(query).sql(batch.SQL[query])), sums.rows
        if not same:
            raise SystemExit(f"{query} does not give what the batch gives; tests/bench shows in what, on few events")
        print(f"{query} gives what the batch gives: {rows:,} rows", flush=True)


def reads_bids(query: str) -> bool:
    return flows.bids in STREAMS[query].reads


def topics(stream: Stream) -> list[Topic]:
    """Those that the query reads here."""
    read = [topic for topic in stream.reads if isinstance(topic, Topic)]
    return read if reads_bids(stream.name) else [replace(topic, name=MORE[topic.name]) for topic in read]


def measured(bench: Bench, queries: list[str], rounds: int, peer: flink.Flink | None) -> dict[str, dict[str, Measures]]:
    found: dict[str, dict[str, Measures]] = {query: defaultdict(Measures) for query in queries}
    for number in range(rounds + 1):
        for query in queries:
            sides: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
                MILLRACE: (lambda query=query: bench.run(bench.flow(STREAMS[query])), cpu_s)  # type: ignore[misc]
            }
            if peer is not None:
                sides[FLINK] = (lambda query=query: peer.seconds(query), peer.cpu_s)  # type: ignore[misc]
            if query in by_hand.QUERIES:
                sides[BY_HAND] = (lambda query=query: bench.run(bench.by_hand(query)), cpu_s)  # type: ignore[misc]
            for name, (run, spent) in sides.items():
                before, events = spent(), bench.events(query)
                seconds = run()
                if number:  # the first one warms up
                    found[query][name].per_s.append(round(events / seconds))
                    found[query][name].cpu_s_per_million.append(round((spent() - before) * 1e6 / events, 2))
        print(f"round {number} of {rounds} done" if number else "warm", flush=True)
    return found


def ratios(ours: Measures, peers: Measures) -> dict[str, float]:
    """Events a second and CPU of ours over the peer's: of the medians, and in the worst round."""
    speeds = [one / other for one, other in zip(ours.per_s, peers.per_s, strict=True)]
    costs = [one / other for one, other in zip(ours.cpu_s_per_million, peers.cpu_s_per_million, strict=True)]
    return {
        "per_s": round(statistics.median(ours.per_s) / statistics.median(peers.per_s), 2),
        "per_s_worst": round(min(speeds), 2),
        "cpu": round(statistics.median(ours.cpu_s_per_million) / statistics.median(peers.cpu_s_per_million), 2),
        "cpu_worst": round(max(costs), 2),
    }


def report(found: dict[str, dict[str, Measures]]) -> dict[str, Any]:
    """Prints a table for people and gives the ratios."""
    all_ratios: dict[str, Any] = {}
    print(f"\n{'':5}{'events/s: Millrace':>20}{'Flink':>10}{'ratio':>8}{'worst':>7}", end="")
    print(f"{'CPU s/M: Millrace':>20}{'Flink':>8}{'ratio':>8}{'worst':>7}{'of by hand: events/s':>23}{'CPU':>7}")
    for query, sides in found.items():
        ours = sides[MILLRACE]
        to = {name: ratios(ours, sides[name]) for name in (FLINK, BY_HAND) if name in sides}
        all_ratios[query] = {name.replace(" ", "_"): each for name, each in to.items()}
        cells = [f"{query:5}{statistics.median(ours.per_s):>20,.0f}"]
        cells += _beside(sides, to, "per_s", "10,.0f")
        cells += [f"{statistics.median(ours.cpu_s_per_million):>20.1f}"]
        cells += _beside(sides, to, "cpu", "8.1f")
        hand = to.get(BY_HAND)
        cells += [f"{hand['per_s']:>23}{hand['cpu']:>7}" if hand else ""]
        print("".join(cells))
    print()
    return all_ratios


def _beside(sides: dict[str, Measures], to: dict[str, Any], what: str, form: str) -> list[str]:
    width = int(form.partition(",")[0].partition(".")[0])
    if FLINK not in sides:
        return [f"{'':{width}}{'':>8}{'':>7}"]
    peers = sides[FLINK].per_s if what == "per_s" else sides[FLINK].cpu_s_per_million
    return [f"{statistics.median(peers):>{form}}{to[FLINK][what]:>8}{to[FLINK][f'{what}_worst']:>7}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", default=",".join(STREAMS))
    parser.add_argument("--no-flink", action="store_true")
    parser.add_argument("--bounded", action="store_true")
    parser.add_argument("--unchecked", action="store_true")
    args = parser.parse_args()
    queries = args.queries.split(",")
    if unknown := [query for query in queries if query not in STREAMS]:
        parser.error(f"no such query: {', '.join(unknown)}; there are {', '.join(STREAMS)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = config.load(folder)
        with local.held(settings, ("kafka",)), contextlib.ExitStack() as stack:
            bench = Bench(folder, Model(args.events))
            stack.callback(close, bench.spark)
            for query in [] if args.unchecked else queries:
                bench.check(query)
            peer = None
            if not args.no_flink:
                peer = stack.enter_context(flink.Flink(local.address(settings, "kafka"), folder, bounded=args.bounded))
                print(f"Flink {VERSION}: {', '.join(f'{k}={v}' for k, v in flink.OPTIONS.items())}, {JAVA}")
            found = measured(bench, queries, args.rounds, peer)
    figures = {query: {side: vars(each) for side, each in sides.items()} for query, sides in found.items()}
    peers = f"Flink SQL {VERSION}" if peer else "PySpark by hand"
    print(json.dumps({"bench": "nexmark", "ratios": report(found), "figures": figures, "peer": peers}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
