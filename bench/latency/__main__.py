"""How long an answer takes, Kafka to Kafka: real time against epoch by epoch against Flink, one after the other.

    python -m bench.latency [--rates 200,2000] [--shapes stateless,keyed] [--epochs 10,60] [--ends 10] [--engines flink]
    python -m bench.latency --idle 120 [--shapes keyed] [--epochs 60]

With its defaults that is about two hours, and up to three minutes more for each line whose engine is behind.

A process of its own sends events at a steady rate; each says when it was sent, and the broker says when the answer was
appended. What lies between is the latency: milliseconds, of which half a one is the clock's. A flow runs for `--ends`
ends of its epochs after a warm-up (epoch by epoch and Flink as long as with the shortest epochs), and what came in the
warm-up does not count: the first flow of a JVM, the short epochs that a flow begins with, and what it is behind after
them, for three minutes at most. CPU is of the engine's processes, in cores. Flink makes a checkpoint every ten seconds.

With `--idle` nothing is sent: the CPU of flows in real time that wait, for so many seconds after their short epochs,
beside that of a session without a flow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import millrace as mr
from bench.first_epochs import short_s
from bench.flink import VERSION, Flink, kafka_options
from bench.kernel import cpu_s
from bench.latency.shapes import FLINK_SCHEMA, LATENESS_S, SCHEMA, SHAPES
from bench.nexmark.flink import OPTIONS as THROUGHPUT
from millrace import config, local
from millrace.engine import Run
from millrace.engine.session import close, session
from millrace.log import Log

# Those that Flink's SQL has too.
USUAL = ",".join(name for name, shape in SHAPES.items() if shape.sql is not None)
PARTITIONS = 2
SLOTS = 12
FIRST_WARM_UP_S = 70.0  # with less, the first flow of a JVM shows its compiler
WARM_UP_S = 30.0
CAUGHT_UP_S = 0.5  # how old the newest answer may be of a flow that is not behind
MOST_BEHIND_S = 180.0  # for so long it is waited for
LAST_S = 3.0  # until what was sent last has come out
TEND_S = 0.1
OPTIONS = {
    **{key: value for key, value in THROUGHPUT.items() if "mini-batch" not in key},
    "execution.buffer-timeout.interval": "1 ms",
    "table.exec.state.ttl": "60 s",  # as long as our ids are remembered
}
REAL_TIME, EPOCHS, FLINK = "realtime", "epochs", "flink"
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


@dataclass(frozen=True)
class Side:
    """An engine at work."""

    spent_s: Callable[[], float]  # of CPU, so far
    tend: Callable[[], object] = lambda: None


Engine = Callable[[str, str, str], Iterator[Side]]


@dataclass(frozen=True)
class Measured:
    rows: int
    ms: dict[str, float]
    cores: float


class Bench:
    def __init__(self, folder: Path) -> None:
        found = config.load(folder)
        options = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "2g"}
        self.settings = replace(found, spark=replace(found.spark, options=options))
        self.log, self.count = Log(self.settings), 0
        self.bootstrap = local.address(self.settings, "kafka")
        self.spark = session(self.settings, f"local[{SLOTS}]", "bench")

    def measured(self, engine: Engine, shape: str, rate: int, seconds: float, warm_up_s: float) -> Measured:
        self.count += 1
        read, written = f"in{self.count}", f"out{self.count}"
        self.log.topics.create(read, partitions=PARTITIONS)
        appended = {"message.timestamp.type": "LogAppendTime"}
        self.log.topics.create(written, partitions=PARTITIONS, config=appended)
        sending = [sys.executable, "-m", "bench.latency.sending", json.dumps({"bootstrap.servers": self.bootstrap})]
        with contextmanager(engine)(shape, read, written) as side:
            most_s, began = warm_up_s + MOST_BEHIND_S + seconds, time.time()
            process = subprocess.Popen([*sending, read, str(rate), str(most_s)], stdout=subprocess.PIPE, text=True)
            tended(side, warm_up_s)
            while (
                not SHAPES[shape].at_ends
                and self._is_behind(written)
                and time.time() < began + warm_up_s + MOST_BEHIND_S
            ):
                tended(side, CAUGHT_UP_S)
            before, started = side.spent_s(), time.time()
            tended(side, seconds)
            ended = time.time()
            cores = (side.spent_s() - before) / (ended - started)
            process.terminate()
            tended(side, LAST_S)
        assert process.stdout is not None
        if int(process.stdout.read()) < 0.95 * rate * (ended - began):
            print(f"  the sender did not keep up with {rate} events/s", file=sys.stderr)
        took = sorted(self._took_ms(written, started * 1e6))
        if not took:
            raise SystemExit(f"nothing came out of {shape}")
        at = {name: round(took[min(int(len(took) * part), len(took) - 1)], 1) for name, part in QUANTILES.items()}
        return Measured(len(took), at, round(cores, 2))

    def idle(self, engine: Engine, shape: str, seconds: float, warm_up_s: float) -> float:
        """Cores of a flow to which nothing comes."""
        self.count += 1
        for topic in (f"in{self.count}", f"out{self.count}"):
            self.log.topics.create(topic, partitions=PARTITIONS)
        with contextmanager(engine)(shape, f"in{self.count}", f"out{self.count}") as side:
            tended(side, warm_up_s)
            before, started = side.spent_s(), time.time()
            tended(side, seconds)
            return round((side.spent_s() - before) / (time.time() - started), 3)

    def _is_behind(self, topic: str) -> bool:
        since = datetime.now(UTC) - timedelta(seconds=CAUGHT_UP_S)
        newest = [(record.time, record.json()["sent"]) for record in self.log.read(topic, since)]
        ages_s = [at.timestamp() - sent_us / 1e6 for at, sent_us in newest if at is not None]
        return not ages_s or min(ages_s) > CAUGHT_UP_S

    def _took_ms(self, topic: str, since_us: float) -> Iterator[float]:
        for record in self.log.read(topic):
            sent_us = record.json()["sent"]
            if sent_us >= since_us and record.time is not None:
                yield record.time.timestamp() * 1e3 + 0.5 - sent_us / 1e3

    def millrace(self, epoch: str | None) -> Engine:
        def running(shape: str, read: str, written: str) -> Iterator[Side]:
            app = mr.App(f"latency{self.count}")
            topic = app.topic(read, SCHEMA, time="at", lateness=f"{LATENESS_S} seconds", partitions=PARTITIONS)
            mode = {} if epoch is None else {"mode": "realtime", "epoch": epoch}
            app.stream(topic, name=written, partitions=PARTITIONS, **mode)(SHAPES[shape].flow)  # type: ignore[arg-type]
            with Run(app, self.settings, spark=self.spark) as run:
                yield Side(cpu_s, run.poll)

        return running

    def flink(self, peer: Flink) -> Engine:
        def running(shape: str, read: str, written: str) -> Iterator[Side]:
            source = kafka_options(self.bootstrap, read, "earliest-offset")
            table = f"CREATE TEMPORARY TABLE e ({FLINK_SCHEMA}) WITH ({source})"
            target = kafka_options(self.bootstrap, written, None)
            made = f"CREATE TABLE {written} WITH ({target}) AS {SHAPES[shape].sql}"
            peer.ask(start=["DROP TEMPORARY TABLE IF EXISTS e", table, made])
            yield Side(peer.cpu_s)
            peer.ask(stop=True)

        return running


def tended(side: Side, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        side.tend()
        time.sleep(TEND_S)


@contextmanager
def opened() -> Iterator[tuple[Bench, Path, ExitStack]]:
    """A project of its own with its Kafka and a session. What else is entered into the stack ends before these."""
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        settings = config.load(Path(name))
        stack.enter_context(local.held(settings, ("kafka",)))
        stack.callback(local.down, settings)
        bench = Bench(Path(name))
        stack.callback(close, bench.spark)
        yield bench, Path(name), stack


def idle(shapes: list[str], epochs: list[int], seconds: int) -> None:
    with opened() as (bench, _, _):
        before, started = cpu_s(), time.time()
        tended(Side(cpu_s), seconds)
        cores = {"no flow": round((cpu_s() - before) / (time.time() - started), 3)}
        for epoch_s in epochs:
            for shape in shapes:
                engine, warm_up_s = bench.millrace(f"{epoch_s} seconds"), max(short_s(epoch_s), WARM_UP_S)
                cores[f"{shape} {epoch_s} s"] = bench.idle(engine, shape, seconds, warm_up_s)
    for name, value in cores.items():
        print(f"{name:20} {value:.3f} cores")
    print(json.dumps({"bench": "latency", "ratios": {}, "figures": {"idle_cores": cores}, "peer": "no flow"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="200,2000,10000")
    parser.add_argument("--shapes", default=USUAL, help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--epochs", default="10", help="seconds, of the flows in real time")
    parser.add_argument("--ends", type=int, default=10)
    parser.add_argument("--engines", default=f"{REAL_TIME},{EPOCHS},{FLINK}")
    parser.add_argument("--idle", type=int, metavar="SECONDS", help="the CPU of flows in real time that wait")
    given = parser.parse_args()
    if given.idle:
        idle(given.shapes.split(","), [int(each) for each in given.epochs.split(",")], given.idle)
        return
    chosen = given.engines.split(",")
    epochs, rates, shapes = (each.split(",") for each in (given.epochs, given.rates, given.shapes))
    shortest = min(map(int, epochs)) * given.ends
    found: dict[str, Measured] = {}
    with opened() as (bench, folder, stack):
        engines = {}
        for epoch_s in map(int, epochs) if REAL_TIME in chosen else ():
            short = short_s(epoch_s)
            engines[f"real time {epoch_s} s"] = bench.millrace(f"{epoch_s} seconds"), epoch_s * given.ends, short
        if EPOCHS in chosen:
            engines[EPOCHS] = bench.millrace(None), shortest, 0.0
        if FLINK in chosen:
            engines[FLINK] = bench.flink(stack.enter_context(Flink(folder, OPTIONS, ()))), shortest, 0.0
        cold = {REAL_TIME, FLINK}  # the two JVMs
        for rate in rates:
            for shape in shapes:
                for engine, (side, seconds, short) in engines.items():
                    if engine == FLINK and SHAPES[shape].sql is None:
                        continue
                    jvm = FLINK if engine == FLINK else REAL_TIME
                    warm_up_s = max(short, FIRST_WARM_UP_S if jvm in cold else WARM_UP_S)
                    cold.discard(jvm)
                    one = found[f"{shape} {rate} {engine}"] = bench.measured(side, shape, int(rate), seconds, warm_up_s)
                    told = "  ".join(f"{name} {value:8,.1f}" for name, value in one.ms.items())
                    print(
                        f"{shape:10} {int(rate):6,}/s  {engine:15} {told} ms  {one.cores:.2f} cores, {one.rows:,} rows",
                        flush=True,
                    )
    ratios = {
        f"{name} {quantile}": round(found[f"{' '.join(name.split()[:2])} {FLINK}"].ms[quantile] / one.ms[quantile], 2)
        for name, one in found.items()
        for quantile in ("p50", "p99")
        if "real time" in name and f"{' '.join(name.split()[:2])} {FLINK}" in found
    }
    figures = {name: {**one.ms, "cores": one.cores} for name, one in found.items()}
    print(json.dumps({"bench": "latency", "ratios": ratios, "figures": figures, "peer": f"Flink {VERSION}"}))


if __name__ == "__main__":
    main()
