"""Versions of tables, by number, time and place in the log; small files written together; what is let go."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql.types import StringType, StructField

from millrace import config
from millrace.config import Lake, Secret, Settings
from millrace.errors import (
    ConfigInvalid,
    ExtraMissing,
    LakeCatalogUnreachable,
    LakeConflict,
    LakePositionUnknown,
    LakeQueryInvalid,
    LakeQueryTooSlow,
    LakeTableUnknown,
    LakeVersionUnknown,
)
from millrace.lakehouse import Catalog, Committed, LakeTable, Note, asking, catalog, compacting, moments
from millrace.lakehouse.asking import asked
from millrace.lakehouse.bucket import Bucket
from millrace.lakehouse.iceberg import Iceberg
from millrace.lakehouse.place import Disk
from millrace.lakehouse.positions import ends_at, freshness_s
from millrace.lakehouse.retention import forget
from millrace.log import Log
from tests.lakehouse.filled import COLUMNS, FORMATS, IN_S3, ON_DISK, epoch, file_of, ids
from tests.log.making import forget_before


@pytest.mark.parametrize("kind", FORMATS)
def test_a_version_by_its_number_its_time_and_its_place_in_the_log(project: Settings, made: LakeTable) -> None:
    first = file_of(made, range(3))
    epoch(made, 0, [first])
    epoch(made, 1, [file_of(made, [0, 7])], [first])
    version = made.version
    epoch(made, 2, [file_of(made, [8])])
    assert ids(project, made) == [0, 7, 8]
    then = next(each for each in made.versions() if each.number == version)
    ways: list[Callable[[LakeTable], Any]] = [
        lambda table: moments.numbered(table, version),
        lambda table: moments.of_time(table, then.at),
        lambda table: moments.that_holds(table, None, {0: 11}, "offset 0:10"),
        lambda table: moments.that_holds(table, "shop.orders", {0: 20, 1: 15}, "LSN 0/1"),
    ]
    for way in ways:
        assert ids(project, made, way) == [0, 7]
    assert moments.that_holds(made, None, {0: 0}, "the beginning").note == made.versions()[-3].note
    for wrong, reason in (
        (lambda: moments.numbered(made, 99), r"number 99: it has \d+ to \d+: `millrace lake history"),
        (lambda: moments.of_time(made, datetime(2000, 1, 1, tzinfo=UTC)), "its first came later"),
        (lambda: moments.that_holds(made, None, {1: 31}, "offset 1:30"), "offset 1:30: none holds that much"),
    ):
        with pytest.raises(LakeVersionUnknown, match=reason):
            wrong()
    assert made.note() is not None
    assert moments.topics_of(made.note()) == {"shop.orders": {0: 30, 1: 30}}  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_query_with_a_limit_reads_the_lake_alone_and_ends(project: Settings, made: LakeTable, tmp_path: Path) -> None:
    epoch(made, 0, [file_of(made, range(3))])
    (tmp_path / "secret.csv").write_text("word\nx")
    with asked(project, f"SELECT sum(id) AS n FROM {made.name}", limit_s=30) as found:
        assert found.to_arrow_table().to_pylist() == [{"n": 3}]
    for query in (
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        f"SELECT * FROM '{tmp_path}/secret.csv'",
        f"SELECT * FROM read_text('{project.lake_folder}/../secret.csv')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
    ):
        with pytest.raises(LakeQueryInvalid), asked(project, query, limit_s=30) as found:
            found.to_arrow_table()
    slow = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = -1"
    with pytest.raises(LakeQueryTooSlow, match=r"more than 0\.2 s"), asked(project, slow, limit_s=0.2) as found:
        found.to_arrow_table()


@pytest.mark.parametrize("kind", FORMATS)
def test_small_files_of_a_divided_table_are_written_together(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch(made, 0, [file_of(made, [1]), file_of(made, [2]), file_of(made, [3], None), file_of(made, [4], "south")])
    version = made.version
    made.add([StructField("more", StringType())])
    epoch(made, 1, [file_of(made, [5], None, more="x")])
    before = made.note()

    # Somebody is quicker, once: it goes on behind what that one wrote.
    committed, beaten = type(made).commit, []

    def commit(table: LakeTable, what: Committed) -> None:
        if not beaten and what.same:
            beaten.append(1)
            with Catalog(project).opened(table.name) as other:
                other.commit(Committed(other.note(), [file_of(other, [6])]))
        committed(table, what)

    with monkeypatch.context() as patch:
        patch.setattr(type(made), "commit", commit)
        done = compacting.compact(made)
    assert (done.files, done.into, beaten) == (4, 2, [1])
    note = made.note()
    assert note is not None
    assert note.own is not None
    assert replace(note, own=None) == before
    assert note.own.rpartition("/")[2].startswith(f"{made.version}-"), "called by the version it became"
    assert len(made.files()) == 4
    assert ids(project, made) == [1, 2, 3, 4, 5, 6]
    with asked(project, f"SELECT region, sum(amount) AS total, max(more) AS more FROM {made.name} GROUP BY 1") as found:
        rows = {row["region"]: (row["total"], row["more"]) for row in found.to_arrow_table().to_pylist()}
    assert rows == {"north": (Decimal(9), None), None: (Decimal(8), "x"), "south": (Decimal(4), None)}
    assert ids(project, made, lambda table: moments.numbered(table, version)) == [1, 2, 3, 4]
    assert compacting.compact(made).files == 2
    assert compacting.compact(made).files == 0
    with monkeypatch.context() as patch:
        patch.setattr(type(made), "commit", _beaten)
        epoch_files = [file_of(made, [7]), file_of(made, [8])]
        committed(made, Committed(made.note(), epoch_files))
        with pytest.raises(LakeConflict):
            compacting.compact(made)
    assert len(made.place.names(f"data/{compacting.FOLDER}")) == 2, "what was not committed is not left"


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_table_with_a_key_stays_in_its_order(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.keeps(None, key=["id"])
    assert made.key == ("id",)
    large = file_of(made, range(100, 5_000))
    epoch(made, 0, [large, file_of(made, [70, 9, 8]), file_of(made, [7, 1])])
    few = compacting.AT_ONCE_FILES - 1
    epoch(made, 1, [file_of(made, [10 + number, 50 + number]) for number in range(few - 2)])
    with monkeypatch.context() as patch:
        patch.setattr(compacting, "KEYED_SMALL_BYTES", 10_000)
        assert compacting.debt(made) == 0
        epoch(made, 2, [file_of(made, [2])])
        assert compacting.debt(made) == few + 1
        assert compacting.compact(made, alike=True).files == few + 1
        (new,) = [each for each in made.files() if each.path != large]
        held = parquet.read_table(made.folder / new.path).column("id").to_pylist()
        assert held == sorted([70, 9, 8, 7, 1, 2, *range(10, 8 + few), *range(50, 48 + few)])
        # Neighbours become one: of two that are made, each key is in one alone.
        names = [file_of(made, [-8, -7]), file_of(made, [-2, -1]), file_of(made, [-6, -5]), file_of(made, [-4, -3])]
        epoch(made, 3, names, [new.path])
        most = max(each.size_bytes for each in made.files() if each.path in names)
        patch.setattr(compacting, "KEYED_TARGET_BYTES", 2 * most)
        assert compacting.compact(made).into == 2
        spans = sorted((each.low["id"], each.high["id"]) for each in made.files() if each.path != large)
        assert spans == [(-8, -5), (-4, -1)]
    assert ids(project, made)[:8] == list(range(-8, 0))
    made.keeps(None, key=())
    assert made.key == ()
    with contextlib.closing(Catalog(project).table(f"{made.name}_keyed", made.format)) as other:
        other.create(COLUMNS, (), key=["id", "region"])
        version = other.version
        other.keeps(None, key=["id", "region"])
        assert (other.key, other.version) == (("id", "region"), version), "said when it is made, in no version more"


@pytest.mark.parametrize("kind", FORMATS)
def test_files_stay_of_a_commit_whose_answer_is_lost(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that went in that moment, somebody's Ctrl-C; or a store that was asked again, and says that another was
    first."""
    committed = type(made).commit
    for number, error in enumerate(
        (LakeCatalogUnreachable(reason="it went"), KeyboardInterrupt(), LakeConflict(table=made.name, reason="first"))
    ):
        epoch(made, number, [file_of(made, [2 * number]), file_of(made, [2 * number + 1])])

        def commit(table: LakeTable, what: Committed, error: BaseException = error) -> None:
            committed(table, what)
            raise error

        with monkeypatch.context() as patch, contextlib.suppress(LakeCatalogUnreachable, KeyboardInterrupt):
            patch.setattr(type(made), "commit", commit)
            compacting.compact(made)
        assert made.load()
        assert len(made.files()) == 1
        assert ids(project, made) == [*range(2 * number + 2)]


