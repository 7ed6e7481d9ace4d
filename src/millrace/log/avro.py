"""Avro: a schema, and values that JSON can say fitted to it."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from millrace.errors import RecordSchemaInvalid
from millrace.log.registry import missing

try:
    import fastavro
except ImportError as error:
    raise missing("Avro", error) from None

_TIMES: dict[str, Callable[[str], Any]] = {
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
}
# What a branch of a union takes, logical types included.
_PYTHON: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "int": (int, date, time),
    "long": (int, datetime, time),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal),
    "array": (list,),
    "map": (dict,),
}


class AvroSchema:
    def __init__(self, text: str, source: str) -> None:
        self._named: dict[str, Any] = {}
        try:
            self._schema = fastavro.parse_schema(json.loads(text), self._named)
        except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
            reason = " ".join(str(error).split())[:300]
            remedy = "write an Avro schema, which is JSON"
            raise RecordSchemaInvalid(source=source, reason=reason, remedy=remedy) from None

    def encode(self, value: Any) -> bytes:
        out = io.BytesIO()
        # Strict: a field that the schema lacks would otherwise be dropped without a word.
        fastavro.schemaless_writer(out, self._schema, self._fitted(self._schema, value), strict_allow_default=True)
        return out.getvalue()

    def decode(self, content: bytes) -> Any:
        source = io.BytesIO(content)
        value = fastavro.schemaless_reader(source, self._schema, None)
        if source.read(1):
            raise ValueError("there are bytes after its end")
        return _said(value)

    def _fitted(self, schema: Any, value: Any) -> Any:
        """The value with texts turned into the times, decimals and bytes that the schema wants in their place."""
        if isinstance(schema, list):
            return self._fitted_to_one(schema, value)
        if isinstance(schema, str):
            if schema in self._named:
                return self._fitted(self._named[schema], value)
            return base64.b64decode(value, validate=True) if schema == "bytes" and isinstance(value, str) else value
        logical, kind = schema.get("logicalType"), schema["type"]
        if isinstance(value, str) and logical in _TIMES:
            found = _TIMES[logical](value)
            is_moment = logical.startswith("timestamp") and found.tzinfo is None
            return found.replace(tzinfo=UTC) if is_moment else found
        if logical == "decimal" and isinstance(value, str | int | float):
            return Decimal(str(value))
        if isinstance(value, str) and kind in ("bytes", "fixed"):
            return base64.b64decode(value, validate=True)
        if kind == "record" and isinstance(value, dict):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: self._fitted(types[name], part) if name in types else part for name, part in value.items()}
        if kind == "array" and isinstance(value, list):
            return [self._fitted(schema["items"], part) for part in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._fitted(schema["values"], part) for name, part in value.items()}
        return self._fitted(kind, value) if isinstance(kind, str | dict | list) and kind != schema else value

    def _fitted_to_one(self, schemas: list[Any], value: Any) -> Any:
        """The first branch of a union that takes the value."""
        for schema in schemas:
            try:
                fitted = self._fitted(schema, value)
            except (ValueError, ArithmeticError):
                continue
            if self._takes(schema, fitted):
                return fitted
        return value  # the writer will say what is wrong with it

    def _takes(self, schema: Any, fitted: Any) -> bool:
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "enum":
            return fitted in schema["symbols"]
        if kind == "record":
            return isinstance(fitted, dict) and set(fitted) <= {field["name"] for field in schema["fields"]}
        if isinstance(fitted, bool) or kind == "boolean":
            return isinstance(fitted, bool) and kind == "boolean"
        return isinstance(fitted, _PYTHON[kind])


def _said(value: Any) -> Any:
    """What Avro gave, in what JSON can say."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _said(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_said(part) for part in value]
    return value
