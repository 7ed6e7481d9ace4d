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
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame

import millrace as mr

NOTICE = "user long, event string, text string, at timestamp"
SERVICES = ("orders", "payments", "shipping")

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


# Made-up orders: one a second, and each service notices it.

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


class Receiver(http.server.BaseHTTPRequestHandler):
    """Somebody's service that sends to phones: it prints a notification unless it has its Idempotency-Key already."""

    seen: set[str]

    def do_POST(self) -> None:
        post = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Idempotency-Key"] not in self.seen:
            self.seen.add(self.headers["Idempotency-Key"])
            print(f"to user {post['row']['user']}: {post['row']['text']}", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the standard library's
        """Quiet."""


@contextmanager
def beside() -> Iterator[Mapping[str, str]]:
    """The receiver, while the demo runs, and the setting by which the flow finds it."""
    Receiver.seen = set()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"MILLRACE_SINKS_PHONE_URL": f"http://127.0.0.1:{server.server_port}/"}
        server.shutdown()
