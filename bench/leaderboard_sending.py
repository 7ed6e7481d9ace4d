"""Sends scores at a steady rate, in a process of its own: `python -m bench.leaderboard_sending CONFIG TOPIC RATE
SECONDS PLAYERS`.

Ten times a second one is a probe: of a new player who has more points than anybody before, and whose name says when it
was sent. CONFIG is JSON of the Kafka client.
"""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import UTC, datetime

from confluent_kafka import Producer

from bench.latency.sending import TICK_S

PROBE = "probe-"
_PROBE_S = 0.1


def main() -> None:
    settings, topic, rate, seconds, players = json.loads(sys.argv[1]), *sys.argv[2:]
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    draw, sent, probes, started = random.Random(1), 0, 0, time.monotonic()

    def send(player: str, points: int, at: str) -> None:
        producer.produce(
            topic, b'{"player":"%b","points":%d,"at":"%b"}' % (player.encode(), points, at.encode()), player.encode()
        )

    while (passed := time.monotonic() - started) < float(seconds):
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        if passed >= probes * _PROBE_S:
            sent_ms = time.time_ns() // 1_000_000
            send(f"{PROBE}{sent_ms}", sent_ms, at)
            probes += 1
        while sent < int(rate) * passed:
            send(f"player-{draw.randrange(int(players))}", int(draw.paretovariate(1.5) * 100), at)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(60)
    print(json.dumps({"sent": sent, "probes": probes, "seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()
