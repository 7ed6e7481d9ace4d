"""How long a commit takes to be seen in a view: in the view store, by HTTP, and on a WebSocket.

Each writer adds 1 to amounts of orders of its own regions, one order a commit. So the sum over its regions says how
many of its commits an answer holds, exactly, whatever else the answer says of itself.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

import psycopg

from millrace.client import Client

WRITERS = 4
LIMIT_S = 300.0
# How often it is asked: what asks takes cores from what answers. An answer's age is up to this more.
STORE_LOOK_S, HTTP_LOOK_S = 0.005, 0.010
# Share of the asked rate from which on it counts as held.
HELD = 0.97
OWN = "SELECT o.id, c.region, o.amount FROM orders o JOIN customers c ON o.customer_id = c.id"

Totals: TypeAlias = dict[str, Decimal]
Look: TypeAlias = Callable[[], Iterator[Totals]]


def writer_of(region: str) -> int:
    return int(region.rpartition(" ")[2]) % WRITERS


def looks(store_url: str, schema: str, server: str) -> dict[str, Look]:
    """Each gives the view's totals by region, again and again."""

    def store() -> Iterator[Totals]:
        with psycopg.connect(store_url, autocommit=True) as connection:
            while True:
                statement = f"SELECT region, total FROM {schema}.revenue"
                yield dict(connection.execute(statement).fetchall())  # type: ignore[arg-type]
                time.sleep(STORE_LOOK_S)

    def pull() -> Iterator[Totals]:
        connection = http.client.HTTPConnection(server.removeprefix("http://"))
        while True:
            connection.request("GET", "/v1/views/revenue?limit=1000")
            answer = json.loads(connection.getresponse().read(), parse_float=Decimal)
            yield {row["region"]: Decimal(row["total"]) for row in answer["rows"]}
            time.sleep(HTTP_LOOK_S)

    def push() -> Iterator[Totals]:
        totals: Totals = {}
        for heard in Client(server).watch("revenue"):
            if heard.snapshot:
                totals.clear()
            totals.update({row["region"]: Decimal(row["total"]) for row in heard.rows})
            for row in heard.gone:
                totals.pop(row["region"], None)
            yield totals

    return {"store": store, "http": pull, "websocket": push}


class Phase:
    """Writers that keep a rate for a while, and everybody who looks, until all of them have seen all of it."""

    def __init__(self, url: str, rate: int, seconds: float) -> None:
        self.url, self.rate, self.seconds = url, rate, seconds
        self._own: dict[int, list[int]] = defaultdict(list)
        self._before: dict[int, Decimal] = defaultdict(Decimal)
        with psycopg.connect(url) as connection:
            for order, region, amount in connection.execute(OWN):
                self._own[writer_of(region)].append(order)
                self._before[writer_of(region)] += amount
        self._committed: dict[int, list[float]] = {writer: [] for writer in range(WRITERS)}
        self._ended = threading.Event()

    def run(self, looks: dict[str, Look]) -> dict[str, Any]:
        """Milliseconds from the return of a COMMIT to when an answer has it, and what rate there was."""
        seen: dict[str, dict[int, list[tuple[int, float]]]] = {name: defaultdict(list) for name in looks}
        looking = [
            threading.Thread(target=self._look, args=(look, seen[name]), daemon=True) for name, look in looks.items()
        ]
        writing = [threading.Thread(target=self._write, args=(writer,), daemon=True) for writer in range(WRITERS)]
        for thread in looking:
            thread.start()
        self._started = time.monotonic()
        for thread in writing:
            thread.start()
        for thread in writing:
            thread.join()
        written_s = time.monotonic() - self._started
        self._ended.set()
        for thread in looking:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "a change is not seen"
        changes = sum(map(len, self._committed.values()))
        rate = {"asked_per_s": self.rate, "written_per_s": round(changes / written_s, 1), "changes": changes}
        held = changes / written_s >= HELD * self.rate
        return {**rate, "held": held, **{name: quantiles(self._waits(each)) for name, each in seen.items()}}

    def _write(self, writer: int) -> None:
        draw = random.Random(writer)
        with psycopg.connect(self.url, autocommit=True) as connection:
            for number in range(writer, int(self.rate * self.seconds), WRITERS):
                time.sleep(max(0.0, self._started + number / self.rate - time.monotonic()))
                order = draw.choice(self._own[writer])
                connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (order,))
                self._committed[writer].append(time.monotonic())

    def _look(self, look: Look, seen: dict[int, list[tuple[int, float]]]) -> None:
        for totals in look():
            at, sums = time.monotonic(), dict.fromkeys(range(WRITERS), Decimal())
            for region, total in totals.items():
                sums[writer_of(region)] += total
            for writer, total in sums.items():
                count = int(total - self._before[writer])
                if not seen[writer] or seen[writer][-1][0] < count:
                    seen[writer].append((count, at))
            if self._ended.is_set() and all(
                seen[writer][-1][0] >= len(commits) for writer, commits in self._committed.items()
            ):
                return

    def _waits(self, seen: dict[int, list[tuple[int, float]]]) -> list[float]:
        waits = []
        for writer, commits in self._committed.items():
            for (before, _), (count, at) in pairwise(((0, 0.0), *seen[writer])):
                # An answer may have a commit whose return the writer has not noticed yet.
                waits += [max(0.0, at - commits[place]) * 1_000 for place in range(before, count)]
        return waits


def quantiles(waits: list[float]) -> dict[str, int]:
    waits = sorted(waits)
    return {f"p{q}": round(waits[int(len(waits) * q / 100)]) for q in (50, 99)}
