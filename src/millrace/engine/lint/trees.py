"""Spark's plans, walked from Python: nodes, and which columns are constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from millrace.engine.plans import analyzed, listed
from millrace.flow.columns import WATERMARK

# How Spark marks a column that is a window.
_WINDOWS = ("spark.timeWindow", "spark.sessionWindow")

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


def named(expression: Any) -> bool:
    return expression.nodeName() in ("AttributeReference", "Alias")


def marked(expression: Any) -> bool:
    """Whether it is the column with the watermark, or a window over it."""
    return named(expression) and bool(expression.metadata().contains(WATERMARK))


def is_window(expression: Any) -> bool:
    return named(expression) and any(expression.metadata().contains(mark) for mark in _WINDOWS)


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
