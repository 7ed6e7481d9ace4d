"""A client of `millrace serve`, for Python: rows, queries, events, and views watched.

from millrace.client import Client

with Client("http://127.0.0.1:8642") as client:
    client.send("orders", {"id": 1, "region": "north", "amount": "12.50"})
    for heard in client.watch("revenue"):
        print(heard.rows, heard.gone, heard.position)
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from millrace.errors import RecordsMissed, ServeRefused, ServeUnreachable

if TYPE_CHECKING:
    import httpx

ADDRESS = "http://127.0.0.1:8642"
_LEAST_S, _MOST_S = 0.2, 10.0
_TRIES = 5
_MOST_BYTES = 64 * 1024 * 1024
# Codes of a WebSocket's close after which trying again is no use: the client spoke, the token is none any more, or the
# view is too large for a snapshot.
_FOR_GOOD = (4400, 4401, 4413)
_SERVER = 500


@dataclass(frozen=True)
class Position:
    """What an answer is true of: everything up to `lsn` of the database, as it was `age_s` seconds ago. Of a view in
    real time so many rows are newer and `tentative`."""

    lsn: str | None
    epoch: int
    at: str
    age_s: float
    tentative: int = 0


class Rows(list[dict[str, Any]]):
    """Rows of a view, what they are true of, and whether there are `more`."""

    position: Position | None = None
    more: bool = False


@dataclass(frozen=True)
class Heard:
    """Of a view. After a `snapshot` these rows are all that there are; otherwise they are those that changed, and
    `gone` the keys of those that are no more. `after` is for going on from there another time. `tentative` ones, of a
    view in real time, come again when they are certain, and position and `after` are those of before."""

    snapshot: bool
    rows: list[dict[str, Any]]
    gone: list[dict[str, Any]]
    position: Position
    after: str
    tentative: bool = False


@dataclass
class Client:
    """Numbers with a point are Decimals. `timeout_s` is for each request."""

    address: str = ADDRESS
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    _http: httpx.Client | None = field(default=None, repr=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def rows(
        self,
        view: str,
        where: Mapping[str, Any] | None = None,
        *,
        order: str | None = None,
        limit: int | None = None,
        wait_for: str | None = None,
    ) -> Rows:
        """Those whose columns are equal to `where`, None being null. `wait_for` is the LSN of a commit of one's own."""
        options = {"order": order, "limit": limit, "wait_for": wait_for}
        given = [(name, str(value)) for name, value in options.items() if value is not None]
        told = self._asked("GET", f"/v1/views/{quote(view, safe='')}?{urlencode(_where(where) + given)}")
        found = Rows(told["rows"])
        found.position, found.more = Position(**told["position"]), told["more"]
        return found

    def get(self, view: str, *key: Any, wait_for: str | None = None) -> dict[str, Any] | None:
        """The row with this key, one value for each of its columns; None if there is none."""
        parts = "/".join(quote(_text(part), safe="") for part in key)
        path = f"/v1/views/{quote(view, safe='')}/{parts}"
        path += f"?{urlencode({'wait_for': wait_for})}" if wait_for else ""
        try:
            row: dict[str, Any] = self._asked("GET", path)["row"]
        except ServeRefused as refused:
            if "MR-ROW-UNKNOWN" in str(refused.facts["reason"]):
                return None
            raise
        return row

    def query(self, sql: str, limit: int | None = None, *, wait_for: str | None = None) -> Rows:
        """One SELECT over the views. `wait_for` is the LSN of a commit of one's own, which all that it reads have."""
        options = {"limit": limit, "wait_for": wait_for}
        given = {name: value for name, value in options.items() if value is not None}
        told = self._asked("POST", "/v1/query", {"sql": sql, **given})
        found = Rows(told["rows"])
        found.more = told["more"]
        return found

    def send(
        self, topic: str, events: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, key: str | None = None
    ) -> dict[str, Any]:
        """Writes them, all and once: what is not answered is sent again, with the same idempotency key."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._asked("POST", f"/v1/topics/{quote(topic, safe='')}", events, headers, tries=_TRIES)

    def watch(self, view: str, where: Mapping[str, Any] | None = None, *, after: str | None = None) -> Iterator[Heard]:
        """A snapshot, then changes, without end: a connection that is lost is made again, and goes on where it was."""
        path = f"/v1/views/{quote(view, safe='')}/changes"
        parts: list[dict[str, Any]] = []
        last = Heard(False, [], [], Position(None, -1, "", 0.0), "")
        for message in self._heard(path, _where(where), after):
            if message["type"] == "snapshot":
                if message["part"] == 1:
                    parts.clear()
                parts += message["rows"]
                if not message["last"]:
                    continue
            is_whole = message["type"] == "snapshot"
            rows, gone = (list(parts), []) if is_whole else (message["rows"], message["gone"])
            if message["type"] == "tentative":
                yield replace(last, snapshot=False, rows=rows, gone=gone, tentative=True)
                continue
            last = Heard(is_whole, rows, gone, Position(**message["position"]), message["after"])
            yield last

    def tail(self, topic: str, *, after: str | None = None) -> Iterator[dict[str, Any]]:
        """Records as they come, each with `partition`, `offset`, `time`, `key` and `value`, without end. RecordsMissed
        if some came that the server does not remember: after a long time away, or of a topic that was made anew."""
        for message in self._heard(f"/v1/topics/{quote(topic, safe='')}", [], after):
            if message["type"] == "gap":
                raise RecordsMissed(topic=topic, reason=message["reason"])
            yield from message.get("records", ())

    def _heard(self, path: str, parameters: list[tuple[str, str]], after: str | None) -> Iterator[dict[str, Any]]:
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
        from websockets.sync.client import connect

        wait_s = _LEAST_S
        while True:
            given = [*parameters, *([("after", after)] if after else [])]
            uri = f"{self.address.replace('http', 'ws', 1)}{path}?{urlencode(given)}"
            try:
                with connect(
                    uri, additional_headers=self._headers(), compression=None, proxy=None, max_size=_MOST_BYTES
                ) as socket:
                    for text in socket:
                        message = _parsed(text)
                        yield message
                        after, wait_s = message.get("after", after), _LEAST_S
                    raise ConnectionClosed(socket.protocol.close_rcvd, None)
            except InvalidStatus as refused:
                if refused.response.status_code < _SERVER:
                    raise _refused(refused.response.status_code, bytes(refused.response.body or b"")) from None
                reason: object = refused
            except ConnectionClosed as closed:
                if closed.rcvd is not None and closed.rcvd.code in _FOR_GOOD:
                    raise ServeRefused(status=closed.rcvd.code, reason=closed.rcvd.reason) from None
                reason = closed
            except (OSError, WebSocketException) as error:
                reason = error
            if wait_s > _MOST_S:
                raise ServeUnreachable(address=self.address, reason=reason)
            time.sleep(wait_s)
            wait_s *= 2

    def _headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def _asked(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, tries: int = 1
    ) -> dict[str, Any]:
        import httpx

        if self._http is None:
            self._http = httpx.Client(timeout=self.timeout_s, trust_env=False)
        content = None if body is None else json.dumps(body, default=_text).encode()
        given = {**self._headers(), **(headers or {}), **({"Content-Type": "application/json"} if content else {})}
        for left in reversed(range(tries)):
            try:
                found = self._http.request(method, self.address + path, content=content, headers=given)
            except httpx.TransportError as error:
                if not left:
                    raise ServeUnreachable(address=self.address, reason=str(error) or type(error).__name__) from None
            else:
                if found.is_success:
                    told: dict[str, Any] = _parsed(found.text)
                    return told
                if found.status_code < _SERVER or not left:
                    raise _refused(found.status_code, found.content)
            time.sleep(_LEAST_S)
        raise AssertionError("a request is tried once at least")


def _parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def _refused(status: int, body: bytes) -> ServeRefused:
    try:
        said = json.loads(body)["error"]
        reason = f"{said['code']} {said['what']}: {said['fix']}"
    except (ValueError, KeyError, TypeError):
        reason = body[:200].decode(errors="replace")
    return ServeRefused(status=status, reason=reason)


def _where(where: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    given = dict(where or {})
    null = ",".join(name for name, value in given.items() if value is None)
    # A dot in front: whatever the column's name is, it is no other parameter's.
    equal = [(f".{name}", _text(value)) for name, value in given.items() if value is not None]
    return [*equal, *([("null", null)] if null else [])]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
