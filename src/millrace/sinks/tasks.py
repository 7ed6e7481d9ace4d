"""Writing from Spark's tasks: rows never pass through the driver, and what goes wrong there comes back as an error of
ours instead of a stack trace."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from millrace import failpoint
from millrace.errors import MillraceError, SinkFailed, SinkRefusesMost
from millrace.failpoint import FailPoint
from millrace.sinks.contract import DIFF, MOST_REFUSED, VERSION, RefusedRow, Sink

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, Row

T = TypeVar("T")
_REASON_LENGTH = 500

# All six digits of a time, as in the records of a topic.
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


@dataclass(frozen=True)
class _Failed:
    error: MillraceError


def in_tasks(rows: DataFrame | RDD[Any], sink: Sink, work: Callable[[Iterator[Any]], Iterable[T]]) -> list[T]:
    """Does `work` on each partition's rows, in its task, and gives what they yield (little: it is collected).

    An error of ours that `work` raises is raised here; any other as `SinkFailed`. A task may run more than once. Work
    that leaves rows unread costs a worker: Spark starts another Python process for the next task.
    """
    name, where = sink.name, sink.where
    whole: Any = getattr(rows, "rdd", rows)

    def guarded(partition: Iterable[Any]) -> Iterable[T | _Failed]:
        given = iter(partition)
        if failpoint.ON:
            FailPoint.SINK_TASK.reached(name)
            given = failpoint.passing(given, FailPoint.SINK_IN_BULK, name)
        try:
            return list(work(given))
        except MillraceError as error:
            return [_Failed(error)]
        except Exception as error:
            return [_Failed(SinkFailed(sink=name, reason=reason_of(error), where=where))]

    found: list[T] = []
    for each in whole.mapPartitions(guarded).collect():
        if isinstance(each, _Failed):
            raise each.error
        found.append(each)
    return found


def refused_in_tasks(
    rows: DataFrame,
    sink: Sink,
    work: Callable[[Iterator[Row]], Iterable[RefusedRow]],
    look: Callable[[Sequence[RefusedRow]], None] = lambda _: None,
) -> list[RefusedRow]:
    """The same for work that yields the rows that the target refused. More than `MOST_REFUSED` end the epoch; before
    those of all tasks are counted, `look` sees them."""
    name, where = sink.name, sink.where

    def counted(partition: Iterator[Row]) -> Iterator[RefusedRow]:
        for number, refused in enumerate(work(partition)):
            if number >= MOST_REFUSED:
                raise SinkRefusesMost(sink=name, most=MOST_REFUSED, reason=refused.reason, where=where)
            yield refused

    found = in_tasks(rows, sink, counted)
    look(found)
    if len(found) > MOST_REFUSED:
        raise SinkRefusesMost(sink=name, most=MOST_REFUSED, reason=found[0].reason, where=where)
    return found


def texts_of(rows: DataFrame) -> list[str]:
    """The rows as JSON, all of them collected: for a few."""
    from pyspark.sql import functions as F

    names = [F.col(f"`{name.replace('`', '``')}`") for name in rows.columns]
    whole = F.to_json(F.struct(*names), JSON_OPTIONS)
    return [str(text) for (text,) in rows.select(whole).collect()]


def refused(row: Row, key: tuple[str, ...], reason: str) -> RefusedRow:
    """A row as it goes to the dead letters. One key column is its text, several are JSON, as in a topic's records."""
    values = row.asDict(recursive=True)
    keys = {column: values[column] for column in key}
    plain = {name: value for name, value in values.items() if name not in (DIFF, VERSION)}
    (only,) = keys.values() if len(keys) == 1 else (None,)
    text = _json(keys) if len(keys) > 1 else None if only is None else only if isinstance(only, str) else _json(only)
    return RefusedRow(text, _json(plain), reason[:_REASON_LENGTH])


def reason_of(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_REASON_LENGTH]


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)
