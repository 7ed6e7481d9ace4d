"""Views, pushed: a snapshot, then changes; whoever was away misses nothing and hears nothing twice."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from millrace.client import Client
from millrace.config import Settings
from millrace.errors import ServeRefused
from millrace.serve import fanout, feed, push, sockets
from millrace.views.changelog import marks_topic
from tests.command import until
from tests.serve.world import Watching, World, Written, served, serving, written

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def world(settings: Settings, postgres: str) -> Iterator[World]:
    with serving(settings) as found, written(found, "revenue", "cities") as found.views:
        found.views["revenue"].write(revenue("north", 1), revenue("south", 2))
        found.views["cities"].write({"region": "north", "city": "x", "n": 0})
        for each in found.views.values():
            each.applied()
        yield found


def revenue(region: str, orders: int) -> dict[str, Any]:
    return {"region": region, "orders": orders, "total": orders, "latest": None}


def pulled(world: World, view: str = "revenue") -> dict[str, Any]:
    rows = world.get(f"/v1/views/{view}?limit=10000").json()["rows"]
    return {json.dumps([row["region"]]): row for row in rows}


def test_a_snapshot_then_changes(world: World) -> None:
    view = world.views["revenue"]
    with world.watch("/v1/views/revenue/changes") as client:
        first = client.hear()
        assert (first["type"], first["last"], first["part"]) == ("snapshot", True, 1)
        assert client.rows == pulled(world)
        lsn = view.write(revenue("north", 10), revenue("east", 5), gone=(revenue("south", 2),))
        message = client.until_lsn(lsn).heard[-1]
        assert message["type"] == "changes"
        assert {row["region"] for row in message["rows"]} == {"north", "east"}
        assert message["gone"] == [{"region": "south"}]
        view.applied()
        assert client.rows == pulled(world)  # and they look alike


def test_who_was_away_misses_nothing_and_hears_nothing_twice(world: World, settings: Settings) -> None:
    """Many short stays, in which a server may have taken another's place: what is heard of a counter has no gap."""
    view, chance = world.views["revenue"], random.Random(4)
    heard: list[int] = []
    after, rows = "", {}
    count = 0
    for stay in range(12):
        if stay % 4 == 3:
            with served(world.settings, world.app) as other:
                path = other.address.replace("http", "ws", 1)
                after, rows, count = _stay(view, heard, after, rows, count, chance, path)
        else:
            after, rows, count = _stay(view, heard, after, rows, count, chance, world.address.replace("http", "ws", 1))
        for _ in range(chance.randrange(3)):
            count += 1
            view.write(revenue("counted", count))
    assert heard == sorted(set(heard)), "nothing twice, and in order"
    view.applied()
    with world.watch(f"/v1/views/revenue/changes?after={after}") as client:
        client.rows = rows
        while client.rows != pulled(world):
            client.hear()
        assert all(message["type"] == "changes" for message in client.heard)


def _stay(
    view: Written, heard: list[int], after: str, rows: dict[str, Any], count: int, chance: random.Random, address: str
) -> tuple[str, dict[str, Any], int]:
    path = "/v1/views/revenue/changes" + (f"?after={after}" if after else "")
    with Watching(address + path) as client:
        client.rows = dict(rows)
        lsn = ""
        for _ in range(1 + chance.randrange(4)):
            count += 1
            lsn = view.write(revenue("counted", count))
        client.until_lsn(lsn)
        for message in client.heard:
            assert message["type"] == "changes" or not after, "`after` is enough to go on"
            if message["type"] == "changes":
                heard += [row["orders"] for row in message["rows"] if row["region"] == "counted"]
        return client.after, client.rows, count


def test_a_filter_hears_of_rows_that_come_and_go(world: World) -> None:
    view = world.views["cities"]
    key = ("region", "city")
    with (
        world.watch("/v1/views/cities/changes?region=north") as by_key,
        world.watch("/v1/views/cities/changes?n=7") as by_value,
    ):
        by_key.hear(key)
        by_value.hear(key)
        assert by_value.rows == {}
        view.write({"region": "north", "city": "y", "n": 7}, {"region": "south", "city": "y", "n": 7})
        lsn = view.write({"region": "north", "city": "y", "n": 8}, {"region": "south", "city": "z", "n": 1})
        view.write({"region": "south", "city": "q", "n": 1})
        view.write({"region": "north", "city": "end", "n": 7})
        while '["north", "end"]' not in by_key.rows or '["north", "end"]' not in by_value.rows:
            for each in (by_key, by_value):
                if '["north", "end"]' not in each.rows:
                    each.hear(key)
        assert set(by_key.rows) == {'["north", "x"]', '["north", "y"]', '["north", "end"]'}
        assert set(by_value.rows) == {'["south", "y"]', '["north", "end"]'}
        assert not any(row["region"] == "south" for each in by_key.heard for row in each.get("gone", ()))
        assert lsn
    with pytest.raises(InvalidStatus) as refused:
        world.watch(f"/v1/views/cities/changes?region=south&after={by_key.after}")
    assert json.loads(refused.value.response.body)["error"]["code"] == "MR-REQUEST-INVALID"
    for wrong in ("colour=red", "n=many", "after=nonsense"):
        with pytest.raises(InvalidStatus) as refused:
            world.watch(f"/v1/views/cities/changes?{wrong}")
        assert refused.value.response.status_code == 400


