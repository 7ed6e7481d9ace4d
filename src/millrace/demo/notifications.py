"""Notifications: three services tell the same things about an order, and a person is told each once.

millrace demo --only notifications    made-up events of three services; a receiver on this machine prints what arrives

from_orders ────┐
from_payments ──┼──▶ dedup (user, event), 24 hours ──▶ notifications ──▶ webhook, each with an Idempotency-Key
from_shipping ──┘
"""

from __future__ import annotations

import http.server
import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import millrace as mr

NOTICE = "user long, event string, text string, at timestamp"
SERVICES = ("orders", "payments", "shipping")
# After a crash one epoch is posted again at most: a day's keys, at one a second, are more than enough.
MOST_KEYS = 100_000

app = mr.App("notifications")
told = [app.topic(f"from_{service}", NOTICE, time="at", lateness="1 minute", key="user") for service in SERVICES]


@app.stream(*told, key=["user", "event"])
def notifications(*services: DataFrame) -> DataFrame:
    """The first of each (user, event) within 24 hours, whichever service says it."""
    every = reduce(DataFrame.unionByName, services)
    return mr.dedup(every, on=["user", "event"], ttl="24 hours", late=mr.late.side("late_notices"))


# Posted at least once; what is posted again after a crash has the Idempotency-Key that it had, so that a receiver that
# minds it takes each notification at most once.
notifications.to(mr.webhook("phone", key=["user", "event"]))


# Made-up orders: one a second, and each of the three services tells of it, about twice.

STEPS = ("was placed", "was paid", "has been sent")


def notice(at: datetime) -> dict[str, Any]:
    """What every service says in that second."""
    number = int(at.timestamp())
    step = STEPS[number % len(STEPS)]
    return {
        "user": number * 7919 % 1_000,
        "event": f"order-{number}-{step.split()[-1]}",
        "text": f"Your order {number} {step}.",
        "at": at,
    }


def made_up(_: random.Random) -> dict[str, Any]:
    return notice(datetime.now(UTC))


for topic in told:
    app.traffic(topic, rate=2, name=f"made_up_{topic.name}")(made_up)


class Taken:
    """The Idempotency-Keys that were taken, in a file: whoever is killed and started again has them still. The disk is
    not waited for, since a file outlives its process without that."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        kept = [line for line in lines if line.endswith("\n")][-MOST_KEYS:]  # a kill may have cut the last one off
        fresh = path.with_suffix(".new")
        fresh.write_text("".join(kept), encoding="utf-8")
        fresh.replace(path)
        self._seen = set(map(str.strip, kept))
        self._file = path.open("a", encoding="utf-8")
        self._one_at_a_time = threading.Lock()  # a post that was given up may still be on its way

    def take(self, key: str) -> bool:
        """Whether it is new. It is kept before anything is done for it: at most once, not at least."""
        with self._one_at_a_time:
            if key in self._seen:
                return False
            self._file.write(f"{key}\n")
            self._file.flush()
            self._seen.add(key)
            return True

    def close(self) -> None:
        self._file.close()


class Receiver(http.server.BaseHTTPRequestHandler):
    """Somebody's service that sends to phones: it prints a notification unless it has its Idempotency-Key already."""

    taken: Taken

    def do_POST(self) -> None:
        post = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.taken.take(self.headers["Idempotency-Key"]):
            print(f"to user {post['row']['user']}: {post['row']['text']}", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the standard library's
        """Quiet."""


@contextmanager
def beside() -> Iterator[Mapping[str, str]]:
    """The receiver, while the demo runs, and the setting by which the flow finds it."""
    from millrace import config

    Receiver.taken = Taken(config.load().state_folder / "notifications" / "keys")
    with closing(Receiver.taken), http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"MILLRACE_SINKS_PHONE_URL": f"http://127.0.0.1:{server.server_port}/"}
        server.shutdown()
