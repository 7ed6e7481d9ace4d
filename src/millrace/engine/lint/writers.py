"""dual-write and own-source: topics with two writers, and ways back to a flow's own source that no edge shows.

The graph knows a topic by its node. A topic of late rows is known by name only, and the topic of a captured table by
another name than its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from millrace.capture.definition import topic_part
from millrace.engine.lint.finding import Finding
from millrace.flow import Changes, Graph, LakeInput, Readable, Stream, Table, Topic, Traffic

Sides = Mapping[Stream, str]


def findings(graph: Graph, sides: Sides) -> Iterator[Finding]:
    yield from _dual_writes(graph, sides)
    yield from _own_sources(graph, sides)


def _dual_writes(graph: Graph, sides: Sides) -> Iterator[Finding]:
    writers: list[Stream | Traffic] = [*graph.streams, *graph.traffic]
    for writer in writers:
        for topic in _writes(writer, sides):
            table = next((each for each in _tables(graph) if _is_of(topic, each)), None)
            if table is not None:
                other = f"the capture {table.capture.name}" if table.capture else "somebody else's capture"
                yield Finding(
                    "dual-write",
                    writer.name,
                    writer.where,
                    f"{writer.name} writes to {topic}, which {other} writes",
                    "two writers have no common order: readers see a table that the database never had",
                    "write to a topic of its own; a row of the table is changed in its database",
                )


def _own_sources(graph: Graph, sides: Sides) -> Iterator[Finding]:
    for stream in graph.streams:
        for topic in _writes(stream, sides):
            hidden = topic == sides.get(stream) or any(_is_of(topic, table) for table in _tables(graph))
            way = _way_back(stream, topic, graph, sides) if hidden else None
            if way is not None:
                names = (stream.name, *way, stream.name)
                steps = [name for place, name in enumerate(names) if place == 0 or name != names[place - 1]]
                yield Finding(
                    "own-source",
                    stream.name,
                    stream.where,
                    f"{stream.name} reads what it wrote itself: {' -> '.join(steps)}",
                    "each row comes round again, so they never end",
                    "send them to a topic that nothing before this stream reads",
                )


def _way_back(stream: Stream, topic: str, graph: Graph, sides: Sides) -> tuple[str, ...] | None:
    """The shortest one over what streams read and write."""
    ways: list[tuple[str, ...]] = [(topic,)]
    seen = set()
    for way in ways:
        for reader in graph.streams:
            if not any(_is_of(way[-1], source) for source in reader.reads):
                continue
            if reader is stream:
                return way
            if reader not in seen:
                seen.add(reader)
                ways += [(*way, reader.name, written) for written in _writes(reader, sides)]
    return None


def _writes(writer: Stream | Traffic, sides: Sides) -> tuple[str, ...]:
    if isinstance(writer, Traffic):
        return (writer.topic.name,)
    return (writer.output.name, *([sides[writer]] if writer in sides else []))


def _tables(graph: Graph) -> list[Table]:
    foreign = [node for node in graph.nodes if isinstance(node, Table) and node.capture is None]
    return [*foreign, *(table for database in graph.databases for table in database.tables.values())]


def _is_of(topic: str, source: Readable | LakeInput) -> bool:
    """Whether what is read there is what is written to this topic."""
    if isinstance(source, LakeInput):
        return False
    table = source.of if isinstance(source, Changes) else source
    if isinstance(table, Topic) or table.capture is None:
        return topic == table.name
    if "." in table.table:
        return topic == table.capture.topic(table.table)
    # In the database's default schema, which PostgreSQL calls `public` and MySQL as the database.
    name, part = re.escape(table.capture.name), re.escape(topic_part(table.table))
    return re.fullmatch(rf"{name}\.[^.]+\.{part}", topic) is not None
