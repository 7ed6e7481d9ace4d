"""From the SQL of a view to its plan, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.errors import ViewRefused, Where
from millrace.views import plan, types
from millrace.views.parse import Relation, parsed, resolved, tables
from millrace.views.refusal import Refused
from millrace.views.stage import UNNAMED
from millrace.views.steps import Plan


def planned(view: str, sql: str, relations: Iterable[Relation], *, where: Where | None = None) -> Plan:
    """The plan of a view over tables that are known by name."""
    try:
        query = resolved(parsed(sql), {each.name: each for each in relations})
        shown = [name for name, _ in query.outputs]
        for name in shown:
            if name == UNNAMED:
                raise Refused("a column of a view needs a name", instead="add AS name to the expression")
            if name.startswith("__"):
                raise Refused(f"the column {name!r} has a name of Millrace's own", instead="give it another with AS")
            if shown.count(name) > 1:
                raise Refused(f"two columns are named {name!r}", instead="give one another name with AS")
        for name, ref in query.outputs:
            if ref.type == types.INTERVAL:
                raise Refused(f"the column {name!r} is an interval", instead="write EXTRACT(EPOCH FROM …)")
        return plan.planned(query)
    except Refused as refused:
        raise error(view, refused, where) from None


def read_tables(view: str, sql: str, *, where: Where | None = None) -> tuple[str, ...]:
    """The tables that a view reads, for which its SQL has to read as SQL and no more."""
    try:
        return tables(parsed(sql))
    except Refused as refused:
        raise error(view, refused, where) from None


def error(view: str, refused: Refused, where: Where | None) -> ViewRefused:
    clause = f" at {refused.clause!r}" if refused.clause else ""
    place = f" (line {refused.place[0]}, column {refused.place[1]})" if refused.place else ""
    remedy = refused.instead or "write the view without it, or another way"
    return ViewRefused(view=view, clause=clause, place=place, reason=refused.reason, remedy=remedy, where=where)


__all__ = ["Relation", "planned", "read_tables"]
