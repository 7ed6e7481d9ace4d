"""The client for Python: it asks, sends once, and watches without a gap over restarts of the server."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millrace.client import Client
from millrace.config import Listen, Settings
from millrace.errors import RecordsMissed, ServeRefused, ServeUnreachable
from millrace.serve import fanout, sockets
from millrace.serve.figures import METRICS
from millrace.serve.tokens import Tokens
from tests.command import until
from tests.serve.world import World, served, serving, written

pytestmark = pytest.mark.server

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "serve.md"


@pytest.fixture(scope="module")
def world(settings: Settings, postgres: str) -> Iterator[World]:
    with serving(settings) as found, written(found, "revenue", "cities") as found.views:
        found.views["revenue"].write(row("north", 1), row(None, 2), {**row("south", 3), "total": 0.5})
        found.views["cities"].write({"region": "a/b", "city": "ü", "n": 1})
        for each in found.views.values():
            each.applied()
        yield found


def row(region: str | None, orders: int) -> dict[str, Any]:
    return {"region": region, "orders": orders, "total": orders, "latest": None}


def test_rows_and_queries(world: World) -> None:
    with Client(world.address) as client:
        found = client.rows("revenue", order="-orders", limit=2)
        assert ([each["region"] for each in found], found.more) == (["south", None], True)
        assert found[0]["total"] == Decimal("0.5")
        assert found.position is not None
        assert client.rows("revenue", {"region": None})[0]["orders"] == 2
        assert client.rows("revenue", {"orders": 1}, wait_for=found.position.lsn)[0]["region"] == "north"
        assert client.get("cities", "a/b", "ü") == {"region": "a/b", "city": "ü", "n": 1}
        assert client.get("revenue", "nowhere") is None
        assert client.query("SELECT count(*) AS n FROM revenue") == [{"n": 3}]
        with pytest.raises(ServeRefused, match="MR-VIEW-UNKNOWN"):
            client.rows("nothing")
        with pytest.raises(ServeRefused, match="MR-QUERY-REFUSED"):
            client.query("DELETE FROM revenue")


def test_events_are_sent_once(world: World) -> None:
    with Client(world.address) as client:
        event = {"id": 1, "region": "x", "amount": Decimal("1.10"), "at": "2026-01-01T00:00:00Z"}
        assert client.send("orders", event, key="k")["repeated"] is False
        assert client.send("orders", event, key="k")["repeated"] is True
        assert client.send("orders", [event, event])["written"] == 2
        with pytest.raises(ServeRefused, match="MR-EVENT-UNFIT"):
            client.send("orders", {"id": "x"})
    until(lambda: len(list(world.log.read("orders"))) > 2, "readers see what is committed")
    assert [record.json()["amount"] for record in world.log.read("orders")] == ["1.10"] * 3


def test_watching_goes_on_over_a_restart_of_the_server(world: World, settings: Settings) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = Listen("127.0.0.1", free.getsockname()[1])
    view = world.views["revenue"]
    counted: list[int] = []
    client = Client(f"http://{listen}")
    with served(world.settings, world.app, listen):
        watching = client.watch("revenue")
        first = next(watching)
        assert (first.snapshot, len(first.rows)) == (True, 3)
        view.write(row("count", 1))
        while counted[-1:] != [1]:
            counted += [each["orders"] for each in next(watching).rows if each["region"] == "count"]
    view.write(row("count", 2))
    with served(world.settings, world.app, listen):
        view.write(row("count", 3))
        while counted[-1:] != [3]:
            heard = next(watching)
            assert not heard.snapshot
            counted += [each["orders"] for each in heard.rows if each["region"] == "count"]
    # The second may have been told together with the third: of each key the last.
    assert counted in ([1, 2, 3], [1, 3])
    watching.close()  # type: ignore[attr-defined]


def test_what_is_refused_for_good_is_not_tried_again(
    settings: Settings, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("a", ["tail:notes"])
    with serving(settings, tokens=tokens.file) as world:
        world.log.topics.ensure("notes")
        with pytest.raises(ServeRefused, match="401"):
            next(Client(world.address).tail("notes"))
        tailing = Client(world.address, secret).tail("notes")
        heard = threading.Event()

        def write() -> None:
            while not heard.wait(0.2):  # a tail begins with what comes after it was opened
                world.log.write("notes", {"text": "x"})

        writing = threading.Thread(target=write)
        writing.start()
        assert next(tailing)["value"] == {"text": "x"}
        heard.set()
        writing.join()
        tokens.revoke("a")
        with pytest.raises(ServeRefused, match="4401"):
            list(tailing)
    monkeypatch.setattr("millrace.client._MOST_S", 0.3)
    with pytest.raises(ServeUnreachable):
        next(Client(world.address).tail("notes"))
    with pytest.raises(ServeUnreachable):
        Client(world.address).rows("revenue")
    assert secret not in repr(Client(world.address, secret))


def test_a_tail_does_not_hide_that_it_missed_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log.topics.ensure("notes")
    monkeypatch.setattr(fanout, "MEMORY_RECORDS", 1)
    with world.watch("/v1/topics/notes") as watching:
        first = watching.hear()
        for number in range(3):  # each heard, so that they are not remembered together
            world.log.write("notes", {"text": str(number)})
            while not watching.hear().get("records"):
                pass
    world.log.write("notes", {"text": "last"})
    tailing = Client(world.address).tail("notes", after=watching.after)
    assert next(tailing)["value"] == {"text": "last"}
    with pytest.raises(RecordsMissed, match="'notes' were missed"):
        next(Client(world.address).tail("notes", after=first["after"]))


def test_the_guide_names_the_codes_of_a_close() -> None:
    listed = {int(code) for code in re.findall(r"^\| (4\d\d\d) \|", GUIDE.read_text("utf-8"), re.M)}
    known = {sockets.UNWELCOME, sockets.REVOKED, sockets.TOO_SLOW, sockets.TOO_LARGE, sockets.BEHIND}
    assert listed == known


def test_the_guide_names_the_metrics_that_there_are() -> None:
    listed = dict(re.findall(r"^\| `(millrace_serve_\w+)` \| (counter|gauge) \|", GUIDE.read_text("utf-8"), re.M))
    assert listed == {metric.name: metric.kind for metric in METRICS}
