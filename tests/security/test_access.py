"""Tokens, scopes, origins and names: who may not come in does not."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from millrace.config import Listen, Serve, Settings
from millrace.errors import ServeUnguarded
from millrace.serve import gate, server
from millrace.serve.routes import ROUTES, SOCKETS
from millrace.serve.server import Server
from millrace.serve.tokens import Tokens
from tests.command import until
from tests.serve.world import World, serving, shop, written

pytestmark = pytest.mark.server

ORDER = {"id": 1, "region": "north", "at": "2026-01-01T00:00:00Z"}


@dataclass
class Guarded:
    world: World
    tokens: Tokens
    secrets: dict[str, str]


@pytest.fixture(scope="module")
def guarded(settings: Settings, postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    tokens = Tokens(tmp_path_factory.mktemp("tokens") / "tokens.json")
    past = datetime.now(UTC) - timedelta(minutes=1)
    secrets = {
        "view:revenue": tokens.create("revenue", ["view:revenue"]),
        "view:cities": tokens.create("cities", ["view:cities"]),
        "send:orders": tokens.create("send", ["send:orders"]),
        "tail:orders": tokens.create("tail", ["tail:orders"]),
        "query": tokens.create("query", ["query"]),
        "status": tokens.create("status", ["status"]),
        "expired": tokens.create("expired", ["view:*", "send:*", "tail:*", "query", "status"], past),
        "revoked": tokens.create("revoked", ["view:*", "send:*", "tail:*", "query", "status"]),
    }
    tokens.revoke("revoked")
    origins = ("https://board.example",)
    with serving(settings, tokens=tokens.file, origins=origins) as world, written(world, "revenue") as world.views:
        world.views["revenue"].write({"region": "north", "orders": 1, "total": 1, "latest": None})
        world.views["revenue"].applied()
        world.log.topics.ensure("orders", partitions=2)
        yield Guarded(world, tokens, secrets)


NAMES = {"view:{name}": "revenue", "send:{name}": "orders", "tail:{name}": "orders"}
CALLS = [
    (route.method, route.path.replace("{key:path}", "north").format(name=NAMES.get(route.scope or "", "")), route.scope)
    for route in ROUTES
    if route.scope
]


def called(guarded: Guarded, method: str, path: str, token: str | None, **headers: str) -> httpx.Response:
    if method == "GET":
        return guarded.world.get(path, token, headers=headers)
    body = {"sql": "SELECT 1 AS one"} if path == "/v1/query" else ORDER
    return guarded.world.post(path, body, token, **headers)


@pytest.mark.parametrize(("method", "path", "scope"), CALLS, ids=[path for _, path, _ in CALLS])
def test_each_route_needs_its_scope(guarded: Guarded, method: str, path: str, scope: str) -> None:
    needed = scope.format(name=NAMES.get(scope, ""))
    allowed = called(guarded, method, path, guarded.secrets[needed])
    assert allowed.status_code == 200, allowed.text
    refused = {"MR-TOKEN-MISSING": None, "MR-TOKEN-INVALID": "mrt_made-up"}
    refused |= {"MR-TOKEN-EXPIRED": guarded.secrets["expired"]}
    for code, secret in (*refused.items(), ("MR-TOKEN-INVALID", guarded.secrets["revoked"])):
        answer = called(guarded, method, path, secret)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, code)
        assert answer.headers["www-authenticate"] == "Bearer"
    for other, secret in guarded.secrets.items():
        if other not in (needed, "expired", "revoked"):
            answer = called(guarded, method, path, secret)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "MR-SCOPE-MISSING"), other


def test_what_is_open_tells_strangers_little(guarded: Guarded) -> None:
    assert guarded.world.get("/health").json() == {"healthy": True}
    assert guarded.world.get("/health", guarded.secrets["status"]).json()["app"] == "shop"
    assert guarded.world.get("/openapi.json").status_code == 200
    listed = guarded.world.get("/v1/views", guarded.secrets["view:cities"]).json()["views"]
    assert [each["view"] for each in listed] == ["cities"]
    assert guarded.world.get("/v1/views").status_code == 401
    # Whether there is such a view is nobody's business.
    for name in ("revenue", "nothing", "millrace_positions"):
        assert guarded.world.get(f"/v1/views/{name}", guarded.secrets["view:cities"]).status_code == 403


@pytest.mark.parametrize("path", ["/v1/views/revenue/changes", "/v1/topics/orders"])
def test_websockets_need_it_too(guarded: Guarded, path: str) -> None:
    assert {route.path for route in SOCKETS} == {"/v1/views/{name}/changes", "/v1/topics/{name}"}
    needed = "view:revenue" if "views" in path else "tail:orders"
    for name, secret in {**guarded.secrets, "none": None}.items():
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        if name == needed:
            with guarded.world.watch(path, additional_headers=headers) as client:
                client.hear()
            continue
        with pytest.raises(InvalidStatus) as refused:
            guarded.world.watch(path, additional_headers=headers)
        assert refused.value.response.status_code in (401, 403), name


def test_a_browser_shows_its_token_as_a_protocol(guarded: Guarded) -> None:
    path = "/v1/views/revenue/changes"
    protocols = ["millrace", f"token.{guarded.secrets['view:revenue']}"]
    with guarded.world.watch(path, subprotocols=protocols) as client:
        assert client.connection.subprotocol == "millrace"
        client.hear()
    with pytest.raises(InvalidStatus):
        guarded.world.watch(path, subprotocols=["millrace", "token.mrt_made-up"])
    # In the address it would stand in the logs of whatever is between.
    with pytest.raises(InvalidStatus):
        guarded.world.watch(f"{path}?token={guarded.secrets['view:revenue']}")


def test_pages_of_other_origins_are_turned_away(guarded: Guarded) -> None:
    secret = guarded.secrets["view:revenue"]
    own = guarded.world.address
    for origin in ("https://evil.example", "null", "https://board.example.evil.example", "http://localhost:1", "x"):
        answer = called(guarded, "GET", "/v1/views/revenue", secret, Origin=origin)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "MR-ORIGIN-FOREIGN"), origin
        assert "access-control-allow-origin" not in answer.headers
        with pytest.raises(InvalidStatus) as refused:
            guarded.world.watch(
                "/v1/views/revenue/changes",
                additional_headers={"Authorization": f"Bearer {secret}"},
                origin=origin,
            )
        assert refused.value.response.status_code == 403
    for origin in ("https://board.example", own):
        answer = called(guarded, "GET", "/v1/views/revenue", secret, Origin=origin)
        assert answer.status_code == 200
        with guarded.world.watch(
            "/v1/views/revenue/changes", additional_headers={"Authorization": f"Bearer {secret}"}, origin=origin
        ) as client:
            client.hear()
    asked = httpx.options(f"{own}/v1/query", headers={"Origin": "https://board.example"})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, "https://board.example")
    assert httpx.options(f"{own}/v1/query", headers={"Origin": "https://evil.example"}).status_code == 403


def test_revocation_closes_open_sockets_and_no_others(guarded: Guarded) -> None:
    secret = guarded.tokens.create("passing", ["view:revenue"])
    path = "/v1/views/revenue/changes"
    with (
        guarded.world.watch(path, additional_headers={"Authorization": f"Bearer {secret}"}) as passing,
        guarded.world.watch(
            path, additional_headers={"Authorization": f"Bearer {guarded.secrets['view:revenue']}"}
        ) as staying,
    ):
        passing.hear()
        staying.hear()
        guarded.tokens.revoke("passing")
        with pytest.raises(ConnectionClosed) as closed:
            passing.hear_all()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "revoked" in closed.value.rcvd.reason) == (4401, True)
        lsn = guarded.world.views["revenue"].write({"region": "x", "orders": 1, "total": 1, "latest": None})
        staying.until_lsn(lsn)


def test_a_token_that_expires_closes_its_socket(guarded: Guarded) -> None:
    path = "/v1/views/revenue/changes"
    for seconds in (3, 12, 50):  # a busy machine may take longer than that to connect
        until_ = datetime.now(UTC) + timedelta(seconds=seconds)
        secret = guarded.tokens.create(f"short {seconds}", ["view:revenue"], until_)
        try:
            client = guarded.world.watch(path, additional_headers=_bearer(secret))
        except InvalidStatus:
            continue
        with client, pytest.raises(ConnectionClosed) as closed:
            client.hear_all()
        if not client.heard:  # it expired before it was used
            continue
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "has expired" in closed.value.rcvd.reason) == (4401, True)
        answer = guarded.world.get("/v1/views/revenue", secret)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "MR-TOKEN-EXPIRED")
        return
    raise AssertionError("it expired before it was used")


def test_without_tokens_only_this_machine_is_served(settings: Settings, tmp_path: Path) -> None:
    from dataclasses import replace

    own = replace(settings, serve=Serve(tokens=tmp_path / "tokens.json"))
    for host in ("0.0.0.0", "::", "192.0.2.1", "board.example"):
        with pytest.raises(ServeUnguarded, match="token create"):
            Server(own, shop().graph(), Listen(host, 0))
    Tokens(own.tokens).create("a", ["query"])
    Tokens(own.tokens).revoke("a")
    with pytest.raises(ServeUnguarded):
        Server(own, shop().graph(), Listen("0.0.0.0", 0))


def test_without_tokens_no_page_gets_in(settings: Settings, postgres: str, tmp_path: Path) -> None:
    """Neither by its origin, nor by a name that points here, nor by a form; and a first token shuts the door."""
    with serving(settings, tokens=tmp_path / "tokens.json") as world, written(world, "revenue") as world.views:
        world.views["revenue"].write({"region": "north", "orders": 1, "total": 1, "latest": None})
        world.views["revenue"].applied()
        assert world.get("/v1/views/revenue").status_code == 200
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
            answer = world.get("/v1/views/revenue", headers={"Host": host})
            assert answer.status_code in (400, 403), host
        form = httpx.post(
            f"{world.address}/v1/topics/notes", content=b'{"text":"x"}', headers={"Content-Type": "text/plain"}
        )
        assert (form.status_code, form.json()["error"]["code"]) == (400, "MR-BODY-UNREADABLE")
        with world.watch("/v1/views/revenue/changes") as client:
            client.hear()
            Tokens(tmp_path / "tokens.json").create("first", ["query"])
            with pytest.raises(ConnectionClosed):
                client.hear_all()
        assert world.get("/v1/views/revenue").status_code == 401


def test_requests_and_sockets_have_limits(settings: Settings, postgres: str, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    secret, other = tokens.create("a", ["status", "tail:*"]), tokens.create("b", ["status"])
    with serving(settings, tokens=tokens.file, requests_per_s=5, sockets=2) as world:
        world.log.topics.ensure("notes")
        held: list[Any] = [world.watch("/v1/topics/notes", additional_headers=_bearer(secret)) for _ in range(2)]
        for each in held:
            each.hear()
        with pytest.raises(InvalidStatus) as refused:
            world.watch("/v1/topics/notes", additional_headers=_bearer(secret))
        assert json.loads(refused.value.response.body)["error"]["code"] == "MR-SOCKETS-EXCEEDED"
        for each in held:
            each.close()

        def enters() -> bool:
            try:
                world.watch("/v1/topics/notes", additional_headers=_bearer(secret)).close()
            except InvalidStatus:
                return False
            return True

        until(enters, "a place is free again", 30)
        with httpx.Client(base_url=world.address, headers=_bearer(secret)) as client:
            assert 429 in [client.get("/metrics").status_code for _ in range(60)]
        assert world.get("/metrics", other).status_code == 200, "another's pace is its own"


def test_connections_beside_sockets_have_a_limit(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 4)
    with serving(settings, tokens=tmp_path / "tokens.json", sockets=1) as world, contextlib.ExitStack() as open_:
        assert world.get("/openapi.json").status_code == 200
        host, _, port = world.address.removeprefix("http://").rpartition(":")
        held = [open_.enter_context(socket.create_connection((host, int(port)))) for _ in range(5)]
        until(lambda: world.get("/openapi.json").status_code == 503, "they are counted", 30)
        for each in held:
            each.close()
        until(lambda: world.get("/openapi.json").status_code == 200, "there is room again", 30)


def test_guessing_is_slow_and_slows_nobody_else(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "STRANGERS_PER_S", 3)
    # However slow this machine is: time gives back what was taken.
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: 0.0))
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("a", ["status"])
    with serving(settings, tokens=tokens.file) as world, httpx.Client(base_url=world.address) as client:
        said = [client.get("/metrics", headers=_bearer(f"mrt_{number}")) for number in range(60)]
        assert [answer.json()["error"]["code"] for answer in said[:3]] == ["MR-TOKEN-INVALID"] * 3
        assert {answer.status_code for answer in said[3:]} == {429}
        # Neither without a token, nor by a WebSocket, nor as another origin: it is one pace for all of it.
        assert client.get("/v1/flows").status_code == 429
        with pytest.raises(InvalidStatus) as refused:
            world.watch("/v1/topics/notes", origin="https://evil.example")
        assert refused.value.response.status_code == 429
        assert client.get("/metrics", headers=_bearer(secret)).status_code == 200


def _bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
