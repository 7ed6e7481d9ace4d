"""A first look at a schema's text, without Spark: which columns it names. Spark's own parser judges it when it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace.errors import SchemaInvalid, SchemaMissing, Where

EXAMPLE = '"url string, user long, at timestamp"'

_COLUMN = re.compile(r"(`(?:[^`]|``)+`|[^\s:`]+)\s*(?::\s*|\s+)(\S.*)", re.DOTALL)


def columns(name: str, schema: str, where: Where) -> dict[str, str]:
    """Column names and the text of their types."""
    if not isinstance(schema, str) or not schema.strip():
        raise SchemaMissing(name=name, example=EXAMPLE, where=where)
    found: dict[str, str] = {}
    for part in _split(schema):
        match = _COLUMN.fullmatch(part.strip())
        if not match:
            reason = f"{part.strip()!r} is not a name and a type" if part.strip() else "a column is empty"
            raise SchemaInvalid(name=name, reason=reason, where=where)
        column = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
        if column in found:
            raise SchemaInvalid(name=name, reason=f"column {column!r} is there twice", where=where)
        found[column] = match[2].strip()
    return found


def _split(schema: str) -> Iterator[str]:
    """At the commas between columns, not at those inside decimal(12,2), struct<…> or a quoted name or comment."""
    depth, quote, start = 0, "", 0
    for place, letter in enumerate(schema):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`'\"":
            quote = letter
        elif letter in "(<":
            depth += 1
        elif letter in ")>":
            depth -= 1
        elif letter == "," and depth == 0:
            yield schema[start:place]
            start = place + 1
    yield schema[start:]
