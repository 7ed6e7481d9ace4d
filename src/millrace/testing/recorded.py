"""Sinks in a play: what each would be given is kept in the play's log under the sink's name, and no server is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from millrace.config import Settings
from millrace.flow import Edge, Graph, Node
from millrace.log import Log
from millrace.sinks.contract import VERSION, Feed, Guarantee, Refuse, Sink, Writer
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.tasks import texts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Recorded(Sink):
    """In the place of another sink, fed as that would be."""

    of: Sink = field(kw_only=True)
    log: Log = field(kw_only=True)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.of.kind

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override]
        return self.of.guarantee

    @property
    def wants(self) -> Literal["keys", "rows", "either"]:  # type: ignore[override]
        return self.of.wants

    def keyed(self, table: Sequence[str], stream: Sequence[str]) -> tuple[str, ...]:
        return self.of.keyed(table, stream)

    def check(self, feed: Feed) -> None:
        self.of.check(feed)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        self.log.topics.ensure(self.name, partitions=1)
        return RecordedWriter(self, FileLedger(folder))


class RecordedWriter(Writer):
    def __init__(self, sink: Recorded, ledger: FileLedger) -> None:
        self._sink, self._ledger = sink, ledger

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- it takes every row
        if not due(self._sink.name, epoch, self._ledger.held(), self._sink.where):
            return
        with self._sink.log.writer(self._sink.name) as writer:
            for text in texts_of(rows.drop(VERSION)):
                writer.write(text)
        self._ledger.write(epoch)


def recorded(graph: Graph, log: Log) -> Graph:
    """The graph with all its sinks recorded."""
    made: dict[Node, Node] = {
        each: replace(each, sink=Recorded(each.name, each.where, each.sink.key, of=each.sink, log=log))
        for each in graph.deliveries
    }
    edges = tuple(Edge(made.get(each.source, each.source), made.get(each.target, each.target)) for each in graph.edges)
    return replace(graph, nodes=tuple(made.get(node, node) for node in graph.nodes), edges=edges)