def _beaten(table: LakeTable, _: Committed) -> None:
    raise LakeConflict(table=table.name, reason="somebody else committed first")


@pytest.mark.parametrize("kind", ON_DISK)
def test_what_a_commit_names_is_on_the_disk_before_it(made: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    sync = os.fsync

    def seen(descriptor: int) -> None:
        sync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", seen)
    for number in range(2):
        epoch(made, number, [file_of(made, [number])])
    compacting.compact(made)
    (file,) = made.files()
    assert "compacted" in file.path
    names = [made.folder / file.path, *(made.folder / file.path).parents]
    assert {path.stat().st_ino for path in names[: names.index(made.folder) + 1]} <= synced


def test_a_commit_copies_no_older_version_of_an_iceberg_table(tmp_path: Path) -> None:
    """With a day of versions, one every five seconds, it would take more than the five seconds."""
    from pyiceberg.catalog.sql import SqlCatalog

    known = SqlCatalog("millrace", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    with contextlib.closing(Iceberg("orders", Disk(tmp_path / "orders"), known)) as table:
        table.create(COLUMNS, ())
        for number in range(3):
            epoch(table, number, [file_of(table, [number])])
        first, second, _ = table._table.metadata.snapshots
        copied = table._table.transaction().table_metadata
        assert copied is not table._table.metadata
        assert (copied.snapshots[0] is first, copied.snapshots[1] is second) == (True, True)
        # Who lets the first go makes another second of it.
        assert forget(table, table.versions()[1].at) == 0
        assert [each.parent_snapshot_id for each in table._table.metadata.snapshots] == [None, second.snapshot_id]
        assert (second.parent_snapshot_id, len(table.versions())) == (first.snapshot_id, 2)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_let_go_is_said_and_what_is_left_is_whole(project: Settings, made: LakeTable) -> None:
    first = file_of(made, range(3))
    epoch(made, 0, [first])
    version = made.version
    epoch(made, 1, [file_of(made, [9])], [first])
    assert forget(made, datetime.now(UTC) - timedelta(hours=2)) == 0
    assert ids(project, made, lambda table: moments.numbered(table, version)) == [0, 1, 2]
    coming = file_of(made, [10])  # somebody is about to commit it
    made.place.make("data/compacted/9-filled_soon")
    assert forget(made, datetime.now(UTC) + timedelta(seconds=1)) == 1
    assert made.place.seen(first) is None
    assert isinstance(made.place, Bucket) or made.place.has_folder("data/compacted/9-filled_soon")
    assert ids(project, made) == [9]
    with pytest.raises(LakeVersionUnknown, match=r"its files were let go|it has \d+ to \d+"):
        moments.numbered(made, version)
    epoch(made, 2, [coming])
    assert ids(project, made) == [9, 10]
    assert made.note().epoch == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["delta", pytest.param(IN_S3, marks=[pytest.mark.server, pytest.mark.turn(2, 3)])])
def test_a_table_is_brought_to_the_newest_and_opened_only_if_it_is_another(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch(made, 0, [file_of(made, [1])])
    with Catalog(project).opened(made.name) as other:
        epoch(other, 1, [file_of(other, [2])])

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("it is opened again")

    with monkeypatch.context() as patch:
        patch.setattr("deltalake.DeltaTable.__init__", again)
        assert made.load()
        assert made.load()
    assert (made.version, len(made.files())) == (2, 2)
    made.place.remove_folder("_delta_log")
    assert not made.load()
    # As many commits later it is another table.
    with contextlib.closing(Catalog(project).table(made.name, "delta")) as other:
        other.create(COLUMNS, ())
        for number in range(2):
            epoch(other, number, [file_of(other, [10 + number])])
        assert made.load()
        assert {each.path for each in made.files()} == {each.path for each in other.files()}
        other.place.remove_folder("_delta_log")
        other.create(COLUMNS, ())
        for number in range(2):
            epoch(other, number, [file_of(other, [20 + number, 5])])
        assert made.load()
        assert {each.path for each in made.files()} == {each.path for each in other.files()}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_version_is_kept_to_the_second_and_other_programs_are_told(project: Settings, made: LakeTable) -> None:
    files = [file_of(made, [0])]
    epoch(made, 0, files)
    for number in (1, 2, 3):
        files.append(file_of(made, [number]))
        epoch(made, number, files[-1:], files[-2:-1])
    oldest, middle, *_ = versions = made.versions()[-4:]
    # Just before the third came, the second was the table: it stays, and so do all that followed.
    assert forget(made, versions[2].at - timedelta(milliseconds=1)) == 1
    assert [made.place.seen(each) is not None for each in files] == [False, True, True, True]
    for place, each in enumerate(versions[1:], 1):
        assert ids(project, made, lambda table, each=each: moments.numbered(table, each.number)) == [place]  # type: ignore[misc]
    with pytest.raises(LakeVersionUnknown):
        moments.numbered(made, oldest.number)
    assert not made.place.has_folder(files[0].rpartition("/")[0]), "nor does an empty folder stay"
    assert made.versions()[0].number == middle.number, "what is known begins with the oldest that stays"
    for gone in (
        lambda: moments.that_holds(made, None, {0: 6}, "offset 0:5"),
        lambda: moments.of_time(made, middle.at - timedelta(milliseconds=1)),
    ):
        with pytest.raises(LakeVersionUnknown, match="the versions of then were let go"):
            gone()
    for ends in ({0: 11}, {0: 6, 1: 20}):
        assert moments.that_holds(made, None, ends, "offset 0:10").number == middle.number
    made.load()
    assert ids(project, made) == [3]

    for keep, wanted in ((timedelta(minutes=90), 5400), (None, 100 * 365 * 24 * 3600)):
        made.keeps(keep)
        made.load()
        version = made.version
        made.keeps(keep)
        assert made.load()
        assert made.version == version, "what is said already is not said again"
        assert str(wanted) in json.dumps(_properties(made))


def _properties(table: LakeTable) -> dict[str, str]:
    raw: Any = table._table  # type: ignore[attr-defined]
    return dict(raw.properties if table.format == "iceberg" else raw.metadata().configuration)


@pytest.mark.parametrize("kind", ON_DISK)
def test_files_are_named_to_duckdb_where_they_are_the_whole_truth(project: Settings, made: LakeTable) -> None:
    assert asking.words(made) == made.scan(), "of an empty table there is nothing to name"
    first = file_of(made, [1, 2])
    epoch(made, 0, [first])
    then = made.versions()[-1]
    assert asking.words(made) == f"read_parquet(['{made.folder / first}'], hive_partitioning = false)"
    assert ids(project, made) == [1, 2]
    made.add([StructField("more", StringType())])
    assert asking.words(made) == made.scan(), "a file lacks a column"
    with asked(project, f"SELECT more FROM {made.name}") as found:
        assert found.fetchall() == [(None,), (None,)]
    epoch(made, 1, [(second := file_of(made, [3], more="x"))], [first])
    assert asking.words(made) == f"read_parquet(['{made.folder / second}'], hive_partitioning = false)"
    assert asking.words(made, then) == made.scan(then), "its columns were others"
    assert ids(project, made, lambda _: then) == [1, 2]


def test_queries_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config.load(tmp_path)
    for query, reason in (
        ("DROP TABLE orders", "it is no query: begin with SELECT"),
        ("SELECT 1; SELECT 2", "not one statement"),
        ("SELECT * FROM orders", "orders does not exist.*the lake's tables are none yet"),
    ):
        with pytest.raises(LakeQueryInvalid, match=reason), asked(settings, query) as found:
            found.fetchall()
    with pytest.raises(LakeTableUnknown, match="no table 'orders'"), Catalog(settings).opened("orders"):
        pass
    with pytest.raises(LakeTableUnknown), Catalog(settings).opened("../outside"):
        pass
    monkeypatch.setattr(asking, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissing, match=r"duckdb_extension_delta.*millrace\[lake\]"), asking.connected():
        pass


@pytest.mark.parametrize(
    ("error", "wanted", "said"),
    [
        (ModuleNotFoundError("No module named 'deltalake'", name="deltalake"), ExtraMissing, "no module deltalake"),
        (ImportError("pyiceberg needs pyarrow for this"), ExtraMissing, r"pyiceberg needs pyarrow.*millrace\[lake\]"),
        (ImportError("cannot import name 'x'", name="millrace.lakehouse.table"), ImportError, "cannot import name"),
    ],
    ids=["module", "words", "own"],
)
def test_what_a_library_lacks_is_to_be_installed_and_what_we_lack_is_a_fault(
    error: ImportError, wanted: type[Exception], said: str
) -> None:
    with pytest.raises(wanted, match=said), catalog.extra():
        raise error


def test_the_catalog_of_iceberg_tables(tmp_path: Path) -> None:
    nobody = replace(
        config.load(tmp_path), lake=Lake(catalog=Secret("lake.catalog", "postgresql://u:pw1@127.0.0.1:1/x"))
    )
    with pytest.raises(LakeCatalogUnreachable, match="does not answer") as told:
        Catalog(nobody).table("orders", "iceberg")
    assert "pw1" not in str(told.value)
    (tmp_path / "millrace.toml").write_text('[lake]\ncatalog = "sqlite:///lake.db"\nfolder = "data"\n')
    with pytest.raises(ConfigInvalid, match=r"lake.catalog.*is a PostgreSQL"):
        config.load(tmp_path)
    (tmp_path / "millrace.toml").write_text('[lake]\nfolder = "data"\n')
    assert config.load(tmp_path).lake_folder == tmp_path / "data"


@pytest.mark.server
def test_how_fresh_a_table_is(settings: Settings, tmp_path: Path) -> None:
    """From the oldest change that the last epoch had read to its version, whatever else was committed since."""
    log = Log(replace(settings, prefix="fresh"))
    log.topics.create("orders", partitions=2)
    table = Catalog(replace(settings, folder=tmp_path)).table("orders", "delta")
    table.create(COLUMNS, ())
    now = datetime.now(UTC)

    def change(before_s: float, partition: int) -> None:
        made_ms = int((now - timedelta(seconds=before_s)).timestamp() * 1000)
        log.write("orders", {"op": "c", "source": {"ts_ms": made_ms}}, key="1", partition=partition)

    def fresh_s(topic: str, *spans: tuple[int | None, int]) -> tuple[float | None, datetime]:
        """Of an epoch that read so much; and when its version came."""
        ranges = json.dumps([{topic: {str(part): span for part, span in enumerate(spans)}}])
        note = Note("flow", 0, ranges, "flow/0")
        table.commit(Committed(note, [file_of(table, [1])]))
        table.commit(Committed(replace(note, own="compacted/0"), same=True))
        return freshness_s(log, table), table.versions()[-2].at

    for before_s, partition in ((500, 0), (100, 0), (40, 1), (900, 1)):
        change(before_s, partition)
    log.write("orders", b"no JSON", partition=0)
    outside = log.topics.outside("orders")
    for spans, before_s in ((((None, 1), (0, 1)), 500), (((1, 2), (1, 1)), 100), (((2, 2), (1, 2)), 900)):
        found_s, at = fresh_s(outside, *spans)
        assert found_s == pytest.approx((at - now).total_seconds() + before_s, abs=0.002)
    (record,) = log.read("orders", 2, partition=0)
    found_s, at = fresh_s(outside, (2, 3), (2, 2))
    assert record.time is not None
    assert found_s == (at - record.time).total_seconds()
    for topic, spans_of_none in ((outside, ((3, 3), (2, 2))), ("gone", ((0, 3),))):
        assert fresh_s(topic, *spans_of_none)[0] is None
    table.commit(Committed(Note("flow", 1, "[1]", "flow/1")))
    assert freshness_s(log, table) is None


@pytest.mark.server
def test_an_lsn_is_found_in_the_topic(settings: Settings) -> None:
    log = Log(replace(settings, prefix="lsn"))
    log.topics.create("orders", partitions=2)

    def change(lsn: int | None, partition: int, *, wrapped: bool = False, snapshot: str = "false") -> None:
        value = None if lsn is None else {"op": "c", "source": {"lsn": lsn, "snapshot": snapshot}}
        log.write("orders", {"payload": value} if wrapped else value, key=json.dumps({"id": 1}), partition=partition)

    def refused(lsn: int, reason: str, topic: str = "orders") -> None:
        with pytest.raises(LakePositionUnknown, match=reason):
            ends_at(log, topic, lsn)

    refused(5, "none of its records has one")
    # The second was begun before the first, and committed after it.
    for lsn in (10, 30, 20, None, 40):
        change(lsn, 0)
    change(15, 1, wrapped=True)
    assert ends_at(log, "orders", 5) == {0: 0, 1: 0}
    assert ends_at(log, "orders", 10) == {0: 0, 1: 0}, "PostgreSQL says where the next change will stand"
    assert ends_at(log, "orders", 10, itself=True) == ends_at(log, "orders", 11) == {0: 1, 1: 0}
    assert ends_at(log, "orders", 25) == {0: 3, 1: 1}
    assert ends_at(log, "orders", 40, itself=True) == {0: 5, 1: 1}
    refused(41, "up to LSN 0/28")
    assert ends_at(log, "orders", 41, marked=41) == {0: 5, 1: 1}
    # Plain topics, and MariaDB's.
    log.topics.create("others", partitions=1)
    for value in (b"no JSON", '{"id": 1}', '{"source": {"file": "bin.1", "pos": 4}}'):
        log.write("others", value)
    refused(1, "none of its records has one", "others")
    # A snapshot has what was committed before it, and no part of it has all of that.
    log.topics.create("taken", partitions=1)
    for lsn, kind in ((50, "first"), (50, "true"), (50, "last"), (60, "false"), (60, "incremental")):
        log.write("taken", {"op": "r", "source": {"lsn": lsn, "snapshot": kind}})
    assert ends_at(log, "taken", 45) == {0: 3}
    # One that a repair has made comes after changes, and is as late as it says.
    for kind in ("first", "last"):
        log.write("taken", {"op": "r", "source": {"lsn": 90, "snapshot": kind}})
    assert ends_at(log, "taken", 55) == {0: 3}
    assert ends_at(log, "taken", 91, marked=91) == {0: 7}
    # What was compacted may have been earlier; and of an empty table the capture knows.
    log.topics.create("left", partitions=2)
    for lsn in (10, 20, 30):
        log.write("left", {"op": "c", "source": {"lsn": lsn}}, partition=0)
    forget_before(log, "left", 2)
    assert ends_at(log, "left", 15) == {0: 2, 1: 0}
    log.topics.create("empty", partitions=1)
    assert ends_at(log, "empty", 15, marked=20) == {0: 0}
