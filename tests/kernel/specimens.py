"""One query of each keyed operator over the same events, and its model: for tests of checkpoints that live on.

Each epoch's rows are kept in a file, written whole, so that the process may die at any time. An epoch that is done
again must give the same rows. The model is given the cuts and the watermark that each epoch had.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import millrace as mr
from millrace.errors import Where
from millrace.flow.places import compiled
from millrace.model import dedup, lookback, match, sketches, top, windows
from millrace.testing.checkpoints import forget_commit
from tests.kernel import beside, chains, epochs, nearly
from tests.kernel.epochs import SECOND, hopping
from tests.kernel.parts import LAG_S, Event, Part, Twin, us, write

SCHEMA = "id long, key string, at timestamp, ends timestamp, amount long, price decimal(8,2), item string"
RECORDS = "topic string, key string, value string, partition int, offset long, timestamp timestamp"
OUT = "out"
By: TypeAlias = str | list[str]


@dataclass(frozen=True)
class Specimen:
    """`build` makes the query of (events, records), by the key or those columns that stand for it; `shown` is what is
    compared of a row, `twin` a new model of it."""

    build: Callable[..., DataFrame]
    shown: Callable[[Row], Any]
    twin: Callable[[], Twin]
    # Whether a row may be told for one of the model's, where answers are about right only.
    near: Callable[[Any, Any], bool] | None = None

    def frame(self, spark: SparkSession, folder: Path, *, of_millrace: bool = True) -> DataFrame:
        """Its watermark is that of a flow, or Spark's own."""
        own = spark.newSession()
        (folder / "records").mkdir(exist_ok=True)
        if of_millrace:
            events = epochs.events(own, folder, f"{SCHEMA}, time long", LAG_S).drop("time")
        else:
            files = own.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
            events = files.withWatermark("at", f"{LAG_S} seconds")
        reader = own.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1)
        return self.build(events, reader.json(str(folder / "records")).withColumn("value", F.unbase64("value")))

    def start(self, spark: SparkSession, folder: Path, *, of_millrace: bool = True) -> StreamingQuery:
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

        rows = self.frame(spark, folder, of_millrace=of_millrace)
        writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        return writer.foreachBatch(keep).trigger(availableNow=True).start()

    def crashed(self, spark: SparkSession, folder: Path, parts: list[Part]) -> None:
        """Reads half of them, loses the last commit, and does that epoch again and the rest."""
        half = (len(parts) + 1) // 2
        for first, end in ((0, half), (half, len(parts))):
            for number in range(first, end):
                write(folder, number, parts[number])
            self.start(spark, folder).awaitTermination()
            if end == half:
                forget_commit(folder / "checkpoint")

    def faults(self, folder: Path, parts: list[Part]) -> list[str]:
        """Where the rows of an epoch are not the model's."""
        twin, found = self.twin(), []
        for number, watermark, part in played(folder, parts):
            expected = Counter(json.dumps(_plain(each)) for each in twin.epoch(part, watermark))
            told = Counter((folder / OUT / f"{number}.json").read_text(encoding="utf-8").splitlines())
            if self.near is not None:
                told = Counter(_nearest(self.near, line, expected) for line in told.elements())
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


def _nearest(near: Callable[[Any, Any], bool], line: str, expected: Counter[str]) -> str:
    """What is expected in its place; or itself."""
    told = json.loads(line)
    return next((each for each in expected if near(told, json.loads(each))), line)


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


def _looking_back(model: lookback.Lookback) -> Twin:
    def epoch(part: Part, watermark: int) -> list[Any]:
        told = model.epoch([lookback.Event(each.key, each.time, each) for each in part.events], watermark)
        return [[each.event.value.id, *each.values, each.corrected] for each in told.results]

    return Twin(model, epoch)


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
    return _looking_back(model)


def _travels(rows: DataFrame, _: DataFrame, by: By = "key") -> DataFrame:
    return mr.lookback(
        nearly.places(rows), by=by, late=mr.late.allow("20 seconds"), correct=True,
        way=mr.distance("lat", "lon", over="1 minute"), pace=mr.speed("lat", "lon", over="30 seconds"),
        kinds=mr.approx_distinct("id", error=nearly.ROUGHLY, over="1 minute"),
        total=mr.sum("real", over="1 minute"), mean=mr.avg("real", over="30 seconds"),
    )  # fmt: skip


def _travels_twin() -> Twin:
    model = lookback.Lookback(
        [
            (MINUTE, lambda events, _: lookback.distance(nearly.way(events))),
            (30 * SECOND, lambda events, event: lookback.speed(nearly.way(events), nearly.at(event))),
            (MINUTE, lambda events, _: len(events)),
            (MINUTE, lambda events, _: math.fsum(nearly.reals(events))),
            (30 * SECOND, lambda events, _: math.fsum(nearly.reals(events)) / len(events)),
        ],
        20 * SECOND,
        True,
    )
    return _looking_back(model)


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


def _seen_twin() -> Twin:
    model = dedup.Dedup(40 * SECOND, 20 * SECOND)

    def epoch(part: Part, watermark: int) -> list[Any]:
        rows = [dedup.Row((event.key, event.item), event.time, event.id) for event in part.events]
        return [[row.value] for row in model.epoch(rows, watermark).given]

    return Twin(model, epoch)


def _arrivals_twin() -> Twin:
    model = dedup.ByArrival(ARRIVALS_S * 1_000)
    return Twin(model, lambda part, _: [[key] for key in model.epoch((each.key for each in part.events), part.began)])


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
    "estimates": Specimen(
        lambda rows, _, by="key": mr.window(
            nearly.many(rows),
            "1 minute",
            every="20 seconds",
            by=by,
            emit="final",
            late=mr.late.drop(),
            **nearly.ESTIMATED,
        ),
        _columns(*EDGES, *nearly.ESTIMATED),
        _windowed(hopping(60, 20), 0, 0, final=True, held=nearly.estimated),
        nearly.is_estimate,
    ),
    "travels": Specimen(_travels, _columns(*nearly.TRAVELLED), _travels_twin, nearly.is_travelled),
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
    # By so many keys that they share timers.
    "seen": Specimen(
        lambda rows, _: mr.dedup(rows, on=["key", "item"], ttl="40 seconds", late=mr.late.allow("20 seconds")),
        _columns("id"),
        _seen_twin,
    ),
    "arrivals": Specimen(
        lambda rows, _, by="key": mr.dedup(rows, on=by, ttl=f"{ARRIVALS_S} seconds", clock="processing"),
        _columns("key"),
        _arrivals_twin,
    ),
    "lookup": Specimen(beside.looked_up, _columns("id", "name"), beside.lookup_twin),
    "table": Specimen(beside.table_rows, _columns("key", "row", "__diff", "offset"), beside.table_twin),
    "as_of": Specimen(
        beside.found_as_of,
        lambda row: [row.id, row.name, row.corrected, row.replaces and row.replaces.name],
        beside.as_of_twin,
    ),
    "versions": Specimen(
        beside.found_versions,
        lambda row: [row.id, row.change, row.corrected, row.replaces and row.replaces.change],
        beside.versions_twin,
    ),
    "join": Specimen(beside.joined, _columns("id", "change"), beside.join_twin),
    **{name: _chained(name) for name in chains.CHAINS},
}
