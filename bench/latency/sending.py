"""Sends events at a steady rate, in a process of its own: `python -m bench.latency.sending CONFIG TOPIC RATE SECONDS`.

Each says when it was sent. CONFIG is JSON of the Kafka client. SIGTERM ends it before its time, with how many it sent.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from datetime import UTC, datetime

from confluent_kafka import Producer

from bench.latency.shapes import KEYS

# Events are sent in ticks: one by one a sleep would cost more than the event.
TICK_S = 0.002


def main() -> None:
    settings, topic, rate, seconds = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    producer = Producer({**settings, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    draw, sent, started = random.Random(1), 0, time.monotonic()
    while (passed := time.monotonic() - started) < seconds and not ended.is_set():
        while sent < rate * passed:
            now = time.time()
            at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
            key = draw.randrange(KEYS)
            event = {"id": sent, "k": key, "m": key % 97, "n": draw.randrange(10), "sent": int(now * 1e6), "at": at}
            producer.produce(topic, json.dumps(event).encode(), key=str(key).encode())
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(30)
    print(sent)


if __name__ == "__main__":
    main()
