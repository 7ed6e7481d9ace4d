"""unbounded-state: a view that keeps what came from a stream for ever, row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from millrace.engine.lint.finding import Finding
from millrace.engine.lint.views import unplanned
from millrace.flow import Graph, Topic, View
from millrace.views.steps import Aggregate, Consolidate, Copy, Join, Plan, Select, Span, Top, Union

_WHY = "a stream's rows never go, and so neither does what is kept of them: state grows until the disk is full"
_FIX = "say how long a row counts, where the stream is read: WHERE at > now() - interval '24 hours'"
# Of these a group keeps every value: the next best one, if the best goes.
_EVERY = {"min": "min", "max": "max", "distinct": "count(DISTINCT …)", "array": "array_agg"}


def findings(graph: Graph) -> Iterator[Finding]:
    """Of groups of which a count or a sum is kept nothing is said: there are as many as the view has rows."""
    for view in graph.views:
        told, _ = _endless(view)
        for each in dict.fromkeys(told):
            yield Finding("unbounded-state", view.name, view.where, f"{view.name} {each}", _WHY, _FIX)


def left_out(graph: Graph) -> dict[str, str]:
    """Views over streams and captured tables, which have no plan yet."""
    return unplanned(graph, lambda view: any(isinstance(each, Topic) for each in view.reads))


def _endless(view: View) -> tuple[list[str], frozenset[str]]:
    """What it keeps for ever, and the streams whose rows are the view's own."""
    if view.plan is None:
        return [], frozenset()
    streams = {}
    for name, each in zip(view.names, view.reads, strict=True):
        if isinstance(each, Topic) or (isinstance(each, View) and _endless(each)[1]):
            streams[name] = frozenset({name})
    return _through(view.plan, streams)


def _through(plan: Plan, streams: dict[str, frozenset[str]]) -> tuple[list[str], frozenset[str]]:
    told: list[str] = []
    # Of each table of the chain the streams whose rows it has, as many as there are.
    rows: defaultdict[str, frozenset[str]] = defaultdict(frozenset, streams)
    for step in plan.steps:
        if isinstance(step, Union):
            rows[step.into] = frozenset().union(*(rows[each] for each in step.tables))
        elif isinstance(step, Join):
            sides = rows[step.left] | rows[step.right]
            told += [f"joins {name}, and keeps every row of it for ever" for name in sorted(sides)]
            rows[step.into] = rows[step.left] if step.how in ("semi", "anti") else sides
        elif isinstance(step, Aggregate):
            kinds = {each.kind for each in step.measures}
            named = ", ".join(spoken for kind, spoken in _EVERY.items() if kind in kinds)
            told += [f"keeps every value of {named} of {name} for ever" for name in sorted(rows[step.table]) if named]
        elif isinstance(step, Top):
            told += [f"ranks {name}, and keeps every row of it for ever" for name in sorted(rows[step.table])]
        elif isinstance(step, Span):
            rows[step.into] = frozenset() if step.until else rows[step.table]
        elif isinstance(step, Select | Copy | Consolidate):
            rows[step.into] = rows[step.table]
        # Of rows that are different (Distinct) nobody knows here how many there will be.
    return told, rows[plan.output]
