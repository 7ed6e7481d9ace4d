"""One query of each keyed operator over the same events, and its model: for tests of checkpoints that live on.

Each epoch's rows are kept in a file, written whole, so that the process may die at any time. An epoch that is done
again must give the same rows. The model is given the cuts and the watermark that each epoch had.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import millrace as mr
from millrace import kernel
from millrace.errors import Where
from millrace.flow import lookups
from millrace.flow.places import compiled
from millrace.kernel import join as joining
from millrace.model import as_of, dedup, joins, latest, lookback, lookup, match, sketches, top, windows
from tests.kernel import chains, epochs
from tests.kernel.epochs import SECOND, hopping
from tests.kernel.parts import LAG_S, START, TABLE, Event, Part, us

SCHEMA = "id long, key string, at timestamp, ends timestamp, amount long, price decimal(8,2), item string"
RECORDS = "topic string, key string, value string, partition int, offset long, timestamp timestamp"
OUT = "out"
By: TypeAlias = str | list[str]


@dataclass(frozen=True)
class Twin:
    """A model, and what it gives of an epoch with this watermark (µs)."""

    model: Any
    epoch: Callable[[Part, int], list[Any]]


@dataclass(frozen=True)
class Specimen:
    """`build` makes the query of (events, records), by the key or those columns that stand for it; `shown` is what is
    compared of a row, `twin` a new model of it."""

    build: Callable[..., DataFrame]
    shown: Callable[[Row], Any]
    twin: Callable[[], Twin]

    def frame(self, spark: SparkSession, folder: Path) -> DataFrame:
        own = spark.newSession()
        (folder / "records").mkdir(exist_ok=True)
        events = epochs.events(own, folder, f"{SCHEMA}, time long", LAG_S).drop("time")
        reader = own.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1)
        return self.build(events, reader.json(str(folder / "records")).withColumn("value", F.unbase64("value")))

    def start(self, spark: SparkSession, folder: Path) -> StreamingQuery:
        """Reads all that is there, one file an epoch, and ends."""
        (folder / OUT).mkdir(exist_ok=True)

        def keep(rows: DataFrame, epoch: int) -> None:
            told = sorted(json.dumps(_plain(self.shown(row))) for row in rows.collect())
            path, text = folder / OUT / f"{epoch}.json", "".join(f"{line}\n" for line in told)
            if path.exists() and path.read_text(encoding="utf-8") != text:
                (folder / OUT / f"{epoch}.differs").write_text(text, encoding="utf-8")
            draft = path.with_suffix(".new")
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)

        writer = self.frame(spark, folder).writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        return writer.foreachBatch(keep).trigger(availableNow=True).start()

    def faults(self, folder: Path, parts: list[Part]) -> list[str]:
        """Where the rows of an epoch are not the model's."""
        twin, found = self.twin(), []
        for number, watermark, part in played(folder, parts):
            expected = Counter(json.dumps(_plain(each)) for each in twin.epoch(part, watermark))
            told = Counter((folder / OUT / f"{number}.json").read_text(encoding="utf-8").splitlines())
            if told != expected:
                found.append(f"epoch {number}: lacks {expected - told}, and has {told - expected}")
            if (folder / OUT / f"{number}.differs").exists():
                found.append(f"epoch {number} gave other rows when it was done again")
        last = list(epochs.reached(folder).values())[-1]
        return [*found, *([f"{last} of {len(parts)} files were read"] if set(last) != {len(parts) - 1} else [])]


def played(folder: Path, parts: list[Part]) -> Iterator[tuple[int, int, Part]]:
    """The epochs that were: their numbers, watermarks (µs), and what they read. An epoch may have read two files: a
    process that is killed between what the source and what the query notes of an epoch gives it to the next one."""
    events = changes = -1
    began = epochs.began_ms(folder)
    for number, reached in epochs.reached(folder).items():
        # Of two sources the events are the first.
        some, more = parts[events + 1 : reached[0] + 1], parts[changes + 1 : reached[-1] + 1]
        events, changes = reached[0], reached[-1]
        read = Part(
            [each for part in some for each in part.events],
            [each for part in more for each in part.changes],
            began[number],
        )
        yield number, epochs.watermarks_ms(folder)[number] * 1_000, read


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return us(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Decimal) else value


