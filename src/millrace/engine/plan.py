"""Which streams run as one flow: those that do nothing but read the same table share it, and so its state is kept once.

A stream that keeps state of its own over a table (it says `emit`), that reads more than the table, or that answers in
real time, is a flow alone, and so is a view. Sinks are written by the flow of what they are of; a topic that has sinks
has a flow for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millrace.errors import FlowUnknown, Where, nearest
from millrace.flow import Delivery, Graph, LakeInput, Readable, Stream, Table, Topic, View
from millrace.flow.graph import feeds
from millrace.flow.nodes import TopicGuarantee


@dataclass(frozen=True)
class Flow:
    """One Spark query with one checkpoint. `shared` is the table that all its streams read and nothing else, `topic`
    one that is read only for its `sinks`; a `view` is a flow of its own."""

    name: str
    streams: tuple[Stream, ...]
    shared: Table | None = None
    sinks: tuple[Delivery, ...] = ()
    topic: Topic | None = None
    view: View | None = None

    @property
    def reads(self) -> tuple[Readable | View, ...]:
        if alone := self.shared or self.topic:
            return (alone,)
        if self.view is not None:
            return tuple(dict.fromkeys(self.view.reads))
        found = (source for stream in self.streams for source in stream.reads)
        return tuple(dict.fromkeys(source for source in found if not isinstance(source, LakeInput)))

    @property
    def lakes(self) -> tuple[LakeInput, ...]:
        """What it reads beside that, and which stands still."""
        found = (source for stream in self.streams for source in stream.reads)
        return tuple(dict.fromkeys(source for source in found if isinstance(source, LakeInput)))

    @property
    def parts(self) -> tuple[str, ...]:
        """What a person calls it by: its streams, or if it has none, what its sinks are of."""
        return tuple(stream.name for stream in self.streams) or (self.name,)

    @property
    def epoch_ms(self) -> int | None:
        """How long its epochs are, if it runs in real time."""
        if self.view is not None:
            return self.view.epoch_ms
        return self.streams[0].epoch_ms if self.streams else None

    @property
    def delivery(self) -> TopicGuarantee:
        """One that keeps what each of its streams asks for: they are written together."""
        asked: set[TopicGuarantee] = {stream.delivery for stream in self.streams} or {"at least once"}
        return next(iter(asked)) if len(asked) == 1 and self.view is None else "exactly once"

    @property
    def guarantee(self) -> TopicGuarantee | None:
        """That of the topics that it writes; None where it writes none. Its sinks have their own."""
        return self.delivery if self.streams or self.view is not None else None

    @property
    def where(self) -> Where:
        if self.view is not None:
            return self.view.where
        return self.streams[0].where if self.streams else self.sinks[0].where

    def feeds(self, other: Flow) -> bool:
        outputs: set[object] = {stream.output for stream in self.streams} | {self.view}
        if self is other:
            return False
        tables: tuple[LakeInput | Topic, ...] = (
            *other.lakes,
            *(source for source in other.reads if isinstance(source, Topic)),
        )
        lakes = any(feeds(sink, table) for sink in self.sinks for table in tables)
        return lakes or any(source in outputs for source in other.reads)


def refuse_unknown(graph: Graph, names: Iterable[str]) -> None:
    known = [part for flow in flows_of(graph) for part in flow.parts]
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise FlowUnknown(app=graph.app, kind="flow", name=name, hint=hint, known=", ".join(known))


def flows_of(graph: Graph) -> tuple[Flow, ...]:
    """In the order of the data's way."""
    flows: dict[str, Flow] = {}
    for node in graph.nodes:
        if isinstance(node, Stream):
            shared = _shared(node)
            name = node.name if shared is None else shared.name
            made = flows.get(name) or Flow(name, (), shared)
            flows[name] = replace(made, streams=(*made.streams, node))
        elif isinstance(node, View):
            flows[node.name] = Flow(node.name, (), view=node)
        elif isinstance(node, Delivery):
            name, of = _flow_of(node), node.of
            empty = Flow(name, (), of if isinstance(of, Table) else None, (), of if isinstance(of, Topic) else None)
            made = flows.get(name) or empty
            flows[name] = replace(made, sinks=(*made.sinks, node))
    return tuple(flows.values())


def _flow_of(delivery: Delivery) -> str:
    shared = _shared(delivery.of) if isinstance(delivery.of, Stream) else None
    return delivery.of.name if shared is None else shared.name


def _shared(stream: Stream) -> Table | None:
    only = stream.reads[0]
    alone = len(stream.reads) > 1 or stream.emit is not None or stream.mode == "realtime"
    return only if isinstance(only, Table) and not alone else None
