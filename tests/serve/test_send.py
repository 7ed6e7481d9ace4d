"""Events in and out: written wholly and once, heard by whoever tails the topic."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from millrace import local
from millrace.config import Settings
from millrace.log import Log
from millrace.log.record import Record, record_of
from millrace.serve import handlers, push
from millrace.serve import tail as tails
from tests.command import environ, until
from tests.serve.world import World, serving

pytestmark = pytest.mark.server

AT = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def world(settings: Settings, postgres: str) -> Iterator[World]:
    with serving(settings) as found:
        yield found


def order(number: int, region: str = "north") -> dict[str, Any]:
    return {"id": number, "region": region, "amount": "12.50", "at": AT}


def records(world: World, topic: str = "orders") -> list[Any]:
    return [record.json() for record in world.log.read(topic)]


def come(world: World, topic: str, count: int) -> list[Record]:
    """What is written is answered when its transaction is committed; readers see it a moment later."""
    until(lambda: len(list(world.log.read(topic))) >= count, f"{count} records of {topic}")
    return list(world.log.read(topic))


def test_events_are_written_with_their_key(world: World) -> None:
    answer = world.post("/v1/topics/orders", [order(1), order(2, "south")])
    assert answer.status_code == 200, answer.text
    assert (answer.json()["written"], answer.json()["repeated"]) == (2, False)
    found = come(world, "orders", 2)
    assert {(record.key, record.json()["id"]) for record in found} == {(b"north", 1), (b"south", 2)}
    assert world.post("/v1/topics/notes", {"text": "ü"}).status_code == 200
    assert [(record.key, record.json()) for record in come(world, "notes", 1)] == [(None, {"text": "ü"})]


def test_all_of_a_request_or_nothing(world: World) -> None:
    before = records(world)
    answer = world.post("/v1/topics/orders", [order(3), {**order(4), "amount": "many"}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "MR-EVENT-UNFIT")
    assert "event 2" in answer.json()["error"]["what"]
    assert records(world) == before
    for topic in ("large", "revenue", "nothing", "_millrace.serve.keys", "__consumer_offsets"):
        assert world.post(f"/v1/topics/{topic}", order(5)).status_code == 404, topic


def test_the_same_key_writes_once(world: World) -> None:
    key = {"Idempotency-Key": "k-1"}
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: answers.append(world.post("/v1/topics/orders", order(6), **key)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answer.json()["repeated"] for answer in answers) == [False] + [True] * 7
    until(lambda: any(row["id"] == 6 for row in records(world)), "the event")
    assert sum(row["id"] == 6 for row in records(world)) == 1
    other = world.post("/v1/topics/orders", order(7), **key)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "MR-IDEMPOTENCY-KEY-REUSED")
    assert world.post("/v1/topics/notes", {"text": "x"}, **key).json()["repeated"] is False  # another topic's
    for name, status in (("a b", 200), ("x" * 200, 200), ("x" * 201, 400), ("", 400), ("a\tb", 400)):
        assert world.post("/v1/topics/notes", {"text": "x"}, **{"Idempotency-Key": name}).status_code == status, name
        assert bool(re.search(f"^{handlers.KEY}$", name)) == (status == 200), "as OpenAPI says"


def test_a_record_that_is_too_large_says_so(world: World) -> None:
    world.log.topics.ensure("notes")
    answer = world.post("/v1/topics/notes", {"text": "x" * 1_048_400})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "MR-RECORD-TOO-LARGE"), answer.text


def test_a_tail_hears_what_comes_and_goes_on_where_it_was(world: World) -> None:
    with world.watch("/v1/topics/notes") as client:
        assert client.hear()["type"] == "begin"
        world.post("/v1/topics/notes", {"text": "one"})
        assert client.hear()["records"][0]["value"] == {"text": "one"}
        after = client.after
    world.post("/v1/topics/notes", [{"text": "two"}, {"text": "three"}])
    with world.watch(f"/v1/topics/notes?after={after}") as client:
        heard: list[str] = []
        while len(heard) < 2:
            heard += [record["value"]["text"] for record in client.hear().get("records", ())]
        assert sorted(heard) == ["three", "two"]
    world.log.write("notes", b"\xff no JSON")
    with world.watch(f"/v1/topics/notes?after={client.after}") as client:
        while not client.heard or not client.heard[-1].get("records"):
            client.hear()
        assert client.heard[-1]["records"][0]["value"] == "\ufffd no JSON"


def test_a_tail_goes_on_when_reading_begins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a gap nor a repetition, of a topic that is remembered from its beginning."""
    world.log.topics.ensure("orders")
    failed: list[str] = []

    def once(*given: Any) -> Any:
        if not failed:
            failed.append("reading fails")
            raise RuntimeError(failed[0])
        return record_of(*given)

    with world.watch("/v1/topics/orders") as client:
        assert client.hear()["type"] == "begin"
        world.post("/v1/topics/orders", order(100))
        while not client.hear().get("records"):
            pass
        monkeypatch.setattr(tails, "record_of", once)
        world.post("/v1/topics/orders", order(101))
        while len(heard := [each["value"]["id"] for each in _records(client.heard)]) < 2:
            client.hear()
        assert heard == [100, 101]
    assert failed
    assert [each["type"] for each in client.heard].count("begin") == 2
    assert "gap" not in [each["type"] for each in client.heard]


