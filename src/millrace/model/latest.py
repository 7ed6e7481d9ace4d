"""Latest-by-key: records of captured topics to signed rows, from the operator's own state.

- A row is known by (topic, key). Its text is the envelope's `after`, as written.
- A record's version is its place in the log. One key lies in one partition, and epochs come in the order of offsets, so
  a record that is not above the last applied one of its key is a repeat, and ignored.
- c, r and u put the row there, whatever `before` says; d and a tombstone take it away, and all that is held of it.
- A column that the database left out of an update, because it is large and did not change, keeps the text that it has.
- Of a topic, columns that nobody asks for can be left out: its rows are without them, and so are its changes. A row
  of such a topic whose columns are none of its shapes cannot be understood.
- What cannot be understood comes out as an error, and changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from millrace.model import refusals

UNAVAILABLE = "__debezium_unavailable_value"


class Change(NamedTuple):
    """A record of a captured topic; a value of None is a tombstone."""

    topic: str
    key: str | None
    value: bytes | None
    partition: int
    offset: int


class Signed(NamedTuple):
    """A row that came (+1) or went (-1) by the record at this place; or an error, with neither."""

    topic: str
    key: str | None
    row: str | None
    diff: int | None
    op: str | None
    partition: int
    offset: int
    error: str | None = None


class Held(NamedTuple):
    row: str
    partition: int
    offset: int


class LatestByKey:
    """With `net`, an epoch gives for each key at most the row that it had before and the row that it has after."""

    def __init__(
        self,
        net: bool = False,
        placeholder: str = UNAVAILABLE,
        left_out: Mapping[str, Sequence[str]] | None = None,
        shapes: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> None:
        self.net = net
        self.left_out, self.shapes = left_out or {}, shapes or {}
        self.unavailable = unavailable_forms(placeholder)
        self.state: dict[tuple[str, str | None], Held] = {}

    def table(self) -> dict[tuple[str, str | None], str]:
        return {key: held.row for key, held in self.state.items()}

    def apply(self, epoch: Iterable[Change]) -> list[Signed]:
        groups: dict[tuple[str, str | None], list[Change]] = {}
        for change in epoch:
            groups.setdefault((change.topic, change.key), []).append(change)
        out = []
        for key, changes in groups.items():
            before = self.state.get(key)
            signed = [
                row
                for change in sorted(changes, key=lambda change: (change.partition, change.offset))
                for row in self._applied(change)
            ]
            out += self._net(before, self.state.get(key), signed) if self.net else signed
        return out

    def _applied(self, change: Change) -> list[Signed]:
        key = (change.topic, change.key)
        held = self.state.get(key)
        if held and change.partition == held.partition and change.offset <= held.offset:
            return []
        envelope = Envelope("tombstone") if change.value is None else read(change.value)
        row, error = envelope.after, envelope.error or self._strange(change.topic, envelope.after)
        error = error or self._misplaced(change, held)
        if row and not error:
            row = without(row, self.left_out.get(change.topic, ()))
            row, error = self._filled(envelope, row, held)
        if error:
            return [_signed(change, envelope, None, None, error)]
        if row:
            self.state[key] = Held(row, change.partition, change.offset)
        else:
            self.state.pop(key, None)
        if held and held.row == row:
            return []
        went = [_signed(change, envelope, held.row, -1)] if held else []
        came = [_signed(change, envelope, row, 1)] if row else []
        return went + came

    def _strange(self, topic: str, row: str | None) -> str | None:
        if row is None or not self.left_out.get(topic) or not self.shapes.get(topic):
            return None
        columns = [*members(row)]
        return None if columns in [[*shape] for shape in self.shapes[topic]] else refusals.strange(columns)

    def _misplaced(self, change: Change, held: Held | None) -> str | None:
        if change.key is None:
            return refusals.NO_KEY
        return refusals.moved(held.partition) if held and held.partition != change.partition else None

    def _filled(self, envelope: Envelope, row: str, held: Held | None) -> tuple[str, str | None]:
        columns = members(row)
        gaps = [name for name, column in columns.items() if json.loads(column.text) in self.unavailable]
        # A created row with a gap got a new key: what is held under that key was another row.
        known = members(held.row) if held and envelope.op == "u" else {}
        if not known.keys() >= set(gaps):
            return row, refusals.unavailable(gaps)
        for name in reversed(gaps):  # from the end, so that the places before stay right
            row = row[: columns[name].start] + known[name].text + row[columns[name].end :]
        return row, None

    def _net(self, before: Held | None, after: Held | None, signed: list[Signed]) -> list[Signed]:
        errors = [row for row in signed if row.error]
        old, new = before and before.row, after and after.row
        if old == new:
            return errors
        last = next(row for row in reversed(signed) if not row.error)
        rows = ((old, -1), (new, 1))
        return errors + [last._replace(row=row, diff=diff) for row, diff in rows if row]


def _signed(change: Change, envelope: Envelope, row: str | None, diff: int | None, error: str | None = None) -> Signed:
    return Signed(change.topic, change.key, row, diff, envelope.op, change.partition, change.offset, error)


@dataclass(frozen=True)
class Envelope:
    op: str | None
    after: str | None = None
    error: str | None = None


def read(value: bytes) -> Envelope:
    try:
        found = members(value.decode())
    except ValueError:
        return Envelope(None, error=refusals.NOT_JSON)
    if list(found)[:2] == ["schema", "payload"] and found["payload"].text.startswith("{"):
        found = members(found["payload"].text)
    op = json.loads(found["op"].text) if "op" in found else None
    op = op if isinstance(op, str) else None
    after = found["after"].text if "after" in found and found["after"].text.startswith("{") else None
    if op in ("t", "m"):
        return Envelope(op, error=refusals.TRUNCATION if op == "t" else refusals.MESSAGE)
    if op is not None and op not in ("c", "r", "u", "d"):
        return Envelope(op, error=refusals.unknown(op))
    if op is None or not ("after" in found or "before" in found):
        return Envelope(op, error=refusals.NO_ENVELOPE)
    if op == "d":
        return Envelope(op)
    return Envelope(op, after, None if after else refusals.no_after(op))


class Member(NamedTuple):
    """The text of a value, and where in the object's text it and its name stand."""

    text: str
    start: int
    end: int
    named: int


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse)


