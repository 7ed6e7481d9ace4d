"""What a view reads and what it is then: its plan over columns that are known by now, and other views as sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace.capture import Captures
from millrace.capture.connector import marks_topic as capture_marks
from millrace.capture.database import Column as TableColumn
from millrace.engine.output import TIMES
from millrace.engine.sources import reading
from millrace.engine.tables import known
from millrace.errors import ViewNotRun, ViewRefused
from millrace.flow import Table, Topic, View
from millrace.flow.views import relation
from millrace.kernel.calling import quoted
from millrace.log import DataSource, Log
from millrace.views import Plan, Relation, moments, types
from millrace.views.changelog import marks_topic
from millrace.views.store import LONGEST_NAME_BYTES, POSITIONS
from millrace.views.types import Type

_KEYS_UNFIT = "a numeric without limits may write one value in several ways"


@dataclass(frozen=True)
class ViewedSource:
    """Another view as a view reads it: from its changelog, in which each record has its whole row as JSON."""

    readable: View
    columns: tuple[tuple[str, Type], ...]
    outside: str
    metric: str
    data: DataSource

    @classmethod
    def of(cls, view: View, log: Log, group: str) -> ViewedSource:
        outside = log.settings.named(view.name)
        columns = plan_of(view, log).columns
        return cls(view, columns, outside, f"millrace.{view.name}", reading(log, outside, group))

    @property
    def name(self) -> str:
        return self.readable.name

    @property
    def recorded(self) -> str:
        """What of its columns a checkpoint depends on: all of them, as their rows are kept as text."""
        return ", ".join(f"{name} {types.spark(type_)}" for name, type_ in self.columns)

    def narrowed(self, wanted: Collection[str]) -> tuple[ViewedSource, tuple[str, ...]]:
        """The view with these columns and no others, and the names of those."""
        kept = tuple(each for each in self.columns if each[0] in wanted) or self.columns[:1]
        return replace(self, columns=kept), tuple(each[0] for each in self.columns if each not in kept)

    def row(self, text: Column) -> Column:
        """The columns of a row's JSON."""
        ddl = ", ".join(f"{quoted(name)} {_written(type_)}" for name, type_ in self.columns)
        parsed = F.from_json(text, ddl, {**TIMES, "mode": "FAILFAST"})
        return F.struct(*(_read(parsed[name], type_).alias(name) for name, type_ in self.columns))


def _written(type_: Type) -> str:
    if type_.element is not None:
        return f"array<{_written(type_.element)}>"
    return "string" if type_ == types.BYTEA or type_.kind in moments.KINDS else types.spark(type_)


def _read(value: Column, type_: Type) -> Column:
    if (element := type_.element) is not None:
        return value if _written(element) == types.spark(element) else F.transform(value, lambda it: _read(it, element))
    if type_.kind in moments.KINDS:
        return moments.read(type_, value)
    return F.unhex(F.substr(value, F.lit(3))) if type_ == types.BYTEA else value


def shown(name: str, type_: Type) -> Column:
    """A column as the changelog has it: bytes and moments as PostgreSQL writes them."""
    return _shown(F.col(quoted(name)), type_).alias(name)


def _shown(value: Column, type_: Type) -> Column:
    if (element := type_.element) is not None:
        return (
            value if _written(element) == types.spark(element) else F.transform(value, lambda it: _shown(it, element))
        )
    if type_.kind in moments.KINDS:
        return moments.told(type_, value)
    return F.concat(F.lit("\\x"), F.lower(F.hex(value))) if type_ == types.BYTEA else value


def plan_of(view: View, log: Log) -> Plan:
    if view.plan is not None:
        return view.plan
    return view.planned([_relation(name, node, log) for name, node in zip(view.names, view.reads, strict=True)])


def _relation(name: str, node: Topic | Table | View, log: Log) -> Relation:
    if isinstance(node, View):
        return Relation(name, dict(plan_of(node, log).columns), node.key)
    if isinstance(node, Table):
        captured = known(node, log)
        own = node.capture is not None
        told = {each.name: type_of(each) if own else types.of_spark(each.type) for each in captured.columns}
        return Relation(name, told, captured.key)
    found = relation(name, node)
    assert found is not None, "a topic's columns are known"
    return found


