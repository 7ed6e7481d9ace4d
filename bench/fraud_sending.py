"""Sends payments at a steady rate, in a process of its own: `python -m bench.fraud_sending CONFIG TOPIC RATE SECONDS
CARDS`.

A payment's time is when it was sent. CONFIG is JSON of the Kafka client.
"""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import UTC, datetime

from confluent_kafka import Producer

from bench.latency.sending import TICK_S
from millrace.demo.fraud import payment


def main() -> None:
    settings, topic, rate, seconds, cards = json.loads(sys.argv[1]), *sys.argv[2:]
    producer = Producer({**settings, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
    draw, sent, started = random.Random(1), 0, time.monotonic()
    while (passed := time.monotonic() - started) < float(seconds):
        while sent < int(rate) * passed:
            row = payment(draw, sent, datetime.now(UTC), int(cards))
            value = {**row, "at": row["at"].isoformat(timespec="microseconds").replace("+00:00", "Z")}
            producer.produce(topic, json.dumps(value).encode(), key=row["card"].encode())
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(30)
    print(sent)


if __name__ == "__main__":
    main()
