"""Standard input to records: lines of JSON, checked one by one, at the speed of the log.

A line that is not JSON is never written and never forgotten: it is counted and handed back with its number and reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from millrace.errors import LineTooLong, MillraceError
from millrace.log.record import json_bytes
from millrace.log.writer import Writer

CHUNK_BYTES = 1024 * 1024
LONGEST_LINE_BYTES = 128 * 1024 * 1024
NOT_JSON = (ValueError, RecursionError)  # what `parsed_line` raises, and `why` explains
_FRAME_BYTES = 96  # around a record that is alone in its batch, at most: 61 for the batch, up to 35 for itself


@dataclass(frozen=True)
class RefusedLine:
    number: int
    reason: str
    content: bytes


@dataclass
class Tally:
    written: int = 0
    blank: int = 0
    refused: int = 0


def chunks(descriptor: int) -> Iterator[bytes]:
    """Whole lines, many at a time, as soon as they are there: a slow pipe is not waited for to fill a buffer."""
    rest: list[bytes] = []
    held, line = 0, 1
    while found := os.read(descriptor, CHUNK_BYTES):
        end = found.rfind(b"\n")
        if end < 0:
            rest.append(found)
            held += len(found)
            if held > LONGEST_LINE_BYTES:
                raise LineTooLong(line=line, limit_bytes=LONGEST_LINE_BYTES)
            continue
        whole = b"".join((*rest, found[:end]))
        yield whole
        line += whole.count(b"\n") + 1
        rest = [found[end + 1 :]]
        held = len(rest[0])
    if last := b"".join(rest):
        yield last


class LineWriter:
    """Writes the lines of an input to a topic.

    `key` names the field whose value becomes the record's key: a text as it is, anything else as JSON writes it.
    `raw` writes lines as they are, empty ones too. `encode` turns the parsed line into other bytes (Avro, Protobuf).
    """

    def __init__(
        self,
        writer: Writer,
        refuse: Callable[[RefusedLine], None],
        *,
        key: str | None = None,
        raw: bool = False,
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.tally = Tally()
        self._writer, self._refuse, self._key, self._encode = writer, refuse, key, encode
        self._number = 0
        self._raw = raw

    def write(self, chunk: bytes) -> None:
        lines = chunk.split(b"\n")
        if self._raw:
            self._send(lines, None)
        elif self._encode is not None or not self._quick(lines, chunk):
            self._careful(lines)
        self._number += len(lines)

    def _quick(self, lines: list[bytes], chunk: bytes) -> bool:
        """Writes all lines if there is nothing about any of them; otherwise none, and says so."""
        if max(map(len, lines)) * 2 > self._writer.limit_bytes:
            return False
        field = self._key
        keys: list[bytes | None] = []
        try:
            for text in chunk.decode().split("\n"):  # one decoding for all lines is much faster than one each
                parsed, end = _scan(text, 0)
                if end != len(text):
                    return False
                if field is not None:
                    key = parsed[field]
                    keys.append(key.encode() if type(key) is str else _key_bytes(key))
        except (ValueError, TypeError, LookupError, StopIteration, RecursionError):
            return False
        self._send(lines, keys if field is not None else None)
        return True

    def _careful(self, lines: list[bytes]) -> None:
        values: list[bytes] = []
        keys: list[bytes | None] = []
        for number, line in enumerate(lines, self._number + 1):
            if not line.strip():
                self.tally.blank += 1
                continue
            try:
                value, key = self._record(line)
            except (*NOT_JSON, MillraceError) as error:
                self.tally.refused += 1
                self._refuse(RefusedLine(number, why(error), line))
                continue
            values.append(value)
            keys.append(key)
        self._send(values, keys)

    def _record(self, line: bytes) -> tuple[bytes, bytes | None]:
        parsed, key = parsed_line(line, self._key)
        value = line.rstrip(b"\r") if self._encode is None else self._encode(parsed)
        # A record's own framing is a few bytes more than its key and value.
        if (size_bytes := len(value) + len(key or b"") + _FRAME_BYTES) > self._writer.limit_bytes:
            raise ValueError(f"as a record it has {size_bytes} bytes, and the topic takes {self._writer.limit_bytes}")
        return value, key

    def _send(self, values: list[bytes], keys: list[bytes | None] | None) -> None:
        self._writer.write_batch(values, keys)
        self.tally.written += len(values)


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_not_json)
# What `decode` is built on, without its search for whitespace around: one value, and where it ends.
_scan: Callable[[str, int], tuple[Any, int]] = cast(Any, _decoder).scan_once


def parsed_line(line: bytes, field: str | None) -> tuple[Any, bytes | None]:
    """What a line of JSON says, and the record's key if a field is one. One of `NOT_JSON` if it cannot be that."""
    parsed = _decoder.decode(line.decode())
    if field is None:
        return parsed, None
    if not isinstance(parsed, dict) or field not in parsed:
        raise ValueError(f"it has no field {field!r}, which was to be the key")
    return parsed, _key_bytes(parsed[field])


def _key_bytes(value: Any) -> bytes:
    if value is None:
        raise ValueError("the field that was to be the key is null")
    return value.encode() if isinstance(value, str) else json_bytes(value)


def why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} (column {error.colno})"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} (byte {error.start + 1})"
    if isinstance(error, RecursionError):
        return "not JSON that can be read: it is nested too deeply"
    return str(error)