def type_of(column: TableColumn) -> Type:
    """Of a captured table's column."""
    if column.spark == "string" and column.enum:
        return types.enum(column.enum)
    return types.named(column.type)


def database_of(view: View) -> str | None:
    """The captured database whose LSNs a view's positions are; None where its tables are of none, or of several."""
    found = {each.capture.name if isinstance(each, Table) and each.capture else _database(each) for each in view.reads}
    return found.pop() if len(found) == 1 else None


def _database(node: Topic | Table | View) -> str | None:
    return database_of(node) if isinstance(node, View) else None


def space_of(node: Table | View) -> tuple[str, str] | None:
    """What the positions of a table's or a view's records are counted in, and the topic of its marks. None of a table
    that somebody else captures: there is nobody who marks it."""
    if isinstance(node, View):
        return database_of(node) or f"view.{node.name}", marks_topic(node.name)
    return None if node.capture is None else (node.capture.name, capture_marks(node.capture))


def refuse(view: View, plan: Plan, log: Log) -> None:
    """What can be defined and planned, and not run: said before anything starts."""
    for reason, remedy in _hindrances(view, plan, log):
        raise ViewNotRun(view=view.name, reason=reason, remedy=remedy, where=view.where)
    if len(set(view.reads)) < len(view.reads):
        raise ViewRefused(
            view=view.name,
            clause="",
            place="",
            reason="it reads one table under two names",
            remedy="call it by one name, and give it aliases",
            where=view.where,
        )


def refuse_real_time(view: View, plan: Plan, master: str) -> None:
    """What runs epoch by epoch and not in real time."""
    others = [each.name for each in view.reads if isinstance(each, View)]
    reason = ""
    if plan.is_timed:
        reason = "it has now(), and a time is one moment of an epoch"
    elif others:
        reason = (
            f"it reads the view {others[0]}, whose rows are told at the end of an epoch; write that one's SQL into it"
        )
    elif not master.startswith("local"):
        reason = f"its readers end an epoch together, in one process, and Spark's master is {master}"
    if reason:
        raise ViewNotRun(
            view=view.name, reason=f"not in real time: {reason}", remedy="leave `mode` out", where=view.where
        )


def _hindrances(view: View, plan: Plan, log: Log) -> Iterator[tuple[str, str]]:
    if log.data_source.format != "kafka":
        yield "views need Kafka and a view store, and a play has neither", "`views=False` leaves them out of the play"
    if len(view.known_as.encode()) > LONGEST_NAME_BYTES or view.known_as == POSITIONS:
        yield "its name cannot be that of a table in the view store", f"at most {LONGEST_NAME_BYTES} letters"
    for name, type_ in plan.columns:
        if len(name.encode()) > LONGEST_NAME_BYTES:
            yield f"PostgreSQL would cut the name of its column {name!r} off", "give it a shorter one with AS"
        if name in view.key and (type_.is_wide or not type_.is_compared):
            why = _KEYS_UNFIT if type_.is_wide else "its values cannot be compared"
            yield f"its key {name!r} is of type {type_}: {why}", f"write {name}::numeric(38, 10), or choose another key"
    for table in (each for each in view.reads if isinstance(each, Table)):
        yield from _of_table(view, plan, table, log)


def _of_table(view: View, plan: Plan, table: Table, log: Log) -> Iterator[tuple[str, str]]:
    if table.capture is not None:
        remembered = Captures(log.settings, log).get(table.capture.name)
        if remembered.kind != "postgres":
            yield f"{table.name} is of a MySQL, whose transactions are not marked yet", "capture a PostgreSQL"
        if not log.topics.exists(capture_marks(table.capture)):
            made = f"the capture {table.capture.name} was made by a version that marks no transactions"
            yield made, f"`millrace capture remove {table.capture.name} --topics`, and run again"
    columns = {each.name: each for each in known(table, log).columns}
    name = view.names[view.reads.index(table)]
    for each in plan.inputs:
        for source, _, type_ in each.columns if each.relation == name else ():
            if type_ == types.OPAQUE and columns[source].spark.startswith(("array", "struct", "map")):
                yield f"{table.name}.{source} is of type {columns[source].type}", "leave that column out"
