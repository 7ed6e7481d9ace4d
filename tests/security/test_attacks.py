"""Injection in every parameter, bodies without end, connections in drips, made-up requests; nothing is told of it."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import sampled_from
from websockets.exceptions import ConnectionClosed, InvalidStatus

from millrace.config import Endpoint, Secret, Settings
from millrace.serve import handlers, resume, sockets, waiting
from millrace.serve.epochs import Filter
from millrace.serve.routes import described
from millrace.serve.tokens import Tokens
from tests.command import until
from tests.rotation import todays
from tests.serve.world import World, serving, written

pytestmark = pytest.mark.server

CANARY = "canary-51c0ffee"
INJECTIONS = (
    "'", '"', "' OR '1'='1", "1; DROP TABLE revenue", "north'; DROP TABLE revenue --", "\\", "%s", "%(x)s", "{}", "$1",
    "north\x00", "%00", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "\r\nX-Evil: 1", "\u202e", "𝕏" * 50, "A" * 8_000,
    "NULL", "true", "-1", "1e309", "NaN", "0x10", "(SELECT 1)", "pg_sleep(10)", "region", "*", "revenue",
)  # fmt: skip


@pytest.fixture(scope="module")
def world(settings: Settings, postgres: str) -> Iterator[World]:
    with serving(settings, requests_per_s=100_000) as found, written(found, "revenue") as found.views:
        found.views["revenue"].write({"region": "north", "orders": 1, "total": 1, "latest": None})
        found.views["revenue"].applied()
        yield found
        whole = found.get("/v1/views/revenue").json()["rows"]
        assert [row["region"] for row in whole] == ["north"], "and nothing has changed"


@dataclass
class Guarded:
    """A server with tokens: one that may do everything, and one that may do something else."""

    world: World
    mighty: str
    other: str


@pytest.fixture(scope="module")
def guarded(settings: Settings, postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    tokens = Tokens(tmp_path_factory.mktemp("tokens") / "tokens.json")
    mighty = tokens.create("mighty", ["view:*", "send:*", "tail:*", "query", "status"])
    other = tokens.create("other", ["view:nothing"])
    with serving(settings, tokens=tokens.file) as found, written(found, "revenue") as found.views:
        found.views["revenue"].write({"region": "north", "orders": 1, "total": 1, "latest": None})
        found.views["revenue"].applied()
        yield Guarded(found, mighty, other)


def test_injection_in_every_parameter(world: World) -> None:
    parameters = ("region", "orders", "latest", "order", "limit", "null", "wait_for", "wait_s", "colour")
    with httpx.Client(base_url=world.address, timeout=30) as client:
        for text in INJECTIONS:
            written = quote(text, safe="")
            paths = [f"/v1/views/revenue?{name}={written}" for name in parameters]
            paths += [f"/v1/views/revenue?{written}=1", f"/v1/views/{written}", f"/v1/views/revenue/{written}"]
            for path in paths:
                answer = client.get(path)
                assert answer.status_code in (200, 400, 404), (path, answer.text)
                if answer.status_code == 200:
                    rows = answer.json().get("rows", [])
                    assert rows in ([], [world.get("/v1/views/revenue").json()["rows"][0]]), path
                else:
                    assert answer.json()["error"]["code"].startswith("MR-"), path
                    assert "Traceback" not in answer.text
            assert client.post(f"/v1/topics/{written}", json={"a": 1}).status_code in (400, 404, 422)
            answer = client.post("/v1/query", json={"sql": text})
            assert answer.status_code == (200 if text == "(SELECT 1)" else 400), (text, answer.text)
            header = "".join(letter for letter in text if " " <= letter <= "~")[:200]
            answer = client.post("/v1/topics/notes", json={"text": text}, headers={"Idempotency-Key": header})
            assert answer.status_code in ((200, 409) if header.strip() else (400,)), (text, answer.text)


def test_injection_in_websockets(world: World) -> None:
    for text in INJECTIONS:
        written = quote(text, safe="")
        for path in (
            f"/v1/views/revenue/changes?orders={written}",
            f"/v1/views/revenue/changes?after={written}",
            f"/v1/views/revenue/changes?null={written}",
            f"/v1/views/revenue/changes?{written}=1",
            f"/v1/views/{written}/changes",
            f"/v1/topics/{written}",
        ):
            status = watched(world, path)
            assert status in ((101, 400) if path.startswith("/v1/views/revenue/") else (400, 403, 404)), path


def test_injection_in_the_tail_of_a_topic(world: World) -> None:
    world.log.topics.ensure("notes")
    with world.watch("/v1/topics/notes") as well:
        own, _ = resume.place(well.hear()["after"], None)
        for text in INJECTIONS:
            written = quote(text, safe="")
            for path in (f"/v1/topics/notes?after={written}", f"/v1/topics/notes?{written}=1"):
                assert told(world, path) == "400", path
        view = resume.after(own, {0: 0}, Filter())
        assert told(world, f"/v1/topics/notes?after={view}") == "400"
        # Made up by somebody who knows how they are made: places that are none, and those of other topics.
        for topic in ("", own, "another", "' OR '1'='1"):
            for ends in ({}, {0: 10**30}, {10**9: 0}, dict.fromkeys(range(200), 0)):
                path = f"/v1/topics/notes?after={resume.after(topic, ends, None)}"
                assert told(world, path) in (("begin", "400") if topic == own else ("gap", "400")), path
        world.log.write("notes", {"text": "as ever"})
        while not (records := well.hear().get("records")):
            pass
        assert [each["value"] for each in records] == [{"text": "as ever"}]


def told(world: World, path: str) -> str:
    """What a WebSocket hears first, or the status by which it was refused."""
    try:
        with world.watch(path) as client:
            return str(client.hear()["type"])
    except InvalidStatus as refused:
        body = bytes(refused.response.body or b"").decode()
        return str(refused.response.status_code) if "MR-" in body else body


def watched(world: World, path: str) -> int:
    """What a WebSocket is answered; of one that is opened, that it tells nothing but rows of the view."""
    try:
        with world.watch(path) as client:
            assert all(row["region"] == "north" for row in client.hear()["rows"])
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_huge_bodies_are_not_taken(world: World) -> None:
    large = b'{"text": "' + b"x" * handlers.BODY_BYTES + b'"}'
    kind = {"Content-Type": "application/json"}
    answer = httpx.post(f"{world.address}/v1/topics/notes", content=large, headers=kind)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "MR-BODY-TOO-LARGE")

    def parts() -> Iterator[bytes]:
        for _ in range(2_000):
            yield b"x" * 10_000

    try:  # without a length it is read as far as we are willing to
        answer = httpx.post(f"{world.address}/v1/topics/notes", content=parts(), headers=kind)
        assert answer.status_code == 413
    except httpx.TransportError:
        pass
    answer = httpx.post(f"{world.address}/v1/query", content=large, headers=kind)
    assert answer.status_code == 413
    deep = httpx.post(f"{world.address}/v1/query", content=b"[" * 50_000, headers=kind)
    assert deep.status_code == 400
    for told in ("-1", "x", "99999999999999999999"):
        raw = opened(world)
        raw.sendall(f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {told}\r\n\r\n".encode())
        assert raw.recv(1_000).split(b" ")[1] in (b"400", b"413")
        raw.close()


def opened(world: World) -> socket.socket:
    host, _, port = world.address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_slow_bodies_and_slow_heads_are_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "BODY_S", 0.5)
    monkeypatch.setattr(sockets, "HEAD_S", 0.5)
    body = opened(world)
    body.sendall(b"POST /v1/topics/notes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: 100\r\n\r\n{")  # fmt: skip
    answer = body.recv(1_000)
    assert answer.startswith(b"HTTP/1.1 408"), answer
    silent, dripping = opened(world), opened(world)
    assert ended(silent, b"")
    assert ended(dripping, b"X")
    endless = opened(world)
    endless.sendall(b"GET / HTTP/1.1\r\n")
    assert ended(endless, f"X-1: {'y' * 30_000}\r\n".encode())
    again = opened(world)  # the second request on a connection, too
    again.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert again.recv(10_000).startswith(b"HTTP/1.1 200")
    assert ended(again, b"G")
    assert world.get("/health").status_code == 200
    for each in (body, silent, dripping, endless, again):
        each.close()


def test_an_answer_that_nobody_takes_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "TAKE_S", 0.5)
    body = json.dumps({"sql": "SELECT repeat('x', 1000000) AS x FROM generate_series(1, 12)"}).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.settimeout(60)
        host, _, port = world.address.removeprefix("http://").rpartition(":")
        slow.connect((host, int(port)))
        head = f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        slow.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        until(lambda: connections(world) == 0, "the server hangs up", 30)


def connections(world: World) -> int:
    port = int(world.address.rpartition(":")[2])
    here = psutil.Process().net_connections("tcp")
    return sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in here)


def ended(connection: socket.socket, drip: bytes) -> bool:
    """Whether the server hangs up although something comes now and then."""
    deadline = time.monotonic() + 20
    connection.settimeout(0.1)
    while time.monotonic() < deadline:
        try:
            if drip:
                connection.sendall(drip)
            if not connection.recv(1_000):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


OPEN = ("/health", "/openapi.json")
LISTS: dict[str, Any] = {"/v1/views": {"views": []}}
OPERATIONS = [(path, method) for path, methods in described()["paths"].items() for method in methods]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("path", "method"), todays(OPERATIONS, 4))
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_requests_made_up_from_the_openapi(
    world: World, path: str, method: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right and wrong ones: each is answered as the description says, and none breaks the server."""
    _made_up(world, path, method, mode, monkeypatch, [None])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("path", "method"), todays(OPERATIONS, 2))