def _records(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record for message in messages for record in message.get("records", ())]


def test_a_topic_that_is_not_read_yet_is_not_called_a_view(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "READY_S", 0.0)
    world.log.topics.ensure("large")
    with pytest.raises(InvalidStatus) as refused:
        world.watch("/v1/topics/large")
    assert refused.value.response.status_code == 503
    assert json.loads(refused.value.response.body)["error"]["code"] == "MR-TAIL-UNREADY"


SERVER = """
import sys
from millrace import config
from millrace.config import Listen
from millrace.serve.server import Server
from tests.serve.world import shop
settings = config.load()
server = Server(settings, shop().graph(), Listen("127.0.0.1", int(sys.argv[1])))
print(server.address, flush=True)
server.run()
"""


def test_a_key_is_known_after_kill_9(world: World, folder: Path, postgres: str) -> None:
    """A server is killed again and again while events are sent to it with keys; each is there once in the end."""
    (folder / "millrace.toml").write_text(
        f'prefix = "{world.settings.prefix}k"\n[kafka]\nbootstrap = "{local.address(world.settings, "kafka")}"\n'
        f'[views]\nurl = "{postgres}"\n'
    )
    log = Log(replace(world.settings, prefix=f"{world.settings.prefix}k"))
    sent, port = 0, 0
    for life in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            env=environ({"PYTHONPATH": os.pathsep.join(sys.path)}),
        ) as process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            port = int(address.rpartition(":")[2])
            until(partial(_answers, f"{address}/health"), "the server", 60)
            killed = threading.Timer(0.3 + 0.4 * life, process.send_signal, (signal.SIGKILL,))
            for attempt in range(200):
                number = sent + attempt
                if attempt == 1:
                    killed.start()
                if not _sent(address, number):
                    break
            killed.join()
            assert number > sent, "some were sent before the kill"
            sent = number  # the last is sent again, to the next server
    with serving(world.settings, world.app, prefix=f"{world.settings.prefix}k") as after:
        for again in range(sent + 1):
            answer = after.post("/v1/topics/orders", order(again), **{"Idempotency-Key": f"n{again}"})
            assert answer.status_code == 200
    # What the last one left open is ended by the broker, after a while: another address took its place.
    until(lambda: len(list(log.read("orders"))) > sent, "all can be read", 60)
    assert sorted(record.json()["id"] for record in log.read("orders")) == list(range(sent + 1))


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _sent(address: str, number: int) -> bool:
    try:
        headers = {"Idempotency-Key": f"n{number}"}
        headers["Content-Type"] = "application/json"
        answer = httpx.post(
            f"{address}/v1/topics/orders", content=json.dumps(order(number)), headers=headers, timeout=30
        )
    except httpx.HTTPError:
        return False
    assert answer.status_code == 200, answer.text
    return bool(json.loads(answer.text))
