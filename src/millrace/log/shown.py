"""Records as lines of text: the bare values, or one JSON object each with everything there is to know."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator
from typing import Any

from millrace.log.reader import Reader
from millrace.log.record import Headers, Record, json_bytes, record_of

Decode = Callable[[Record], Any]


def value_lines(reader: Reader, decode: Decode | None = None) -> Generator[bytes, None, None]:
    """The values, a line each, as blocks of many lines. A tombstone is `null`."""
    for messages in reader.batches():
        if decode is None:
            values = [message.value() for message in messages]
            yield b"\n".join([b"null" if value is None else value for value in values]) + b"\n"
        else:
            records = (record_of(reader.topic, message) for message in messages)
            yield b"".join(json_bytes(decode(record)) + b"\n" for record in records)


def object_lines(reader: Reader, decode: Decode | None = None) -> Generator[bytes, None, None]:
    """The records as JSON objects, a line each, as blocks of many lines."""
    for messages in reader.batches():
        records = (record_of(reader.topic, message) for message in messages)
        yield b"".join(json_bytes(described(record, decode)) + b"\n" for record in records)


def described(record: Record, decode: Decode | None = None) -> dict[str, Any]:
    """Everything about a record. `value` is JSON, `value_text` a text that is not JSON, `value_base64` neither."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": record.time,
        **text_or_base64("key", record.key),
    }
    if decode is not None:
        shown["value"] = decode(record)
    else:
        shown |= _value(record.value)
    shown["headers"] = described_headers(record.headers)
    return shown


def described_headers(headers: Headers) -> list[dict[str, Any]]:
    """A list, because a name may come more than once and their order is part of the record."""
    return [{"name": name, **text_or_base64("value", value)} for name, value in headers]


def _value(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {"value": None}
    try:
        return {"value": json.loads(value)}
    except (ValueError, RecursionError):
        pass
    try:
        return {"value_text": value.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(value).decode()}


def text_or_base64(name: str, content: bytes | None) -> dict[str, Any]:
    """The content under its name as a text, or under `name_base64` if it is none."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
