"""A topic's records in the lake, and back: no gap and no repeat at the seam, whoever is cut off where."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millrace import config
from millrace.config import Settings
from millrace.errors import ArchiveGap, ArchiveUnfit, LakeConflict
from millrace.lakehouse import Catalog, Committed, LakeTable
from millrace.lakehouse.archive import archive, follow, restore
from millrace.lakehouse.compacting import AT_ONCE_FILES
from millrace.lakehouse.place import Disk
from millrace.log import Log
from tests.cli.shell import shell_at
from tests.lakehouse.filled import COLUMNS, IN_S3, epoch, file_of, format_of, project_of
from tests.log.making import forget_before
from tests.rotation import todays

pytestmark = pytest.mark.server

START = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


@pytest.fixture(params=todays(("delta", "iceberg", IN_S3), 1))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LakeTable]:
    settings = project_of(request.param, tmp_path, request)
    found = Catalog(settings).table(f"archive{uuid.uuid4().hex[:8]}", format_of(request.param))
    yield found
    found.close()


@pytest.fixture
def log(settings: Settings) -> Log:
    return Log(replace(settings, prefix=f"archive{next(_numbers)}"))


def feed(log: Log, first: int, end: int) -> None:
    with log.writer("events") as writer:
        for number in range(first, end):
            writer.write(
                None if number % 7 == 3 else b"\x00\xff" + str(number).encode(),
                key=None if number % 5 == 2 else f"k{number}",
                headers=[("h", b"\x01"), ("h", None), ("n", str(number))][: number % 4],
                partition=number % 2,
                time=START + timedelta(milliseconds=number),
            )


def records(log: Log, topic: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {0: [], 1: []}
    for each in log.read(topic):
        found[each.partition].append((each.key, each.value, each.headers, each.time))
    return found


def test_there_and_back_and_on_with_the_live_topic(log: Log, table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    log.topics.create("events", partitions=2, retention="forever")
    feed(log, 0, 40)
    assert archive(log, "events", table, most=7) == 40
    assert archive(log, "events", table) == 0
    feed(log, 40, 60)

    # Another archiver is quicker once: what both read is there once.
    committed, beaten = type(table).commit, []

    def commit(own: LakeTable, what: Committed) -> None:
        if not beaten:
            beaten.append(1)
            archive(log, "events", _again(own))
        committed(own, what)

    with monkeypatch.context() as patch:
        patch.setattr(type(table), "commit", commit)
        assert archive(log, "events", table, most=5) == 0
    table.load()
    assert sum(each.rows for each in table.files()) == 60
    for name in table.place.names("data/archive"):
        assert table.place.files(f"data/archive/{name}"), "what was not committed is not left"

    # The topic goes on, and is restored while it does; the restoring is cut off in the middle.
    feed(log, 60, 75)
    wanted = records(log, "events")
    with monkeypatch.context() as patch:
        patch.setattr("millrace.log.writer.Writer.write", _stops_after(33))
        with pytest.raises(KeyboardInterrupt):
            restore(log, table, "again")
    assert 0 < sum(map(len, records(log, "again").values())) < 75
    restore(log, table, "again")
    assert records(log, "again") == wanted
    assert log.topics.config("again")["retention.ms"] == "-1", "old records would expire at once"
    feed(log, 75, 80)
    assert restore(log, table, "again") == 5
    assert records(log, "again") == records(log, "events")

    # Kafka has let go of what the archive has; then of what it has not.
    forget_before(log, "events", 20)
    assert restore(log, table, "third") == 80
    assert records(log, "third") == records(log, "again")
    feed(log, 80, 100)
    forget_before(log, "events", 45)
    for way in (lambda: archive(log, "events", table), lambda: restore(log, table, "fourth")):
        with pytest.raises(ArchiveGap, match="offsets 30 to 45 of partition 0"):
            way()
    log.topics.delete("events")
    log.topics.create("events", partitions=2, retention="forever")
    with pytest.raises(ArchiveUnfit, match="it was made anew"):
        archive(log, "events", table)
    assert restore(log, table, "fifth") == 60, "of a topic that is empty nothing is left out"
    feed(log, 0, 4)
    with pytest.raises(ArchiveUnfit, match="it was made anew"):
        restore(log, table, "sixth")
    log.topics.create("one", partitions=1)
    with pytest.raises(ArchiveUnfit, match="has 2 partitions"):
        restore(log, table, "one")


def test_an_archive_keeps_what_was_committed_without_an_answer(
    log: Log, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.topics.create("events", partitions=2, retention="forever")
    committed = type(table).commit
    for number, error in enumerate((KeyboardInterrupt(), LakeConflict(table=table.name, reason="first"))):
        feed(log, 10 * number, 10 * number + 10)

        def commit(own: LakeTable, what: Committed, error: BaseException = error) -> None:
            committed(own, what)
            raise error

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(type(table), "commit", commit)
            archive(log, "events", table)
        archive(log, "events", table)
    assert restore(log, table, "again") == 20
    assert records(log, "again") == records(log, "events")


def test_topics_that_are_compacted(log: Log, table: LakeTable) -> None:
    log.topics.create("events", partitions=2, compact=True)
    for number in range(10):
        log.write("events", None if number == 7 else b"x", key=f"k{number % 3}", partition=number % 2)
    archive(log, "events", table)
    log.topics.create("kept", partitions=2, compact=True)
    for into in ("all", "kept"):
        assert restore(log, table, into) == 10
        assert records(log, into) == records(log, "events")
    with pytest.raises(ArchiveUnfit, match="the archive of that very topic"):
        restore(log, table, "events")


def test_records_without_a_key_fit_no_topic_that_is_compacted(log: Log, table: LakeTable) -> None:
    log.topics.create("events", partitions=2, retention="forever")
    feed(log, 0, 10)
    archive(log, "events", table)
    log.topics.create("kept", partitions=2, compact=True)
    with pytest.raises(ArchiveUnfit, match="takes no record without a key"):
        restore(log, table, "kept")
    assert not list(log.read("kept"))


def test_a_topic_is_followed_and_its_archive_stays_tidy(log: Log, table: LakeTable) -> None:
    log.topics.create("events", partitions=2, retention="forever")
    fed = iter(range(0, 200, 20))

    def more() -> bool:
        if (first := next(fed, None)) is not None:
            feed(log, first, first + 20)
        return first is not None

    assert list(follow(log, "events", table, more)) == [0] + [20] * 10
    assert 2 <= len(table.files()) < 2 * AT_ONCE_FILES, "two files came each time"
    assert restore(log, table, "again") == 200
    assert records(log, "again") == records(log, "events")
    assert list(follow(log, "events", table)) == [0]


def test_what_was_cut_off_goes_after_a_day(log: Log, table: LakeTable) -> None:
    if not isinstance(table.place, Disk):
        pytest.skip("no object of S3 can be made to look older")
    log.topics.create("events", partitions=2, retention="forever")
    feed(log, 0, 20)
    assert archive(log, "events", table, most=7) == 20
    place = table.folder / "data" / "archive"
    wanted = {path.name for path in place.iterdir()} | {f"{table.version + 1}-young"}
    for name in ("1-beaten", f"{table.version + 1}-killed", f"{table.version + 1}-young"):
        (place / name).mkdir()
        (place / name / "records.parquet").write_bytes(b"")
    for path in place.iterdir():
        if not path.name.endswith("-young"):
            os.utime(path, (time.time() - 25 * 3600,) * 2)
    assert archive(log, "events", table) == 0
    assert {path.name for path in place.iterdir()} == wanted
    assert restore(log, table, "again") == 20


def _again(table: LakeTable) -> LakeTable:
    from copy import copy

    other = copy(table)
    for name in ("_commit", "_table"):  # so that it is opened, and not brought to the newest for both
        vars(other).pop(name, None)
    assert other.load()
    return other


def _stops_after(count: int) -> Any:
    from millrace.log.writer import Writer

    left, write = [count], Writer.write

    def stopping(self: Any, *words: Any, **named: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(self, *words, **named)

    return stopping


def test_by_the_command_line(
    bootstrap: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    shell = shell_at(bootstrap, f"archived{next(_numbers)}", folder, monkeypatch, capfdbinary)
    shell.fine("topic", "create", "page.views")
    shell.fine("topic", "write", "page.views", stdin=b'{"n": 1}\n{"n": 2}\n')
    assert "page_views: 2 records of page.views added" in shell.fine("lake", "archive", "page.views").text
    assert "again: 2 records written" in shell.fine("lake", "restore", "page_views", "--into", "again").text
    assert (
        shell.fine("topic", "read", "again", "--format", "raw").out
        == shell.fine("topic", "read", "page.views", "--format", "raw").out
    )
    table = Catalog(config.load(folder)).table("orders", "delta")
    table.create(COLUMNS, ())
    epoch(table, 0, [file_of(table, [1])])
    assert "--table ../away is no name" in shell("lake", "archive", "page.views", "--table", "../away").err
    assert "MR-TOPIC-UNKNOWN" in shell("lake", "archive", "page.view", "--table", "unmade").err
    assert not (folder / "lake" / "unmade").exists()
    Catalog(config.load(folder)).table("others", "delta").create(COLUMNS, ())
    assert "it has other columns than an archive" in shell("lake", "archive", "page.views", "--table", "others").err
    assert "it holds what flow writes" in shell("lake", "archive", "page.views", "--table", "orders").err
    assert "it is no archive of a topic" in shell("lake", "restore", "orders", "--into", "other").err
