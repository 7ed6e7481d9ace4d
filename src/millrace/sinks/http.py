"""HTTP to one server, by the standard library: a connection that is kept, errors that are ours, and pauses that grow.

Nothing here shows a URL: those of webhooks are secrets as a whole.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import random
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from millrace.errors import SinkTargetUnfit, SinkUnreachable
from millrace.sinks.contract import Sink
from millrace.sinks.tasks import reason_of

CONNECT_S = 5
# The server is there and has too much to do, or something before it has no server.
BUSY = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


class Caller:
    """One connection, opened when it is needed and again when the server has closed it. One thread's. What may be asked
    only `once` is not asked again on a new connection: nobody knows whether it was heard on the old one."""

    def __init__(self, sink: Sink, url: str, answer_s: float, *, once: bool = False) -> None:
        self._sink, self._answer_s, self._once = sink, answer_s, once
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            raise _not_http(sink) from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise _not_http(sink)
        self._secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._query = f"?{parts.query}" if parts.query else ""
        self._headers = {"Host": parts.netloc.rpartition("@")[2]}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str = "", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request and its answer, whatever its status. Unless it is asked `once`, it must do no harm twice."""
        target = f"{self._path}{path}" or "/"
        sent = {**self._headers, **(headers or {})}
        kept = self._connection is not None
        try:
            return self._asked(method, target + self._query, body, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # A server may close a connection that nobody used for a while, at the moment when somebody does.
            if kept and not self._once and not isinstance(error, TimeoutError):
                return self.ask(method, path, body, headers)
            raise SinkUnreachable(sink=self._sink.name, reason=reason_of(error), where=self._sink.where) from None

    def _asked(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._connection is None:
            self._connection = self._opened()
        self._connection.request(method, target, body, dict(headers))
        answer = self._connection.getresponse()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        if answer.will_close:
            self.close()
        return found

    def _opened(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            made: Any = http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_S, context=context)
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        made.connect()
        made.sock.settimeout(self._answer_s)
        return made  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
        self._connection = None


def pause_s(tries: int, first_s: float, longest_s: float) -> float:
    """How long to wait after so many tries: twice as long each time, and a random part of it, so that many who failed
    together do not come back together."""
    longest: float = min(longest_s, first_s * 2.0**tries)
    return longest * (0.5 + random.random() / 2)  # noqa: S311 -- no secret


def _not_http(sink: Sink) -> SinkTargetUnfit:
    reason, remedy = "that is not a URL of HTTP", "write it as https://user:password@host:port/path"
    return SinkTargetUnfit(sink=sink.name, target="its server", reason=reason, remedy=remedy, where=sink.where)
