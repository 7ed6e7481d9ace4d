"""What Millrace remembers of captures: a compacted topic, so that readers of tables never touch the database.

Key is the capture's name, value its definition and its tables. The last record of a key holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from millrace.capture.database import CapturedTable
from millrace.capture.definition import Capture
from millrace.errors import CaptureUnknown, PartitionsFixed, TableUnknown, nearest
from millrace.log import Log

TOPIC = "_millrace.captures"


@dataclass(frozen=True)
class Remembered:
    """`tables` by whole name (`public.orders`). `kind` is that of the database: "postgres" or "mysql". The tombstones
    of truncates before the offset `truncates_done` are written. What somebody must still do if this process dies: tell
    the connector to read the tables `unread`, end the repair of a gap (`repairing`)."""

    capture: Capture
    kind: str
    tables: Mapping[str, CapturedTable]
    truncates_done: int = 0
    unread: tuple[str, ...] = ()
    repairing: bool = False


def read(log: Log) -> dict[str, Remembered]:
    if not log.topics.exists(TOPIC):
        return {}
    found: dict[str, Remembered] = {}
    for record in log.read(TOPIC):
        name = (record.key or b"").decode()
        if record.value is None:
            found.pop(name, None)
            continue
        raw = record.json()
        tables = {each["name"]: CapturedTable.from_json(each) for each in raw["tables"]}
        found[name] = Remembered(
            Capture.from_json(raw["capture"]),
            raw["kind"],
            tables,
            raw.get("truncates_done", 0),
            tuple(raw.get("unread", ())),
            raw.get("repairing", False),
        )
    return dict(sorted(found.items()))


def one(log: Log, name: str) -> Remembered:
    found = read(log)
    if name not in found:
        raise CaptureUnknown(name=name, hint=nearest(name, found))
    return found[name]


def write(log: Log, remembered: Remembered) -> None:
    log.topics.ensure(TOPIC, compact=True)
    tables = [table.as_json() for table in remembered.tables.values()]
    value = {
        "capture": remembered.capture.as_json(),
        "kind": remembered.kind,
        "tables": tables,
        "truncates_done": remembered.truncates_done,
        "unread": remembered.unread,
        "repairing": remembered.repairing,
    }
    log.write(TOPIC, json.dumps(value), key=remembered.capture.name)


def forget(log: Log, name: str) -> None:
    log.write(TOPIC, None, key=name)


def table(remembered: Remembered, name: str) -> CapturedTable:
    if name not in remembered.tables:
        hint = nearest(name, remembered.tables)
        raise TableUnknown(table=name, database=f"capture {remembered.capture.name}", hint=hint)
    return remembered.tables[name]


def refuse_partitions(log: Log, topic: str) -> None:
    """A captured topic keeps its number of partitions: more would move keys, and with them the order of changes."""
    for name, found in read(log).items():
        if any(each.topic == topic for each in found.tables.values()):
            raise PartitionsFixed(topic=topic, capture=name)
