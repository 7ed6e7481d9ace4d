"""What a task does for a webhook: posts its rows one after the other, each until it is taken or refused. Workers import
this file, and so it imports little."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from millrace.errors import SinkUnreachable
from millrace.sinks.contract import RefusedRow, Sink
from millrace.sinks.http import BUSY, Answer, Caller, pause_s

ANSWER_S = 10
TRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S = 6, 0.2, 5.0
# A receiver that asks for a longer pause is asked again by the next try of the epoch.
LONGEST_ASKED_S = 10.0
_HEADERS = {"Content-Type": "application/json", "User-Agent": "millrace"}
# Who posts is refused, not what: every row would be.
_NOT_US = (401, 403, 407)
# How the reason of a row begins of which nobody is told: there is nothing at the URL, nothing that takes posts, nothing
# any more. One row may mean itself by that, a whole epoch does not.
NOBODY = tuple(f"HTTP {status}" for status in (404, 405, 410))
_FIRST_REFUSAL, _FIRST_FAILURE = 400, 500
# Who answers so has not taken the row. Behind a timeout, a connection that is lost or any other failure it may be.
_NOT_TAKEN = (425, 429, 503)
_SHOWN_BYTES = 300


class Posting:
    """After `most` rows of which nobody was told, and none of which somebody was, it is no row's fault. With `once` a
    row that may have been taken is not posted again, and ends the epoch."""

    def __init__(self, sink: Sink, url: str, tries: int, most: int, *, once: bool = False) -> None:
        self._sink, self._url, self._tries, self._most, self._once = sink, url, tries, most, once

    def __call__(self, rows: Iterator[Any]) -> Iterable[RefusedRow]:
        tries, heard = self._tries, False
        with contextlib.closing(Caller(self._sink, self._url, ANSWER_S, once=self._once)) as caller:
            for number, (identity, head, row, key) in enumerate(rows):
                answer = self._posted(caller, identity, f'{head[:-1]},"row":{row}}}'.encode(), tries)
                tries = TRIES  # a server that was away has answered
                reason = _reason(answer)
                heard = heard or not reason.startswith(NOBODY)
                if not heard and number >= self._most:
                    said = f"each of {number + 1} rows was answered with {reason}"
                    raise SinkUnreachable(sink=self._sink.name, reason=said, where=self._sink.where)
                if not answer.good:
                    yield RefusedRow(key, row, reason)

    def _posted(self, caller: Caller, identity: str, body: bytes, tries: int) -> Answer:
        headers = {**_HEADERS, "Idempotency-Key": identity}
        for tried in range(tries):
            pause, last = pause_s(tried, FIRST_PAUSE_S, LONGEST_PAUSE_S), tried + 1 == tries
            try:
                answer = caller.ask("POST", "", body, headers)
            except SinkUnreachable:
                if last or self._once:
                    raise
            else:
                if _settled(answer):
                    return answer
                last = last or answer.status in _NOT_US or (self._once and answer.status not in _NOT_TAKEN)
                if last:
                    raise SinkUnreachable(sink=self._sink.name, reason=_reason(answer), where=self._sink.where)
                pause = max(pause, _asked_s(answer))
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")


def _settled(answer: Answer) -> bool:
    """Whether the row is taken, or refused for what it is."""
    own_fault = _FIRST_REFUSAL <= answer.status < _FIRST_FAILURE
    return answer.good or (own_fault and answer.status not in BUSY and answer.status not in _NOT_US)


def _asked_s(answer: Answer) -> float:
    """The pause that a receiver asks for, if it is short."""
    asked = answer.headers.get("retry-after", "")
    return min(float(asked), LONGEST_ASKED_S) if asked.isdecimal() else 0.0


def _reason(answer: Answer) -> str:
    said = " ".join(answer.body[:_SHOWN_BYTES].decode(errors="replace").split())
    return f"HTTP {answer.status}" + (f": {said}" if said else "")