def _columns(*names: str) -> Callable[[Row], Any]:
    return lambda row: [row[name] for name in names]


# Windows: panes that are kept after their end, sessions, and slices.
HELD: dict[str, Any] = {
    "n": mr.count(),
    "total": mr.sum("amount"),
    "price": mr.sum("price"),
    "mean": mr.avg("amount"),
    "items": mr.distinct("item"),
    "least": mr.min("item"),
    "last": mr.last("item"),
}
EDGES = ("key", "window_start", "window_end")


def held_of(rows: list[windows.Row]) -> tuple[Any, ...]:
    events: list[Event] = [row.value for row in rows]
    prices = [event.price for event in events if event.price is not None]
    return (
        len(events),
        sum(event.amount for event in events),
        sum(prices, Decimal(0)) if prices else None,
        sum(event.amount for event in events) / len(events),
        len({event.item for event in events}),
        min(event.item for event in events),
        max((event.time, event.item) for event in events)[1],
    )


# So few values that they are counted exactly.
SKETCHED: dict[str, Any] = {
    "values": mr.approx_distinct("amount"),
    "ends": mr.quantiles("amount", [0, 1]),
    "often": mr.frequent("item", 2),
}


def sketched_of(rows: list[windows.Row]) -> tuple[Any, ...]:
    amounts, items = [row.value.amount for row in rows], [row.value.item for row in rows]
    return len(set(amounts)), [sketches.quantile(amounts, rank) for rank in (0, 1)], sketches.frequent(items, 2)


def _windowed(
    edges: Any, gap_s: int, grace_s: int, *, final: bool, replaces: bool = False, held: Any = held_of
) -> Callable[[], Twin]:
    def twin() -> Twin:
        model = windows.Windows(edges, gap_s * SECOND, grace_s * SECOND, final, held)

        def epoch(part: Part, watermark: int) -> list[Any]:
            rows = [windows.Row(event.key, event.time, event) for event in part.events]
            return [
                [each.key, each.start, each.end, *each.values, *([each.replaces] if replaces else [])]
                for each in model.epoch(rows, watermark).results
            ]

        return Twin(model, epoch)

    return twin


def _session_row(row: Row) -> Any:
    replaced = sorted((us(each.start), us(each.end)) for each in row.replaces or ())
    return [*(row[name] for name in (*EDGES, *HELD)), replaced]


# So that some epochs are within it of others, and some are not.
ARRIVALS_S = 3


# Lookback, with rows that are told again.
MINUTE = 60 * SECOND


def _lookback(rows: DataFrame, _: DataFrame, by: By = "key") -> DataFrame:
    return mr.lookback(
        rows, by=by, late=mr.late.allow("20 seconds"), correct=True,
        n=mr.count(over="1 minute"), total=mr.sum("amount", over="30 seconds"),
        items=mr.distinct("item", over="1 minute"),
        lately=mr.last_n("item", 3, over="1 minute"), dear=mr.max("price", over="1 minute"),
    )  # fmt: skip


def _lookback_twin() -> Twin:
    model = lookback.Lookback(
        [
            (MINUTE, lambda events, _: len(events)),
            (30 * SECOND, lambda events, _: sum(each.value.amount for each in events)),
            (MINUTE, lambda events, _: len({each.value.item for each in events})),
            (MINUTE, lambda events, _: [each.value.item for each in events][-3:]),
            (MINUTE, lambda events, _: max((p for e in events if (p := e.value.price) is not None), default=None)),
        ],
        20 * SECOND,
        True,
    )

    def epoch(part: Part, watermark: int) -> list[Any]:
        told = model.epoch([lookback.Event(each.key, each.time, each) for each in part.events], watermark)
        return [[each.event.value.id, *each.values, each.corrected] for each in told.results]

    return Twin(model, epoch)


