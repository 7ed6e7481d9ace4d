"""unbounded-state: Spark's own stateful operators, and rankings, whose state is never given up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from millrace.engine.lint.finding import Finding
from millrace.engine.lint.planning import Planned
from millrace.engine.lint.trees import constant, marked, nodes, optimized
from millrace.engine.plans import analyzed, listed
from millrace.errors import Where
from millrace.flow import Table
from millrace.kernel.kept import told_by

# The line of an operator, as it was told (`About.where`).
_LINE = re.compile(r"(.+):(\d+)")

# Spark works out how far back from a watermark rows are kept. Any watermark will do to see whether it can; as a number
# that needs a Java long.
_SOME_WATERMARK_MS = 1 << 41

_GROUPS = (
    "state is kept for every value that ever came: it grows until the disk is full",
    'let time end it: mr.window(…, by=…), or group by F.window("at", "1 hour") too',
)
_REPEATS = (
    "each value is remembered for ever: state grows until the disk is full",
    "remember it as long as repeats may come: dropDuplicatesWithinWatermark(…), or name the time column too",
)
_NEWEST = (
    "a key's rows are kept for ever, also if it never comes again: state grows until the disk is full",
    'say for how long a row counts: ttl="30 days", late=mr.late.drop()',
)
_FIRST = (
    "a key's rows are kept for ever, also if it never comes again: state grows until the disk is full",
    'rank rows of windows, by "window_end" too, or say `of` what with a ttl: of="player", ttl="30 days"',
)
_PAIRS = (
    "a row waits for a pair that may come any time: state grows until the disk is full",
    'say how far apart pairs may be: mr.join(…, within=("0 seconds", "30 minutes"))',
)


def findings(plan: Planned) -> Iterator[Finding]:
    stream = plan.stream

    def found(what: str, words: tuple[str, str]) -> Finding:
        return Finding("unbounded-state", stream.name, stream.where, f"{stream.name} {what}", *words)

    # Groups of a table's rows are as many as the table has them.
    events = not all(isinstance(source, Table) for source in stream.reads)
    joins = False
    for node in nodes(analyzed(plan.result), [analyzed(frame) for frame in plan.inputs]):
        name = node.nodeName()
        joins |= name == "Join"
        if not events or not node.isStreaming():
            continue
        if name == "Aggregate" and _endless(columns := listed(node.groupingExpressions()), node.child()):
            yield found(f"groups by {_sql(columns)} and by no window of event time", _GROUPS)
        elif name in ("Deduplicate", "Distinct"):
            columns = listed(node.keys() if name == "Deduplicate" else node.output())
            if _endless(columns, node.child()):
                yield found(f"drops repeats of {_sql(columns)} without the time column", _REPEATS)
        elif name == "TransformWithState":
            told = told_by(plan.result.sparkSession, node.statefulProcessor())
            if told is not None and _keeps(told, node):
                by = f" of each {', '.join(told['by'])}" if told["by"] else ""
                which = "newest row" if told["operator"] == "latest" else "first rows"
                words = _FIRST if told["operator"] == "top" and not told["replacing"] else _NEWEST
                line = _LINE.fullmatch(told["where"])
                where = Where(line[1], int(line[2])) if line else stream.where
                yield replace(found(f"keeps the {which}{by} for ever", words), where=where)
    for side in _unbounded_joins(plan) if joins else ():
        yield found(f"joins two streams and keeps the rows of {side} for ever", _PAIRS)


def _keeps(told: Mapping[str, Any], node: Any) -> bool:
    """Whether a ranking has more and more rows: of ever new keys, or known by ever new values."""
    if told["operator"] not in ("top", "latest") or told["windowed"] or told["ttlUs"]:
        return False
    keys = listed(node.groupingAttributes()) if told["by"] else []
    return bool(told["replacing"]) or _endless(keys, listed(node.children())[0])


def _endless(columns: list[Any], rows: Any) -> bool:
    """Whether there is no end to the values; the watermark gives up those that it has passed."""
    if any(marked(column) for column in columns):
        return False
    return any(not constant(column, rows) and column.dataType().simpleString() != "boolean" for column in columns)


def _unbounded_joins(plan: Planned) -> Iterator[str]:
    """In the optimized plan, because conditions that follow a join count too."""
    java: Any = plan.result.sparkSession._jvm
    helper = java.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    watermark = java.scala.Option.apply(_SOME_WATERMARK_MS)
    for node in nodes(optimized(plan.result)):
        if node.nodeName() != "Join" or not all(child.isStreaming() for child in listed(node.children())):
            continue
        if helper.isWatermarkInJoinKeys(node):
            continue
        endless = [
            name
            for name, one, other in (
                ("the left one", node.left(), node.right()),
                ("the right one", node.right(), node.left()),
            )
            if not any(marked(column) for column in listed(one.output()))
            or helper.getStateValueWatermark(one.outputSet(), other.outputSet(), node.condition(), watermark).isEmpty()
        ]
        if endless:
            yield "both" if len(endless) == 2 else endless[0]


def _sql(columns: list[Any]) -> str:
    return ", ".join(column.sql() for column in columns)
