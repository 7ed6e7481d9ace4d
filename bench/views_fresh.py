"""How long a commit takes to be seen in a view: in the view store, by HTTP, and on a WebSocket.

Each writer adds 1 to amounts of orders of its own regions, one order a commit. So the sum over its regions says how
many of its commits an answer holds, exactly, whatever else the answer says of itself.

The writers are a process of their own: one that looks, and one that writes, would wait for each other. What they can do
while nothing else runs is measured too (`alone`), so that a rate that they do not hold is told from one that is too
much for them. A commit is one row: with a hundred rows a commit a view takes more changes a second (`change`).
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

import psycopg

from millrace.client import Client

WRITERS = 4
LIMIT_S = 300.0
# Writers that are behind their rate give up after so many times as long as they should take.
MOST_TIMES = 3.0
# How long it is measured what the writers can do, at a rate that they do not have to wait for.
ALONE_S, UNLIMITED = 3.0, 1_000_000.0
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


def commits(
    url: str, own: Mapping[int, list[int]], rate: float, seconds: float, most_s: float
) -> dict[int, list[float]]:
    """When each COMMIT of each writer returned: one row each, at an even rate of all of them together."""
    started = time.monotonic()

    def write(writer: int) -> list[float]:
        draw, returned = random.Random(writer), []
        with psycopg.connect(url, autocommit=True) as connection:
            for number in range(writer, int(rate * seconds), WRITERS):
                time.sleep(max(0.0, started + number / rate - time.monotonic()))
                if time.monotonic() - started > most_s:
                    break
                order = draw.choice(own[writer])
                connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (order,))
                returned.append(time.monotonic())
        return returned

    with ThreadPoolExecutor(WRITERS) as threads:
        return dict(enumerate(threads.map(write, range(WRITERS))))


def in_a_process(*arguments: Any) -> dict[int, list[float]]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(commits, *arguments).result()


def alone(url: str, seconds: float = ALONE_S) -> float:
    """Commits a second of writers that do not wait, with nobody else there."""
    with psycopg.connect(url) as connection:
        own, _ = owned(connection)
    return per_s(in_a_process(url, own, UNLIMITED, seconds, seconds), UNLIMITED)


def per_s(committed: Mapping[int, list[float]], rate: float) -> float:
    """From the first commit to the last; but in no less than the rate allows."""
    times = sorted(each for commits in committed.values() for each in commits)
    return round(len(times) / max(times[-1] - times[0], len(times) / rate), 1) if times else 0.0


def owned(connection: psycopg.Connection[Any]) -> tuple[dict[int, list[int]], dict[int, Decimal]]:
    """The orders of each writer, and what their amounts are together."""
    own: dict[int, list[int]] = defaultdict(list)
    before: dict[int, Decimal] = defaultdict(Decimal)
    for order, region, amount in connection.execute(OWN):
        own[writer_of(region)].append(order)
        before[writer_of(region)] += amount
    return own, before


class Phase:
    """Writers that keep a rate for a while, and everybody who looks, until all of them have seen all of it, or have
    waited too long."""

    def __init__(self, url: str, rate: int, seconds: float, limit_s: float = LIMIT_S) -> None:
        self.url, self.rate, self.seconds, self.limit_s = url, rate, seconds, limit_s
        with psycopg.connect(url) as connection:
            self._own, self._before = owned(connection)
        self._committed: dict[int, list[float]] = {}
        self._ended, self._given_up = threading.Event(), threading.Event()

    def run(self, looks: dict[str, Look]) -> dict[str, Any]:
        """Milliseconds from the return of a COMMIT to when an answer has it, and what rate there was. A rate is held if
        it was written, and then seen by all."""
        seen: dict[str, dict[int, list[tuple[int, float]]]] = {name: defaultdict(list) for name in looks}
        looking = [
            threading.Thread(target=self._look, args=(look, seen[name]), daemon=True) for name, look in looks.items()
        ]
        for thread in looking:
            thread.start()
        self._committed = in_a_process(self.url, self._own, self.rate, self.seconds, MOST_TIMES * self.seconds)
        self._ended.set()
        deadline = time.monotonic() + self.limit_s
        for thread in looking:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._given_up.set()
        until = time.monotonic()
        changes, written = sum(map(len, self._committed.values())), per_s(self._committed, self.rate)
        unseen = {name: changes - self._known(each) for name, each in seen.items()}
        held = written >= HELD * self.rate and not any(unseen.values())
        rate = {"asked_per_s": self.rate, "written_per_s": written, "changes": changes, "held": held}
        told = {name: quantiles(self._waits(each, until)) for name, each in seen.items()}
        return {**rate, **({"unseen": unseen} if any(unseen.values()) else {}), **told}

    def _known(self, seen: Mapping[int, list[tuple[int, float]]]) -> int:
        return sum(seen[writer][-1][0] for writer in self._committed if seen.get(writer))

    def _look(self, look: Look, seen: dict[int, list[tuple[int, float]]]) -> None:
        for totals in look():
            at, sums = time.monotonic(), dict.fromkeys(range(WRITERS), Decimal())
            if self._given_up.is_set():
                return
            for region, total in totals.items():
                sums[writer_of(region)] += total
            for writer, total in sums.items():
                count = int(total - self._before[writer])
                if not seen[writer] or seen[writer][-1][0] < count:
                    seen[writer].append((count, at))
            if self._ended.is_set() and self._known(seen) == sum(map(len, self._committed.values())):
                return

    def _waits(self, seen: Mapping[int, list[tuple[int, float]]], until: float) -> list[float]:
        """What was never seen has waited until the end, at the least."""
        waits = []
        for writer, commits in self._committed.items():
            told = [*seen.get(writer, ()), (len(commits), until)]
            for (before, _), (count, at) in pairwise(((0, 0.0), *told)):
                # An answer may have a commit whose return the writer has not noticed yet.
                waits += [max(0.0, at - commits[place]) * 1_000 for place in range(before, count)]
        return waits


def quantiles(waits: list[float]) -> dict[str, int]:
    waits = sorted(waits)
    return {f"p{q}": round(waits[int(len(waits) * q / 100)]) for q in (50, 99)}
