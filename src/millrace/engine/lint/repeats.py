"""uncertain-repeat: in real time, rows that come again after a crash as other rows, with other ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millrace.engine.lint.finding import Finding
from millrace.engine.lint.planning import Planned
from millrace.engine.lint.trees import is_window, named
from millrace.engine.plans import analyzed, listed
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
    for node, above in _below(analyzed(plan.result), [analyzed(frame) for frame in plan.inputs]):
        told = _spark(node, above) if node.isStreaming() else None
        if node.nodeName() == "TransformWithState":
            told = told_by(plan.result.sparkSession, node.statefulProcessor())
            told = told if told is not None and _by_arrival(told) else None
        reason = _reason(plan, told) if told is not None else None
        if told is not None and reason is not None:
            where = f" ({told['where']})" if told.get("where") else ""
            what = f"{told['operator']} of {stream.name}{where} tells what depends on which event is first: {reason}"
            yield Finding("uncertain-repeat", stream.name, stream.where, what, _WHY, _fix(told))


def _below(plan: Any, inputs: list[Any], above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Nodes with those that they are below, without what is under the inputs."""
    if any(plan.fastEquals(each) for each in inputs):
        return
    yield plan, above
    for child in listed(plan.children()):
        yield from _below(child, inputs, (*above, plan))


def _spark(node: Any, above: tuple[Any, ...]) -> dict[str, Any] | None:
    """Of Spark's own operators what ours say of themselves. In real time both tell a row at once: a group as it is
    then, and of repeats the one that is first."""
    name = node.nodeName()
    if name == "Aggregate":
        keys = [each for each in listed(node.groupingExpressions()) if not is_window(each)]
        return {"operator": "groupBy", "by": [each.name() if named(each) else each.sql() for each in keys]}
    if name != "Deduplicate":
        return None
    keys = listed(node.keys())
    known = {each.exprId().id() for each in keys}
    others = [each for each in listed(node.output()) if each.exprId().id() not in known]
    # Whichever is first, it is the same row if nobody looks at more of it.
    used = [each.references() for each in above] + [each.outputSet() for each in (above or (node,))[:1]]
    if not any(names.contains(each) for each in others for names in used):
        return None
    return {"operator": "dropDuplicates", "by": [each.name() for each in keys]}


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
