"""Spark's own stateful steps of a plan, in the words of `flow.operators`; and a plan's fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from millrace.engine.plans import analyzed, listed
from millrace.flow.operators import MADE_UP, Operator
from millrace.kernel.kept import told_by


def native(result: DataFrame) -> list[Operator]:
    """In the order of the plan, from its end."""
    return [Operator(MADE_UP.sub("", words)) for _, words in _stateful(analyzed(result)) if words is not None]


def kept(frame: DataFrame) -> tuple[dict[str, Any], ...]:
    """What each stateful step was told, by which its state can be read; of Spark's own only what it is. In the order in
    which Spark numbers them: from the plan's end."""
    found = []
    for node, words in _stateful(analyzed(frame)):
        told = told_by(frame.sparkSession, node.statefulProcessor()) if words is None else None
        found.append(told or {"operator": MADE_UP.sub("", words or node.nodeName())})
    return tuple(found)


def fingerprint(result: DataFrame) -> str:
    """The same for the same code. Sources are left out: where Kafka is does not matter."""
    lines = [line for line in analyzed(result).toString().splitlines() if "StreamingRelation" not in line]
    return hashlib.sha256(MADE_UP.sub("", "\n".join(lines)).encode()).hexdigest()[:16]


def _stateful(plan: Any) -> Iterator[tuple[Any, str | None]]:
    """The steps that keep state, each with the words for it; ours have none, they are noted where they are made."""
    name = plan.nodeName()
    children = listed(plan.children())
    if name == "Aggregate" and plan.isStreaming():
        named = [key.sql() for key in listed(plan.groupingExpressions())]
        by = [made for key in named for made in (key, *_made(children[0], key))]
        yield plan, f"aggregate by {', '.join(by)}: {_sql(plan.aggregateExpressions())}"
    elif name.startswith("Deduplicate"):
        yield plan, f"{name} {_sql(plan.keys())}"
    elif name == "Join" and all(child.isStreaming() for child in children):
        condition = plan.condition()
        yield plan, f"{plan.joinType().sql()} join on {condition.get().sql() if condition.isDefined() else 'nothing'}"
    elif "WithState" in name:
        yield plan, None if name == "TransformWithState" else name
    for child in children:
        yield from _stateful(child)


def _made(plan: Any, name: str) -> Iterator[str]:
    """How a column was made that a plan further up knows by its name: Spark computes windows one step before."""
    if plan.nodeName() == "Project":
        for column in listed(plan.projectList()):
            if column.nodeName() == "Alias" and f"`{column.name()}`" == f"`{name.strip('`')}`":
                yield column.sql()
    for child in listed(plan.children()):
        yield from _made(child, name)


def _sql(expressions: Any) -> str:
    return ", ".join(expression.sql() for expression in listed(expressions))
