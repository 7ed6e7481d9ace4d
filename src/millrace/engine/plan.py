"""Which streams run as one flow: those that do nothing but read the same table share it, and so its state is kept once.

A stream that keeps state of its own over a table (it says `emit`), that reads more than the table, or that answers in
real time, is a flow alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.errors import ViewNotRun, Where
from millrace.flow import Graph, Readable, Stream, Table


@dataclass(frozen=True)
class Flow:
    """One Spark query with one checkpoint. `shared` is the table that all its streams read and nothing else."""

    name: str
    streams: tuple[Stream, ...]
    shared: Table | None = None

    @property
    def reads(self) -> tuple[Readable, ...]:
        return tuple(dict.fromkeys(source for stream in self.streams for source in stream.reads))

    @property
    def epoch_ms(self) -> int | None:
        """How long its epochs are, if it runs in real time."""
        return self.streams[0].epoch_ms

    @property
    def where(self) -> Where:
        return self.streams[0].where

    def feeds(self, other: Flow) -> bool:
        outputs = {stream.output for stream in self.streams}
        return self is not other and any(source in outputs for source in other.reads)


def flows_of(graph: Graph) -> tuple[Flow, ...]:
    """In the order of the data's way."""
    if graph.views:
        names = ", ".join(view.name for view in graph.views)
        raise ViewNotRun(app=graph.app, names=names, where=graph.views[0].where)
    readers: dict[Table, list[Stream]] = {}
    for stream in graph.streams:
        if (table := _shared(stream)) is not None:
            readers.setdefault(table, []).append(stream)
    flows: dict[str, Flow] = {}
    for stream in graph.streams:
        table = _shared(stream)
        if table is None:
            flows[stream.name] = Flow(stream.name, (stream,))
        elif table.name not in flows:
            flows[table.name] = Flow(table.name, tuple(readers[table]), table)
    return tuple(flows.values())


def _shared(stream: Stream) -> Table | None:
    only = stream.reads[0]
    alone = len(stream.reads) > 1 or stream.emit is not None or stream.mode == "realtime"
    return only if isinstance(only, Table) and not alone else None
