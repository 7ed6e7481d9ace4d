"""What a mill can leave behind, each kind left there once: who looks finds it, and only it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql.types import LongType, StructType

from millrace import local
from millrace.config import Settings
from millrace.lakehouse import Catalog
from millrace.lakehouse.table import DATA
from tests.crash.mill import LAKE, Mill

pytestmark = pytest.mark.server

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def mill(settings: Settings, postgres: str, rabbitmq: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    """One that never ran; its lake tables are there."""
    mill = Mill(settings, tmp_path_factory.mktemp("left") / "mill", "left", only=("copied",))
    for name in LAKE["copied"].values():
        format_ = "iceberg" if "iceberg" in name else "delta"
        with contextlib.closing(Catalog(mill._lake_settings).table(name, format_)) as table:
            table.create(StructType().add("id", LongType()), ())
    yield mill
    mill.close()


@contextlib.contextmanager
def file(path: Path, text: str = "") -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    try:
        yield
    finally:
        path.unlink()


@contextlib.contextmanager
def transaction(mill: Mill) -> Iterator[None]:
    """Open, with a record in it that the broker has."""
    name = f"{mill.name}-{next(_numbers)}"
    producer = Producer({"bootstrap.servers": mill.log.settings.kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(mill.log.topics.outside("events"), b"{}")
    assert producer.flush(60) == 0
    try:
        yield
    finally:
        producer.abort_transaction()


@contextlib.contextmanager
def slot(mill: Mill) -> Iterator[None]:
    own = local.address(mill.settings, "postgres").rpartition("/")[0] + f"/{mill.name}"
    with psycopg.connect(own, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('left', 'pgoutput')")
        try:
            yield
        finally:
            connection.execute("SELECT pg_drop_replication_slot('left')")


def half(mill: Mill) -> AbstractContextManager[None]:
    return file(mill.log.settings.checkpoints / "mill" / "copied" / "checkpoint" / "commits" / ".7.tmp")


def orphan(table: str) -> Callable[[Mill], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def left(mill: Mill) -> Iterator[None]:
        folder = Catalog(mill._lake_settings).folder / table / DATA / "mill.copied" / "3-dead"
        with file(folder / "part-0.parquet"):
            yield
        folder.rmdir()

    return left


LEFT: dict[str, Callable[[Mill], AbstractContextManager[object]]] = {
    "7.tmp is left behind": half,
    "1 offsets of events are held back": transaction,
    "1 sessions of the sink are left": lambda mill: psycopg.connect(mill.database),
    "1 slots are left in PostgreSQL": slot,
    "3-dead is in no version of copied": orphan("copied"),
    "3-dead is in no version of copied_iceberg": orphan("copied_iceberg"),
    "console.log": lambda mill: file(mill.folder / "console.log", f"connecting to mill:{mill.canary}@127.0.0.1"),
    "run.jsonl": lambda mill: file(mill.settings.state_folder / "logs" / "run.jsonl", f'{{"url": "{mill.canary}"}}'),
}


def test_a_mill_that_left_nothing(mill: Mill) -> None:
    assert mill.left_behind() == []


@pytest.mark.parametrize("says", LEFT)
def test_what_is_left_behind_is_found(mill: Mill, says: str) -> None:
    with LEFT[says](mill):
        (told,) = mill.left_behind()
        assert says in told
