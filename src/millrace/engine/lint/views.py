"""cross-product: a view that joins tables without an equality, and so keeps both and makes all pairs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millrace.engine.lint.finding import Finding
from millrace.flow import Graph, View
from millrace.views.stage import has_aggregate
from millrace.views.statement import parsed

_WHY = "both are kept under one key, by one task, and a row that changes on one side is paired with all of the other"
_FIX = "join them on an equality: ON o.customer_id = c.id; a side of one row, as SELECT max(x) FROM …, is fine"


def findings(graph: Graph) -> Iterator[Finding]:
    for view in graph.views:
        told = view.plan.warnings if view.plan is not None else _by_its_words(view)
        for each in dict.fromkeys(told):
            yield Finding("cross-product", view.name, view.where, f"in {view.name} {each}", _WHY, _FIX)


def left_out(graph: Graph) -> dict[str, str]:
    """Views of which only the words were looked at."""
    return unplanned(graph, lambda view: not _told(view))


def unplanned(graph: Graph, of: Callable[[View], bool]) -> dict[str, str]:
    """Which of these views have no plan yet, and why."""
    return {
        view.name: f"only the running capture knows the columns of {', '.join(view.names)}"
        for view in graph.views
        if view.plan is None and of(view)
    }


def _by_its_words(view: View) -> Iterator[str]:
    """Of tables whose columns nobody knows yet: what has no equality with the others, if every column says whose it
    is."""
    for select in parsed(view.sql).find_all(exp.Select):
        if (lone := _lone(select)) is not None:
            yield f"{lone} is joined without an equality: every row of one meets every row of the other"
        if _is_loose(select):
            yield "EXISTS or IN looks for rows without an equality: every row of one meets every row of the other"


def _told(view: View) -> bool:
    return all(_sources(select) is not None for select in parsed(view.sql).find_all(exp.Select))


def _sources(select: exp.Select) -> dict[str, exp.Expression] | None:
    """What a SELECT reads, by alias; None if one of the columns that it compares does not say whose it is."""
    first = select.args.get("from_")
    items = [] if first is None else [first.this]
    items += [join.this for join in select.args.get("joins") or ()]
    found = {item.alias_or_name.lower(): item for item in items}
    is_compared = len(found) > 1 or isinstance(select.parent, exp.Exists)
    if is_compared and any(not column.table for each in _equalities(select) for column in each.find_all(exp.Column)):
        return None
    return found


def _equalities(select: exp.Select) -> list[exp.EQ]:
    """Wherever they stand: what may be an equality is none of our business."""
    conditions = [join.args.get("on") for join in select.args.get("joins") or ()]
    conditions += [select.args.get("where")]
    return [each for condition in conditions if condition is not None for each in condition.find_all(exp.EQ)]


def _is_loose(select: exp.Select) -> bool:
    """Whether it is what EXISTS looks for, and no equality leads to the query around it. IN is an equality itself."""
    own = _sources(select)
    if own is None or not isinstance(select.parent, exp.Exists) or has_aggregate(select):
        return False
    met = [{column.table.lower() for column in each.find_all(exp.Column)} for each in _equalities(select)]
    return not any(each & set(own) and each - set(own) for each in met)


def _lone(select: exp.Select) -> str | None:
    found = _sources(select)
    if found is None or any(join.args.get("using") for join in select.args.get("joins") or ()):
        return None
    groups = [{name} for name in found]
    for equality in _equalities(select):
        met = {column.table.lower() for column in equality.find_all(exp.Column)}
        together = [group for group in groups if group & met]
        groups = [group for group in groups if not group & met] + ([set().union(*together)] if together else [])
    if len(groups) < 2:
        return None
    # Of a subquery one cannot tell whether it has more than one row.
    named = {cte.alias.lower() for cte in select.root().find_all(exp.CTE)}
    tables = [
        group
        for group in groups
        if all(isinstance(found[name], exp.Table) and found[name].name.lower() not in named for name in group)
    ]
    if len(tables) < 2:
        return None
    last = max(tables, key=lambda group: min(list(found).index(name) for name in group))
    return " with ".join(sorted(last))
