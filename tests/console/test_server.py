"""Nobody reaches the console who may not: no other machine without a token, no other site by way of a browser on this
one, no token after it was revoked."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace import config
from millrace.config import Listen, Serve, Settings
from millrace.console import access as accessing
from millrace.console import entrance
from millrace.console.access import Access
from millrace.console.entrance import Entrance
from millrace.console.server import bound
from millrace.errors import AddressUnservable, ConsolePublic
from millrace.serve.tokens import Tokens

HERE = Listen("127.0.0.1", 9110)
THERE = Listen("192.168.1.7", 9110)


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    return config.load(tmp_path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_a_public_address_needs_a_token_for_the_console(host: str, project: Settings) -> None:
    for _ in range(2):
        with pytest.raises(ConsolePublic, match="no token that anybody would need: `millrace token create") as refused:
            Access(project, Listen(host, 9110))
        assert "ssh -L 9110:127.0.0.1:9110" in str(refused.value)
        if not project.tokens.exists():
            Tokens(project.tokens).create("reader", ["view:*"])  # which is none for the console
    Tokens(project.tokens).create("me", ["console"])
    assert Access(project, Listen(host, 9110)).guarded


def test_a_port_that_is_taken_is_told_of() -> None:
    with bound(Listen("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        with pytest.raises(AddressUnservable, match=f"127.0.0.1:{port} .*in use.*choose another port"):
            bound(Listen("127.0.0.1", port))
    with bound(Listen("localhost", 0)) as opened:
        assert opened.family == socket.AF_INET


@pytest.mark.parametrize(
    ("host", "origin", "answered", "guarded"),
    [
        (b"127.0.0.1:9110", None, True, True),
        (b"localhost:9110", b"http://localhost:9110", True, True),
        (b"[::1]:9110", b"http://[::1]:9110", True, True),
        (b"evil.example:9110", None, False, True),  # DNS rebinding: their name, our address; with tokens they need one
        (b"shop.example:9110", b"http://shop.example:9110", False, True),
        (b"127.0.0.1:9110", b"http://evil.example", False, False),  # their page opens our WebSocket
        (b"127.0.0.1:9110", b"http://127.0.0.1:8000", False, False),  # another service of this machine
        (b"127.0.0.1:9110", b"null", False, False),
        (b"[bad", None, False, False),
        (b"", None, False, False),
    ],
)
def test_pages_of_other_sites_are_not_answered(
    host: bytes, origin: bytes | None, answered: bool, guarded: bool, project: Settings
) -> None:
    headers = {b"host": host, **({b"origin": origin} if origin else {})}
    assert Access(project, HERE).is_own(headers) is answered
    Tokens(project.tokens).create("me", ["console"])
    assert Access(project, THERE).is_own(headers) is guarded
    named = replace(project, serve=Serve(hosts=("shop.example",)))
    assert Access(named, THERE).is_own(headers) is (guarded and b"evil" not in host)


class Door:
    """The entrance before an app that says `inside`."""

    def __init__(self, settings: Settings) -> None:
        self.access = Access(settings, HERE)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "websocket":
                for _ in range(2):
                    assert (await receive())["type"] in ("websocket.receive", "websocket.disconnect")
                    await send({"type": "websocket.send", "text": "inside"})
                return
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"inside"})

        self._app = Entrance(app, self.access)

    def ask(
        self, path: str, cookie: str = "", body: str | None = None, method: str | None = None
    ) -> tuple[int, dict[str, str], str]:
        sent = self._run("http", path, cookie, [{"type": "http.request", "body": (body or "").encode()}],
                         method or ("GET" if body is None else "POST"))  # fmt: skip
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, sent[1]["body"].decode()

    def talk(self, cookie: str) -> list[str]:
        message = {"type": "websocket.receive", "text": "x"}
        sent = self._run("websocket", "/_nicegui_ws/socket.io", cookie, [message, message], "GET")
        return [str(each.get("text") or each.get("code")) for each in sent]

    def _run(self, kind: str, path: str, cookie: str, messages: list[Any], method: str) -> list[Any]:
        sent: list[Any] = []
        path, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1:9110"), (b"cookie", cookie.encode())]
        scope = {"type": kind, "path": path, "method": method, "headers": headers, "query_string": query.encode()}

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))
        return sent


def test_without_tokens_this_machine_comes_in(project: Settings) -> None:
    door = Door(project)
    assert door.ask("/")[2] == "inside"
    assert door.talk("") == ["inside", "inside"]


def test_with_tokens_a_browser_shows_one_and_is_out_when_it_is_revoked(
    project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "LOOK_S", -1.0)
    tokens = Tokens(project.tokens)
    secret, other = tokens.create("me", ["console"]), tokens.create("reader", ["view:*", "status"])
    door = Door(project)
    assert door.ask("/topic")[:2] == (303, door.ask("/")[1])
    assert door.ask("/")[1]["location"] == "/enter"
    assert door.ask("/_nicegui/x.js")[0] == 401
    assert door.ask("/topic", method="POST")[0] == 401
    assert door.talk("") == ["4401"]
    assert 'type="password"' in door.ask("/enter")[2]
    for wrong, code in (("mrt_no", "MR-TOKEN-INVALID"), (other, "MR-SCOPE-MISSING"), ("", "MR-TOKEN-INVALID")):
        status, headers, _ = door.ask("/enter", body=f"token={wrong}")
        assert (status, "set-cookie" in headers) == (303, False)
        assert code in door.ask(headers["location"])[2]
    assert "<b>" not in door.ask("/enter?wrong=%3Cb%3E")[2]
    status, headers, _ = door.ask("/enter", body=f"token={secret}")
    assert (status, headers["location"]) == (303, "/")
    cookie, _, rest = headers["set-cookie"].partition(";")
    assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in rest.split(";")}
    assert secret not in cookie
    assert door.ask("/", cookie)[2] == "inside"
    assert door.talk(cookie) == ["inside", "inside"]
    assert door.ask("/", cookie[:-1] + "x")[0] == 303
    tokens.revoke("me")
    assert door.ask("/", cookie)[0] == 303
    assert door.talk(cookie) == ["4401"]


def test_a_socket_is_closed_while_it_is_open(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "LOOK_S", -1.0)
    tokens = Tokens(project.tokens)
    secret = tokens.create("me", ["console"])
    door = Door(project)
    cookie = f"{door.access.cookie}={door.access.enter(secret, '')}"
    holds = iter([True, True, True, False])
    monkeypatch.setattr(accessing.Access, "holds", lambda *_: next(holds))
    # Looked at when it is opened, at the first message, at the answer, and at the second message.
    assert door.talk(cookie) == ["inside", "4401"]
