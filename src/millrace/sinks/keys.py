"""What sinks share of their options: how the key is named, which key those take that compare versions, and how many
rows are on their way at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.errors import OptionInvalid, SinkKeyOther, SinkKeyUnknown, Where, nearest
from millrace.sinks.contract import Feed, Sink

CONCURRENCY, MOST_CONCURRENCY = 4, 64


def names_of(function: str, option: str, key: Any, where: Where) -> tuple[str, ...]:
    """One column or several, as somebody named them."""
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if not all(isinstance(each, str) and each for each in keys) or (key is not None and not keys):
        remedy = "name a column, or a list of columns"
        raise OptionInvalid(name=function, option=option, given=key, remedy=remedy, where=where)
    return keys


def check_versions(sink: Sink, table: Sequence[str]) -> None:
    """A table's versions are offsets, and only rows of the same key are in the same partition: those of another key
    cannot be compared."""
    if table and sink.key and not set(table) <= set(sink.key):
        key, own = ", ".join(sink.key), ", ".join(table)
        raise SinkKeyOther(sink=sink.name, key=key, table=own, where=sink.where)


def check_columns(sink: Sink, feed: Feed, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in feed.columns.names:
            hint, known = nearest(column, feed.columns.names), ", ".join(feed.columns.names)
            raise SinkKeyUnknown(sink=sink.name, key=column, hint=hint, known=known, where=sink.where)


def check_concurrency(function: str, given: Any, where: Where) -> None:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole or not 1 <= given <= MOST_CONCURRENCY:
        remedy = f"a whole number from 1 to {MOST_CONCURRENCY}"
        raise OptionInvalid(name=function, option="concurrency", given=given, remedy=remedy, where=where)