def members(text: str) -> dict[str, Member]:
    """The members of a JSON object, each with its text as written. ValueError if the text is none."""
    if not isinstance(_JSON.decode(text), dict):
        raise ValueError("not an object")
    found: dict[str, Member] = {}
    place = _after(text, text.index("{") + 1)
    while text[place] != "}":
        named = place
        name, place = _JSON.raw_decode(text, place)
        start = _after(text, _after(text, place) + 1)
        _, end = _JSON.raw_decode(text, start)
        found[name] = Member(text[start:end], start, end, named)
        place = _after(text, end)
        place = _after(text, place + 1) if text[place] == "," else place
    return found


def without(row: str, names: Sequence[str]) -> str:
    """The row without these columns; the others as they were written."""
    if not names:
        return row
    kept = [row[each.named : each.end] for name, each in members(row).items() if name not in names]
    return f"{{{','.join(kept)}}}"


def _after(text: str, place: int) -> int:
    """The next place that is not white space."""
    while text[place] in " \t\r\n":
        place += 1
    return place


def unavailable_forms(placeholder: str) -> list[Any]:
    """What stands for a value that the database left out, in each of the types that Debezium has it for."""
    raw = bytes.fromhex(placeholder[4:]) if placeholder.startswith("hex:") else placeholder.encode()
    text = raw.decode(errors="replace")
    texts = [
        text,
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        json.dumps({text: text}, separators=(",", ":"), ensure_ascii=False),
    ]
    # Java's name UUID is of version 3, without a namespace.
    named = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
    numbers = [byte - 256 if byte > 127 else byte for byte in raw]
    return [*texts, *([one] for one in [*texts, named]), numbers, {text: text}]
