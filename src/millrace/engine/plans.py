"""Spark's plans as Python sees them: the pieces that whoever walks one needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from millrace.errors import Where
from millrace.flow.loading import is_users
from millrace.flow.nodes import shown

_LINE = re.compile(r"(.+):(\d+)")


def analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def listed(sequence: Any) -> list[Any]:
    """A sequence of Scala's."""
    return [sequence.apply(place) for place in range(sequence.size())]


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
