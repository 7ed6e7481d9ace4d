"""The comparison itself: buckets of hashed keys, cut finer where they differ, until single keys are left."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millrace.capture import tables
from millrace.capture.captures import Captures
from millrace.capture.database import CapturedTable
from millrace.capture.evolution import evolved
from millrace.capture.memory import Remembered
from millrace.capture.verify.database import Bucket, TableAtMoment, at_moment, layout_of
from millrace.capture.verify.layout import Layout
from millrace.capture.verify.passing import await_commits, await_passing, being_read
from millrace.capture.verify.topic import FIRST_BYTES, KEYS_HELD, Place, TopicAtMoment
from millrace.errors import TableUnverifiable

# Two hex digits at a time: 256 buckets, then 256 in each that differs.
DIGITS = 2
FINEST_DIGITS = 6
# With fewer rows than this in the differing buckets, cutting finer saves nothing.
FEW_ROWS = 20_000
# Differing keys that are told of in one run; further ones are left to the next.
MOST_KEYS = 200_000
# How often keys are looked at again that changed while they were looked at.
LOOKS = 4
# The header of tombstones that a repair wrote.
REPAIRED = "millrace.repair"


@dataclass(frozen=True)
class Difference:
    """`kind`: "missing" in the topic, "surplus" there (gone from the table), or "different" in some `columns`.

    `key` is for people: column by column as the database prints it, or as the topic has it where the row is gone.
    """

    kind: str
    key: Mapping[str, str]
    columns: tuple[str, ...] = ()
    digest: bytes = field(default=b"", repr=False)
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Verified:
    """What a comparison found. `more`: there are further differences. `unsettled` keys changed each time that they were
    looked at; `twofold` keys are in the topic in two forms, which are two keys for Kafka; `left_out`: columns that were
    not compared, and why; `being_read`: an incremental snapshot goes on, so rows may be missing still. `ends`: how far
    the topic was read, by partition."""

    capture: str
    table: str
    topic: str
    position: str
    rows: int
    topic_rows: int
    differences: tuple[Difference, ...]
    more: bool
    unsettled: int
    twofold: int
    left_out: Mapping[str, str]
    being_read: bool = False
    ends: Mapping[int, int] = field(default_factory=dict, repr=False)

    @property
    def clean(self) -> bool:
        return not (self.differences or self.more or self.unsettled or self.twofold)


@dataclass
class _Look:
    """What one look at everything found."""

    position: str
    rows: int = 0
    topic_rows: int = 0
    keys: set[bytes] = field(default_factory=set)
    more: bool = False
    twofold: int = 0


def verify(captures: Captures, name: str) -> Verified:
    """Compares a captured table (`orders`, `shop.orders`, `shop.public.orders`) with its topic."""
    found, table = tables.find(captures.log, name)
    return Comparison(captures, found, table).run()


class Comparison:
    """One table of one capture against its topic."""

    def __init__(self, captures: Captures, found: Remembered, table: CapturedTable) -> None:
        self.captures, self.capture = captures, found.capture
        if found.kind != "postgres":
            reason = "only tables of PostgreSQL can be compared at one moment so far"
            raise TableUnverifiable(table=table.name, reason=reason, remedy="compare it by a query of your own")
        source = captures.source(found.capture)
        self._address = source.address
        self.table = _now(table, source.describe(found.capture))
        self.layout = layout_of(self.capture.database, self._address, self.capture, self.table)

    def run(self) -> Verified:
        look = self._look()
        differences, unsettled, ends = self._look_again(look.keys)
        return Verified(
            capture=self.capture.name,
            table=self.table.name,
            topic=self.table.topic,
            position=look.position,
            rows=look.rows,
            topic_rows=look.topic_rows,
            differences=differences,
            more=look.more,
            unsettled=unsettled,
            twofold=look.twofold,
            left_out=self.layout.left_out,
            being_read=bool(differences) and being_read(self.captures.log, self.capture, self.table.name),
            ends=ends,
        )

    def _look(self) -> _Look:
        """At everything: which keys may differ."""
        with at_moment(self.capture.database, self._address, self.table) as rows:
            look = _Look(rows.moment.position)
            self._await_passing()
            buckets = rows.buckets(self.layout, DIGITS)
            look.rows = sum(bucket.rows for bucket in buckets.values())
            first = 0
            while first < FIRST_BYTES and not look.more:
                topic = TopicAtMoment(self.captures.log, self.table.topic, self.layout, rows.moment)
                last = topic.read_range(first, _last(buckets, first))
                look.topic_rows += len(topic)
                here = {name: bucket for name, bucket in buckets.items() if first <= int(name, 16) < last}
                self._narrow(rows, topic, here, look)
                look.twofold += len(topic.twofold)
                first = last
            return look

    def _narrow(self, rows: TableAtMoment, topic: TopicAtMoment, buckets: dict[str, Bucket], look: _Look) -> None:
        digits, theirs = DIGITS, topic.buckets(DIGITS)
        while True:
            differing = {name for name in buckets.keys() | theirs.keys() if buckets.get(name) != theirs.get(name)}
            if not differing:
                return
            held = sum(side[name].rows for side in (buckets, theirs) for name in differing if name in side)
            scattered = len(differing) > len(buckets.keys() | theirs.keys()) // 2 and digits > DIGITS
            if held <= FEW_ROWS or scattered or digits == FINEST_DIGITS:
                break
            digits += DIGITS
            buckets = rows.buckets(self.layout, digits, differing)
            theirs = topic.buckets(digits, differing)
        expected = topic.checksums(differing)
        for key, checksum in rows.checksums(self.layout, differing):
            if expected.pop(key, None) != checksum:
                look.keys.add(key)
            if len(look.keys) >= MOST_KEYS:
                look.more = True
                return
        look.keys.update(expected)

    def _look_again(self, keys: Collection[bytes]) -> tuple[tuple[Difference, ...], int, dict[int, int]]:
        """At keys that may differ, column by column, at later moments, until none of them changes meanwhile."""
        layout = self.layout.column_by_column()
        differences: list[Difference] = []
        ends: dict[int, int] = {}
        for _ in range(LOOKS):
            if not keys:
                break
            with at_moment(self.capture.database, self._address, self.table) as rows:
                self._await_passing()
                topic = TopicAtMoment(self.captures.log, self.table.topic, layout, rows.moment)
                topic.read_keys(keys)
                found = _differences(layout, rows, topic, keys)
            # The guard of a repair begins where the earliest of these looks ended.
            ends = {number: min(end, ends.get(number, end)) for number, end in topic.ends.items()}
            differences += [each for each in found if each.digest not in topic.later]
            keys = {each.digest for each in found if each.digest in topic.later}
        return tuple(sorted(differences, key=lambda each: (each.kind, tuple(each.key.values())))), len(keys), ends

    def records_after(self, ends: Mapping[int, int]) -> Iterator[tuple[bytes, bool]]:
        """Keys of the records from these offsets on, in the order of their partition; whether a repair wrote them."""
        await_commits(self.captures.log, self.capture, self.table.topic)
        for partition, end in ends.items():
            for record in self.captures.log.read(self.table.topic, end, partition=partition):
                yield record.key or b"", any(name == REPAIRED for name, _ in record.headers)

    def keys_of(self, digests: Collection[bytes]) -> list[tuple[str, ...]]:
        """The keys with these digests that the table holds now."""
        with at_moment(self.capture.database, self._address, self.table) as rows:
            return [shown for _, _, shown in rows.rows(self.layout, digests)]

    def _await_passing(self) -> None:
        await_passing(self.captures, self.capture, self._address, self.table.topic)


def _now(table: CapturedTable, described: Sequence[CapturedTable]) -> CapturedTable:
    """With the columns that the table has now, and what is remembered of its past."""
    found = [evolved(table, each)[0] for each in described if each.name == table.name]
    return found[0] if found else table


def _last(buckets: Mapping[str, Bucket], first: int) -> int:
    """Up to which first byte the table's rows can be held at once."""
    rows = 0
    for last in range(first, FIRST_BYTES):
        rows += buckets[f"{last:02x}"].rows if f"{last:02x}" in buckets else 0
        if rows > KEYS_HELD and last > first:
            return last
    return FIRST_BYTES


def _differences(
    layout: Layout, rows: TableAtMoment, topic: TopicAtMoment, keys: Collection[bytes]
) -> list[Difference]:
    names = [column.name for column in layout.key]
    left = {key for key in keys if topic.row(key) is not None}
    found = []
    for key, digests, shown in rows.rows(layout, keys):
        theirs = topic.row(key)
        left.discard(key)
        readable = dict(zip(names, shown, strict=True))
        if theirs is None:
            found.append(Difference("missing", readable, (), key, topic.places.get(key)))
        elif theirs != digests:
            found.append(Difference("different", readable, layout.differing(digests, theirs), key, topic.places[key]))
    for key in left:
        place = topic.places[key]
        found.append(Difference("surplus", _shown(place.key, names), (), key, place))
    return found


def _shown(key: bytes, names: list[str]) -> dict[str, str]:
    try:
        values = json.loads(key)
        return {name: str(values[name]) for name in names}
    except (ValueError, TypeError, KeyError):
        return {"key": key.decode(errors="replace")}