# Patterns: rows by their times, and as they come; and one that waits for what does not come.
PATTERN, ABSENCE = "small{2,} large", "small{2,} !large"
SMALL, LARGE = 5, 7
MATCHED = ("key", "match_start", "match_end", "n", "total", "last")


def _match(pattern: str = PATTERN, last: str = "large.item", **given: Any) -> Callable[..., DataFrame]:
    return lambda rows, _, by="key": mr.match(
        rows, by=by, pattern=pattern, define={"small": f"amount <= {SMALL}", "large": f"amount >= {LARGE}"},
        within="40 seconds", late=mr.late.drop(), **given,
        measures={"n": mr.count(), "total": mr.sum("amount"), "last": mr.last(last)},
    )  # fmt: skip


def _match_twin(pattern: str = PATTERN, *, arrival: bool = False) -> Callable[[], Twin]:
    def row(event: Event) -> match.Row:
        flags = (event.amount <= SMALL) | (event.amount >= LARGE) << 1
        return match.Row(event.key, event.time, flags, (event.amount, event.item))

    def twin() -> Twin:
        model = match.Matching(compiled(pattern, Where("", 0)).told(), 40 * SECOND, arrival=arrival)

        def epoch(part: Part, watermark: int) -> list[Any]:
            told = []
            for each in model.epoch([row(event) for event in part.events], watermark).matches:
                rows = [found for found, _ in each.rows]
                total = sum(found.values[0] for found in rows)
                told.append([each.key, each.start, each.end, len(rows), total, rows[-1].values[1]])
            return told

        return Twin(model, epoch)

    return twin


# The best rows: in windows that close, known by their items with a time to live, and the newest alone.
def _best(rows: DataFrame, _: DataFrame, by: By = "key") -> DataFrame:
    every = [*([by] if isinstance(by, str) else by), "window_end"]
    ended = rows.withColumnRenamed("ends", "window_end")
    return mr.top(ended, 2, by=every, order=["-amount", "id"], emit="final", late=mr.late.allow("20 seconds"))


def _players(rows: DataFrame, _: DataFrame, by: By = "key") -> DataFrame:
    given: Any = {"by": by, "of": "item", "order": ["-amount", "id"], "emit": "updates", "ttl": "40 seconds"}
    return mr.top(rows, 2, late=mr.late.drop(), **given)


def _top_twin(place: Callable[[Event], Any], *, windowed: bool = False, **given: Any) -> Callable[[], Twin]:
    def twin() -> Twin:
        model = top.Top(windowed=windowed, **given)

        def epoch(part: Part, watermark: int) -> list[Any]:
            rows = [
                top.Row((e.key, e.end) if windowed else e.key, e.time, place(e), e.item, e.end, e.id)
                for e in part.events
            ]
            told = model.epoch(rows, watermark).told
            return [[each.row.value, each.rank, *([each.diff] if model.updates else [])] for each in told]

        return Twin(model, epoch)

    return twin


def _dedup_twin() -> Twin:
    model = dedup.Dedup(40 * SECOND, 20 * SECOND)

    def epoch(part: Part, watermark: int) -> list[Any]:
        rows = [dedup.Row(event.key, event.time, event.id) for event in part.events]
        return [[row.value] for row in model.epoch(rows, watermark).given]

    return Twin(model, epoch)


def _arrivals_twin() -> Twin:
    model = dedup.ByArrival(ARRIVALS_S * 1_000)
    return Twin(model, lambda part, _: [[key] for key in model.epoch((each.key for each in part.events), part.began)])


# A table's rows, by themselves and beside events.
def _lookup(rows: DataFrame, records: DataFrame) -> DataFrame:
    table = records.select(F.from_json("key", "item string, name string").alias("row")).select("row.*")
    known = lookups.Known(TABLE, records, lambda found: found.where("event is not null"))
    return mr.lookup(rows, lookups.offer(table, known), on="item")


