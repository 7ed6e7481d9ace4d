"""What sinks that know a row by its key, and compare versions, share: how the key is named, and which key they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.errors import OptionInvalid, SinkKeyOther, SinkKeyUnknown, Where, nearest
from millrace.sinks.contract import Feed, Sink


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
