"""Members of JSON in plain Python, as PostgreSQL's `->` and `->>` find them. `JsonMember.java` is the same on Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from millrace.views.numerics import NoAnswer

_SPACE = re.compile(r"[ \t\n\r]*")
# Numbers are left alone: what is wanted is how they are written.
_READER = json.JSONDecoder(parse_int=str, parse_float=str)


def found(text: str, name: str, as_text: bool) -> str | None:
    """The member as it is written, or as a text; of several of one name the last. None if there is none, also of what
    is no object."""
    written = None
    for each, value in _members(text):
        if each == name:
            written = value
    if written is None or not as_text:
        return written
    if written == "null":
        return None
    if not written.startswith('"'):
        return written
    read = json.loads(written)
    if "\0" in read or _is_half(read):
        raise NoAnswer("unsupported Unicode escape sequence")
    return str(read)


def _members(text: str) -> Iterator[tuple[str, str]]:
    at = _past(text, 0)
    if not text.startswith("{", at):
        return
    at = _past(text, at + 1)
    while text[at] != "}":
        name, at = _READER.raw_decode(text, at)
        begin = _past(text, _past(text, at) + 1)
        _, end = _READER.raw_decode(text, begin)
        yield name, text[begin:end]
        at = _past(text, end)
        if text[at] == ",":
            at = _past(text, at + 1)


def _past(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _is_half(text: str) -> bool:
    """Whether it has half of a character that is written as two."""
    return any("\ud800" <= each <= "\udfff" for each in text)
