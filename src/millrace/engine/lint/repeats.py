"""uncertain-repeat: in real time, rows that come again after a crash as other rows, with other ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millrace.engine.lint.finding import Finding
from millrace.engine.lint.planning import Planned
from millrace.engine.lint.trees import nodes
from millrace.engine.plans import analyzed
from millrace.flow import Stream, Topic
from millrace.flow.nodes import Input
from millrace.kernel.kept import told_by

_WHY = (
    "after a crash the epoch at hand is done again, and what it tells then may differ: no id shows that it is a repeat"
)


def findings(plan: Planned) -> Iterator[Finding]:
    stream = plan.stream
    if stream.mode != "realtime":
        return
    for node in nodes(analyzed(plan.result), [analyzed(frame) for frame in plan.inputs]):
        if node.nodeName() != "TransformWithState":
            continue
        told = told_by(plan.result.sparkSession, node.statefulProcessor())
        reason = _reason(plan, told) if told is not None and _by_arrival(told) else None
        if told is not None and reason is not None:
            where = f" ({told['where']})" if told.get("where") else ""
            what = f"{told['operator']} of {stream.name}{where} tells what depends on which event is first: {reason}"
            yield Finding("uncertain-repeat", stream.name, stream.where, what, _WHY, _fix(told))


def _by_arrival(told: Mapping[str, Any]) -> bool:
    """Whether an answer depends on what came before; not if it is told once, when time has passed."""
    name = told["operator"]
    if name in ("window", "session", "as_of"):
        return not told["once"]
    if name in ("top", "latest"):
        return bool(told["updates"])
    if name == "match":
        return bool(told["arrival"])
    return name in ("dedup", "lookup") or (name == "lookback" and not told["closed"])


def _reason(plan: Planned, told: Mapping[str, Any]) -> str | None:
    """Why events of one key may come in another order again; None if they do not, or nobody can tell."""
    inputs = plan.stream.inputs
    names = [each.name for each in inputs]
    if len(inputs) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]} are read side by side"
    (source,) = inputs
    known = _keyed(source)
    if known is None or known[1] == 1:
        return None
    key, partitions = known
    if not key:
        if isinstance(source, Stream):
            return f"{source.name} writes without a key to {partitions} partitions"
        return f"{source.name} has {partitions} partitions, and nobody says by what key it is written"
    by = list(told["by"])
    # A column that is not the topic's own may have been made of its key.
    if set(key) <= set(by) or not set(by) <= set(plan.inputs[0].columns):
        return None
    return f"it is by {', '.join(by) or 'nothing'}, and {source.name} is in {partitions} partitions by {', '.join(key)}"


def _keyed(source: Input) -> tuple[tuple[str, ...], int] | None:
    if isinstance(source, Stream):
        return source.key, source.output.partitions
    return (source.key, source.partitions) if isinstance(source, Topic) else None


def _fix(told: Mapping[str, Any]) -> str:
    by = ", ".join(told["by"])
    keyed = f'write what it reads by {by} (and say so where the topic is declared: key="{by}"), or ' if by else ""
    return f'{keyed}let it have one partition; what is told once (emit="final") does not depend on it'
