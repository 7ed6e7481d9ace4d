"""What the bytes of a value mean: JSON, or Avro or Protobuf by a schema in the registry.

A format turns what JSON can say into bytes and back. What JSON lacks is text in it: times are ISO 8601, decimals are
decimal numbers in quotes, bytes are base64. The registry's subject for the values of a topic is `<topic>-value`, by the
topic's outside name, as Confluent's clients have it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from millrace.errors import (
    FormatUnknown,
    RecordSchemaInvalid,
    RecordSchemaMissing,
    RecordUnreadable,
    ValueUnwritable,
    nearest,
)
from millrace.log.record import Record, json_bytes
from millrace.log.registry import Registry, framed, unframed

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


class Schema(Protocol):
    """A schema of one kind, ready for use. Faults of a value are ValueErrors."""

    def encode(self, value: Any) -> bytes: ...

    def decode(self, content: bytes) -> Any: ...


class Format:
    """How the values of one topic are written and read."""

    def __init__(self, topic: str, name: str, encode: Encode, decode: Decode) -> None:
        self.topic, self.name = topic, name
        self._encode, self._decode = encode, decode

    def encode(self, value: Any) -> bytes:
        try:
            return self._encode(value)
        except (ValueError, TypeError, LookupError) as error:
            raise ValueUnwritable(topic=self.topic, format=self.name, reason=_line(error)) from None

    def decode(self, record: Record) -> Any:
        """What the record's value says; None for a tombstone."""
        if record.value is None:
            return None
        try:
            return self._decode(record.value)
        except (ValueError, TypeError, LookupError, EOFError) as error:
            raise RecordUnreadable(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                format=self.name,
                reason=_line(error),
            ) from None


def format_of(registry: Registry, topic: str, outside: str, name: str, schema: Path | str | None = None) -> Format:
    """A format by name. `schema` is a file or the text itself: only writing needs it, and it is registered at once."""
    if name == "json":
        return Format(topic, "JSON", json_bytes, json.loads)
    if name not in _KINDS:
        raise FormatUnknown(format=name, hint=nearest(name, NAMES), known=", ".join(NAMES))
    kind, prepare = _KINDS[name]
    read: dict[int, Schema] = {}

    def decode(value: bytes) -> Any:
        number, content = unframed(value)
        if number not in read:
            found, text = registry.schema(number)
            if found != kind:
                raise ValueError(f"its schema {number} is {found}")
            read[number] = prepare(text, f"schema {number} of the registry")
        return read[number].decode(content)

    def unprepared(_: Any) -> bytes:
        raise RecordSchemaMissing(format=name, topic=topic)

    if schema is None:
        return Format(topic, kind.capitalize(), unprepared, decode)
    text, source = _text(schema)
    ready = prepare(text, source)
    number = registry.register(f"{outside}-value", kind, text, source)
    return Format(topic, kind.capitalize(), lambda value: framed(number, ready.encode(value)), decode)


def _text(schema: Path | str) -> tuple[str, str]:
    if isinstance(schema, str):
        return schema, "the schema"
    try:
        return schema.read_text(encoding="utf-8"), str(schema)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise RecordSchemaInvalid(source=schema, reason=reason, remedy="name a file that can be read") from None


def _avro(text: str, source: str) -> Schema:
    from millrace.log.avro import AvroSchema

    return AvroSchema(text, source)


def _protobuf(text: str, source: str) -> Schema:
    from millrace.log.protobuf import ProtobufSchema

    return ProtobufSchema(text, source)


_KINDS: dict[str, tuple[str, Callable[[str, str], Schema]]] = {
    "avro": ("AVRO", _avro),
    "protobuf": ("PROTOBUF", _protobuf),
}
NAMES = ("json", *_KINDS)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
