"""A bounded reading of a topic for somebody who looks: it can be stopped and searched, and shows what each record
changed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.capture.connector import UNAVAILABLE
from millrace.errors import BrowseLimit, MillraceError
from millrace.log import Log, Position, Record, position
from millrace.log.shown import described

MOST_RECORDS = 10_000
# Records may be large: what is kept for one reader is bounded in bytes too.
MOST_BYTES = 64 * 1024 * 1024
NEWEST = "newest"
_PREVIEW = 160
_TOP_KEYS = 10
_OPS = {"c": "inserted", "u": "updated", "d": "deleted", "r": "read by a snapshot", "t": "truncated"}


@dataclass(frozen=True)
class Row:
    """A record in a line. `n` is its place in the reading."""

    n: int
    partition: int
    offset: int
    time: str
    key: str
    value: str


@dataclass(frozen=True)
class Field:
    """A field of a row before and after a change. What a side does not have is an empty text."""

    name: str
    before: str
    after: str
    changed: bool


@dataclass(frozen=True)
class Change:
    """What a record changed. `source` says where the side before is from."""

    what: str
    source: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Keys:
    """The keys of what was read: how many, how many records have none, and the most frequent."""

    distinct: int
    without: int
    top: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Shown:
    """A page of a reading: its rows, its number of so many pages, of how many records with the text that is searched,
    and the keys of all."""

    rows: tuple[Row, ...]
    number: int
    pages: int
    found: int
    count: int
    done: bool
    keys: Keys


class Browse(threading.Thread):
    """Reads in the background; `records` grows until it is done or stopped. With `follow` it goes on with new records,
    from `newest` with nothing else."""

    def __init__(
        self, log: Log, topic: str, start: str, limit: int, partition: int | None = None, *, follow: bool = False
    ) -> None:
        super().__init__(name=f"browse {topic}", daemon=True)
        if not 1 <= limit <= MOST_RECORDS:
            raise BrowseLimit(given=limit, most=MOST_RECORDS)
        self.records: list[Record] = []
        self.trouble: MillraceError | None = None
        self.done = False
        self.cut = False  # ended by its size
        self._log, self._topic, self._limit, self._partition = log, topic, limit, partition
        self._follow = follow
        self._newest = start.strip() in ("", NEWEST)
        self._start: Position = "latest" if self._newest else position(start)
        self._stop = threading.Event()
        self._reading = self._begun()  # where it begins and ends is settled here

    def run(self) -> None:
        size_bytes = 0
        try:
            for record in self._reading:
                self.records.append(record)
                size_bytes += len(record.value or b"") + len(record.key or b"")
                if size_bytes > MOST_BYTES:
                    self.cut = True
                    break
        except MillraceError as error:
            self.trouble = error
        finally:
            self._reading.close()
            self.done = True

    def stop(self) -> None:
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def _begun(self) -> Generator[Record, None, None]:
        if self._newest and not self._follow:
            return self._log.newest(self._topic, self._limit, partition=self._partition, stop=self._stop)
        return self._log.read(
            self._topic,
            self._start,
            partition=self._partition,
            limit=self._limit,
            follow=self._follow,
            stop=self._stop,
        )

    def found(self, search: str) -> list[int]:
        """Which records have this text in their key, value or headers, whatever its case; the newest first."""
        wanted = search.strip().lower()
        records = self.records[:]
        hits = (n for n, record in enumerate(records) if not wanted or wanted in _searched(record))
        return sorted(hits, key=lambda n: _age(records[n]), reverse=True)

    def rows(self, places: Sequence[int]) -> list[Row]:
        return [_row(n, self.records[n]) for n in places]

    def keys(self) -> Keys:
        records = self.records[:]
        counts = Counter(record.key for record in records if record.key is not None)
        top = tuple((_text(key), number) for key, number in counts.most_common(_TOP_KEYS))
        return Keys(len(counts), sum(record.key is None for record in records), top)

    def shown(self, search: str, number: int, size: int) -> Shown:
        """A page of what has this text. It looks at every record, which takes a while: not for a thread that others
        wait for."""
        done, count = self.done, len(self.records)
        found = self.found(search)
        pages = max(-(-len(found) // size), 1)
        number = max(min(number, pages), 1)
        rows = tuple(self.rows(found[(number - 1) * size : number * size]))
        return Shown(rows, number, pages, len(found), count, done, self.keys())

    def whole(self, n: int) -> str:
        """Everything about a record, as JSON for people."""
        return json.dumps(described(self.records[n]), indent=2, ensure_ascii=False, default=str)

    def change(self, n: int) -> Change | None:
        """What a record changed, if it is a change of a captured row or one of several of its key."""
        record, records = self.records[n], self.records[:]
        earlier = None
        if record.key is not None:
            same = (
                other
                for other in records
                if other.key == record.key and other.partition == record.partition and other.offset < record.offset
            )
            earlier = max(same, key=lambda other: other.offset, default=None)
        return change_of(record, earlier)


def change_of(record: Record, earlier: Record | None) -> Change | None:
    """`earlier` is the record of the same key before it, if it was read: a database need not say what a row was."""
    now, before = _object(record.value), _object(earlier.value if earlier else None)
    envelope = _envelope(now)
    if envelope is None:
        if earlier is None or (before is None and now is None):
            return None
        earlier_row = _row_after(before)
        what = "deleted its key" if record.value is None else "the next record of its key"
        return Change(what, f"offset {earlier.offset}", _fields(earlier_row, now or {}))
    what = _OPS.get(str(envelope.get("op")), str(envelope.get("op")))
    after, told = envelope.get("after") or {}, envelope.get("before")
    if told:
        return Change(what, "as the database told it", _fields(told, after))
    if envelope.get("op") in ("c", "r") or earlier is None:
        return Change(what, "nothing before it is known", _fields({}, after))
    return Change(what, f"offset {earlier.offset}", _fields(_row_after(before), after))


def _envelope(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Debezium's, with or without its schema."""
    inner = value.get("payload") if value and isinstance(value.get("payload"), dict) else value
    return inner if inner and "op" in inner and ("after" in inner or "before" in inner) else None


def _row_after(value: dict[str, Any] | None) -> dict[str, Any]:
    envelope = _envelope(value)
    found = (envelope.get("after") if envelope else value) or {}
    return found if isinstance(found, dict) else {}


def _fields(before: dict[str, Any], after: dict[str, Any]) -> tuple[Field, ...]:
    fields = []
    for name in dict.fromkeys((*before, *after)):
        then, now = _shown(before, name), _shown(after, name)
        if now == UNAVAILABLE:  # a large value that the change left alone
            now = then or "(not told)"
        fields.append(Field(name, then, now, then != now and now != "(not told)"))
    return tuple(fields)


def _shown(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return ""
    return row[name] if isinstance(row[name], str) else json.dumps(row[name], ensure_ascii=False)


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _row(n: int, record: Record) -> Row:
    time = "" if record.time is None else record.time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    key = "" if record.key is None else _text(record.key)
    value = "null (deletes its key)" if record.value is None else _text(record.value)
    return Row(n, record.partition, record.offset, time, key, value)


def _text(content: bytes) -> str:
    text = content[: 4 * _PREVIEW].decode(errors="replace")
    return text[:_PREVIEW] + "…" if len(text) > _PREVIEW else text


def _searched(record: Record) -> str:
    headers = b"\n".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)
    return b"\n".join((record.key or b"", record.value or b"", headers)).decode(errors="replace").lower()


def _age(record: Record) -> tuple[float, int, int]:
    return (record.time.timestamp() if record.time else 0.0, record.offset, record.partition)
