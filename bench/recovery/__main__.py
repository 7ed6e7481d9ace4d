"""From kill -9 to caught up, under load: Millrace against Flink, the same job at the same rate, one after the other.

    python -m bench.recovery [--rate 5000] [--interval 1] [--kills 3] [--warm-up 60] [--engines millrace,flink]

A process of its own sends events; each is answered with what its key did in the last minute (the shape `lookback` of
`bench.latency`). Ours runs epoch by epoch, an epoch every `--interval` seconds; Flink makes a checkpoint as often, in
RocksDB, incrementally. Both run as one process with its JVM, deliver at least once, and are started again at once after
the kill, cold, from what they left: a checkpoint folder. Caught up is who answers events within `interval` + 1 s of
their sending again, in every partition. At last every event that was sent has to have an answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from bench.flink import VERSION, Flink, kafka_options
from bench.latency.__main__ import OPTIONS
from bench.latency.shapes import FLINK_SCHEMA
from bench.recovery.flow import PARTITIONS, SHAPE
from millrace import config, local
from millrace.config import Settings
from millrace.log import Log

LOOK_S = 0.1
LIMIT_S = 240.0
SETTLED_S = 20.0  # between being caught up and the next kill
SLACK_S = 1.0
MILLRACE, FLINK = "millrace", "flink"


@dataclass
class Answers:
    """The end of a topic of answers: how long ago the last events were sent that have one."""

    bootstrap: str
    topic: str
    consumer: Consumer = field(init=False)

    def __post_init__(self) -> None:
        own = {"bootstrap.servers": self.bootstrap, "group.id": f"tail-{self.topic}", "enable.auto.commit": False}
        self.consumer = Consumer({**own, "fetch.wait.max.ms": 50})

    def behind_s(self) -> float:
        """Of the partition that is furthest behind; infinite as long as one has none."""
        sent = []
        for number in range(PARTITIONS):
            place = TopicPartition(self.topic, number)
            low, end = self.consumer.get_watermark_offsets(place, timeout=10)
            if end <= low:
                return float("inf")
            self.consumer.assign([TopicPartition(self.topic, number, end - 1)])
            if (record := self.consumer.poll(5)) is None or record.error():
                return float("inf")
            sent.append(json.loads(record.value())["sent"] / 1e6)
        return time.time() - min(sent)

    def ends(self) -> int:
        return sum(self.consumer.get_watermark_offsets(TopicPartition(self.topic, n))[1] for n in range(PARTITIONS))


@dataclass
class Side:
    """An engine that can be killed and started again."""

    start: Callable[[], None]
    kill: Callable[[], None]
    lives: Callable[[], bool]


@dataclass(frozen=True)
class Recovery:
    first_s: float  # until something was answered again
    caught_up_s: float


class Bench:
    def __init__(self, folder: Path, rate: int, interval_s: int) -> None:
        self.folder, self.rate, self.interval_s = folder, rate, interval_s
        self.settings: Settings = config.load(folder)
        self.log = Log(self.settings)
        self.bootstrap = local.address(self.settings, "kafka")

    def measured(self, name: str, side: Side, kills: int, warm_up_s: float) -> list[Recovery]:
        read, written = f"in_{name}", f"out_{name}"
        for topic in (read, written):
            self.log.topics.create(topic, partitions=PARTITIONS)
        answers = Answers(self.bootstrap, written)
        client = json.dumps({"bootstrap.servers": self.bootstrap})
        whole_s = warm_up_s + kills * LIMIT_S
        sending = [sys.executable, "-m", "bench.latency.sending", client, read, str(self.rate), str(whole_s)]
        found: list[Recovery] = []
        side.start()
        sender = subprocess.Popen(sending, stdout=subprocess.PIPE)
        try:
            self._tended(side, warm_up_s)
            self._caught_up(side, answers, time.time())
            for number in range(kills):
                self._tended(side, SETTLED_S)
                found.append(self._recovered(side, answers))
                print(f"{name:10} kill {number + 1}: {found[-1]}", flush=True)
            sender.kill()
            self._refuse_loss(side, read, written)
        finally:
            sender.kill()
            if side.lives():
                side.kill()
        return found

    def _recovered(self, side: Side, answers: Answers) -> Recovery:
        side.kill()
        began, before = time.time(), answers.ends()
        side.start()
        first_s = 0.0
        while not first_s:
            if answers.ends() > before:
                first_s = time.time() - began
            self._look(side, began)
        return Recovery(round(first_s, 1), round(self._caught_up(side, answers, began), 1))

    def _caught_up(self, side: Side, answers: Answers, began: float) -> float:
        while answers.behind_s() > self.interval_s + SLACK_S:
            self._look(side, began)
        return time.time() - began

    def _look(self, side: Side, began: float) -> None:
        if not side.lives():
            raise SystemExit("it ended by itself; its log says why")
        if time.time() - began > LIMIT_S:
            raise SystemExit(f"it has not caught up in {LIMIT_S:.0f} s: {self.rate} events/s may be too many here")
        time.sleep(LOOK_S)

    def _tended(self, side: Side, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look(side, time.time())

    def _refuse_loss(self, side: Side, read: str, written: str) -> None:
        sent = {record.json()["id"] for record in self.log.read(read)}
        began, answered = time.time(), set[int]()
        while True:  # what was sent last needs a moment
            answered = {record.json()["id"] for record in self.log.read(written)}
            if answered == sent:
                return
            if time.time() - began > LIMIT_S:
                raise SystemExit(f"{len(sent - answered)} of {len(sent)} events have no answer")
            self._look(side, began)

    def millrace(self) -> Side:
        running: list[psutil.Popen] = []
        words = [str(self.folder), f"in_{MILLRACE}", f"out_{MILLRACE}", str(self.interval_s)]

        def start() -> None:
            with (self.folder / "flow.log").open("ab") as output:
                argv = [sys.executable, "-m", "bench.recovery.flow", *words]
                running.append(psutil.Popen(argv, stdout=output, stderr=subprocess.STDOUT))

        def kill() -> None:
            for each in [running[-1], *running[-1].children(recursive=True)] if running[-1].is_running() else ():
                each.kill()
            running[-1].wait()

        return Side(start, kill, lambda: running[-1].poll() is None)

    def flink(self) -> Side:
        running: list[Flink] = []
        read, written = f"in_{FLINK}", f"out_{FLINK}"
        source, target = (
            kafka_options(self.bootstrap, topic, since) for topic, since in ((read, "earliest-offset"), (written, None))
        )
        own = {**OPTIONS, "execution.checkpointing.interval": f"{self.interval_s} s"}

        def start() -> None:
            goes_on = {}
            if running:
                place = {"execution.state-recovery.path": running[-1].last_checkpoint()}
                goes_on = {**place, "execution.state-recovery.claim-mode": "CLAIM"}
            running.append(Flink(self.folder, {**own, **goes_on}, ()))
            running[-1].__enter__()
            table = f"CREATE TEMPORARY TABLE e ({FLINK_SCHEMA}) WITH ({source})"
            running[-1].ask(start=[table, f"CREATE TABLE {written} WITH ({target}) AS {SHAPE.sql}"])

        return Side(start, lambda: running[-1].kill(), lambda: running[-1].process.poll() is None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--interval", type=int, default=1, help="seconds, of epochs and of checkpoints")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds before the first kill")
    parser.add_argument("--engines", default=f"{MILLRACE},{FLINK}")
    given = parser.parse_args()
    found: dict[str, list[Recovery]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        settings = config.load(Path(name))
        stack.enter_context(local.held(settings, ("kafka",)))
        stack.callback(local.down, settings)
        bench = Bench(Path(name), given.rate, given.interval)
        for engine in given.engines.split(","):
            side = bench.millrace() if engine == MILLRACE else bench.flink()
            found[engine] = bench.measured(engine, side, given.kills, given.warm_up)
    median = {engine: statistics.median(each.caught_up_s for each in all_of) for engine, all_of in found.items()}
    ratios = {"recovery": round(median[MILLRACE] / median[FLINK], 2)} if len(median) > 1 else {}
    figures = {engine: [vars(each) for each in all_of] for engine, all_of in found.items()}
    for engine, seconds in median.items():
        print(f"{engine:10} caught up {seconds:.1f} s after the kill (median of {given.kills})")
    print(json.dumps({"bench": "recovery", "ratios": ratios, "figures": figures, "peer": f"Flink {VERSION}"}))


if __name__ == "__main__":
    main()
