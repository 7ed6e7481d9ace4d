"""`mr.top` and `mr.latest` against their model, epoch by epoch, with a crash and a restart in between."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.errors import OptionInvalid
from millrace.kernel import told
from millrace.kernel import top as kernel
from millrace.model.top import Epoch, Row, Told, Top
from millrace.testing.checkpoints import forget_commit
from tests.kernel import epochs
from tests.kernel.epochs import drained, events, put, watermarks_ms, with_input
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

COLUMNS = (
    "key string, other int, window_end timestamp, at timestamp, score long, name string, price decimal(20,2),"
    " rate double, player int, id long"
)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
LAG_S = 10
KEY = ["key", "other"]
WINDOW = [*KEY, "window_end"]
ORDER = ["-score", "name"]


@dataclass(frozen=True)
class Case:
    """Options of `mr.top`, and the model of that."""

    options: dict[str, Any]
    model: dict[str, Any]
    n: int = 3

    def __call__(self, rows: DataFrame) -> DataFrame:
        return mr.top(rows, self.n, order=ORDER, **self.options)

    def twin(self) -> Top:
        late = self.options.get("late")
        updates = self.options["emit"] == "updates"
        return Top(self.n, updates, grace=late.grace_ms * 1_000 if late else 0, **self.model)


ALLOW, SIDE = mr.late.allow("20 seconds"), mr.late.side("aside")
CASES = {
    "over all": Case({"by": KEY, "emit": "updates"}, {}),
    "players": Case({"by": KEY, "of": "player", "emit": "updates"}, {"replacing": True}),
    "players for a while": Case(
        {"by": KEY, "of": "player", "emit": "updates", "ttl": "20 seconds", "late": SIDE},
        {"replacing": True, "ttl": 20 * SECOND},
    ),
    "windows": Case({"by": WINDOW, "emit": "final", "late": SIDE}, {"windowed": True}),
    "windows with grace": Case({"by": WINDOW, "emit": "final", "late": ALLOW}, {"windowed": True}),
    "players in windows": Case(
        {"by": WINDOW, "of": "player", "emit": "final", "late": ALLOW}, {"windowed": True, "replacing": True}
    ),
    "windows as they change": Case({"by": WINDOW, "emit": "updates", "late": ALLOW}, {"windowed": True}),
}


def us(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


class Query:
    def __init__(self, spark: SparkSession, folder: Path, case: Case) -> None:
        self.spark, self.folder, self.case = spark.newSession(), folder, case
        self.epochs: dict[int, Epoch] = {}
        self.rows: dict[int, Row] = {}

    def write(self, number: int, rows: list[Row]) -> None:
        self.rows |= {row.value["id"]: row for row in rows}
        put(self.folder / "in", number, ({**row.value, "partition": 0} for row in rows))

    def run(self) -> None:
        drained(self._told(events(self.spark, self.folder, COLUMNS, LAG_S)), self.folder, self._keep)

    def _told(self, rows: DataFrame) -> DataFrame:
        """All that the operator tells, late rows too."""
        shown, inner = epochs.told(lambda: self.case(rows))
        signed = ["rank", "__diff"] if self.case.options["emit"] == "updates" else ["rank"]
        assert shown.columns == [*rows.columns, *signed]
        if inner is not None:
            return inner
        whole = F.struct(*rows.columns).alias(told.ROW)
        return shown.select(
            F.lit(told.RESULT).alias(told.KIND), whole, F.col("rank").alias(kernel.RANK), F.col(kernel.DIFF)
        )

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        out = self.epochs[epoch] = Epoch()
        for each in rows.collect():
            if each[told.KIND] == told.ALLOWED:
                out.allowed += 1
                continue
            row = self.rows[each[told.ROW].id]
            assert each[told.ROW].asDict() == expected_of(row)
            if each[told.KIND] == told.RESULT:
                out.told.append(Told(row, each[kernel.RANK], each[kernel.DIFF]))
            else:
                out.refused.append((row, each[told.LATE_US]))

    def watermark(self, epoch: int) -> int:
        return (watermarks_ms(self.folder)[epoch] - int(EPOCH.timestamp() * 1_000)) * 1_000


def expected_of(row: Row) -> dict[str, Any]:
    value = dict(row.value)
    for name in ("at", "window_end"):
        value[name] = datetime.fromisoformat(value[name]).replace(tzinfo=None)
    value["price"] = None if value["price"] is None else Decimal(value["price"])
    return value


def made(draw: random.Random, number: int, case: Case) -> list[Row]:
    """Rows of 100 keys, null ones among them, that move on by 15 s an epoch, some late, half of them on edges; and of
    one key with hundreds of players, whose best ones fall."""
    rows = []
    for example in range(100):
        key = (None if example % 50 == 0 else f"k{example}", None if example % 3 == 0 else example % 2)
        for _ in range(draw.choice((0, 1, 2, 4))):
            rows.append(one(draw, number, key, draw.randrange(5), draw.choice((None, *range(-5, 6))), case))
    for _ in range(200):
        player = draw.randrange(400)
        rows.append(one(draw, number, ("hot", 0), player, (5_000 if player % 3 else 0) - 1_000 * number + player, case))
    return rows


def one(draw: random.Random, number: int, key: tuple[Any, Any], player: int, score: int | None, case: Case) -> Row:
    second = number * 15 + draw.randrange(0, 21, draw.choice((1, 5))) - draw.choice((0, 0, 0, 5, 10, 30, 60))
    # In every second epoch none, so that the watermark meets the ends of windows.
    time = max(second, 0) * SECOND + number % 2 * draw.choice((0, 0, 500_001))
    end = (time // (10 * SECOND) + 1) * 10 * SECOND
    # Each name once, so that the model need not know how ties of everything are broken.
    identity = draw.randrange(10**12)
    name = draw.choice(("a", "b\0", "é", "\uffee", "\U0001f409")) + f"{identity}"
    value = {
        "key": key[0],
        "other": key[1],
        "window_end": moment(end),
        "at": moment(time),
        "score": score,
        "name": name,
        "price": draw.choice((None, f"{draw.randrange(-999, 999)}.25")),
        "rate": draw.choice((None, 0.5)),
        "player": player,
        "id": identity,
    }
    place = (score is None, -(score or 0), name.encode())
    whole_key = (*key, end) if case.model.get("windowed") else key
    return Row(whole_key, time, place, player, end, value)


def moment(time: int) -> str:
    return (EPOCH + timedelta(microseconds=time)).isoformat(timespec="microseconds")


@pytest.mark.parametrize("name", todays(list(CASES), 2))
def test_the_first_are_the_models_epoch_by_epoch(spark: SparkSession, tmp_path: Path, name: str) -> None:
    draw, case = seeded(f"top {name}"), CASES[name]
    parts = [made(draw, number, case) for number in range(9)]
    query = Query(spark, tmp_path, case)
    log = log_of(spark)
    logged = log.stat().st_size
    for number, rows in enumerate(parts[:5]):
        query.write(number, rows)
    query.run()
    forget_commit(tmp_path / "checkpoint")
    for number, rows in enumerate(parts[5:], 5):
        query.write(number, rows)
    query.run()

    twin, todo, kinds = case.twin(), list(parts), Counter[str]()
    for number in sorted(query.epochs):
        rows = todo.pop(0) if number in with_input(tmp_path) else []
        expected, found = twin.epoch(rows, query.watermark(number)), query.epochs[number]
        assert shown(found.told) == shown(expected.told), f"epoch {number}"
        assert Counter((row.value["id"], late) for row, late in found.refused) == Counter(
            (row.value["id"], late) for row, late in expected.refused
        )
        assert found.allowed == expected.allowed
        kinds += Counter({"refused": len(found.refused), "allowed": found.allowed, "told": len(found.told)})
        kinds["went"] += sum(each.diff < 0 for each in found.told)
    assert not todo
    late = case.options.get("late")
    assert kinds["told"] > 200
    assert (kinds["went"] > 100) == (case.options["emit"] == "updates")
    assert (kinds["refused"] > 0) == (late is not None)
    assert (kinds["allowed"] > 0) == (late is not None and late.grace_ms > 0)
    # A rule that changes every plan again is applied a hundred times an epoch, and Spark says so.
    assert b"Max iterations" not in log.read_bytes()[logged:]


def log_of(spark: SparkSession) -> Path:
    java: Any = spark._jvm
    settings = java.System.getProperty("log4j2.configurationFile")
    return Path(settings.removeprefix("file://")).with_name("spark.log")


def shown(told: list[Told]) -> Counter[tuple[int, int, int]]:
    return Counter((each.row.value["id"], each.rank, each.diff) for each in told)


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame([expected_of(row) for row in rows], COLUMNS)


@pytest.mark.parametrize("name", ["over all", "players", "windows"])
def test_a_batch_is_one_epoch_with_nothing_late(spark: SparkSession, name: str) -> None:
    draw, case = seeded("batch"), CASES[name]
    rows = [row for number in range(4) for row in made(draw, number, case)]
    options = {**case.options, "time": "at"}
    found = mr.top(frame(spark, rows), case.n, order=ORDER, **options).collect()
    twin = case.twin()
    twin.epoch(rows, 0)
    keys = {row.key for row in rows}
    expected = {(row.value["id"], rank) for key in keys for rank, row in enumerate(twin.first(key), 1)}
    assert {(row.id, row["rank"]) for row in found} == expected
    assert len(found) == len(expected) > 200


VALUES: list[tuple[str, list[Any]]] = [
    ("long", [-(2**63), -1, 0, 1, 255, 256, 2**63 - 1]),
    ("short", [-32768, -1, 0, 1, 32767]),
    ("double", [float("-inf"), -1e300, -1.5, 0.0, 5e-324, 1.5, float("inf"), float("nan")]),
    ("float", [-0.5, 0.0, 0.25, float("nan")]),
    ("string", ["", "\0", "a", "a\0", "a\0\0", "a\0b", "ab", "b", "é", "\uffee", "\U0001f409"]),
    ("binary", [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"\xff", b"\xff\xff"]),
    ("decimal(30,2)", [Decimal(f"{n}.25") for n in (-(10**25), -128, -1, 0, 1, 127, 128, 10**25)]),
    ("boolean", [False, True]),
    ("date", [(EPOCH + timedelta(days=days)).date() for days in (-30_000, 0, 1)]),
    ("timestamp", [EPOCH + timedelta(microseconds=each) for each in (-(10**15), 0, 1)]),
]


def test_bytes_have_the_order_of_their_values(spark: SparkSession) -> None:
    """Each type up and down; nulls last; and what stands in front counts first."""
    names = [f"v{place}" for place in range(len(VALUES))]
    longest = max(len(values) for _, values in VALUES)
    data = [tuple(values[n] if n < len(values) else None for _, values in VALUES) for n in range(longest + 1)]
    rows = spark.createDataFrame(
        data, ", ".join(f"{name} {type_}" for name, (type_, _) in zip(names, VALUES, strict=True))
    )
    ways = [(name, descending) for name in names for descending in (False, True)]
    both = [(F.lit(2), False), (F.lit(1), False)]
    encoded = [kernel.ordered(rows, [(F.col(name), down), both[0]]) for name, down in ways]
    encoded += [kernel.ordered(rows, [(F.col(name), down), both[1]]) for name, down in ways]
    found = rows.select(*encoded).collect()
    for place, (name, down) in enumerate(ways):
        type_, values = VALUES[names.index(name)]
        pairs = [(bytes(row[place + len(ways)]), bytes(row[place])) for row in found]
        ascending = [pair for n, pair in enumerate(pairs) if n < len(values)]
        wanted = [*(reversed(ascending) if down else ascending), *pairs[len(values) :][:1]]
        flat = [each for pair in wanted for each in pair]
        assert flat == sorted(flat), (type_, down)
        assert len(set(flat)) == len(flat)
    zeros = spark.createDataFrame([(0.0,), (-0.0,)], "v double")
    assert zeros.select(kernel.ordered(zeros, [(F.col("v"), False)])).distinct().count() == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n": 0}, "from 1 to 1,000"),
        ({"n": 1_001}, "from 1 to 1,000"),
        ({"order": "-bidz"}, "name columns of the rows"),
        ({"order": []}, "which rows are first"),
        ({"order": "list"}, "order by numbers"),
        ({"of": "playr"}, "name columns of the rows"),
        ({"emit": None}, 'choose "updates"'),
        ({"emit": "final"}, '"window_end" among `by`'),
        ({"ttl": "1 hour"}, "say `of` what"),
        ({"by": "window_end", "ttl": "1 hour"}, "ends with the window"),
        ({"late": mr.late.drop()}, "nothing ends here"),
        ({"by": "window_end"}, "what is done with late rows"),
        ({"by": "window_end", "late": mr.late.update("1 minute")}, "choose drop, allow or side"),
        ({"of": "player", "ttl": "1 hour", "late": mr.late.allow("1 minute")}, "a longer ttl"),
    ],
)
def test_options(spark: SparkSession, given: dict[str, Any], words: str) -> None:
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    rows = rows.select(
        F.col("timestamp").alias("at"),
        F.col("value").alias("player"),
        F.timestamp_seconds("value").alias("window_end"),
        F.array("value").alias("list"),
    )
    options: dict[str, Any] = {"n": 3, "order": "player", "emit": "updates", **given}
    with pytest.raises(OptionInvalid, match=words):
        mr.top(rows, options.pop("n"), **options)


def test_windows_that_are_told_when_they_close_have_no_late_rows(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    given: dict[str, Any] = {"by": "value", "emit": "final", "n": mr.count()}
    told = mr.window(rows, "1 minute", late=mr.late.drop(), **given)
    again = mr.window(rows, "1 minute", late=mr.late.allow("1 minute"), **given)
    first: dict[str, Any] = {"by": "window_end", "order": "-n"}
    best = mr.top(told, 1, emit="final", **first)
    assert best.columns == [*told.columns, "rank"]
    refused: list[tuple[DataFrame, dict[str, Any], str]] = [
        (told, {"emit": "final", "late": mr.late.drop()}, "have been told what is late"),
        (told, {"emit": "updates"}, "when their windows have closed"),
        (again, {"emit": "final"}, "told again"),
        (best, {"emit": "final"}, "rename that column"),
    ]
    for given_rows, options, words in refused:
        with pytest.raises(OptionInvalid, match=words):
            mr.top(given_rows, 1, **first, **options)
    with pytest.raises(OptionInvalid, match="an older row may live longer"):
        mr.latest(rows, by="value", order="value", ttl="1 hour")


def test_a_sieve_leaves_out_what_is_behind(spark: SparkSession) -> None:
    rows = spark.range(30_000, numPartitions=3).select(
        "id", (F.col("id") % 7).alias("key"), F.expr("hash(id) % 999 AS n")
    )
    placed = rows.select("*", kernel.ordered(rows, [(F.col("n"), True)]).alias("__order"))
    passed = placed.where(kernel._sieve(rows, [F.col("key")], 10, None)).drop("__order").localCheckpoint()
    assert 210 <= passed.count() < 3_000
    # Rows of a window may be late as long as nobody says where the watermark is.
    end = F.lit("2026-01-01").cast("timestamp")
    assert placed.where(kernel._sieve(rows, [F.col("key")], 10, end)).count() == 30_000
    first = [mr.top(each, 10, by="key", order="-n", emit="updates").collect() for each in (passed, rows)]
    assert Counter(first[0]) == Counter(first[1])


def test_a_leaderboard(play: Any) -> None:
    app = mr.App("arcade")
    scores = app.topic("scores", "player string, points long, at timestamp", time="at", lateness="0 seconds")

    @app.stream(scores)
    def board(s: DataFrame) -> DataFrame:
        return mr.top(s, 2, of="player", order="-points", emit="updates", ttl="16 hours", late=mr.late.drop())

    @app.stream(scores)
    def busiest(s: DataFrame) -> DataFrame:
        games = mr.window(s, "1 minute", by="player", games=mr.count(), emit="final", late=mr.late.drop())
        return mr.top(games, 1, by="window_end", order=["-games", "player"], emit="final")

    @app.stream(scores, key="player")
    def last(s: DataFrame) -> DataFrame:
        return mr.latest(s, by="player")

    p = play(app)
    p.feed(scores, [{"player": name, "points": points, "at": "12:00:10"} for name, points in (("a", 5), ("b", 3))])
    p.expect(board, [signed("a", 5, 1, 1), signed("b", 3, 2, 1)])

    # c comes in between; what b was goes before what c is comes.
    p.feed(scores, [{"player": "c", "points": 4, "at": "12:00:20"}], crash="before write")
    p.restart()
    p.expect(board, [signed("b", 3, 2, -1), signed("c", 4, 2, 1)], ordered=True)

    # a falls: b is back.
    p.feed(scores, [{"player": "a", "points": 1, "at": "12:00:30"}])
    gone = [signed("a", 5, 1, -1), signed("c", 4, 2, -1)]
    p.expect(board, [*gone, signed("c", 4, 1, 1), signed("b", 3, 2, 1)], ordered=True)
    p.expect(busiest)
    known = [("a", 5, 1), ("b", 3, 1), ("c", 4, 1), ("a", 5, -1), ("a", 1, 1)]
    p.expect(last, [{"player": name, "points": points, "__diff": diff} for name, points, diff in known])

    # The minute is over: a had two games. Sixteen hours later all are gone but d.
    p.feed(scores, [{"player": "d", "points": 2, "at": "12:01:00"}])
    p.expect(busiest, [{"player": "a", "games": 2, "rank": 1}])
    p.expect(board)
    p.feed(scores, [{"player": "d", "points": 2, "at": "2026-01-02T05:00:00"}])
    p.expect(board, [signed("c", 4, 1, -1), signed("b", 3, 2, -1), signed("d", 2, 1, 1)])


def signed(player: str, points: int, rank: int, diff: int) -> dict[str, Any]:
    return {"player": player, "points": points, "rank": rank, "__diff": diff}