def test_who_was_away_for_too_long_begins_with_a_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    view = world.views["revenue"]
    with world.watch("/v1/views/revenue/changes") as client:
        client.hear()
    monkeypatch.setattr(fanout, "MEMORY_RECORDS", 2)
    for number in range(6):
        lsn = view.write(revenue("memory", number))
    view.applied()
    with world.watch("/v1/views/revenue/changes") as other:
        other.until_lsn(lsn)
    with world.watch(f"/v1/views/revenue/changes?after={client.after}") as again:
        assert again.hear()["type"] == "snapshot"
        again.until_lsn(lsn)
        assert again.rows == pulled(world)


def test_more_at_once_than_is_remembered_is_told_as_a_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    view = world.views["revenue"]
    with world.watch("/v1/views/revenue/changes") as client:
        client.hear()
        monkeypatch.setattr(feed, "MEMORY_RECORDS", 2)
        lsn = view.write(*(revenue(f"many {number}", number) for number in range(5)))
        client.until_lsn(lsn)
        assert client.heard[-1]["type"] == "snapshot"
        view.applied()
        assert client.rows == pulled(world)


def test_a_view_too_large_for_a_snapshot_is_refused_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "SNAPSHOT_ROWS", 1)
    with world.watch("/v1/views/revenue/changes") as client, pytest.raises(ConnectionClosed) as closed:
        client.hear_all()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4413, "MR-SNAPSHOT-TOO-LARGE")
    with pytest.raises(ServeRefused, match="4413: MR-SNAPSHOT-TOO-LARGE"):
        next(Client(world.address).watch("revenue"))


def test_a_client_that_does_not_read_is_dropped_with_a_reason_and_slows_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "BACKLOG_BYTES", 64 * 1024)
    view = world.views["revenue"]
    with world.watch("/v1/views/revenue/changes") as well, stalled(world) as slow:
        well.hear()
        text = "x" * 100_000
        before = world.get("/metrics").text
        for number in range(40):
            lsn = view.write(revenue(text, number))
            well.until_lsn(lsn)
            if _dropped(world) > _dropped_in(before):
                break
        until(lambda: _dropped(world) > _dropped_in(before), "it is dropped", 30)
        well.until_lsn(view.write(revenue("after", 1), gone=(revenue(text, 0),)))
        rest = bytearray()
        while part := slow.recv(1 << 20):
            rest += part
        assert b"bytes were waiting to be taken" in rest[-200:]


def _dropped(world: World) -> int:
    return _dropped_in(world.get("/metrics").text)


def _dropped_in(text: str) -> int:
    lines = [line for line in text.splitlines() if line.startswith("millrace_serve_dropped_sockets_total")]
    return sum(int(line.rpartition(" ")[2]) for line in lines)


class stalled:  # noqa: N801 -- reads as a block
    """A client that says what it wants and then does not read."""

    def __init__(self, world: World) -> None:
        host, _, port = world.address.removeprefix("http://").rpartition(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(30)
        self._socket.connect((host, int(port)))
        self._socket.sendall(
            b"GET /v1/views/revenue/changes HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert self._socket.recv(100).startswith(b"HTTP/1.1 101")

    def __enter__(self) -> socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_a_client_has_nothing_to_say(world: World) -> None:
    with world.watch("/v1/views/revenue/changes") as client:
        client.hear()
        client.connection.send("hello")
        with pytest.raises(ConnectionClosed) as closed:
            client.hear_all()
        assert closed.value.rcvd is not None
        assert "nothing is expected" in closed.value.rcvd.reason


def test_one_consumer_is_enough_for_all(world: World) -> None:
    clients = [world.watch("/v1/views/revenue/changes") for _ in range(20)]
    for client in clients:
        client.hear()
    lsn = world.views["revenue"].write(revenue("all", 1))
    for client in clients:
        client.until_lsn(lsn)
    assert sum(thread.name == "feed revenue" for thread in threading.enumerate()) == 1
    for client in clients:
        client.close()


def test_a_view_that_is_defined_anew_begins_with_a_snapshot(world: World) -> None:
    """Last in this file: the view `cities` is another one afterwards."""
    view = world.views["cities"]
    with world.watch("/v1/views/cities/changes") as client:
        client.hear(("region", "city"))
        view.end()
        for topic in ("cities", marks_topic("cities")):
            world.log.topics.delete(topic)
        until(lambda: not world.log.topics.exists("cities"), "the topic is gone")
        until(lambda: not world.log.topics.exists(marks_topic("cities")), "the topic of marks is gone")
        view.epoch = -1
        view.begin()
        view.write({"region": "new", "city": "new", "n": 1})
        view.applied()
        client.heard.clear()
        while client.rows != {'["new", "new"]': {"region": "new", "city": "new", "n": 1}}:
            client.hear(("region", "city"))
        assert "snapshot" in [message["type"] for message in client.heard]
