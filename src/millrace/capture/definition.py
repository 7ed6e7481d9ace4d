"""What a capture is: which tables of which database, and how long every one of their changes is kept. Frozen data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from millrace.config import Settings
from millrace.durations import milliseconds
from millrace.errors import CaptureInvalid, DurationInvalid, Where

HISTORY = "7 days"
DAY_MS = 86_400_000
# How much longer than the history a tombstone stays. A reader that was away for longer may have missed deletes for
# good, and is told to rebuild; hence the wide margin.
TOMBSTONES_STAY_MS = 30 * DAY_MS
# A key's changes stay in order within its partition. More partitions later would move keys, so they are refused.
PARTITIONS = 2
MOST_PARTITIONS = 1_000
# The schema in the captured database that holds the signal and the heartbeat table.
OWN_SCHEMA = "millrace_capture"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_TABLE = re.compile(r"[^.\s][^.]*(\.[^.\s][^.]*)?")
_COLUMN = re.compile(r"[^.\s][^.]*(\.[^.\s][^.]*){1,2}")


@dataclass(frozen=True)
class Capture:
    """`tables` are `schema.table` or, in the database's default schema, `table`; `exclude` and `mask` name columns
    (`table.column`). A `publication` or `slot` that is named was made by somebody else, and is used as it is. The
    `prefix` is that of the settings; `Captures` puts it in."""

    name: str
    tables: tuple[str, ...]
    database: str
    history_ms: int
    partitions: int = PARTITIONS
    exclude: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    publication: str | None = None
    slot: str | None = None
    failover: bool = False
    own_schema: str = OWN_SCHEMA
    prefix: str = ""

    @property
    def publication_name(self) -> str:
        return self.publication or self._own_name

    @property
    def slot_name(self) -> str:
        return self.slot or self._own_name

    @property
    def _own_name(self) -> str:
        """Of one stage alone, in what PostgreSQL takes for a slot: stages may share a database."""
        stage = self.prefix.replace("-", "_")
        return f"millrace_{stage}_{self.name}" if stage else f"millrace_{self.name}"

    @property
    def tombstones_stay_ms(self) -> int:
        return self.history_ms + TOMBSTONES_STAY_MS

    def topic(self, table: str) -> str:
        """The topic of a table given as `schema.table`, without the prefix of the settings."""
        return f"{self.name}.{topic_part(table)}"

    def outside(self, settings: Settings) -> str:
        """The name of the connector, and what its topics begin with."""
        return settings.named(self.name)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Capture:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()
        }
        return cls(**values)


def capture(
    name: str,
    tables: Sequence[str],
    *,
    database: str | None = None,
    history: str = HISTORY,
    partitions: int = PARTITIONS,
    exclude: Sequence[str] = (),
    mask: Sequence[str] = (),
    publication: str | None = None,
    slot: str | None = None,
    failover: bool = False,
    own_schema: str = OWN_SCHEMA,
    where: Where | None = None,
) -> Capture:
    """A definition, checked as far as that goes without the database."""

    def refuse(option: str, given: object, remedy: str) -> CaptureInvalid:
        return CaptureInvalid(name=name, option=option, given=given, remedy=remedy, where=where)

    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise refuse("name", name, "a lower-case letter, then letters, digits and _, at most 41: it names a slot too")
    if isinstance(tables, str) or not tables:
        raise refuse("tables", tables, 'list them: tables=["customers", "sales.orders"]')
    for option, names, pattern, example in (
        ("tables", tables, _TABLE, "orders or sales.orders"),
        ("exclude", exclude, _COLUMN, "customers.phone or sales.customers.phone"),
        ("mask", mask, _COLUMN, "customers.email or sales.customers.email"),
    ):
        for each in names:
            if not isinstance(each, str) or not pattern.fullmatch(each):
                raise refuse(option, each, f"write it as {example}")
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MOST_PARTITIONS:
        raise refuse("partitions", partitions, f"a whole number from 1 to {MOST_PARTITIONS}")
    try:
        history_ms = milliseconds(history)
    except (DurationInvalid, AttributeError):
        raise refuse("history", history, 'how long every change is kept: a number and a unit, "7 days"') from None
    return Capture(
        name=name,
        tables=tuple(dict.fromkeys(tables)),
        database=database or name,
        history_ms=history_ms,
        partitions=partitions,
        exclude=tuple(exclude),
        mask=tuple(mask),
        publication=publication,
        slot=slot,
        failover=failover,
        own_schema=own_schema,
    )


def topic_part(table: str) -> str:
    """`schema.table` as part of a topic's name: what Kafka does not take becomes _, as Debezium does it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", table)
