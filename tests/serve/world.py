"""A server of one app on the shared Kafka and PostgreSQL, and what its view's flow would write: changelog and marks.

The flow itself needs Spark and is proven elsewhere; what is served is read from what it leaves behind.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

import millrace as mr
from millrace.config import Listen, Serve, Settings
from millrace.engine.applying import Applying
from millrace.log import Log
from millrace.serve.server import Server
from millrace.views.changelog import AFTER, Mark, lsn_text, marks_topic
from tests.command import until

_numbers = itertools.count(1)
LIMIT_S = 60.0
LOOPBACK = Listen("127.0.0.1", 0)


def shop() -> mr.App:
    """Of each region how many orders and how much; and a view with a key of two columns."""
    app = mr.App("shop")
    schema = "id long not null, region string, city string, amount decimal(12,2), at timestamp"
    orders = app.topic("orders", schema, time="at", lateness="10 seconds", key="region")
    app.topic("notes", "text string")
    app.view(
        "revenue",
        key="region",
        sql="SELECT region, count(*) AS orders, sum(amount) AS total, max(at) AS latest FROM orders GROUP BY region",
    )
    app.view("cities", key=("region", "city"), sql="SELECT region, city, count(*) AS n FROM orders GROUP BY 1, 2")
    # Columns that are called like what our own SQL calls its tables.
    app.view(
        "odd", key="t", sql="SELECT region AS t, count(*) AS r, count(*) AS k, count(*) AS c FROM orders GROUP BY 1"
    )
    app.view("empty", key="region", sql="SELECT region, count(*) AS n FROM orders GROUP BY region")

    @app.stream(orders)
    def large(o: Any) -> Any:
        return o.where("amount > 100")

    return app


@dataclass
class Written:
    """A view's changelog and marks, as its flow writes them, and the thread that applies them to the store."""

    log: Log
    app: mr.App
    name: str
    epoch: int = -1
    lsn: int = 0x16E8F58
    database: str | None = "shop"
    applying: Applying | None = None

    def begin(self) -> Written:
        self.log.topics.ensure(self.name, partitions=2, compact=True)
        self.log.topics.ensure(marks_topic(self.name), partitions=1, compact=True)
        self.apply()
        return self

    def apply(self) -> None:
        view = next(each for each in self.app.graph().views if each.name == self.name)
        assert view.plan is not None
        self.applying = Applying(view, view.plan, self.log, self.app.graph().app)
        self.applying.start()

    def write(self, *rows: Mapping[str, Any], gone: tuple[Mapping[str, Any], ...] = (), whole: bool = True) -> str:
        """One epoch. Returns the LSN that it reaches."""
        view = next(each for each in self.app.graph().views if each.name == self.name)
        before, self.lsn, self.epoch = self.lsn, self.lsn + 0x100, self.epoch + 1
        with self.log.writer(self.name) as writer:
            for row in (*rows, *gone):
                key = json.dumps({name: row[name] for name in view.key}, separators=(",", ":"))
                source = {"lsn": self.lsn, "ts_ms": 0}
                change = {"op": "u", "after": row, "source": source}
                value = None if row in gone else json.dumps(change, separators=(",", ":"))
                writer.write(value, key=key, headers={AFTER: str(before)})
        ends = {number: last for number, (_, last) in self.log.topics.offsets(self.name).items()}
        mark = Mark(self.epoch, self.database, self.lsn, round(time.time() * 1000), ends, whole)
        self.log.write(marks_topic(self.name), mark.as_json(), key=self.name)
        return lsn_text(self.lsn)

    def applied(self) -> Written:
        assert self.applying is not None
        applying = self.applying
        until(lambda: not applying.busy, f"{self.name} is in the store")
        assert applying.trouble is None
        return self

    def end(self) -> None:
        if self.applying is not None:
            self.applying.end()
            self.applying.join(20)


@dataclass
class World:
    settings: Settings
    app: mr.App
    log: Log
    server: Server
    views: dict[str, Written] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return self.server.address

    def get(self, path: str, token: str | None = None, **options: Any) -> httpx.Response:
        headers = {**options.pop("headers", {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        return httpx.get(self.address + path, headers=headers, timeout=LIMIT_S, **options)

    def post(self, path: str, body: Any, token: str | None = None, **headers: str) -> httpx.Response:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        headers["Content-Type"] = "application/json"
        return httpx.post(self.address + path, content=json.dumps(body), headers=headers, timeout=LIMIT_S)

    def watch(self, path: str, **options: Any) -> Watching:
        uri = self.address.replace("http", "ws", 1) + path
        return Watching(uri, **options)


class Watching:
    """A client of a WebSocket, and the state that it keeps of what it hears."""

    def __init__(self, uri: str, **options: Any) -> None:
        with contextlib.ExitStack() as opening:
            context = connect(uri, compression=None, max_size=None, proxy=None, **options)
            self.connection: ClientConnection = opening.enter_context(context)
            self._open = opening.pop_all()
        self.after = ""
        self.rows: dict[str, Any] = {}
        self.heard: list[dict[str, Any]] = []

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def hear(self, key: tuple[str, ...] = ("region",)) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.connection.recv(LIMIT_S))
        self.heard.append(message)
        if message["type"] == "snapshot" and message["part"] == 1:
            self.rows.clear()
        for row in message.get("rows", ()):
            self.rows[_key(row, key)] = row
        for row in message.get("gone", ()):
            self.rows.pop(_key(row, key), None)
        self.after = message.get("after", self.after)
        return message

    def hear_all(self) -> None:
        """Until the server hangs up."""
        while True:
            self.hear()

    def until_lsn(self, lsn: str, key: tuple[str, ...] = ("region",)) -> Watching:
        """Hears until it is told of this position."""
        while not self.heard or self.heard[-1].get("position", {}).get("lsn") != lsn or "after" not in self.heard[-1]:
            self.hear(key)
        return self


def _key(row: Mapping[str, Any], key: tuple[str, ...]) -> str:
    return json.dumps([row[name] for name in key])


@contextlib.contextmanager
def serving(settings: Settings, app: mr.App | None = None, prefix: str | None = None, **serve: Any) -> Iterator[World]:
    """With a prefix of its own, unless one is given to go on with."""
    app = app or shop()
    own = replace(settings, prefix=prefix or f"serve{next(_numbers)}", serve=Serve(**serve))
    with served(own, app) as server:
        yield World(own, app, Log(own), server)


@contextlib.contextmanager
def served(settings: Settings, app: mr.App, listen: Listen = LOOPBACK) -> Iterator[Server]:
    server = Server(settings, app.graph(), listen)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the server", LIMIT_S)
        yield server
    finally:
        server.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


@contextlib.contextmanager
def written(world: World, *names: str) -> Iterator[dict[str, Written]]:
    found = {name: Written(world.log, world.app, name).begin() for name in names}
    try:
        yield found
    finally:
        for each in found.values():
            each.end()


def no_tokens(folder: Path) -> dict[str, Any]:
    return {"tokens": folder / "tokens.json"}
