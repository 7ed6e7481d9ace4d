"""From the SQL of a view to its plan, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millrace.errors import ViewRefused, Where
from millrace.views import plan, types
from millrace.views.parse import Relation, resolved
from millrace.views.refusal import Refused, refuse
from millrace.views.stage import UNNAMED
from millrace.views.statement import parsed, tables
from millrace.views.steps import Plan


def planned(view: str, sql: str, relations: Iterable[Relation], *, where: Where | None = None) -> Plan:
    """The plan of a view over tables that are known by name."""
    try:
        read = parsed(sql)
        query = resolved(read.copy(), {each.name: each for each in relations})
        shown = [name for name, _ in query.outputs]
        for place, name in enumerate(shown):
            if name == UNNAMED:
                refuse(_column(read, place, len(shown)), "a column of a view needs a name", "add AS name to it")
            if name.startswith("__"):
                reason = f"the column {name!r} has a name of Millrace's own"
                refuse(_column(read, place, len(shown)), reason, "give it another with AS")
            if name in shown[:place]:
                reason = f"two columns are named {name!r}"
                refuse(_column(read, place, len(shown)), reason, "give one another name with AS")
        for place, (name, ref) in enumerate(query.outputs):
            if ref.type == types.INTERVAL:
                refuse(
                    _column(read, place, len(shown)),
                    f"the column {name!r} is an interval",
                    "write EXTRACT(EPOCH FROM …)",
                )
        return plan.planned(query)
    except Refused as refused:
        raise error(view, sql, refused, where) from None


def _column(read: Any, place: int, columns: int) -> Any:
    """What was written for a column; the whole list's SELECT, if it has a *."""
    return read.selects[place] if len(read.selects) == columns and not read.is_star else read


def read_tables(view: str, sql: str, *, where: Where | None = None) -> tuple[str, ...]:
    """The tables that a view reads, for which its SQL has to read as SQL and no more."""
    try:
        return tables(parsed(sql))
    except Refused as refused:
        raise error(view, sql, refused, where) from None


def error(view: str, sql: str, refused: Refused, where: Where | None) -> ViewRefused:
    told, (line, column) = refused.found_in(sql)
    clause, place = f" at {told!r}" if told else "", f" (line {line}, column {column})"
    remedy = refused.instead or "write the view without it, or another way"
    return ViewRefused(view=view, clause=clause, place=place, reason=refused.reason, remedy=remedy, where=where)


__all__ = ["Relation", "planned", "read_tables"]
