"""What the code as it is now means for the checkpoints that are there: `millrace plan`. A run obeys the same answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.engine import definition, running
from millrace.engine.plan import Flow, flows_of
from millrace.errors import InputsChanged, MillraceError, SchemaChanged, StateChanged
from millrace.flow import Graph
from millrace.log import Log

Verdict: TypeAlias = Literal["new", "same", "safe", "compatible", "needs a new checkpoint", "refused"]

# What says that a checkpoint is of other code.
ANOTHER = (InputsChanged, SchemaChanged, StateChanged)


@dataclass(frozen=True)
class Answer:
    """`new`: there is no checkpoint yet. `same`: nothing changed. `safe`: the code changed, its state did not.
    `compatible`: the flow goes on with its state and behaves otherwise from now on."""

    flow: str
    verdict: Verdict
    reason: str = ""

    @property
    def goes_on(self) -> bool:
        return self.verdict not in ("needs a new checkpoint", "refused")


def answers(graph: Graph, settings: Settings, spark: SparkSession) -> list[Answer]:
    log = Log(settings)
    return [answer(graph.app, flow, log, spark) for flow in flows_of(graph)]


def answer(app: str, flow: Flow, log: Log, spark: SparkSession) -> Answer:
    try:
        return found(app, flow, log, spark)
    except ANOTHER as error:
        return Answer(flow.name, "needs a new checkpoint", str(error))
    except MillraceError as error:
        return Answer(flow.name, "refused", str(error))


def found(app: str, flow: Flow, log: Log, spark: SparkSession) -> Answer:
    """If it goes on; raises why it does not otherwise."""
    folder = definition.folder_of(log.settings, app, flow.name)
    planned = running.planned(spark, flow, log, app)
    running.refuse(flow, planned, folder, log)
    old, new = planned.old, planned.new
    if old is None:
        return Answer(flow.name, "new")
    if (old.manner, old.operators) != (new.manner, new.operators) and old.fingerprint:
        return Answer(flow.name, "compatible", "; ".join(_differences(old, new)))
    if set(old.sinks) != set(new.sinks):
        return Answer(flow.name, "compatible", "; ".join(_sinks(old, new)))
    if old.fingerprint not in ("", new.fingerprint):
        return Answer(flow.name, "safe", "its function changed, what it keeps did not")
    return Answer(flow.name, "same")


def _differences(old: definition.Definition, new: definition.Definition) -> list[str]:
    before = [*old.manner, *(each.manner for each in old.operators)]
    after = [*new.manner, *(each.manner for each in new.operators)]
    return [f"{one} becomes {two}" for one, two in zip(before, after, strict=False) if one != two]


def _sinks(old: definition.Definition, new: definition.Definition) -> list[str]:
    joining = [f"sink {name} joins it" for name in new.sinks if name not in old.sinks]
    left = "sink {} is left out; epochs that it misses, it gets only by a rebuild"
    return [*joining, *(left.format(name) for name in old.sinks if name not in new.sinks)]
