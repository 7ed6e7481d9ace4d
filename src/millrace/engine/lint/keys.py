"""constant-key: a key that is the same for all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from millrace.engine.lint.finding import Finding
from millrace.engine.lint.planning import Planned
from millrace.engine.lint.trees import constant, is_window, nodes
from millrace.engine.plans import analyzed, listed
from millrace.kernel.kept import told_by
from millrace.kernel.windows import EDGES


def findings(plan: Planned) -> Iterator[Finding]:
    stream, result = plan.stream, analyzed(plan.result)
    columns = {column.name(): column for column in listed(result.output())}
    if stream.key and all(constant(columns[name], result) for name in stream.key):
        yield Finding(
            "constant-key",
            stream.name,
            stream.where,
            f"{stream.name} gives all its records the same key",
            f"they all go to one partition of {stream.output.name}, and whoever reads it has one task for them",
            "key it by what its records are about, or leave the key out: then they are spread",
        )
    for node in nodes(result, [analyzed(frame) for frame in plan.inputs]):
        if node.isStreaming() and (_same_group(node) or _same_key(node, plan.result.sparkSession)):
            yield Finding(
                "constant-key",
                stream.name,
                stream.where,
                f"{stream.name} groups all rows by a constant",
                "all rows go through one task, however many cores there are",
                "group by a column; for one result over all rows leave the constant out, which says so",
            )


def _same_group(node: Any) -> bool:
    """Spark's own aggregation: constants, and perhaps a window."""
    if node.nodeName() != "Aggregate":
        return False
    others = [each for each in listed(node.groupingExpressions()) if not is_window(each)]
    return bool(others) and all(constant(each, node.child()) for each in others)


def _same_key(node: Any, spark: SparkSession) -> bool:
    """The kernel's operators. Without `by` they have a constant key too, which says that they are over all rows."""
    if node.nodeName() != "TransformWithState":
        return False
    told = told_by(spark, node.statefulProcessor())
    if told is None or not told.get("by"):
        return False
    rows = listed(node.children())[0]
    keys = [each for each in listed(node.groupingAttributes()) if each.name() not in EDGES]
    return all(constant(key, rows) for key in keys)
