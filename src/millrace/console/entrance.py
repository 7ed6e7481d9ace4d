"""The door before all pages: what another site made a browser send is refused; where there are tokens, a browser has to
show one first, and is out when that is revoked."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs, urlencode

from millrace.console.access import Access
from millrace.errors import MillraceError
from millrace.serve.tokens import Token

PATH = "/enter"
MOST_BYTES = 4_096
# How often an open WebSocket looks whether its token still is one.
LOOK_S = 0.5
REVOKED = 4401

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]

_PAGE = Template(Path(__file__).with_name("enter.html").read_text(encoding="utf-8"))


class Entrance:
    def __init__(self, app: Asgi, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._access.is_own(headers):
            await self._refused(scope, send)
        elif not self._access.guarded:
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == PATH:
            await self._enter(scope, receive, send)
        elif (token := self._access.token(headers)) is None:
            await self._strange(scope, send)
        elif scope["type"] == "websocket":
            await self._app(scope, *self._guarded(token, receive, send))
        else:
            await self._app(scope, receive, send)

    async def _refused(self, scope: Message, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        said = (
            "the console answers its own pages only: open it as http://127.0.0.1:PORT, or by a name of [serve] hosts\n"
        )
        await _answer(send, 403, said, b"text/plain; charset=utf-8")

    async def _strange(self, scope: Message, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": REVOKED})
        elif scope["method"] == "GET" and not scope["path"].startswith("/_nicegui"):
            await _answer(send, 303, "", location=PATH)
        else:
            await _answer(send, 401, "this needs a token\n", b"text/plain; charset=utf-8")

    async def _enter(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            wrong = parse_qs(scope["query_string"].decode("latin-1")).get("wrong", [""])[0][:300]
            await _answer(send, 200, _PAGE.substitute(path=PATH, wrong=escape(wrong)))
            return
        secret = parse_qs(await _body(receive)).get("token", [""])[0]
        try:
            value = self._access.enter(secret, (scope.get("client") or ("",))[0])
        except MillraceError as error:
            await _answer(send, 303, "", location=f"{PATH}?{urlencode({'wrong': str(error)})}")
            return
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = f"{self._access.cookie}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"
        await _answer(send, 303, "", location="/", cookie=cookie)

    def _guarded(self, token: Token, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """A WebSocket on which nothing goes either way once its token is none any more."""
        looked, out = time.monotonic(), False

        async def is_out() -> bool:
            nonlocal looked, out
            if not out and time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                if not self._access.holds(token):
                    out = True
                    await send({"type": "websocket.close", "code": REVOKED})
            return out

        async def received() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and await is_out():
                return {"type": "websocket.disconnect", "code": REVOKED}
            return message

        async def sent(message: Message) -> None:
            if message["type"] != "websocket.send" or not await is_out():
                await send(message)

        return received, sent


async def _body(receive: Receive) -> str:
    found, more = b"", True
    while more and len(found) <= MOST_BYTES:
        message = await receive()
        found += message.get("body", b"")
        more = bool(message.get("more_body"))
    return found[:MOST_BYTES].decode("latin-1")


async def _answer(
    send: Send,
    status: int,
    body: str,
    kind: bytes = b"text/html; charset=utf-8",
    *,
    location: str = "",
    cookie: str = "",
) -> None:
    raw = body.encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(raw)).encode()), (b"cache-control", b"no-store")]
    headers += [(b"location", location.encode())] if location else []
    headers += [(b"set-cookie", cookie.encode())] if cookie else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})
