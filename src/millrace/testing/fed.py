"""What a play is fed with, as records: rows of a topic's schema, and changes of a table's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from millrace.capture.database import CapturedTable
from millrace.errors import PlayMisused, PlayRowsInvalid, Where, nearest
from millrace.flow import Table, Topic
from millrace.flow import schema as schemas
from millrace.log.record import Value
from millrace.testing import tables
from millrace.testing.tables import Row, Rows

# Of a row, besides its columns: when it arrived, and in which partition.
ARRIVAL, PARTITION = "arrival", "partition"


class Given(NamedTuple):
    value: Value
    key: str | None
    partition: int | None
    time: datetime


def records(topic: Topic, rows: Rows, *, key: str | None, partitions: int, now: datetime, where: Where) -> list[Given]:
    """One record a row, which arrives when it says, or when it happened but not before now."""
    kinds = schemas.columns(topic.name, topic.schema or "", topic.where)
    found = []
    for number, row in enumerate(tables.read(rows, where), 1):
        partition = row.pop(PARTITION, None) if PARTITION not in kinds else None
        arrival = row.pop(ARRIVAL, None) if ARRIVAL not in kinds else None
        if topic.schema is not None:
            _refuse_unknown(topic.name, row, kinds, where)
        values = _typed(row, kinds, number, where)
        happened = values.get(topic.time) if topic.time else None
        latest = max([now, *([tables.moment(happened)] if isinstance(happened, datetime) else [])])
        if key is not None and key not in values:
            raise PlayMisused(reason=f"a row has no column {key!r} to be its key", where=where)
        if (partition is not None and not str(partition).isdecimal()) or int(partition or 0) >= partitions:
            reason = f"there is no partition {partition}; play(app, partitions=…) says how many there are"
            raise PlayMisused(reason=reason, where=where)
        found.append(
            Given(
                values,
                None if key is None else str(values[key]),
                None if partition is None else int(partition),
                latest if arrival is None else moment(arrival, where),
            )
        )
    return found


def changes(
    table: Table, known: CapturedTable | None, rows: Rows, *, now: datetime, where: Where, delete: bool
) -> list[Given]:
    """Rows that come, or with `delete` those that go, as the table's topic would hold them."""
    if known is None:
        raise PlayMisused(reason=f"say its columns first, p.table({table.name}, …)", where=where)
    kinds = {column.name: column.spark for column in known.columns}
    found = []
    for number, row in enumerate(tables.read(rows, where), 1):
        _refuse_unknown(table.name, row, kinds, where)
        for name in known.key:
            if row.get(name) is None:
                raise PlayMisused(reason=f"row {number} lacks {name!r}, which {table.name} is keyed by", where=where)
        values = _typed({name: row.get(name) for name in kinds}, kinds, number, where)
        key = json.dumps({name: values[name] for name in known.key}, default=str)
        change = {"op": "c", "before": None, "after": values}
        found.append(Given(None if delete else change, key, None, now))
    return found


def rows(name: str, kinds: Mapping[str, str], given: Rows, where: Where) -> list[dict[str, Any]]:
    """Rows of these columns, their cells as values."""
    found = []
    for number, row in enumerate(tables.read(given, where), 1):
        _refuse_unknown(name, row, kinds, where)
        found.append(_typed(row, kinds, number, where))
    return found


def moment(given: Any, where: Where) -> datetime:
    try:
        return tables.moment(given)
    except (ValueError, TypeError):
        raise PlayMisused(reason=f"{given!r} is no time", where=where) from None


def _refuse_unknown(name: str, row: Row, kinds: Mapping[str, str], where: Where) -> None:
    """A flow would not see it, and the test would go on with a null in its place."""
    for column in row:
        if column not in kinds:
            hint = nearest(column, kinds) or f"; it has {', '.join(kinds)}"
            reason = f"{name!r} has no column {column!r}{hint}"
            raise PlayMisused(reason=f"{reason} (what a schema does not name is fed as bytes)", where=where)


def _typed(row: Row, kinds: Mapping[str, str], number: int, where: Where) -> dict[str, Any]:
    values = {}
    for name, value in row.items():
        try:
            values[name] = tables.typed(value, kinds.get(name, "string"))
        except ValueError as error:
            raise PlayRowsInvalid(reason=f"{name!r} of row {number}: {error}", where=where) from None
    return values
