"""Rows of a test, as dicts or as a Markdown table, and how they are compared with what a topic holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from millrace.errors import PlayRowsInvalid, Where

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = str | Sequence[Mapping[str, Any]]

# Of times that say no day.
DAY = date(2026, 1, 1)

_RULE = re.compile(r"[\s|:-]+")
_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_NUMBERS = ("tinyint", "smallint", "int", "integer", "bigint", "long", "short", "byte", "float", "double", "real")


def read(rows: Rows, where: Where | None = None) -> list[Row]:
    """A Markdown table's cells are texts; an empty one is null."""
    if not isinstance(rows, str):
        return _dicts(rows, where)
    lines = [line.strip() for line in rows.strip().splitlines() if line.strip()]
    lines = [line for line in lines if not _RULE.fullmatch(line)]
    if not lines or not all(line.startswith("|") and line.endswith("|") and len(line) > 1 for line in lines):
        raise PlayRowsInvalid(reason="every line begins and ends with |, the first names the columns", where=where)
    names, *cells = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    for each in cells:
        if len(each) != len(names):
            told = f"the line {' | '.join(each)!r} has {len(each)} cells, the head {len(names)}"
            raise PlayRowsInvalid(reason=told, where=where)
    return [{name: cell or None for name, cell in zip(names, each, strict=True)} for each in cells]


def _dicts(rows: Sequence[Mapping[str, Any]], where: Where | None) -> list[Row]:
    if rows is None or isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        told = "one row stands in a list too, [{…}]" if isinstance(rows, Mapping) else f"{rows!r} is no list of them"
        raise PlayRowsInvalid(reason=told, where=where)
    given = list(rows)
    for row in given:
        if not isinstance(row, Mapping):
            raise PlayRowsInvalid(reason=f"{row!r} is no row", where=where)
    return [dict(row) for row in given]


def typed(value: Any, kind: str) -> Any:
    """A cell's text as a value of this type of a schema (otherwise a ValueError); what is no text stays as it is."""
    if not isinstance(value, str):
        return value
    word = kind.lower().split("(")[0].split("<")[0].strip()
    try:
        if word.startswith("timestamp"):
            return moment(value)
        if word in _NUMBERS or word in ("boolean", "array", "struct", "map"):
            return json.loads(value)
    except ValueError:
        raise ValueError(f"{value!r} is no {kind}") from None
    return value


def moment(text: str | datetime) -> datetime:
    """ISO 8601, or a time of `DAY`. Without a zone it is UTC."""
    if isinstance(text, str) and _TIME.fullmatch(text):
        found = datetime.combine(DAY, time.fromisoformat(text.zfill(len(text) + text.index(":") % 2)))
    else:
        found = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def same(expected: Any, found: Any) -> bool:
    """Whether what was expected is what a record's JSON says: times and numbers by their value, however written."""
    if expected is None or found is None:
        return expected is None and found is None
    if isinstance(found, bool):
        return str(expected).lower() == str(found).lower()
    if isinstance(found, int | float) or isinstance(expected, Decimal):
        return _decimal(expected) is not None and _decimal(expected) == _decimal(found)
    if isinstance(found, str):
        time = _moment(found) if ":" in found else None
        return str(expected) == found if time is None else _moment(expected) == time
    try:
        return bool((json.loads(expected) if isinstance(expected, str) else expected) == found)
    except ValueError:
        return False


def _moment(given: Any) -> datetime | None:
    try:
        return moment(given)
    except (ValueError, TypeError):
        return None


def _decimal(given: Any) -> Decimal | None:
    try:
        return Decimal(str(given))
    except InvalidOperation:
        return None


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, to be read and to be pasted."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(names))]
    texts = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines]
    return "\n".join(texts) if rows else "(none)"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)
