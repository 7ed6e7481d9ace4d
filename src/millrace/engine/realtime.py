"""Flows in real time: what can run so, and the slots that it takes.

In real time all tasks of a query run at once and for as long as an epoch, those that read as those behind each shuffle:
each needs a slot of its own. A slot is a thread, not a core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace.engine.definition import AnySource
from millrace.engine.plan import Flow
from millrace.engine.plans import analyzed, expressions, line_of, listed
from millrace.engine.sources import FETCH_WAIT, PROMPT, REALTIME_FETCH_WAIT_MS
from millrace.engine.viewed import plan_of
from millrace.errors import RealTimeRefused, SlotsTooFew, Where
from millrace.flow import Changes, Stream, Table, Topic, View
from millrace.flow.operators import noted_lines
from millrace.kernel.calling import operator
from millrace.log import Log
from millrace.views.steps import Aggregate, Consolidate, Distinct, Join, Top

# For whatever is neither in real time nor an epoch of another flow: dead letters.
SPARE = 2
# Shuffle partitions of a flow that begins in real time, unless they are configured: each takes a slot at every keyed
# step and lengthens the pause at an epoch's end, and with one for each slot of `local[N]` there would never be enough.
MOST_SHUFFLED = 4
# Of a flow whose function nobody has called yet: as many as a chain of operators has in the worst case we know of. One
# with more is refused with the number (and docs/guide/realtime.md, and the error, say four).
_SHUFFLES_GUESSED = 4

# The first epochs are short and grow up to the flow's own: see `FirstEpochs.java`.
FIRST_EPOCH_MS = 1_000
DAY_MS = 86_400_000

# Of flows in real time, by their folders: a process has one Spark, whatever runs share it.
_taken: dict[Path, int] = {}

# For a query's tasks alone. Each of them makes some twenty projections when it starts, for its states and its sink, and
# Spark writes the source of a class for each: rows wait for it. The stages of the plan stay generated code, which is
# the driver's to say.
IN_TASKS = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# What of a plan Spark 4.3 runs in real time: its own list is of the operators that these become.
_ROW_BY_ROW = (
    "AppendColumns", "CollectMetrics", "DeserializeToObject", "EventTimeWatermark", "Expand", "Filter", "Generate",
    "MapElements", "Project", "ResolvedHint", "SerializeFromObject", "SubqueryAlias", "Union",
    "UpdateEventTimeWatermarkColumn", "View",
)  # fmt: skip
_SHUFFLED = ("Aggregate", "Deduplicate", "RepartitionByExpression", "TransformWithState")
_WORDS = {
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsInPandas": "a Python function over groups",
    "FlatMapGroupsInPandasWithState": "a Python function over groups",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "MapInArrow": "mapInArrow",
    "MapInPandas": "mapInPandas",
    "Sort": "orderBy",
    "TransformWithStateInPandas": "transformWithState in Python",
    "TransformWithStateInPySpark": "transformWithState in Python",
    "Window": "a window function over rows",
}


def runs_so(flow: Flow, log: Log, *, once: bool) -> bool:
    """Whether a flow runs in real time now. What has an end is read epoch by epoch, and so is a log in a folder, which
    Spark knows no other way to read; its state is the same."""
    return flow.epoch_ms is not None and not once and log.data_source.format == "kafka"


def trigger_ms(flow: Flow) -> int:
    """When Spark is to end an epoch: of a view never, as that would be in the middle of a transaction. Its readers end
    it by themselves (`WholePrompt.java`)."""
    assert flow.epoch_ms is not None
    return flow.epoch_ms if flow.view is None else flow.epoch_ms + DAY_MS


def reads_first(kept: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a flow that keeps this has to begin epoch by epoch, with what is there: in real time events and a table's
    rows come as they come, and events would be looked up in a table of which only some rows are read."""
    return any(told["operator"] == "lookup" for told in kept)


def prompt(sources: Iterable[AnySource], flow: Flow) -> tuple[AnySource, ...]:
    """The same sources, whose epochs can be ended early: see `PromptKafka.java`. Those of a view end them alone."""
    first = {"firstEpochMs": str(FIRST_EPOCH_MS), FETCH_WAIT: str(REALTIME_FETCH_WAIT_MS)}
    if flow.view is not None:
        first["epochMs"] = str(flow.epoch_ms)
    return tuple(
        replace(source, data=replace(source.data, format=PROMPT, options={**source.data.options, **first}))
        for source in sources
    )


def settled(records: DataFrame) -> DataFrame:
    """The same rows by a plan that is optimized now, and not again at every epoch: see `Settled.java`."""
    spark = records.sparkSession
    return DataFrame(operator(spark, "Settled").plan(records._jdf), spark)