def test_made_up_requests_to_a_server_with_tokens(
    guarded: Guarded, path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token that may do everything, with one that may do nothing of it, with a wrong one and without."""
    tokens = [guarded.mighty, None] if path in OPEN else [guarded.mighty, guarded.other, f"mrt_{CANARY}", None]
    _made_up(guarded.world, path, method, "positive", monkeypatch, tokens)


def _made_up(
    world: World, path: str, method: str, mode: str, monkeypatch: pytest.MonkeyPatch, tokens: list[str | None]
) -> None:
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi import checks

    monkeypatch.setattr(waiting, "WAIT_S", 0.05)
    monkeypatch.setattr(waiting, "LONGEST_WAIT_S", 0.05)
    told = described()
    for parameter in told["paths"][path][method]["parameters"]:
        if parameter["name"] == "name":  # otherwise hardly one would get past it
            parameter["schema"] = {"type": "string", "enum": ["revenue", "notes", "orders"]}
    schema = schemathesis.openapi.from_dict(told)
    operation = schema[path][method]
    if mode == "negative" and not operation.definition.raw.get("parameters") and method == "get":
        pytest.skip("there is nothing that could be wrong with it")
    held = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]

    @settings(max_examples=20, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)), token=sampled_from(tokens))
    def call(case: Any, token: str | None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        response = case.call(base_url=world.address, timeout=60, headers=headers)
        assert response.status_code != 500, response.text
        if path in LISTS and len(tokens) > 1 and token == tokens[1] and response.status_code == 200:
            assert response.json() == LISTS[path], "it lists what one may read, which is nothing"
        elif len(tokens) > 1 and token != tokens[0] and path not in OPEN:
            assert response.status_code in (401, 403, 429), response.text
        case.validate_response(response, checks=held)

    call()


def test_no_secret_is_said_or_logged(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password of the store, tokens, right and wrong ones, and what others send turn up in no answer and no line of
    the log."""
    monkeypatch.setenv("CANARY_URL", f"postgresql://nobody:{CANARY}@127.0.0.1:1/none")
    world = guarded.world
    world.log.topics.ensure("notes")
    own = replace(world.settings, views=Endpoint(Secret("views.url", "env:CANARY_URL")))
    wrong = f"mrt_{CANARY}"
    said = []
    with caplog.at_level(logging.DEBUG), serving(own, world.app, prefix=own.prefix, tokens=own.tokens) as other:
        for token, statuses in ((guarded.mighty, (200, 503)), (guarded.other, (403, 503)), (wrong, (401,))):
            for path in ("/v1/views/revenue", "/v1/views/revenue/north", "/v1/lag", "/metrics", "/v1/flows"):
                answer = other.get(path, token)
                said.append(answer.text + str(answer.headers))
                assert answer.status_code in statuses, (path, answer.text)
            for path in ("/v1/views/revenue/changes", "/v1/topics/notes"):
                said.append(_hung_up(other, path, token))
            said.append(other.get("/health", token).text)
            said.append(other.get("/v1/views", token).text)
            said.append(other.post("/v1/query", {"sql": "SELECT 1"}, token).text)
            said.append(other.post("/v1/topics/notes", {"text": 1, "password": CANARY}, token).text)
        said.append(other.get(f"/v1/views/revenue?token={guarded.mighty}").text)
        said.append(other.get("/openapi.json").text)
    assert "MR-VIEW-STORE-UNREACHABLE" in " ".join(said)
    assert "MR-TOKEN-INVALID" in " ".join(said)
    logged = "\n".join(record.getMessage() + str(record.exc_text) for record in caplog.records if _is_ours(record))
    for secret in (CANARY, guarded.mighty, guarded.other):
        assert secret not in " ".join(said)
        assert secret not in logged
        assert secret not in own.tokens.read_text(encoding="utf-8")
    assert json.dumps(str(own)).find(CANARY) < 0


def _is_ours(record: logging.LogRecord) -> bool:
    """The client is in this process too, and its libraries say what they send."""
    return not record.name.startswith(("websockets.client", "httpx", "httpcore"))


def _hung_up(world: World, path: str, token: str) -> str:
    """What a WebSocket is told that shows its token as a browser does."""
    try:
        with world.watch(path, subprotocols=["millrace", f"token.{token}"]) as client:
            client.hear()
            return str(client.heard)
    except InvalidStatus as refused:
        return f"{refused.response.headers}{bytes(refused.response.body or b'').decode()}"
    except ConnectionClosed as closed:
        return str(closed)
