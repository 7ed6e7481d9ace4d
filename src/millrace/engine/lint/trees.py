"""Spark's plans, walked from Python: nodes, their expressions, the user's lines, and which columns are constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from millrace.engine.plans import analyzed, listed
from millrace.errors import Where
from millrace.flow.columns import WATERMARK
from millrace.flow.loading import is_users
from millrace.flow.nodes import shown

_LINE = re.compile(r"(.+):(\d+)")
# Their rows are rows of their first child, with the same columns and perhaps some more.
_PASSING = ("Filter", "SubqueryAlias", "View", "CollectMetrics", "EventTimeWatermark", "Generate", "Deduplicate")


def optimized(frame: DataFrame) -> Any:
    """As Spark would run it. A frame that streams does not tell that itself before it is started."""
    java: Any = frame.sparkSession._jsparkSession
    return java.sessionState().optimizer().execute(analyzed(frame))


def nodes(plan: Any, below: Iterable[Any] = ()) -> Iterator[Any]:
    """The nodes of a plan from its end, down to the plans of `below`, which are not looked into."""
    below = tuple(below)
    if any(plan.fastEquals(each) for each in below):
        return
    yield plan
    for child in listed(plan.children()):
        yield from nodes(child, below)


def expressions(node: Any) -> Iterator[tuple[Any, ...]]:
    """Every expression of a node, each behind those that it is a part of."""
    for each in listed(node.expressions()):
        yield from _parts((each,))


def _parts(path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    for child in listed(path[-1].children()):
        yield from _parts((*path, child))


def line_of(path: Iterable[Any]) -> Where | None:
    """The user's line that wrote an expression, or the innermost one around it that PySpark took down: it does that
    for methods of columns, not for all functions and not for SQL."""
    for expression in reversed(tuple(path)):
        context = expression.origin().context()
        if context is not None and context.contextType().toString() == "DataFrame":
            found = _LINE.fullmatch(context.callSite().partition("\n")[0])
            if found and is_users(found[1]):
                return Where(shown(found[1]), int(found[2]))
    return None


def marked(expression: Any) -> bool:
    """Whether it is the column with the watermark, or a window over it."""
    named = expression.nodeName() in ("AttributeReference", "Alias")
    return named and bool(expression.metadata().contains(WATERMARK))


def constant(expression: Any, plan: Any) -> bool:
    """Whether it is the same for all rows of a plan, whatever they are."""
    if expression.foldable():
        return True
    if expression.nodeName() == "AttributeReference":
        return _constant_column(expression.exprId().id(), plan)
    parts = listed(expression.children())
    return bool(parts) and expression.deterministic() and all(constant(part, plan) for part in parts)


def _constant_column(number: int, plan: Any) -> bool:
    name, children = plan.nodeName(), listed(plan.children())
    if name == "Project":
        for column in listed(plan.projectList()):
            if column.exprId().id() == number:
                return constant(column, children[0])
        return False
    return name in _PASSING and _constant_column(number, children[0])