def refuse(stream: Stream, result: DataFrame) -> None:
    """Refuses what Spark would find out only when the first epoch is planned, and in its own words. By the line of the
    operation where one of its columns tells it, or we made it, otherwise by that of the stream."""
    for node in _nodes(analyzed(result)):
        operation = _hindrance(stream, node)
        if operation is not None:
            raise RealTimeRefused(flow=stream.name, operation=operation, where=_line(node) or stream.where)


def slots_of(sources: Sequence[AnySource], result: DataFrame, log: Log) -> int:
    partitions = int(result.sparkSession.conf.get("spark.sql.shuffle.partitions") or 0)
    shuffles = sum(node.nodeName() in _SHUFFLED for node in _nodes(analyzed(result)))
    return sum(len(log.topics.offsets(source.name)) for source in sources) + shuffles * partitions


def slots_guessed(flows: Sequence[Flow], partitions: int, log: Log) -> int:
    """Before there is a session whose plans could be looked at; 0 if nothing runs in real time."""
    found = 0
    for flow in flows:
        if flow.epoch_ms is not None:
            read = [source.of if isinstance(source, Changes) else source for source in flow.reads]
            shuffles = _SHUFFLES_GUESSED if flow.view is None else _shuffles(flow.view, log)
            found += sum(_partitions(source, log) for source in read) + shuffles * partitions
    return found + _beside(flows, partitions) if found else 0


def slots_declared(flows: Sequence[Flow], partitions: int) -> int:
    """The same before there is a broker to ask, for flows over topics that are made as the app says."""
    found = 0
    for flow in flows:
        if flow.epoch_ms is not None:
            read = sum(source.partitions for source in flow.reads if isinstance(source, Topic))
            found += read + _SHUFFLES_GUESSED * partitions
    return found + _beside(flows, partitions) if found else 0


def _beside(flows: Sequence[Flow], partitions: int) -> int:
    """For what is not in real time. Between two epochs a flow in real time holds no slot, and Spark does not wait: if
    the tasks of others have taken so many that its own do not fit, it refuses the epoch, and the flow fails. So all
    others have what their widest stages take at once."""
    others = [flow for flow in flows if flow.epoch_ms is None]
    read = sum(
        source.partitions if isinstance(source, Topic) else partitions for flow in others for source in flow.reads
    )
    return SPARE + read + partitions * len(others)


def _partitions(source: Topic | Table | View, log: Log) -> int:
    if isinstance(source, Table) and source.capture is not None:
        return source.capture.partitions
    return len(log.topics.offsets(source.name)) if log.topics.exists(source.name) else 0


def _shuffles(view: View, log: Log) -> int:
    """The keyed steps of a view, with those that are before and behind its plan."""
    return 2 + sum(
        isinstance(step, Join | Aggregate | Distinct | Top | Consolidate) for step in plan_of(view, log).steps
    )


def check_slots(spark: SparkSession, flow: Flow, needed: int) -> None:
    """Too few, and Spark would not start its tasks. Those of other runs on the same Spark are taken too."""
    taken = sum(_taken.values())
    context: Any = spark.sparkContext._jsc.sc()
    there = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    if needed + taken + 1 > there:  # one for what is not in real time
        raise SlotsTooFew(
            flow=flow.name, needed=needed, taken=taken, there=there, whole=needed + taken + SPARE, where=flow.where
        )


def take_slots(folder: Path, count: int) -> None:
    """For the flow of this folder, until it lets them go. One that reads what is there first will need them soon."""
    _taken[folder] = count


def let_slots_go(folder: Path) -> None:
    _taken.pop(folder, None)


def _hindrance(stream: Stream, node: Any) -> str | None:
    name = str(node.nodeName())
    if function := _python(node):
        return f"the Python function {function}"
    if name == "Join":
        both = all(child.isStreaming() for child in listed(node.children()))
        return (
            "a join of two streams by Spark (`mr.join` of pairs of two topics can, by a key that is not a double)"
            if both
            else None
        )
    if name == "Aggregate":
        if any("session_window" in each.sql() for each in listed(node.groupingExpressions())):
            return "Spark's session_window"
        return "an aggregate that is told once (`mr.window` can)" if stream.emit == "final" else None
    if not node.isStreaming() or not listed(node.children()) or name in _ROW_BY_ROW or name in _SHUFFLED:
        return None
    return _WORDS.get(name, name)


def _python(node: Any) -> str | None:
    return next((str(path[-1].name()) for path in expressions(node) if _is_python(path[-1])), None)


def _is_python(expression: Any) -> bool:
    return expression.getClass().getSimpleName() in ("PythonUDF", "PythonUDAF")


def _line(node: Any) -> Where | None:
    """Of a Python function that of its call; otherwise any of the operation's own."""
    ours = next((where for made, where in noted_lines() if analyzed(made).equals(node)), None)
    paths = sorted(expressions(node), key=lambda path: not _is_python(path[-1]))
    return ours or next((line for path in paths if (line := line_of(path)) is not None), None)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in listed(plan.children()):
        yield from _nodes(child)
