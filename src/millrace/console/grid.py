"""Rows as texts in columns, a page at a time: what a view holds, what a query gave."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Any, TypeAlias

PAGE = 50
LONGEST = 300
# Money, too.
_NUMBER = re.compile(r"-?\$?-?[0-9][0-9,]*(\.[0-9]+)?(E[+-]?[0-9]+)?", re.IGNORECASE)

# None is SQL's null.
Cell: TypeAlias = str | None


@dataclass(frozen=True)
class Grid:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of_json(cls, texts: Iterable[str]) -> Grid:
        """Rows as JSON objects, with every digit that they have. A column may be there twice, as in SQL."""
        rows = [json.loads(text, parse_float=Decimal, object_pairs_hook=_Pairs) for text in texts]
        columns = tuple(name for name, _ in rows[0]) if rows else ()
        return cls(columns, tuple(tuple(cell(value) for _, value in row) for row in rows))

    @property
    def pages(self) -> int:
        return max(-(-len(self.rows) // PAGE), 1)

    def html(self, page: int = 1, fresh: Collection[int] = ()) -> str:
        """A page as a table; `fresh` are rows, by their place, that are to be seen at once."""
        first = (page - 1) * PAGE
        shown = self.rows[first : first + PAGE]
        sides = ["mr-right" if _numeric(row[place] for row in shown) else "" for place in range(len(self.columns))]
        head = "".join(
            f'<th class="{side}">{escape(name)}</th>' for side, name in zip(sides, self.columns, strict=True)
        )
        body = "".join(_line(row, sides, first + number in fresh) for number, row in enumerate(shown))
        return f'<table class="mr-rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON with its names as often as they are there."""


def cell(value: Any) -> Cell:
    """Texts and numbers as they are, times in UTC as ISO 8601 has them, what has parts as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, Mapping | list):
        return json.dumps(_plain(value), ensure_ascii=False, default=str)
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {name: _plain(each) for name, each in value}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return float(value) if isinstance(value, Decimal) else value


def _numeric(cells: Iterable[Cell]) -> bool:
    known = [each for each in cells if each is not None]
    return bool(known) and all(_NUMBER.fullmatch(each) for each in known)


def _line(row: Sequence[Cell], sides: Sequence[str], fresh: bool) -> str:
    cells = "".join(
        f'<td class="{side}{" mr-null" if text is None else ""}">{_shown(text)}</td>'
        for text, side in zip(row, sides, strict=True)
    )
    return f"<tr{' class=mr-fresh' if fresh else ''}>{cells}</tr>"


def _shown(text: Cell) -> str:
    if text is None:
        return "null"
    return escape(text if len(text) <= LONGEST else text[:LONGEST] + "…")
