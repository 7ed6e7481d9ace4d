"""What a task does for OpenSearch: sends its rows in bulks, and those again that the server had no time for. Workers
import this file, and so it imports little."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from millrace.errors import SinkFailed, SinkUnreachable
from millrace.sinks.contract import RefusedRow, Sink
from millrace.sinks.http import BUSY, Answer, Caller, pause_s

ANSWER_S = 30
TRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S = 7, 0.1, 3.0
_HEADERS = {"Content-Type": "application/x-ndjson"}
_BAD, _UNAUTHORIZED, _FORBIDDEN, _STALE, _TOO_LARGE = 400, 401, 403, 409, 413
_DELETE = b'{"delete"'


@dataclass(frozen=True)
class Index:
    """Where documents go: an alias and the index behind it, or an index of somebody's own."""

    name: str
    physical: str

    @property
    def aliased(self) -> bool:
        return self.name != self.physical


class Bulks:
    def __init__(self, sink: Sink, url: str, index: Index) -> None:
        self._sink, self._url = sink, url
        # Without the alias the server would make an index of its own under this name.
        alias = "&require_alias=true" if index.aliased else ""
        self._path = f"/{quote(index.name)}/_bulk?filter_path=errors,items.*.status,items.*.error{alias}"

    def __call__(self, rows: Iterator[Any]) -> Iterable[RefusedRow]:
        with contextlib.closing(Caller(self._sink, self._url, ANSWER_S)) as caller:
            for lines, reason, key, row in rows:
                if lines is None:
                    yield RefusedRow(key, row, reason)
                else:
                    yield from self._written(caller, bytes(lines))

    def _written(self, caller: Caller, body: bytes) -> Iterator[RefusedRow]:
        """Sends rows until each of them is written or refused."""
        for tries in range(TRIES):
            if tries:
                time.sleep(pause_s(tries - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S))
            answer = caller.ask("POST", self._path, body, _HEADERS)
            reason = reason_in(answer)
            if answer.status in BUSY:
                continue
            if answer.status in (_TOO_LARGE, _BAD):
                yield from self._halves(caller, _entries(body), reason)
                return
            check(self._sink, answer, whole=True)
            if answer.body.startswith(b'{"errors":false'):
                return
            left, refused, reason = self._left(_entries(body), answer)
            yield from refused
            if not left:
                return
            body = b"".join(left)
        raise SinkUnreachable(sink=self._sink.name, reason=reason, where=self._sink.where)

    def _halves(self, caller: Caller, entries: list[bytes], reason: str) -> Iterator[RefusedRow]:
        """What the server refuses as a whole is one row's fault, or all of them are too large together."""
        if len(entries) == 1:
            yield _refused(entries[0], reason)
            return
        middle = len(entries) // 2
        yield from self._written(caller, b"".join(entries[:middle]))
        yield from self._written(caller, b"".join(entries[middle:]))

    def _left(self, entries: list[bytes], answer: Answer) -> tuple[list[bytes], list[RefusedRow], str]:
        """Rows to be sent again, rows that are refused, and the last reason."""
        again: list[bytes] = []
        refused: list[RefusedRow] = []
        reason = ""
        for entry, item in zip(entries, json.loads(answer.body)["items"], strict=True):
            (told,) = item.values()
            status, error = told["status"], told.get("error")
            if error is None or status == _STALE:
                continue
            reason = _reason_of(error)
            if status in BUSY:
                again.append(entry)
            elif status in (_BAD, _TOO_LARGE):
                refused.append(_refused(entry, reason))
            else:  # the index is gone, or closed to writers
                raise SinkFailed(sink=self._sink.name, reason=reason, where=self._sink.where)
        return again, refused, reason


def _entries(body: bytes) -> list[bytes]:
    """A bulk row by row: the line that says what is to be done, and the document unless it is deleted."""
    found: list[bytes] = []
    lines = iter(body.splitlines(keepends=True))
    for action in lines:
        found.append(action if action.startswith(_DELETE) else action + next(lines))
    return found


def _refused(entry: bytes, reason: str) -> RefusedRow:
    action, _, document = entry.decode().partition("\n")
    (about,) = json.loads(action).values()
    return RefusedRow(about["_id"], document.strip() or "{}", reason)


def check(sink: Sink, answer: Answer, *, whole: bool = False) -> None:
    """Raises what is the server's trouble; with `whole`, everything that is not good."""
    if answer.status in BUSY or answer.status in (_UNAUTHORIZED, _FORBIDDEN):
        raise SinkUnreachable(sink=sink.name, reason=reason_in(answer), where=sink.where)
    if whole and not answer.good:
        raise SinkFailed(sink=sink.name, reason=reason_in(answer), where=sink.where)


def reason_in(answer: Answer) -> str:
    """The server's sentence, or its number if it has none."""
    try:
        told = json.loads(answer.body)["error"]
    except (ValueError, LookupError, TypeError):
        return f"HTTP {answer.status}"
    return _reason_of(told) if isinstance(told, dict) else f"HTTP {answer.status}: {told}"


def _reason_of(error: dict[str, Any]) -> str:
    cause = error.get("caused_by") or {}
    reasons = [error.get("reason") or error.get("type"), cause.get("reason") or cause.get("type")]
    return ": ".join(str(reason) for reason in reasons if reason)
