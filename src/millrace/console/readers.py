"""Who reads a topic: its groups, how far behind they are, which of them are only the shadow of a flow, and the catch
that stands before a group is moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace.errors import SeekUnsure
from millrace.log import Extent, Log, Move, position


@dataclass(frozen=True)
class Reader:
    """A group of a topic. `flow` is the flow whose place it tells: moving it would change nothing."""

    group: str
    state: str
    behind: int
    partitions: Mapping[int, int]
    flow: str | None


def readers(log: Log, topic: str, extents: Mapping[int, Extent], app: str, flows: Iterable[str]) -> list[Reader]:
    shadows = {f"{app}.{flow}": flow for flow in flows}
    found = []
    for group in log.groups.list():
        places = log.groups.places(group.name).get(topic)
        if not places:
            continue
        behind = {number: max(extent.last - places.get(number, extent.first), 0) for number, extent in extents.items()}
        found.append(Reader(group.name, group.state, sum(behind.values()), behind, shadows.get(group.name)))
    return found


def planned(log: Log, group: str, to: str, topic: str) -> tuple[Move, ...]:
    """Where a seek would move the group; moves nothing."""
    return log.groups.moves(group, position(to), topic=topic)


def moved(log: Log, group: str, to: str, topic: str, typed: str) -> tuple[Move, ...]:
    """Moves a group, for somebody who has typed its name."""
    if typed.strip() != group:
        raise SeekUnsure(group=group)
    return log.groups.seek(group, position(to), topic=topic)