def _lookup_twin() -> Twin:
    model = lookup.Lookup(("item",))

    def epoch(part: Part, _: int) -> list[Any]:
        found, errors = model.epoch(part.changes, [lookup.Event((event.item,), event.id) for event in part.events])
        assert not errors
        return [[each.event.name, each.row and json.loads(each.row)["name"]] for each in found]

    return Twin(model, epoch)


def _table(_: DataFrame, records: DataFrame) -> DataFrame:
    return kernel.latest_by_key(records)


def _table_twin() -> Twin:
    model = latest.LatestByKey()

    def epoch(part: Part, _: int) -> list[Any]:
        return [[each.key, each.row, each.diff, each.offset] for each in model.apply(part.changes)]

    return Twin(model, epoch)


# The row of an event's time: changes are 5 s apart, some come after later ones, and events are told again.
AS_OF_GRACE = 20 * SECOND


def _change_us(offset: int) -> int:
    return us(START) + (offset * 5 - offset % 4 * 6) * SECOND


def _timed(records: DataFrame) -> DataFrame:
    seconds = F.expr("offset * 5 - offset % 4 * 6")
    return records.withColumn("timestamp", F.timestamp_seconds(F.lit(us(START) // SECOND) + seconds))


def _as_of(rows: DataFrame, records: DataFrame) -> DataFrame:
    timed = _timed(records)
    table = timed.select(F.from_json("key", "item string, name string").alias("row")).select("row.*")
    known = lookups.Known(TABLE, timed, lambda found: found.where("error is null"), lambda _: timed)
    late = mr.late.allow("20 seconds")
    return mr.as_of(rows, lookups.offer(table, known), on="item", emit="updates", late=late, lateness="5 seconds")


def _as_of_twin() -> Twin:
    model = as_of.AsOf(final=False, grace=AS_OF_GRACE)
    newest: dict[str, as_of.Change] = {}

    def versions(change: latest.Change) -> Iterator[as_of.Change]:
        """Never before the change that it follows. Nothing is gone that was not there."""
        assert change.key is not None
        item, before = json.loads(change.key)["item"], newest.get(change.key)
        row = None if change.value is None else json.loads(change.value)["after"]["name"]
        if row is None and (before is None or before.row is None):
            return
        time = max(_change_us(change.offset), before.time if before else 0)
        newest[change.key] = as_of.Change((item,), time, row, change.offset)
        yield newest[change.key]

    def epoch(part: Part, watermark: int) -> list[Any]:
        changes = [each for change in part.changes for each in versions(change)]
        told = model.epoch(changes, [as_of.Event((each.item,), each.time, each.id) for each in part.events], watermark)
        return [[each.event.value, each.row, *_replaced(each.replaces)] for each in told.results]

    return Twin(model, epoch)


def _replaced(before: as_of.Answer | None) -> tuple[bool, Any]:
    return before is not None, None if before is None else before.row


# Events with the changes around them; so little is kept together that items have several parts.
AROUND_S = (-12, 18)


def _join(rows: DataFrame, records: DataFrame) -> DataFrame:
    item = F.get_json_object("key", "$.item").alias("item")
    changes = _timed(records).select(item, F.col("offset").alias("change"), F.col("timestamp").alias("since"))
    within: Any = tuple(f"{each} seconds" for each in AROUND_S)
    with mock.patch.multiple(joining, MOST_INLINE=400, MOST_TOGETHER=600):
        return mr.join(rows, changes.withWatermark("since", f"{LAG_S} seconds"), on="item", within=within)


def paired(first_s: int, last_s: int, rows: Callable[[Part], tuple[list[joins.Row], list[joins.Row]]]) -> Twin:
    """`rows` gives an epoch's, of both streams; pairs are told by their names, which are numbers."""
    model, told = joins.IntervalJoin(first_s * SECOND, last_s * SECOND), set[tuple[str, str]]()

    def epoch(part: Part, watermark: int) -> list[Any]:
        model.epoch(*rows(part), watermark)
        fresh = {(one.name, two.name) for one, two in model.pairs()} - told
        told.update(fresh)
        return [[int(one), int(two)] for one, two in fresh]

    return Twin(model, epoch)


def _join_rows(part: Part) -> tuple[list[joins.Row], list[joins.Row]]:
    events = [joins.Row(each.item, each.time, str(each.id)) for each in part.events]
    items = [json.loads(str(each.key))["item"] for each in part.changes]
    changes = zip(items, part.changes, strict=True)
    return events, [joins.Row(item, _change_us(each.offset), str(each.offset)) for item, each in changes]


def _chained(name: str) -> Specimen:
    return Specimen(lambda rows, _: chains.told(name, rows), chains.row, lambda: Twin(*chains.twin(name)))


SPECIMENS: dict[str, Specimen] = {
    "window": Specimen(
        lambda rows, _, by="key": mr.window(
            rows, "50 seconds", every="20 seconds", by=by, emit="final", late=mr.late.allow("30 seconds"), **HELD
        ),
        _columns(*EDGES, *HELD),
        _windowed(hopping(50, 20), 0, 30, final=True),
    ),
    "session": Specimen(
        lambda rows, _, by="key": mr.session(
            rows, "15 seconds", by=by, emit="updates", late=mr.late.allow("10 seconds"), **HELD
        ),
        _session_row,
        _windowed(None, 15, 10, final=False, replaces=True),
    ),
    "slices": Specimen(
        lambda rows, _, by="key": mr.window(
            rows, "1 minute", every="20 seconds", by=by, emit="final", late=mr.late.drop(), **HELD
        ),
        _columns(*EDGES, *HELD),
        _windowed(hopping(60, 20), 0, 0, final=True),
    ),
    "lookback": Specimen(
        _lookback, _columns("id", "n", "total", "items", "lately", "dear", "corrected"), _lookback_twin
    ),
    "sketches": Specimen(
        lambda rows, _, by="key": mr.window(
            rows, "1 minute", every="20 seconds", by=by, emit="final", late=mr.late.drop(), **SKETCHED
        ),
        _columns(*EDGES, *SKETCHED),
        _windowed(hopping(60, 20), 0, 0, final=True, held=sketched_of),
    ),
    "match": Specimen(_match(), _columns(*MATCHED), _match_twin()),
    "absence": Specimen(_match(ABSENCE, "small.item"), _columns(*MATCHED), _match_twin(ABSENCE)),
    "coming": Specimen(_match(order="arrival"), _columns(*MATCHED), _match_twin(arrival=True)),
    "top": Specimen(
        _best,
        _columns("id", "rank"),
        _top_twin(lambda e: (-e.amount, e.id), windowed=True, n=2, updates=False, grace=20 * SECOND),
    ),
    "players": Specimen(
        _players,
        _columns("id", "rank", "__diff"),
        _top_twin(lambda e: (-e.amount, e.id), n=2, updates=True, replacing=True, ttl=40 * SECOND),
    ),
    "latest": Specimen(
        lambda rows, _, by="key": mr.latest(rows, by=by),
        lambda row: [row.id, 1, row["__diff"]],
        _top_twin(lambda e: -e.time, n=1, updates=True),
    ),
    "dedup": Specimen(
        lambda rows, _, by="key": mr.dedup(rows, on=by, ttl="40 seconds", late=mr.late.allow("20 seconds")),
        _columns("id"),
        _dedup_twin,
    ),
    "arrivals": Specimen(
        lambda rows, _, by="key": mr.dedup(rows, on=by, ttl=f"{ARRIVALS_S} seconds", clock="processing"),
        _columns("key"),
        _arrivals_twin,
    ),
    "lookup": Specimen(_lookup, _columns("id", "name"), _lookup_twin),
    "table": Specimen(_table, _columns("key", "row", "__diff", "offset"), _table_twin),
    "as_of": Specimen(
        _as_of, lambda row: [row.id, row.name, row.corrected, row.replaces and row.replaces.name], _as_of_twin
    ),
    "join": Specimen(_join, _columns("id", "change"), lambda: paired(*AROUND_S, _join_rows)),
    **{name: _chained(name) for name in chains.CHAINS},
}
