"""The schema registry (Confluent's API), and the few bytes by which a record names its schema there.

A framed value is a zero byte, the schema's id in four bytes, and the content.
"""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any

from millrace import local
from millrace.config import Settings, masked
from millrace.errors import ExtraMissing, RecordSchemaInvalid, RegistryUnreachable

EXTRA = "registry"
_MAGIC = 0
_FRAME_BYTES = 5
_INVALID = (409, 422)  # not compatible with the versions there are; not a schema


class Registry:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def address(self) -> str:
        return local.address(self._settings, "registry")

    def register(self, subject: str, kind: str, text: str, source: str) -> int:
        """The id of a schema, which becomes the subject's newest version unless it is one already."""
        schema = self._library.Schema(text, kind)
        try:
            return int(self._client.register_schema(subject, schema))
        except self._library.SchemaRegistryError as error:
            if error.http_status_code in _INVALID:
                remedy = f"correct it, or see which versions {subject} has: each must be able to read the one before"
                raise RecordSchemaInvalid(source=source, reason=_line(error.error_message), remedy=remedy) from None
            raise self._unreachable(error) from None
        except self._transport_errors as error:
            raise self._unreachable(error) from None

    def schema(self, number: int) -> tuple[str, str]:
        """Kind (AVRO, PROTOBUF, …) and text of a schema. The client remembers those it has asked for."""
        try:
            found = self._client.get_schema(number)
        except self._library.SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise ValueError(f"the registry has no schema {number}") from None
            raise self._unreachable(error) from None
        except self._transport_errors as error:
            raise self._unreachable(error) from None
        if found.references:
            raise ValueError(f"its schema {number} refers to others, which is not supported")
        return found.schema_type, found.schema_str

    @cached_property
    def _library(self) -> Any:
        try:
            import confluent_kafka.schema_registry as library
        except ImportError as error:
            raise missing("a schema registry", error) from None
        return library

    @cached_property
    def _client(self) -> Any:
        client = self._library.SchemaRegistryClient({"url": self.address, "max.retries": 1, "timeout": 30})
        weakref.finalize(self, client.__exit__, None, None, None)  # closes its connections
        return client

    @property
    def _transport_errors(self) -> tuple[type[Exception], ...]:
        from confluent_kafka.schema_registry.common import _httpx_compat

        return (_httpx_compat.httpx.HTTPError, OSError)

    def _unreachable(self, error: Exception) -> RegistryUnreachable:
        return RegistryUnreachable(address=masked(self.address), reason=_line(str(error)) or type(error).__name__)


def framed(number: int, content: bytes) -> bytes:
    return bytes((_MAGIC,)) + number.to_bytes(4) + content


def unframed(value: bytes) -> tuple[int, bytes]:
    if len(value) < _FRAME_BYTES or value[0] != _MAGIC:
        raise ValueError("it does not begin with the number of a schema")
    return int.from_bytes(value[1:_FRAME_BYTES]), value[_FRAME_BYTES:]


def missing(what: str, error: ImportError) -> ExtraMissing:
    return ExtraMissing(what=what, reason=f"no module {error.name}", extra=EXTRA)


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
