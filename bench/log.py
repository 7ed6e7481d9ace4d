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

from millrace import config, local
from millrace.config import Settings
from millrace.local import jars, java
from millrace.log import Log

SIZE_BYTES = 200
PARTITIONS = 2
MILLRACE = [sys.executable, "-m", "millrace"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = config.load(folder)
        jars.paths("kafka")
        figures: dict[str, object] = {"up_to_first_record_s": up_to_first_record(folder)}
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


def measure(settings: Settings, folder: Path, records: int, rounds: int, figures: dict[str, object]) -> None:
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
    contests: dict[str, tuple[Callable[[int], float], Callable[[int], float]]] = {
        "produce": (
            lambda number: ours_write(log, folder, lines, number, records),
            lambda number: theirs_write(log, bootstrap, number, records),
        ),
        "consume": (lambda _: ours_read(folder, records), lambda _: theirs_read(bootstrap, records)),
    }
    figures["seconds"], figures["ratios"] = {}, {}
    for name, sides in contests.items():
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds + 1):
            for side, run in enumerate(sides if number % 2 else reversed(sides)):
                which = side if number % 2 else 1 - side
                taken = run(number)
                if number:
                    seconds[which].append(taken)
        ours, theirs = map(statistics.median, seconds)
        figures["seconds"][name] = {
            "millrace": [round(s, 2) for s in seconds[0]],
            "kafka": [round(s, 2) for s in seconds[1]],
        }  # type: ignore[index]
        figures["ratios"][name] = round(theirs / ours, 2)  # type: ignore[index]


def timed(command: list[str], **options: object) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload]
    return time.monotonic() - started


def ours_write(log: Log, folder: Path, lines: Path, number: int, records: int) -> float:
    topic = f"ours-{number}"
    log.topics.create(topic, partitions=PARTITIONS)
    with lines.open("rb") as file:
        taken = timed([*MILLRACE, "topic", "write", topic], cwd=folder, stdin=file, stdout=subprocess.DEVNULL)
    check_and_delete(log, topic, records)
    return taken


def theirs_write(log: Log, bootstrap: str, number: int, records: int) -> float:
    topic = f"theirs-{number}"
    log.topics.create(topic, partitions=PARTITIONS)
    taken = timed(
        [
            *kafka_tool("ProducerPerformance", "--topic", topic, "--num-records", str(records)),
            *["--record-size", str(SIZE_BYTES), "--throughput", "-1"],
            *["--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "enable.idempotence=true"],
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


def report(figures: dict[str, object]) -> None:
    ratios = figures.pop("ratios")
    for name, seconds in figures["seconds"].items():  # type: ignore[attr-defined]
        print(f"{name:<8} millrace {seconds['millrace']} s   kafka {seconds['kafka']} s   ratio {ratios[name]}")  # type: ignore[index]
    print(f"up to first record {figures['up_to_first_record_s']} s; resident MB {figures['resident_mb']}")
    peer = f"Kafka {jars.version('kafka_2.13')} ProducerPerformance and ConsumerPerformance"
    print(json.dumps({"bench": "log", "ratios": ratios, "figures": figures, "peer": peer}))


if __name__ == "__main__":
    main()
