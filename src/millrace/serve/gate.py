"""Who may come in: names, origins, tokens, how often, how many at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from millrace.addresses import is_loopback as is_loopback
from millrace.config import Listen, Serve
from millrace.errors import (
    HostForeign,
    OriginForeign,
    RequestsExceeded,
    SocketsExceeded,
    TokenMissing,
    TokensUnreadable,
)
from millrace.serve.sockets import REVOKED, Socket
from millrace.serve.tokens import ANYBODY, Token, Tokens

# Requests with no token or a wrong one, a second and client: guessing is hopeless, and should not cost us anything.
STRANGERS_PER_S = 50
# Clients whose pace is remembered.
_CLIENTS = 10_000
# How a browser, which cannot set headers there, shows its token when it opens a WebSocket.
PROTOCOL, TOKEN_PROTOCOL = "millrace", "token."


class Paces:
    """How many requests each client has left: so many a second, and as many at once."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, per_s: int) -> None:
        now = time.monotonic()
        left, then = self._left.pop(client, (float(per_s), now))
        left = min(left + (now - then) * per_s, float(per_s))
        self._left[client] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        if left < 1:
            raise RequestsExceeded(limit=per_s)


class Gate:
    """Without tokens whoever is on this machine may do anything, but no page of a browser may: neither from another
    origin nor by a name that somebody else's DNS lets point here."""

    def __init__(self, serve: Serve, listen: Listen, tokens: Tokens) -> None:
        self._serve, self._tokens = serve, tokens
        self._public = not is_loopback(listen.host)
        self._hosts = {*serve.hosts, listen.host, "localhost", "127.0.0.1", "[::1]"}
        self._paces = Paces()
        self._sockets: dict[Socket, Token] = {}

    @property
    def guarded(self) -> bool:
        return self._public or self._tokens.file.exists()

    @property
    def sockets(self) -> int:
        return len(self._sockets)

    def admitted(self, headers: Headers, client: str, protocols: Sequence[str] = ()) -> Token:
        """Whose request this is. `protocols` are those that a WebSocket offers."""
        try:
            self._check_host(headers)
            self._check_origin(headers)
            token = self._token(headers, protocols)
        except Exception:
            self._paces.take(f"stranger {client}", STRANGERS_PER_S)
            raise
        self._paces.take(token.hash or client, self._serve.requests_per_s)
        return token

    def allowed_origin(self, headers: Headers) -> str | None:
        origin = headers.get("origin")
        return origin if origin in self._serve.origins else None

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if (not self.guarded or self._serve.hosts) and name.lower() not in self._hosts:
            raise HostForeign(host=host[:100])

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self._serve.origins:
            return
        try:
            same = urlsplit(origin).netloc == headers.get("host") and origin.startswith(("http://", "https://"))
        except ValueError:
            same = False
        if not same:
            raise OriginForeign(origin=origin[:100])

    def _token(self, headers: Headers, protocols: Sequence[str]) -> Token:
        if not self.guarded:
            return ANYBODY
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            secret = next((text.removeprefix(TOKEN_PROTOCOL) for text in protocols if _shows(text)), "")
        if not secret.strip():
            raise TokenMissing()
        return self._tokens.found(secret.strip())

    def enter(self, socket: Socket, token: Token) -> None:
        if len(self._sockets) >= self._serve.sockets:
            raise SocketsExceeded(limit=self._serve.sockets)
        self._sockets[socket] = token

    def leave(self, socket: Socket) -> None:
        self._sockets.pop(socket, None)

    def close_revoked(self) -> None:
        """Sockets whose token is none any more. If nobody can say, that is all of them."""
        holds = {token: self._holds(token) for token in set(self._sockets.values())}
        for socket, token in tuple(self._sockets.items()):
            if not holds[token]:
                socket.drop(REVOKED, "the token was revoked, or has expired")

    def _holds(self, token: Token) -> bool:
        try:
            return self._tokens.holds(token) if token is not ANYBODY else not self.guarded
        except TokensUnreadable:
            return False


def _shows(protocol: str) -> bool:
    return protocol.startswith(TOKEN_PROTOCOL)
