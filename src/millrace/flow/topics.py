"""A topic's declaration, checked: columns, time, and how long to wait for what comes late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millrace.errors import LatenessMissing, OptionInvalid, TimeInvalid, TimeMissing, Where, nearest
from millrace.flow import schema as schemas
from millrace.flow.nodes import Topic
from millrace.flow.time import AHEAD, IDLE, Adaptive, Duration, Fixed, Lateness, Marked, duration_ms

MOST_PARTITIONS = 10_000


def topic(
    name: str,
    schema: str,
    time: str | None,
    lateness: Duration | Lateness | None,
    partitions: int,
    where: Where,
    *,
    idle: Duration = IDLE,
    ahead: Duration | None = AHEAD,
    key: tuple[str, ...] = (),
) -> Topic:
    _check_partitions(name, partitions, where)
    columns = schemas.columns(name, schema, where)
    for column in key:
        if column not in columns:
            remedy = f"name its columns{nearest(column, columns)}"
            raise OptionInvalid(name=name, option="key", given=column, remedy=remedy, where=where)
    if time is None:
        if lateness is not None:
            raise TimeMissing(name=name, where=where)
        return Topic(name, schema, None, None, partitions, where, key=key)
    _check_time(name, time, columns, where)
    if lateness is None:
        raise LatenessMissing(name=name, where=where)
    if not isinstance(lateness, Fixed | Adaptive | Marked):
        lateness = Fixed(duration_ms(name, "lateness", lateness, where))
    if isinstance(lateness, Marked):
        _check_time(name, lateness.column, columns, where)
    ahead_ms = None if ahead is None else duration_ms(name, "ahead", ahead, where)
    idle_ms = duration_ms(name, "idle", idle, where)
    return Topic(name, schema, time, lateness, partitions, where, idle_ms, ahead_ms, key)


def with_headers(topic: Topic, headers: Mapping[str, str]) -> Topic:
    """The topic with columns of its records' headers."""
    columns, remedy = schemas.columns(topic.name, topic.schema or "", topic.where), ""
    if not isinstance(headers, Mapping) or not all(
        isinstance(text, str) and text for each in headers.items() for text in each
    ):
        remedy = 'give columns and the headers that they are, {"id": "millrace-id"}'
    elif taken := columns.keys() & headers.keys():
        remedy = f"the value has {', '.join(sorted(taken))}: give the header another name"
    if remedy:
        raise OptionInvalid(name=topic.name, option="headers", given=headers, remedy=remedy, where=topic.where)
    return replace(topic, headers=tuple(headers.items()))


def output(
    name: str,
    schema: str | None,
    time: str | None,
    lateness: Duration | Lateness | None,
    partitions: int,
    where: Where,
) -> Topic:
    """The topic that a stream writes: it says its columns only if another stream reads it. Its times may lie ahead: a
    window's end does."""
    if schema is None and time is None and lateness is None:
        _check_partitions(name, partitions, where)
        return Topic(name, None, None, None, partitions, where)
    return topic(name, schema or "", time, lateness, partitions, where, ahead=None)


def _check_partitions(name: str, partitions: int, where: Where) -> None:
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MOST_PARTITIONS:
        remedy = f"a whole number from 1 to {MOST_PARTITIONS}"
        raise OptionInvalid(name=name, option="partitions", given=partitions, remedy=remedy, where=where)


def _check_time(name: str, column: str, columns: dict[str, str], where: Where) -> None:
    if column not in columns:
        reason = "is not a column of it"
        raise TimeInvalid(name=name, column=column, reason=reason, hint=nearest(str(column), columns), where=where)
    if not columns[column].lower().startswith("timestamp"):
        raise TimeInvalid(name=name, column=column, reason=f"is a {columns[column]}", hint="", where=where)
