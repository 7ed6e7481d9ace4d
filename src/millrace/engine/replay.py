"""A deliberate replay: flows once more over what their topics hold, into outputs and checkpoints of their own.

The live flows are not touched: a replay has another name, and so another place for everything that it writes. Records
that do not fit are counted again and not kept again: they are among the dead letters already.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from millrace.disk import write_whole
from millrace.engine.plan import flows_of
from millrace.errors import ArchiveMissing, LakeTableUnknown, ReplayInvalid
from millrace.flow import Delivery, Graph, Input, Stream, Topic, Traffic
from millrace.flow.nodes import checked_name
from millrace.log import Log
from millrace.log.deadletters import SUFFIX

# Beside the checkpoints of a replay: from where to where it was begun.
_RECORD = "replay.json"


@dataclass(frozen=True)
class Bounds:
    """Offsets by partition: from where a topic is read, and before where. None is its start, and no end."""

    start: Mapping[int, int] | None = None
    end: Mapping[int, int] | None = None


WHOLE = Bounds()


@dataclass(frozen=True)
class UpTo:
    """A flow once more, for one of its sinks: over what its topics still hold up to where its checkpoint stands.
    `ends` are offsets by topic, by its outside name, and partition."""

    ends: Mapping[str, Mapping[int, int]]

    def named(self, name: str) -> str:
        return name

    def bounds(self, topic: str, log: Log) -> Bounds:
        return Bounds(None, self.ends.get(log.settings.named(topic), {}))


@dataclass(frozen=True)
class Replay:
    """What the stream `counts` gives goes to the topic `counts.<into>`. Of topics that no replayed stream writes, those
    records are read that arrived from `start` on and before `until`. `outputs` are the topics of its own.

    With `lake`, those topics are read as their archives in the lake have them, and as they go on behind these: each is
    `restored` into a topic of the replay's own, `events.<into>`. What keeps all that it has is read where it is, as in
    every replay: captured tables, and topics that follow a table of the lake."""

    into: str
    start: datetime | None = None
    until: datetime | None = None
    outputs: frozenset[str] = frozenset()
    lake: bool = False
    restored: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        checked_name("a replay", self.into, None)
        if f".{self.into}".endswith(SUFFIX):
            raise ReplayInvalid(reason=f"the topics of dead letters are named so: {self.into!r}")
        if self.start is not None and self.until is not None and self.start >= self.until:
            raise ReplayInvalid(reason=f"it would begin at {self.start} and end at {self.until}")

    def named(self, name: str) -> str:
        return f"{name}.{self.into}"

    @property
    def ends(self) -> bool:
        """Whether what it reads grows no more: topics are restored up to where they are when it begins."""
        return self.lake or self.until is not None

    def applied(self, graph: Graph, only: Collection[str]) -> tuple[Graph, Replay]:
        """The graph with other outputs, and other inputs where these are such outputs; without made-up traffic, and
        without sinks, which hold what the live flows gave them."""
        flows = [flow for flow in flows_of(graph) if not only or set(only) & set(flow.parts)]
        streams = [stream for flow in flows for stream in flow.streams]
        outputs = {each.output: replace(each.output, name=self.named(each.output.name)) for each in streams}
        of_streams = (each for flow in flows if flow.streams for each in flow.reads)
        read = {each for each in of_streams if isinstance(each, Topic) and each.lake is None} - set(outputs)
        if self.lake and not read:
            reason = "its streams read no topic whose records go, and tables keep every row: leave `--from lake` out"
            raise ReplayInvalid(reason=reason)
        restored = frozenset(topic.name for topic in read) if self.lake else frozenset[str]()
        renamed = {topic: replace(topic, name=self.named(topic.name)) for topic in read if topic.name in restored}
        taken = {node.name for node in graph.nodes} & {topic.name for topic in outputs.values()}
        if taken:
            raise ReplayInvalid(reason=f"the app has {', '.join(sorted(taken))} already; choose another name")

        def moved(given: Input) -> Input:
            topic = given.output if isinstance(given, Stream) else given
            return outputs.get(topic, renamed.get(topic, topic)) if isinstance(topic, Topic) else given

        made = {
            each: replace(each, output=outputs[each.output], inputs=tuple(map(moved, each.inputs))) for each in streams
        }
        nodes = (
            made.get(node, node)
            if isinstance(node, Stream)
            else renamed.get(node, node)
            if isinstance(node, Topic)
            else node
            for node in graph.nodes
        )
        kept = tuple(node for node in nodes if node not in outputs and not isinstance(node, Traffic | Delivery))
        own = frozenset(topic.name for topic in outputs.values())
        return Graph.of(self.named(graph.app), graph.where, kept), replace(self, outputs=own, restored=restored)

    def begin(self, folder: Path, log: Log) -> Replay:
        """The replay as it was begun, which `folder` remembers: a repeat goes on with the same bounds, or is refused.
        A stream that begins in it, now or in a repeat, does so with a topic of its own."""
        path = folder / _RECORD
        held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        begun = self if held is None else self._as_begun(held)
        known = set() if held is None else set(held["outputs"])
        for name in sorted(self.outputs - known):
            if log.topics.exists(name):
                raise ReplayInvalid(reason=f"topic {name} is there already; choose another name")
        folder.mkdir(parents=True, exist_ok=True)
        times = {name: time and time.isoformat() for name, time in (("start", begun.start), ("until", begun.until))}
        told = {**times, "lake": self.lake, "outputs": sorted(self.outputs | known)}
        write_whole(path, json.dumps(told, indent=2))
        self._restore(log)
        return begun

    def _restore(self, log: Log) -> None:
        """Makes the topics of archives, or brings them up to where their live ones are now."""
        if not self.restored:
            return
        from millrace.lakehouse import Catalog
        from millrace.lakehouse.archive import named, restore

        for topic in sorted(self.restored):
            try:
                with Catalog(log.settings).opened(named(topic)) as table:
                    restore(log, table, self.named(topic), of=topic)
            except LakeTableUnknown:
                raise ArchiveMissing(topic=topic, table=named(topic)) from None

    def _as_begun(self, held: Mapping[str, Any]) -> Replay:
        if self.lake != held.get("lake", False):
            told = "with" if held.get("lake") else "without"
            raise ReplayInvalid(
                reason=f"{self.into!r} was begun {told} `--from lake`; do the same, or choose another name"
            )
        start, until = (held[name] and datetime.fromisoformat(held[name]) for name in ("start", "until"))
        if (self.start or self.until) and (self.start, self.until) != (start, until):
            told = f"{self.into!r} was begun from {held['start'] or 'the oldest'} until {held['until'] or 'no end'}"
            raise ReplayInvalid(reason=f"{told}; leave both out to go on, or choose another name")
        return replace(self, start=start, until=until)

    def bounds(self, topic: str, log: Log) -> Bounds:
        if topic in self.outputs or topic in map(self.named, self.restored):  # what is its own is read whole
            return WHOLE
        start, end = (None if time is None else log.topics.at(topic, time) for time in (self.start, self.until))
        return Bounds(start, end)
