"""Captured tables as nodes of a graph: the database that is captured, its tables, and their raw changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from millrace.capture.definition import Capture
from millrace.errors import TableUnknown, Where, nearest
from millrace.flow.deliveries import Delivered

FORMATS = ("debezium",)


# Nodes are compared by identity, as everywhere in a graph.
@dataclass(frozen=True, eq=False)
class Table(Delivered):
    """Rows that change, known by a key. A stream that reads it is given signed rows: the columns, and `__diff`, +1 for
    a row that came and -1 for one that went.

    Of a table that is captured by this app the columns are known from the capture. A table whose topic somebody else's
    Debezium writes (`capture` is None) says its columns itself, as a Spark DDL string, and its key.
    """

    name: str
    capture: Capture | None
    table: str
    where: Where
    schema: str | None = None
    key: tuple[str, ...] = ()

    @cached_property
    def changes(self) -> Changes:
        """The same table as a stream of its changes: op, before, after, when, and the place in the log."""
        return Changes(self)


@dataclass(frozen=True, eq=False)
class Changes:
    """Every change of a table as it was captured, one row each: `op` (c, u, d, r), `before`, `after`, `at`, `key`,
    `partition`, `offset`, `lsn`, `transaction`."""

    of: Table

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def where(self) -> Where:
        return self.of.where


@dataclass(frozen=True, eq=False)
class Database:
    """A captured database: its tables as attributes (`db.orders`) or, whatever their names, by index
    (`db["sales.orders"]`)."""

    name: str
    capture: Capture
    where: Where

    @cached_property
    def tables(self) -> MappingProxyType[str, Table]:
        made = {name: Table(f"{self.name}.{name}", self.capture, name, self.where) for name in self.capture.tables}
        return MappingProxyType(made)

    def __getitem__(self, name: str) -> Table:
        found = self.tables.get(name)
        if found is None:
            last = [table for known, table in self.tables.items() if known.rpartition(".")[2] == name]
            if len(last) != 1:
                hint = nearest(name, self.tables)
                raise TableUnknown(table=name, database=self.name, hint=hint, where=self.where)
            found = last[0]
        return found

    def __getattr__(self, name: str) -> Table:
        if name.startswith("__"):  # copying and inspecting ask for such; a table of that name is had by index
            raise AttributeError(name)
        try:
            return self[name]
        except TableUnknown as error:
            raise AttributeError(error.sentence()) from error
