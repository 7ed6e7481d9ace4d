"""From a payment to its alert: the fraud demo in real time against the same rules in Flink SQL, one after the other.

    python -m bench.fraud [--rate 1000] [--cards 100000] [--seconds 120] [--epoch 60] [--engines realtime,flink]

A process of its own sends payments; a payment's time is when it was sent, and the broker says when its alert was
appended. What lies between is the latency, epoch ends included; what was sent in the warm-up does not count. What
was told is compared with the rules in plain Python over the same payments: none lost, none invented.

Flink's rules are by event time, as ours are: rows wait for the watermark, which here is the newest payment's time and
moves every 10 ms. Ours look at a payment when it comes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.flink import VERSION, Flink, kafka_options
from bench.fraud_flink import OPTIONS, statements
from bench.kernel import cpu_s
from bench.latency.__main__ import LAST_S, QUANTILES, Engine, Side, short_s, tended
from millrace import config, local
from millrace.demo import fraud
from millrace.engine import Run
from millrace.engine.session import close, session
from millrace.log import Log
from tests.demo import recomputed

PARTITIONS = 2
SLOTS = 14
WARM_UP_S = 75.0
REAL_TIME, FLINK = "realtime", "flink"
ALERTS = ("alerts", "card_testing")


class Bench:
    def __init__(self, folder: Path, cards: int) -> None:
        found = config.load(folder)
        options = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "3g"}
        self.settings = replace(found, spark=replace(found.spark, options=options))
        self.bootstrap = local.address(self.settings, "kafka")
        self.cards = cards

    def measured(self, name: str, engine: Engine, rate: int, seconds: float, warm_up_s: float) -> dict[str, Any]:
        own = replace(self.settings, prefix=name)
        log = Log(own)
        appended = {"message.timestamp.type": "LogAppendTime"}
        for topic in ("customers", "payments", *ALERTS):
            log.topics.create(topic, partitions=PARTITIONS, config=appended if topic in ALERTS else {})
        with log.writer("customers") as writer:
            for number in range(self.cards // 2):
                writer.write(fraud.customer(number, datetime.now(UTC)), key=str(number))
        client, topic = json.dumps({"bootstrap.servers": self.bootstrap}), own.named("payments")
        whole = warm_up_s + seconds
        command = [sys.executable, "-m", "bench.fraud_sending", client, topic, str(rate), str(whole), str(self.cards)]
        with contextmanager(engine)(name, topic, "alerts") as side:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            tended(side, warm_up_s)
            before, since = side.spent_s(), datetime.now(UTC)
            started = time.monotonic()
            tended(side, seconds)
            cores = (side.spent_s() - before) / (time.monotonic() - started)
            told, since_last = -1, self._told(log)
            while told != since_last:  # an engine that is behind tells the rest
                told = since_last
                tended(side, LAST_S)
                since_last = self._told(log)
        assert process.stdout is not None
        if int(process.stdout.read()) < 0.95 * rate * whole:
            print(f"  the sender did not keep up with {rate} payments/s", file=sys.stderr)
        return {**self._latency(log, since), **self._judged(log, since), "cores": round(cores, 2)}

    def _told(self, log: Log) -> int:
        return sum(last for topic in ALERTS for _, last in log.topics.offsets(topic).values())

    def _latency(self, log: Log, since: datetime) -> dict[str, float]:
        took = sorted(
            record.time.timestamp() * 1e3 + 0.5 - datetime.fromisoformat(record.json()["at"]).timestamp() * 1e3
            for topic in ALERTS
            for record in log.read(topic)
            if record.time is not None and datetime.fromisoformat(record.json()["at"]) >= since
        )
        if not took:
            raise SystemExit("nothing came out")
        return {name: round(took[min(int(len(took) * part), len(took) - 1)], 1) for name, part in QUANTILES.items()}

    def _judged(self, log: Log, since: datetime) -> dict[str, int]:
        """Told against the rules in plain Python, of what was paid after the warm-up."""
        rows = {}
        for topic in ("payments", "customers"):
            found = [record.json() for record in log.read(topic)]
            rows[topic] = [{**row, "at": datetime.fromisoformat(row["at"])} for row in found]
        paid = sorted(rows["payments"], key=lambda row: row["at"])
        new = {row["id"] for row in paid if row["at"] >= since}
        expected = recomputed.alerts(paid, rows["customers"]) | recomputed.card_testing(paid)
        right = {name for name, alert in expected.items() if alert.payment in new}
        records = [record.json() for topic in ALERTS for record in log.read(topic)]
        told = [row["id"] for row in records if row["payment"] in new]
        return {
            "alerts": len(told),
            "lost": len(right - set(told)),
            "invented": len(set(told) - right),
            "again": len(told) - len(set(told)),
        }

    def millrace(self, epoch_s: int) -> Engine:
        def running(name: str, _: str, __: str) -> Iterator[Side]:
            spark = session(self.settings, f"local[{SLOTS}]", "bench")
            app = fraud.application("fraud", mode="realtime", epoch=f"{epoch_s} seconds")
            own = replace(self.settings, prefix=name)
            try:
                with Run(app, own, spark=spark, only=ALERTS, traffic=False) as run:
                    yield Side(cpu_s, run.poll)
            finally:
                close(spark)

        return running

    def flink(self, folder: Path) -> Engine:
        def running(name: str, _: str, __: str) -> Iterator[Side]:
            own = replace(self.settings, prefix=name)
            sources = {
                topic: kafka_options(self.bootstrap, own.named(topic), "earliest-offset")
                for topic in ("payments", "customers")
            }
            targets = {topic: kafka_options(self.bootstrap, own.named(topic), None) for topic in ALERTS}
            with Flink(folder, OPTIONS, ()) as peer:
                peer.ask(start=statements(sources, targets))
                yield Side(peer.cpu_s)
                peer.ask(stop=True)

        return running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--epoch", type=int, default=60, help="seconds, of the flows in real time")
    parser.add_argument("--engines", default=f"{REAL_TIME},{FLINK}")
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        settings = config.load(Path(name))
        stack.enter_context(local.held(settings, ("kafka",)))
        stack.callback(local.down, settings)
        bench = Bench(Path(name), given.cards)
        engines = {REAL_TIME: bench.millrace(given.epoch), FLINK: bench.flink(Path(name))}
        for engine in given.engines.split(","):
            warm_up_s = max(WARM_UP_S, short_s(given.epoch) + 5)
            one = found[engine] = bench.measured(engine, engines[engine], given.rate, given.seconds, warm_up_s)
            print(f"{engine:9}", "  ".join(f"{word} {value:,}" for word, value in one.items()), flush=True)
    both = REAL_TIME in found and FLINK in found
    ratios = {q: round(found[FLINK][q] / found[REAL_TIME][q], 2) for q in ("p50", "p99")} if both else {}
    print(json.dumps({"bench": "fraud", "ratios": ratios, "figures": found, "peer": f"Flink {VERSION}"}))


if __name__ == "__main__":
    main()
