"""A view in real time, pushed: tentative rows at once, then what is certain; and all anew if it never was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

import millrace as mr
from millrace.client import Client
from millrace.config import Settings
from millrace.views.changelog import tentative_topic
from millrace.views.store import Store
from millrace.views.tentative import TENTATIVE
from millrace.views.watching import watched
from tests.command import until
from tests.serve.world import World, Written, serving

pytestmark = pytest.mark.server


@dataclass
class Live(Written):
    """Its flow tells rows of the epoch after the last mark, as one incarnation or another."""

    incarnation: int = 1

    def tell(self, *rows: dict[str, Any], gone: tuple[str, ...] = ()) -> None:
        headers = {TENTATIVE: f"{self.incarnation} {self.epoch + 1}"}
        with self.log.writer(tentative_topic(self.name)) as writer:
            for row in rows:
                value = _json({"op": "u", "after": row, "source": {}})
                writer.write(value, key=_json({"region": row["region"]}), headers=headers)
            for region in gone:
                writer.write(None, key=_json({"region": region}), headers=headers)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@pytest.fixture
def world(settings: Settings, postgres: str) -> Iterator[World]:
    app = mr.App("live")
    app.topic("orders", "region string, amount long")
    sql = "SELECT region, count(*) AS orders FROM orders GROUP BY region"
    app.view("revenue", key="region", sql=sql, mode="realtime")
    with serving(settings, app) as found:
        found.log.topics.ensure(tentative_topic("revenue"), partitions=2)
        live = Live(found.log, app, "revenue")
        live.begin()
        found.views["revenue"] = live
        live.write(row("north", 1), row("south", 2))
        live.applied()
        yield found
        live.end()


def row(region: str, orders: int) -> dict[str, Any]:
    return {"region": region, "orders": orders}


def orders(rows: Any) -> dict[str, int]:
    return {each["region"]: each["orders"] for each in rows}


def pulled(world: World) -> tuple[dict[str, int], int]:
    answer = world.get("/v1/views/revenue").json()
    return orders(answer["rows"]), answer["position"].get("tentative", 0)


def test_tentative_rows_come_at_once_and_again_when_they_are_certain(world: World) -> None:
    live = world.views["revenue"]
    assert isinstance(live, Live)
    with world.watch("/v1/views/revenue/changes") as client:
        assert client.hear()["type"] == "snapshot"
        live.tell(row("north", 3), gone=("south",))
        while orders(client.rows.values()) != {"north": 3}:
            assert client.hear()["type"] == "tentative"
        until(lambda: pulled(world) == ({"north": 3}, 2), "the store shows it too")
        # Who comes now has it behind the snapshot, whatever the store had shown by then; also with a filter.
        for path in ("", "?region=north"):
            with world.watch(f"/v1/views/revenue/changes{path}") as other:
                while orders(other.rows.values()) != {"north": 3}:
                    other.hear()
        lsn = live.write(row("north", 3), gone=(row("south", 2),))
        assert client.until_lsn(lsn).heard[-1]["type"] == "changes"
        assert client.heard[-1]["gone"] == [{"region": "south"}]
        assert orders(client.rows.values()) == {"north": 3}
        live.applied()
        assert pulled(world) == ({"north": 3}, 0)
    heard = Client(world.address).watch("revenue")
    first = next(heard)
    live.tell(row("east", 9))
    told = next(each for each in heard if each.rows)
    assert (told.tentative, orders(told.rows), told.position) == (True, {"east": 9}, first.position)


@pytest.mark.parametrize("speaks_first", [True, False])
def test_what_never_became_certain_is_taken_back(world: World, speaks_first: bool) -> None:
    live = world.views["revenue"]
    assert isinstance(live, Live)
    with world.watch("/v1/views/revenue/changes") as client:
        client.hear()
        live.tell(row("east", 7))
        while "east" not in orders(client.rows.values()):
            client.hear()
        # Its flow was killed. The next one has the epoch without that group, in real time or epoch by epoch.
        live.incarnation = 2
        if speaks_first:
            live.tell(row("north", 5))
        live.write(row("north", 5))
        while orders(client.rows.values()) != {"north": 5, "south": 2}:
            client.hear()
        assert "snapshot" in [each["type"] for each in client.heard[1:]]
    live.applied()
    until(lambda: pulled(world)[0] == {"north": 5, "south": 2}, "the store has it too")


def test_who_comes_first_is_told_of_rows_that_were_tentative_before(world: World) -> None:
    """The server heard nothing of them: nobody watched. They are in the store, and so in the snapshot."""
    live = world.views["revenue"]
    assert isinstance(live, Live)
    live.tell(row("east", 7))
    until(lambda: pulled(world) == ({"north": 1, "south": 2, "east": 7}, 1), "the store shows it")
    with world.watch("/v1/views/revenue/changes") as client:
        assert client.hear()["type"] == "snapshot"
        assert "east" in orders(client.rows.values())
        live.incarnation = 2
        live.write(row("north", 5))
        while orders(client.rows.values()) != {"north": 5, "south": 2}:
            client.hear()


def test_what_follows_a_changelog_begins_with_what_is_certain(world: World) -> None:
    live = world.views["revenue"]
    assert isinstance(live, Live)
    live.tell(row("east", 7), gone=("south",))
    until(lambda: pulled(world) == ({"north": 1, "east": 7}, 2), "the store shows it")
    with closing(watched(world.log, Store(world.settings, "live"), "revenue")) as changes:
        assert orders(json.loads(text) for text in next(changes).rows) == {"north": 1, "south": 2}
    answer = world.post("/v1/query", {"sql": "SELECT count(*) AS rows FROM revenue"}).json()
    assert answer["positions"]["revenue"]["tentative"] == 2
