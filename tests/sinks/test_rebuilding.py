"""A sink's target built again beside the old one: readers have an answer all the time, and a crash at any point of the
switch is mended by calling it again."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as client
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace import disk as disk_module
from millrace.config import Settings
from millrace.engine import switching
from millrace.errors import RebuildUnfinished
from millrace.sinks import DIFF, VERSION, Epoch, Feed, RefusedRow, Sink
from millrace.sinks.comparing import compare
from millrace.sinks.files import files
from millrace.sinks.files_rebuild import FilesRebuilding
from millrace.sinks.opensearch import opensearch
from millrace.sinks.opensearch_index import Indexes, Ledger
from millrace.sinks.postgres import postgres
from millrace.sinks.postgres_ledger import LedgerTable
from millrace.sinks.postgres_rebuild import PostgresRebuilding
from millrace.sinks.rebuilding import Rebuilding, Site
from millrace.sinks.redis import redis, redis_ranking
from millrace.sinks.redis_rebuild import RankingRebuilding, RowsRebuilding
from tests.rotation import todays
from tests.sinks.lake_place import lake_place
from tests.sinks.test_opensearch import ask, documents

pytestmark = [pytest.mark.spark, pytest.mark.server]

FLOW = "shop.items"
_numbers = itertools.count(1)


class Crash(BaseException):
    """As if the process had been killed there."""


@dataclass
class Place:
    """A sink, and its target as its readers see it. `damage` deletes 2, forges 3 and adds 99."""

    sink: Sink
    rows: Callable[[], dict[int, str]]
    damage: Callable[[], None]
    destroy: Callable[[], None]
    left: Callable[[], list[str]]
    # What a switch does, one after the other: it is cut off before and after each.
    steps: list[tuple[Any, str]]


class Places:
    def __init__(self, settings: Settings, postgres_url: str, valkey: str, opensearch_url: str) -> None:
        self.settings, self.sql, self.search = settings, postgres_url, opensearch_url
        self.redis = client.Redis.from_url(valkey, decode_responses=True)

    def made(self, kind: str) -> Place:
        return getattr(self, kind)(f"{kind}{next(_numbers)}")  # type: ignore[no-any-return]

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self.sql.rpartition("/")[0] + "/millrace", autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[call-overload]
            return found.fetchall() if found.description else []

    def table(self, name: str) -> Place:
        def damage() -> None:
            self.run(f"DELETE FROM {name} WHERE id = 2; UPDATE {name} SET name = 'forged' WHERE id = 3")
            self.run(f"INSERT INTO {name} (id, name) VALUES (99, 'strange')")

        beside = "SELECT relname FROM pg_class WHERE relname LIKE 'millrace_rebuilt_%' AND relkind = 'r'"
        return Place(
            postgres(name),
            lambda: dict(self.run(f"SELECT id, name FROM {name}")),
            damage,
            lambda: self.run(f"DROP TABLE {name}") and None,
            lambda: [row[0] for row in self.run(beside)],
            [(PostgresRebuilding, "_bring"), (LedgerTable, "enter"), (PostgresRebuilding, "_drop_beside")],
        )

    def hashes(self, name: str, form: Any = "hash") -> Place:
        def rows() -> dict[int, str]:
            found = {}
            for key in self.redis.scan_iter(f"{name}:*"):
                row = self.redis.hgetall(key) if form == "hash" else json.loads(self.redis.get(key) or "")
                found[int(row["id"])] = row["name"]
            return found

        def damage() -> None:
            self.redis.delete(f"{name}:2")
            for key, text in ((3, "forged"), (99, "strange")):
                version = "5" if form == "hash" else 5
                row = {"__version": version, "id": key, "name": text}
                if form == "hash":
                    self.redis.hset(f"{name}:{key}", mapping=row)
                else:
                    self.redis.set(f"{name}:{key}", json.dumps(row, separators=(",", ":")))

        return Place(
            redis(name, form=form, server="valkey"),
            rows,
            damage,
            lambda: self.redis.delete(*self.redis.scan_iter(f"{name}:*")) and None,
            lambda: list(self.redis.scan_iter(f"millrace:*rebuilt*{name}*")),
            [
                (RowsRebuilding, "_lacking"),
                (RowsRebuilding, "_move"),
                (RowsRebuilding, "_switched"),
                (RowsRebuilding, "_settled"),
            ],
        )

    def texts(self, name: str) -> Place:
        return self.hashes(name, "json")

    def ranking(self, name: str) -> Place:
        def damage() -> None:
            self.redis.zrem(name, "2")
            self.redis.zadd(name, {"3": -1, "99": 1})

        return Place(
            redis_ranking(name, member="id", score="id", server="valkey"),
            # A ranking has no names: what a member has is its score.
            lambda: {int(m): f"n{m}" if int(s) == int(m) else "forged" for m, s in self.redis.zscan_iter(name)},
            damage,
            lambda: self.redis.delete(name) and None,
            lambda: list(self.redis.scan_iter(f"millrace:*rebuilt*{name}*")),
            [(RankingRebuilding, "_switched"), (RankingRebuilding, "_settled")],
        )

    def index(self, name: str) -> Place:
        def damage() -> None:
            ask(self.search, "DELETE", f"/{name}/_doc/2")
            for key, text in ((3, "forged"), (99, "strange")):
                ask(self.search, "PUT", f"/{name}/_doc/{key}", {"id": key, "name": text})

        def left() -> list[str]:
            behind = set(ask(self.search, "GET", f"/_alias/{name}"))
            return [each for each in ask(self.search, "GET", f"/{name}-*") if each not in behind]

        return Place(
            opensearch(name, server="opensearch"),
            lambda: {row["id"]: row["name"] for row in documents(self.search, name)},
            damage,
            lambda: [ask(self.search, "DELETE", f"/{each}") for each in ask(self.search, "GET", f"/{name}-*")] and None,
            left,
            [(Indexes, "switch"), (Ledger, "write"), (Indexes, "drop_replaced")],
        )

    def folder(self, name: str) -> Place:
        root = self.settings.folder / name

        def rows() -> dict[int, str]:
            found: dict[int, tuple[int, int, str]] = {}
            for path in root.glob("epoch=*/[!_.]*"):
                for line in path.read_text().splitlines():
                    row = json.loads(line)
                    told = (row[VERSION], row[DIFF], row["name"])
                    found[row["id"]] = max(found.get(row["id"], told), told)
            return {key: name for key, (_, diff, name) in found.items() if diff > 0}

        def damage() -> None:
            (path, *_) = sorted(each for each in root.glob("epoch=*/[!_.]*") if '"id":2,' in each.read_text())
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
            kept = [line for line in path.read_text().splitlines() if '"id":2,' not in line and '"id":3,' not in line]
            forged = [{"id": key, "name": text, DIFF: 1, VERSION: 5} for key, text in ((3, "forged"), (99, "strange"))]
            path.write_text("\n".join([*kept, *map(json.dumps, forged)]))

        def destroy() -> None:
            import shutil

            shutil.rmtree(root)

        return Place(
            files(name, format="json"),
            rows,
            damage,
            destroy,
            lambda: [str(path) for path in self.settings.folder.glob(f"{name}.*")],
            [(FilesRebuilding, "_exchange")],
        )

    def delta(self, name: str) -> Place:
        return Place(*lake_place(self.settings, name, "delta"))

    def iceberg(self, name: str) -> Place:
        return Place(*lake_place(self.settings, name, "iceberg"))


KINDS = ("table", "hashes", "texts", "ranking", "index", "folder", "delta", "iceberg")


@pytest.fixture
def places(settings: Settings, postgres: str, valkey: str, opensearch: str, tmp_path: Path) -> Places:
    from millrace.config import load

    env = {"MILLRACE_SINKS_VALKEY_URL": valkey, "MILLRACE_SINKS_OPENSEARCH_URL": opensearch}
    database = postgres.rpartition("/")[0] + "/millrace"
    own = load(tmp_path, {**env, "MILLRACE_DATABASES_MILLRACE_URL": database, "MILLRACE_LAKE_CATALOG": database})
    with (
        psycopg.connect(postgres, autocommit=True) as connection,
        contextlib.suppress(psycopg.errors.DuplicateDatabase),
    ):
        connection.execute("CREATE DATABASE millrace")
    assert settings
    return Places(own, postgres, valkey, opensearch)


@dataclass
class Rebuilt:
    """One sink, and rows to give it: `n1` for 1, and so on."""

    spark: SparkSession
    settings: Settings
    place: Place
    tmp_path: Path

    def __post_init__(self) -> None:
        columns = self.spark.createDataFrame([], "id long, name string").schema
        key = self.place.sink.keyed(("id",), ())
        self.site = Site(self.settings, self.spark, FLOW, Feed(columns, key, True), self.tmp_path / "own", ("id",))

    def frame(self, *keys: int, name: str = "n", version: int = 1) -> DataFrame:
        rows = [(key, f"{name}{key}", 1, version) for key in keys]
        return self.spark.createDataFrame(rows, f"id long, name string, {DIFF} int, {VERSION} long")

    def write(self, epoch: Epoch, rows: DataFrame) -> None:
        sink, site = self.place.sink, self.site
        with contextlib.closing(sink.open(self.settings, site.flow, site.feed, site.folder)) as writer:
            writer.write(epoch, rows, _refuse)

    @contextlib.contextmanager
    def rebuilding(self) -> Iterator[Rebuilding]:
        made = self.place.sink.rebuilding(self.site)
        assert made is not None
        with contextlib.closing(made):
            yield made

    def build(self, rebuilding: Rebuilding, epoch: Epoch, rows: DataFrame) -> None:
        with contextlib.closing(rebuilding.begin(epoch)) as writer:
            writer.write(epoch, rows, _refuse)


def _refuse(rows: Any) -> None:
    raise AssertionError(rows)


@pytest.fixture
def rebuilt(spark: SparkSession, places: Places, tmp_path: Path) -> Callable[[str], Rebuilt]:
    return lambda kind: Rebuilt(spark, places.settings, places.made(kind), tmp_path)


FIRST, THIRD = Epoch(FLOW, 1, "[1]"), Epoch(FLOW, 3, "[3]")
RIGHT = {key: f"n{key}" for key in range(1, 9)}


@pytest.mark.parametrize("kind", todays(KINDS, 3))
def test_built_beside_compared_and_switched(kind: str, rebuilt: Callable[[str], Rebuilt]) -> None:
    made = rebuilt(kind)
    place = made.place
    made.write(FIRST, made.frame(*RIGHT))
    assert place.rows() == RIGHT
    place.damage()
    damaged = place.rows()
    assert damaged != RIGHT
    with made.rebuilding() as rebuilding:
        assert rebuilding.held() == FIRST.entry
        # What an earlier attempt left is not in it.
        made.build(rebuilding, THIRD, made.frame(50, 51))
        made.build(rebuilding, THIRD, made.frame(*RIGHT))
        assert place.rows() == damaged  # nobody sees it yet
        found = rebuilding.differences()
        assert (found.wanted, found.missing, found.surplus, found.different) == (8, 1, 1, 1)
        assert set(found.keys.values()) == {"missing", "surplus", "different"}
        rebuilding.discard()
        assert place.rows() == damaged
        assert not place.left()
        made.build(rebuilding, THIRD, made.frame(*RIGHT))
        switching.switch(rebuilding, made.site.folder, THIRD)
        assert rebuilding.held() == THIRD.entry
    assert place.rows() == RIGHT
    assert not place.left()
    # The flow goes on with the next epoch; a repeat of this one is left alone.
    made.write(THIRD, made.frame(70))
    made.write(Epoch(FLOW, 4, "[4]"), made.frame(9, version=2))
    assert place.rows() == {**RIGHT, 9: "n9"}


def test_what_others_put_beside_the_epochs_of_a_files_sink_stays(rebuilt: Callable[[str], Rebuilt]) -> None:
    made = rebuilt("folder")
    made.write(FIRST, made.frame(1))
    (root,) = (path.parent for path in made.settings.folder.glob("*/epoch=1"))
    (root / "notes").mkdir()
    (root / "notes" / "of a person").write_text("keep me")
    with made.rebuilding() as rebuilding:
        made.build(rebuilding, THIRD, made.frame(2))
        switching.switch(rebuilding, made.site.folder, THIRD)
    assert made.place.rows() == {2: "n2"}
    assert (root / "notes" / "of a person").read_text() == "keep me"
    assert not made.place.left()


@pytest.mark.parametrize("kind", todays(KINDS, 2))
def test_one_that_is_gone_is_there_again(kind: str, rebuilt: Callable[[str], Rebuilt]) -> None:
    made = rebuilt(kind)
    made.write(FIRST, made.frame(*RIGHT))
    made.place.destroy()
    with made.rebuilding() as rebuilding:
        made.build(rebuilding, THIRD, made.frame(*RIGHT))
        assert rebuilding.differences().missing == 8
        switching.switch(rebuilding, made.site.folder, THIRD)
    assert made.place.rows() == RIGHT
    made.write(Epoch(FLOW, 4, "[4]"), made.frame(9, version=2))
    assert made.place.rows() == {**RIGHT, 9: "n9"}


@pytest.mark.parametrize("kind", todays(KINDS, 2))
def test_cut_off_anywhere_the_switch_is_ended_by_the_next(
    kind: str, rebuilt: Callable[[str], Rebuilt], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rebuilt(kind)
    place = made.place
    made.write(Epoch(FLOW, 0, "[0]"), made.frame(*RIGHT))
    for number, (where, name, after) in enumerate(_cuts(place), 1):
        place.damage()
        epoch = Epoch(FLOW, number, f"[{number}]")
        with made.rebuilding() as rebuilding:
            made.build(rebuilding, epoch, made.frame(*RIGHT, version=number))
            with monkeypatch.context() as patch:
                patch.setattr(where, name, _cut_off(getattr(where, name), after=after))
                with pytest.raises(Crash):
                    switching.switch(rebuilding, made.site.folder, epoch)
        with pytest.raises(RebuildUnfinished, match=f"millrace rebuild {place.sink.name}"):
            switching.refuse_unfinished(made.site.folder, place.sink.name, place.sink.where)
        assert set(RIGHT) - {2} <= set(place.rows()), (where, name, after)  # each has an answer meanwhile
        with made.rebuilding() as rebuilding:
            begun = switching.unfinished(made.site.folder)
            assert begun == epoch
            switching.switch(rebuilding, made.site.folder, begun)
            assert rebuilding.held() == epoch.entry
        assert place.rows() == RIGHT, (where, name, after)
        assert not place.left(), (where, name, after)
        switching.refuse_unfinished(made.site.folder, place.sink.name, place.sink.where)


@pytest.mark.parametrize("kind", todays(["delta", "iceberg"], 1))
def test_of_keys_that_a_replay_gives_again_the_last_counts(kind: str, rebuilt: Callable[[str], Rebuilt]) -> None:
    made = rebuilt(kind)
    made.write(FIRST, made.frame(1, 2, 3))
    with made.rebuilding() as rebuilding:
        with contextlib.closing(rebuilding.begin(THIRD)) as writer:
            writer.write(THIRD, made.frame(*range(1, 6), name="old"), _refuse)
            writer.write(THIRD, made.frame(1).withColumn(DIFF, F.lit(-1)), _refuse)
            writer.write(THIRD, made.frame(2, 6), _refuse)
        switching.switch(rebuilding, made.site.folder, THIRD)
    assert made.place.rows() == {2: "n2", 3: "old3", 4: "old4", 5: "old5", 6: "n6"}
    assert not made.place.left()


def _cuts(place: Place) -> list[tuple[Any, str, bool]]:
    return [(where, name, after) for where, name in place.steps for after in (False, True)]


def _cut_off(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    def wrapped(*args: Any, **options: Any) -> Any:
        if after:
            found = function(*args, **options)
            if isinstance(found, Iterator):
                list(found)
        raise Crash

    return wrapped


@pytest.mark.parametrize("kind", todays(["table", "hashes", "index", "folder"], 1))
def test_readers_have_an_answer_all_the_time(kind: str, rebuilt: Callable[[str], Rebuilt], places: Places) -> None:
    made = rebuilt(kind)
    name = getattr(made.place.sink, {"table": "table", "hashes": "prefix", "index": "index", "folder": "path"}[kind])
    made.write(FIRST, made.frame(*range(500), name="old"))
    stop, seen = threading.Event(), set[Any]()

    def look() -> Any:
        if kind == "hashes":
            return places.redis.hget(f"{name}:7", "name")
        if kind == "index":
            return ask(places.search, "GET", f"/{name}/_doc/7")["_source"]["name"]
        return bool(list((places.settings.folder / name).glob("epoch=*")))

    def read() -> None:
        with contextlib.ExitStack() as stack:
            if kind == "table":
                url = places.sql.rpartition("/")[0] + "/millrace"
                connection = stack.enter_context(psycopg.connect(url, autocommit=True))
            while not stop.is_set():
                if kind == "table":
                    found = connection.execute(f"SELECT count(*), max(name) FROM {name}").fetchone()  # type: ignore[call-overload]
                    seen.add(found)
                else:
                    seen.add(look())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with made.rebuilding() as rebuilding:
            made.build(rebuilding, THIRD, made.frame(*range(500), name="new", version=2))
            switching.switch(rebuilding, made.site.folder, THIRD)
    finally:
        stop.set()
        reader.join()
    allowed: dict[str, set[Any]] = {"table": {(500, "old99"), (500, "new99")}, "folder": {True}}
    assert seen
    assert seen <= allowed.get(kind, {"old7", "new7"}), seen


COLUMNS = (
    "region string, id int, price decimal(12,2), big decimal(38,10), ratio double, at timestamp, day date, ok boolean, "
    "tags array<string>, place struct<lat: double, names: array<string>>, raw binary"
)


@pytest.mark.parametrize("kind", todays(["table", "hashes", "texts", "index", "folder"], 2))
def test_every_type_is_compared_as_it_was_written(
    kind: str, spark: SparkSession, places: Places, tmp_path: Path
) -> None:
    place = places.made(kind)
    big, at = Decimal("12345678901234567890.1234567890"), datetime(2026, 1, 2, 3, 4, 5, 678901)
    rows = [
        ("e:u", 1, Decimal("1.50"), big, 1.5e-7, at, date(1999, 1, 2), True, ["x", "ü\n"], (1.5, ["a"]), b"\0\xff"),
        ("e%3Au", 1, Decimal("0.00"), None, 1e22, at, date(2026, 1, 1), False, [], (0.1, []), b""),
        ("\u4e2d", 2, None, Decimal("0.1000000000"), 100.0, None, None, None, None, None, None),
    ]
    signed = [(*row, 1, number) for number, row in enumerate(rows, 1)]
    frame = spark.createDataFrame(signed, f"{COLUMNS}, {DIFF} int, {VERSION} long")
    sink, key = place.sink, ("region", "id")
    if kind != "folder":
        sink = replace(sink, key=key)
    feed = Feed(frame.drop(DIFF, VERSION).schema, sink.keyed(key, ()), True)
    site = Site(places.settings, spark, FLOW, feed, tmp_path / "own", key, "verified")
    refused: list[RefusedRow] = []
    with contextlib.closing(sink.open(places.settings, FLOW, feed, site.folder)) as writer:
        writer.write(FIRST, frame, refused.extend)
    assert not refused
    made = sink.rebuilding(site)
    assert made is not None
    with contextlib.closing(made):
        same = compare(lambda: made.there("live"), lambda: made.wanted(frame), keyed=made.keyed)
        assert (same.wanted, same.count) == (3, 0), same
        # One value of one row is another.
        changed = spark.createDataFrame(
            [(*row[:4], 7.0, *row[5:]) if row[1] == 2 else row for row in signed], frame.schema
        )
        other = compare(lambda: made.there("live"), lambda: made.wanted(changed), keyed=made.keyed)
        assert (other.different, other.count) == (1, 1)
        names = made.names(frame.select("region", "id"))
        assert names is not None
        assert {key for (key,) in names.collect()} == {key for key, _ in made.there("live")}
        made.discard()


def test_folders_change_names_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()
    disk_module.exchange(one, other)
    assert (one / "other").exists()
    assert (other / "one").exists()
    monkeypatch.setattr(disk_module, "_exchanged", lambda *_: False)
    disk_module.exchange(one, other)
    assert (one / "one").exists()
    assert (other / "other").exists()
    assert len(list(tmp_path.iterdir())) == 2
