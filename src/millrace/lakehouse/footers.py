"""What the end of a Parquet file says about it: rows, and of each column the least, the greatest and how many nulls. By
that readers pass over files."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from millrace.lakehouse.place import Place

# Longer texts are told by their beginning; nothing then says which is the last.
TEXT_CHARACTERS = 32
_AT_ONCE = 8


@dataclass
class Footer:
    path: str
    size_bytes: int
    modified_ms: int
    rows: int
    low: dict[str, Any] = field(default_factory=dict)
    high: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    # Of which no part has a dictionary: their values hardly come again.
    varied: frozenset[str] = frozenset()
    # As Arrow has it.
    whole: Any = field(default=None, repr=False)


def footers(place: Place, paths: Sequence[str]) -> list[Footer]:
    """`paths` are taken from the table's place."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda path: _footer(place, path), paths))


def _footer(place: Place, path: str) -> Footer:
    from pyarrow import parquet, types

    told, seen = parquet.read_metadata(place.arrow(path), filesystem=place.filesystem), place.seen(path)
    assert seen is not None, path
    found = Footer(path, seen.size_bytes, int(seen.modified_s * 1000), told.num_rows, whole=told)
    leaf, varied = 0, set()
    for each in told.schema.to_arrow_schema():
        if types.is_nested(each.type):
            leaf += _leaves(each.type)
            continue
        chunks = [told.row_group(number).column(leaf) for number in range(told.num_row_groups)]
        _add(found, each.name, chunks)
        if not any(chunk.has_dictionary_page for chunk in chunks):
            varied.add(each.name)
        leaf += 1
    found.varied = frozenset(varied)
    return found


def only_value(place: Place, footer: Footer, name: str) -> Any:
    """Of a column that has one value in all rows of a file. What is too long to be told at its end is read."""
    if footer.nulls.get(name) == footer.rows:
        return None
    if name in footer.low and name in footer.high:
        low, high = footer.low[name], footer.high[name]
        assert low == high, f"{footer.path} holds several values of {name}"
        return low
    from pyarrow import parquet

    with parquet.ParquetFile(place.arrow(footer.path), filesystem=place.filesystem) as file:
        return next(file.iter_batches(1, columns=[name])).column(0)[0].as_py()


def _leaves(kind: Any) -> int:
    from pyarrow import types

    if not types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))


def _add(found: Footer, name: str, chunks: Sequence[Any]) -> None:
    """Of one column: what holds of all its chunks."""
    told = [chunk.statistics for chunk in chunks]
    if all(each is not None and each.has_null_count for each in told):
        found.nulls[name] = sum(each.null_count for each in told)
    filled = [
        each for each, chunk in zip(told, chunks, strict=True) if each is None or each.null_count != chunk.num_values
    ]
    if not filled or not all(each is not None and each.has_min_max for each in filled):
        return
    # Years that Python does not know, and bytes, are left out.
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        low, high = min(each.min for each in filled), max(each.max for each in filled)
        if isinstance(low, int | float | str | date | datetime | Decimal):
            found.low[name] = low
            # What is not a number is above all numbers to those who ask, and not told in the file.
            if not isinstance(low, float):
                found.high[name] = high


def text_bounds(low: str, high: str) -> tuple[str, str | None]:
    """As texts are told: cut off; an end that would have to be is not told."""
    return low[:TEXT_CHARACTERS], high if len(high) <= TEXT_CHARACTERS else None
