"""`millrace topic write` and `read` of 1 M records of 200 bytes against Kafka's own performance tools, on one broker.

    python -m bench.log [--records N] [--rounds N]

Both sides are whole commands: their time runs from start to exit, with start-up of Python and of the JVM. The engines
alternate; a warm-up round is thrown away; a ratio is Kafka's median time over ours (over 1: we are faster).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from millrace import config, local
from millrace.config import Settings
from millrace.local import jars, java
from millrace.log import Log

SIZE_BYTES = 200
PARTITIONS = 2
MILLRACE = [sys.executable, "-m", "millrace"]
# What Millrace's writer uses. Kafka's own defaults (16 KB, 5 ms) make it write half as fast here.
SAME_BATCHES = ["batch.size=1000000", "linger.ms=10"]

Contender: TypeAlias = Callable[[int], float]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = config.load(folder)
        jars.paths("kafka")
        figures: dict[str, Any] = {"up_to_first_record_s": up_to_first_record(folder)}
        try:
            measure(settings, folder, args.records, args.rounds, figures)
            local.up(settings, ("connect", "postgres"), detach=True)
            settle(settings)
            figures["resident_mb"] = {row.server: row.memory_mb for row in local.status(settings) if row.memory_mb}
        finally:
            local.down(settings)
    report(figures)


def up_to_first_record(folder: Path) -> float:
    """A new project: from `millrace up` to the first record read back."""
    started = time.monotonic()
    for command, stdin in (
        (["up", "kafka", "--detach"], None),
        (["topic", "create", "first"], None),
        (["topic", "write", "first"], b'{"n": 1}\n'),
        (["topic", "read", "first", "--limit", "1"], None),
    ):
        subprocess.run([*MILLRACE, *command], cwd=folder, input=stdin, check=True, capture_output=True)
    return round(time.monotonic() - started, 1)


def measure(settings: Settings, folder: Path, records: int, rounds: int, figures: dict[str, Any]) -> None:
    lines = folder / "lines.jsonl"
    chance = random.Random(1)
    with lines.open("w") as file:
        for number in range(records):
            head = f'{{"n": {number}, "text": "'
            noise = f"{chance.getrandbits(4 * SIZE_BYTES):x}".zfill(SIZE_BYTES)
            file.write(head + noise[: SIZE_BYTES - len(head) - 2] + '"}\n')
    log = Log(settings)
    log.topics.create("read", partitions=PARTITIONS)
    with lines.open("rb") as file:
        subprocess.run([*MILLRACE, "topic", "write", "read"], cwd=folder, stdin=file, check=True, capture_output=True)
    bootstrap = local.address(settings, "kafka")
    contests: dict[str, tuple[Contender, Contender]] = {
        "produce": (
            lambda number: ours_write(log, folder, lines, f"a-{number}", records),
            lambda number: theirs_write(log, bootstrap, f"b-{number}", records, SAME_BATCHES),
        ),
        "produce_defaults": (
            lambda number: ours_write(log, folder, lines, f"c-{number}", records),
            lambda number: theirs_write(log, bootstrap, f"d-{number}", records, []),
        ),
        "consume": (lambda _: ours_read(folder, records), lambda _: theirs_read(bootstrap, records)),
    }
    seconds: dict[str, dict[str, list[float]]] = {}
    ratios: dict[str, float] = {}
    for name, (ours, theirs) in contests.items():
        taken: dict[str, list[float]] = {"millrace": [], "kafka": []}
        for number in range(rounds + 1):  # the first is the warm-up
            order = [("millrace", ours), ("kafka", theirs)]
            for side, run in order if number % 2 else reversed(order):
                taken[side].append(round(run(number), 2))
        seconds[name] = {side: times[1:] for side, times in taken.items()}
        ratios[name] = round(
            statistics.median(seconds[name]["kafka"]) / statistics.median(seconds[name]["millrace"]), 2
        )
    figures |= {"seconds": seconds, "ratios": ratios}


def timed(command: list[str], **options: Any) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.PIPE, **options)
    return time.monotonic() - started


def ours_write(log: Log, folder: Path, lines: Path, topic: str, records: int) -> float:
    log.topics.create(topic, partitions=PARTITIONS)
    with lines.open("rb") as file:
        taken = timed([*MILLRACE, "topic", "write", topic], cwd=folder, stdin=file, stdout=subprocess.DEVNULL)
    check_and_delete(log, topic, records)
    return taken


def theirs_write(log: Log, bootstrap: str, topic: str, records: int, options: list[str]) -> float:
    log.topics.create(topic, partitions=PARTITIONS)
    taken = timed(
        [
            *kafka_tool("ProducerPerformance", "--topic", topic, "--num-records", str(records)),
            *["--record-size", str(SIZE_BYTES), "--throughput", "-1"],
            *["--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "enable.idempotence=true", *options],
        ],
        stdout=subprocess.DEVNULL,
    )
    check_and_delete(log, topic, records)
    return taken


def ours_read(folder: Path, records: int) -> float:
    with tempfile.TemporaryFile() as output:
        taken = timed([*MILLRACE, "topic", "read", "read"], cwd=folder, stdout=output)
        output.seek(0)
        assert sum(1 for _ in output) == records
    return taken


def theirs_read(bootstrap: str, records: int) -> float:
    tool = kafka_tool("ConsumerPerformance", "--topic", "read", "--bootstrap-server", bootstrap)
    return timed([*tool, "--num-records", str(records)], stdout=subprocess.DEVNULL)


def check_and_delete(log: Log, topic: str, records: int) -> None:
    written = sum(partition.last - partition.first for partition in log.topics.describe(topic).partitions)
    assert written == records, f"{topic} holds {written} of {records} records"
    log.topics.delete(topic)


def kafka_tool(name: str, *arguments: str) -> list[str]:
    classpath = ":".join(map(str, jars.paths("kafka")))
    return [str(java.find()), "-Xmx512m", "-cp", classpath, f"org.apache.kafka.tools.{name}", *arguments]


def settle(settings: Settings) -> None:
    """Waits until no server's memory grows by more than 2 % in five seconds, for a minute at most."""
    before: dict[str, int] = {}
    for _ in range(12):
        now = {row.server: row.memory_mb or 0 for row in local.status(settings)}
        if before and all(now[name] <= 1.02 * before[name] for name in now):
            return
        before = now
        time.sleep(5)


def report(figures: dict[str, Any]) -> None:
    ratios = figures.pop("ratios")
    for name, seconds in figures["seconds"].items():
        print(f"{name:<8} millrace {seconds['millrace']} s   kafka {seconds['kafka']} s   ratio {ratios[name]}")
    print(f"up to first record {figures['up_to_first_record_s']} s; resident MB {figures['resident_mb']}")
    peer = f"Kafka {jars.version('kafka_2.13')} ProducerPerformance and ConsumerPerformance"
    print(json.dumps({"bench": "log", "ratios": ratios, "figures": figures, "peer": peer}))


if __name__ == "__main__":
    main()
