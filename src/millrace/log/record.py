"""One record as it stands in a topic, the ways to say a place in it, and how Python values become bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from millrace.durations import parse as duration
from millrace.errors import PositionInvalid, ValueUnwritable

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Position: TypeAlias = Literal["earliest", "latest"] | int | datetime
Value: TypeAlias = bytes | str | Mapping[str, Any] | list[Any] | None


class Record(NamedTuple):
    """A record and its place. A value of None deletes the key from a compacted topic."""

    topic: str
    partition: int
    offset: int
    time: datetime | None
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def text(self) -> str | None:
        return None if self.value is None else self.value.decode()

    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


def record_of(topic: str, message: Message) -> Record:
    kind, milliseconds = message.timestamp()
    time = None if kind == TIMESTAMP_NOT_AVAILABLE else moment(milliseconds)
    headers = tuple(message.headers() or ())
    return Record(topic, message.partition(), message.offset(), time, message.key(), message.value(), headers)


def timestamp_ms(time: datetime) -> int:
    """A time without a zone is UTC: the same command must mean the same on every machine."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000)


def position(text: str, now: datetime | None = None) -> Position:
    """Reads `earliest`, `latest`, an offset, a time, or how long ago."""
    word = text.strip()
    if word in ("earliest", "latest"):
        return word  # type: ignore[return-value]
    if word.isascii() and word.isdigit():
        return int(word)
    if word.endswith(" ago"):
        return (now or datetime.now(UTC)) - duration(word.removesuffix(" ago"))
    try:
        time = datetime.fromisoformat(word)
    except ValueError:
        raise PositionInvalid(text=text) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def value_bytes(topic: str, value: Value) -> bytes | None:
    """Bytes stay as they are, a text becomes UTF-8, anything else JSON."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else json_bytes(value)
    except (TypeError, ValueError) as error:  # UnicodeEncodeError, NaN and unknown types are among them
        raise ValueUnwritable(topic=topic, format="JSON", reason=error) from None


def json_bytes(value: Any) -> bytes:
    """Compact JSON. Times are ISO 8601, decimals are texts so that no digit is lost, and NaN is refused."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def header_pairs(
    headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] | None,
) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def _plain(value: Any) -> Any:
    if isinstance(value, date | time_of_day):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def moment(milliseconds: int) -> datetime:
    # fromtimestamp(ms / 1000) would round through a float.
    return datetime.fromtimestamp(milliseconds // 1_000, UTC).replace(microsecond=milliseconds % 1_000 * 1_000)
