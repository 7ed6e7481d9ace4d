"""Views as nodes of a graph: SQL over captured tables, topics, streams and other views."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millrace.errors import SchemaMissing, TableUnknown, ViewRefused, Where, nearest
from millrace.flow import schema as schemas
from millrace.flow.lakes import LakeInput
from millrace.flow.tables import Changes, Database, Table
from millrace.views import Plan, Relation, planned, read_tables, types

if TYPE_CHECKING:
    from millrace.flow.nodes import Node, Topic


# Nodes are compared by identity, as everywhere in a graph.
@dataclass(frozen=True, eq=False)
class View:
    """A table that holds what its SQL gives, kept true as its tables change; `key` tells its rows apart.

    `names` are what the SQL calls the tables, in the order of `reads`. `indexes` are columns by which its table in the
    view store is asked, beside the key. The plan is known as soon as the columns of all of them are: those of a
    captured table are when it is captured. In real time a change is shown at once, tentatively; an epoch takes
    `epoch_ms`, and what was shown is certain at its end.

    One that is `of` another is made beside it, to take its place (`millrace deploy`).
    """

    name: str
    sql: str
    key: tuple[str, ...]
    names: tuple[str, ...]
    reads: tuple[Topic | Table | View, ...]
    where: Where
    plan: Plan | None = None
    indexes: tuple[tuple[str, ...], ...] = ()
    epoch_ms: int | None = None
    of: View | None = None

    @property
    def known_as(self) -> str:
        return (self.of or self).name

    def planned(self, relations: Iterable[Relation]) -> Plan:
        """The plan over tables whose columns are known by now, by the names that the SQL has for them."""
        plan = planned(self.name, self.sql, relations, where=self.where)
        shown = [name for name, _ in plan.columns]
        named = [("key", column) for column in self.key]
        for word, column in [*named, *(("index", column) for index in self.indexes for column in index)]:
            if column not in shown:
                raise ViewRefused(
                    view=self.name,
                    clause="",
                    place="",
                    reason=f"its {word} {column!r} is none of its columns{nearest(column, shown)}",
                    remedy=f"choose from {', '.join(shown)}",
                    where=self.where,
                )
        return plan


def defined(
    name: str,
    sql: str,
    key: tuple[str, ...],
    nodes: Iterable[Node],
    where: Where,
    indexes: tuple[tuple[str, ...], ...] = (),
    epoch_ms: int | None = None,
) -> View:
    """A view, planned as far as can be without a database."""
    names = read_tables(name, sql, where=where)
    nodes = list(nodes)
    found = tuple(_found(name, table, nodes, where) for table in names)
    view = View(name, sql, key, names, found, where, indexes=indexes, epoch_ms=epoch_ms)
    known = [relation(table, node) for table, node in zip(names, found, strict=True)]
    if any(each is None for each in known):
        return view
    plan = view.planned(each for each in known if each is not None)
    return replace(view, plan=plan)


def _found(view: str, name: str, nodes: list[Node], where: Where) -> Topic | Table | View:
    """What a name in SQL stands for: a captured table, a view, a topic or a stream's topic."""
    database, _, table = name.rpartition(".")
    tables: list[Any] = []
    for node in nodes:
        if isinstance(node, Database) and database in ("", node.name):
            tables += [each for each in [_table(node, table)] if each is not None]
        elif isinstance(node, Database):
            tables += [each for each in [_table(node, name)] if each is not None]
        elif node.name == name:
            output = getattr(node, "output", node)
            if not isinstance(output, Changes | LakeInput) and not hasattr(output, "maker"):
                tables.append(output)
    if len(tables) == 1:
        if not isinstance(tables[0], Table | View) and tables[0].schema is None:  # a stream may be without, unless read
            raise SchemaMissing(name=name, example=f"schema={schemas.EXAMPLE}", where=tables[0].where)
        return tables[0]  # type: ignore[no-any-return]
    known = [each.name for each in nodes if not isinstance(each, Database)]
    known += [table.rpartition(".")[2] for each in nodes if isinstance(each, Database) for table in each.capture.tables]
    reason = f"there is no table {name!r}{nearest(name, known)}" if not tables else f"{name!r} is more than one table"
    remedy = f"choose from {', '.join(known) or 'none yet'}"
    raise ViewRefused(view=view, clause="", place="", reason=reason, remedy=remedy, where=where)


def _table(database: Database, name: str) -> Table | None:
    try:
        return database[name]
    except TableUnknown:
        return None


def relation(name: str, node: Topic | Table | View) -> Relation | None:
    """A table's columns under the name that the SQL has for it; None as long as nobody knows them."""
    if isinstance(node, View):
        return None if node.plan is None else Relation(name, dict(node.plan.columns), node.key)
    if node.schema is None:
        return None
    columns = schemas.columns(node.name, node.schema, node.where)
    key = node.key if isinstance(node, Table) else ()
    return Relation(name, {column: types.of_spark(type_) for column, type_ in columns.items()}, key)
