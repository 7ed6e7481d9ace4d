"""A deliberate replay: flows once more over what their topics hold, into outputs and checkpoints of their own.

The live flows are not touched: a replay has another name, and so another place for everything that it writes. Records
that do not fit are counted again and not kept again: they are among the dead letters already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from millrace.engine.plan import flows_of
from millrace.errors import ReplayInvalid
from millrace.flow import Graph, Input, Stream, Topic
from millrace.flow.nodes import checked_name
from millrace.log import Log


@dataclass(frozen=True)
class Bounds:
    """Offsets by partition: from where a topic is read, and before where. None is its start, and no end."""

    start: Mapping[int, int] | None = None
    end: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Replay:
    """What the stream `counts` gives goes to the topic `counts.<into>`. Of topics that no replayed stream writes, those
    records are read that arrived from `start` on and before `until`."""

    into: str
    start: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        checked_name("a replay", self.into, None)
        if self.start is not None and self.until is not None and self.start >= self.until:
            raise ReplayInvalid(reason=f"it would begin at {self.start} and end at {self.until}")

    def named(self, name: str) -> str:
        return f"{name}.{self.into}"

    def graph(self, graph: Graph, only: Collection[str]) -> Graph:
        """The graph with other outputs, and other inputs where these are such outputs."""
        flows = [flow for flow in flows_of(graph) if not only or set(only) & {each.name for each in flow.streams}]
        streams = [stream for flow in flows for stream in flow.streams]
        outputs = {each.output: replace(each.output, name=self.named(each.output.name)) for each in streams}

        def moved(given: Input) -> Input:
            topic = given.output if isinstance(given, Stream) else given
            return outputs.get(topic, topic) if isinstance(topic, Topic) else given

        made = {
            each: replace(each, output=outputs[each.output], inputs=tuple(map(moved, each.inputs))) for each in streams
        }
        nodes = tuple(made.get(node, node) if isinstance(node, Stream) else node for node in graph.nodes)
        return Graph.of(self.named(graph.app), graph.where, tuple(node for node in nodes if node not in outputs))

    def bounds(self, topic: Topic, log: Log) -> Bounds:
        if topic.name.endswith(f".{self.into}"):  # what the replay itself writes is read whole
            return Bounds()
        start, end = (None if time is None else log.topics.at(topic.name, time) for time in (self.start, self.until))
        return Bounds(start, end)
