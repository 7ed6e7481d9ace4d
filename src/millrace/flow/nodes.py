"""The nodes of an app's graph. Frozen; each knows the line that made it. Captured tables are in `tables`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from millrace.errors import NameInvalid, Where
from millrace.errors import caller as caller
from millrace.errors import shown as shown
from millrace.flow.deliveries import Delivered, Delivery
from millrace.flow.lakes import LakeInput
from millrace.flow.tables import Changes, Database, Table
from millrace.flow.views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.flow.time import Lateness

Body: TypeAlias = "Callable[..., DataFrame]"
Maker: TypeAlias = Callable[..., Mapping[str, Any]]
Emit: TypeAlias = Literal["updates", "final"]
Mode: TypeAlias = Literal["microbatch", "realtime"]
TopicGuarantee: TypeAlias = Literal["exactly once", "at least once", "at most once"]
TOPIC_GUARANTEES: tuple[TopicGuarantee, ...] = ("exactly once", "at least once", "at most once")

# Kafka allows 249; the rest is for a prefix in front and `.dead` behind.
LONGEST_NAME = 180

# For topics that Millrace creates and that do not say: a key's records stay in order within one partition, so adding
# partitions later moves keys. Each partition is a task in every epoch, which is why there are not more.
PARTITIONS = 2

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


# Nodes are compared by identity: two topics of the same name are two definitions, and an error.
@dataclass(frozen=True, eq=False)
class Topic(Delivered):
    """A named log of JSON records with these columns (a Spark DDL string).

    `time` is the column that says when an event happened, `lateness` how long to wait for events that come late. A
    partition that is silent for `idle_ms` is not waited for; an event more than `ahead_ms` ahead of its arrival (None:
    however far) does not fit. `key` are the columns of which its writers make the record's key, if that is known;
    `headers` the columns that are headers of the record, as texts, each with the header's name. With `lake`, a run
    writes to it what is appended to that table.
    """

    name: str
    schema: str | None
    time: str | None
    lateness: Lateness | None
    partitions: int
    where: Where
    idle_ms: int = 0
    ahead_ms: int | None = None
    key: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    lake: str | None = None

    @property
    def retention(self) -> str | None:
        """Where a table is followed, how many records there are says which rows they are."""
        return None if self.lake is None else "forever"


@dataclass(frozen=True, eq=False)
class Stream(Delivered):
    """A flow: an ordinary function of DataFrames, whose result goes to a topic.

    It can be called as the function that it is, and given to another stream, which then reads its topic. In real time
    rows leave at once; an epoch takes `epoch_ms`, and at its end the watermark moves and what was done is committed.
    Guarantee: what `delivery` says. At least once: after a crash the rows of the last epoch may come again. Exactly
    once: they do not, for whoever reads committed records only, as every stream does. Nothing is lost in either. At
    most once: they do not come again, and some of them may never have come. Sinks that it is given with `.to(…)` have
    guarantees of their own.
    """

    name: str
    inputs: tuple[Input, ...]
    output: Topic
    key: tuple[str, ...]
    emit: Emit | None
    body: Body
    where: Where
    mode: Mode = "microbatch"
    epoch_ms: int | None = None
    delivery: TopicGuarantee = "at least once"

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return self.body(*frames)

    @property
    def reads(self) -> tuple[Readable | LakeInput, ...]:
        """What its inputs are read from, in the order of the body's parameters."""
        return tuple(source.output if isinstance(source, Stream) else source for source in self.inputs)


@dataclass(frozen=True, eq=False)
class Traffic:
    """Made-up events for development: `maker(random)` or `maker(random, n)` gives the n-th row, `rate` a second."""

    name: str
    topic: Topic
    rate: float
    seed: int
    maker: Maker
    where: Where

    def __call__(self, random: Random, *n: int) -> Mapping[str, Any]:
        return self.maker(random, *n)


# What flows on; a table of the lake stands still.
Readable: TypeAlias = Topic | Table | Changes
Input: TypeAlias = Readable | Stream | LakeInput
Deliverable: TypeAlias = Table | Stream | Topic
Node: TypeAlias = Topic | Stream | Traffic | Database | Table | Changes | Delivery | View | LakeInput


def kind(node: Node) -> str:
    if isinstance(node, LakeInput):
        return "lake"
    return "sink" if isinstance(node, Delivery) else type(node).__name__.lower()


def checked_name(kind: str, name: object, where: Where | None) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise NameInvalid(kind=kind, name=name, longest=LONGEST_NAME, where=where)
    return name
