"""The holes of Debezium's PostgreSQL connector that ours closes (docs/design/0006); `holes.py` kills it for hours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from millrace import config, local
from millrace.capture.connect import Connect
from millrace.config import Settings
from tests.capture.holes import EARLY, LIMIT_S, OURS, Trial
from tests.command import until

NAME = "holes"
COPIED = 2000
ROWS = 4000

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def trial(settings: Settings, connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Over a PostgreSQL of its own, because a test here takes WAL away from whoever lags behind."""
    project = config.load(tmp_path_factory.mktemp("holes"))
    with local.held(project, ("postgres",)) as addresses:
        # Batches so small that a COPY takes many of them: a restart then finds itself in the middle of one.
        options = {"max.batch.size": "16", "skipped.operations": "none"}
        yield Trial(settings, addresses["postgres"], {NAME: OURS}, early=ROWS, **options)
        Connect(settings).delete(NAME)


def test_a_snapshot_that_was_cut_off_misses_no_row_and_no_delete(trial: Trial) -> None:
    connect = Connect(trial.settings)
    with psycopg.connect(trial.url, autocommit=True) as connection:
        for part in (1, 2):
            before = trial.delivered(NAME, [EARLY])
            until(lambda before=before: trial.delivered(NAME, [EARLY]) > before + 200, "a part of the table", LIMIT_S)
            connection.execute("DELETE FROM early WHERE id %% 5 = %s", (part,))
            assert (connect.offsets(NAME) or {}).get("snapshot") == "INITIAL", "still in the snapshot"
            trial.restart()
        standing = trial.standing(NAME, EARLY)
        assert standing == {row[0] for row in connection.execute("SELECT id FROM early")}


def test_restarts_among_rows_of_one_lsn_and_beside_an_open_transaction_lose_and_double_nothing(trial: Trial) -> None:
    with psycopg.connect(trial.url, autocommit=True) as other, psycopg.connect(trial.url) as open_one:
        other.execute("INSERT INTO singles VALUES (-1)")
        # PostgreSQL makes no slot while older transactions are open.
        until(lambda: trial.delivered(NAME) > 0, "the capture streams", LIMIT_S)
        open_one.execute("INSERT INTO longs SELECT generate_series(1, 20)")
        with other.cursor() as cursor, cursor.copy("COPY copies (id) FROM STDIN") as copy:
            for number in range(COPIED):
                copy.write_row((number,))
        for share in (4, 2, 1.5):
            until(lambda share=share: trial.delivered(NAME) > COPIED / share, "a part of the rows", LIMIT_S)
            open_one.execute("INSERT INTO longs SELECT max(id) + 1 FROM longs")
            other.execute("INSERT INTO singles SELECT max(id) + 1 FROM singles")
            trial.restart()
        until(lambda: trial.delivered(NAME) > COPIED, "all of the rows", LIMIT_S)
        open_one.commit()
    outcome = trial.outcome(NAME)
    assert outcome.exact, outcome
    assert outcome.committed["copies"] > COPIED


def test_a_truncate_reaches_a_topic_of_truncates(trial: Trial) -> None:
    with psycopg.connect(trial.url, autocommit=True) as connection:
        connection.execute("TRUNCATE copies, batches")
    topic = f"{NAME}.truncates"
    with contextlib.closing(
        Consumer(
            {
                "bootstrap.servers": local.address(trial.settings, "kafka"),
                "group.id": "holes-truncates",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "log_level": 0,
            }
        )
    ) as consumer:
        until(lambda: topic in consumer.list_topics(timeout=10).topics, "the topic is made")
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: dict[str, str] = {}

        def both() -> bool:
            for message in consumer.consume(10, timeout=0.5):
                if message.error() is None:
                    found[json.loads(message.key())] = json.loads(message.value())["op"]
            return len(found) == 2

        until(both, "both truncates")
    assert found == {"public.copies": "t", "public.batches": "t"}


def test_a_slot_that_is_gone_made_anew_or_invalidated_stops_the_capture_by_name(trial: Trial) -> None:
    connect = Connect(trial.settings)
    with psycopg.connect(trial.url, autocommit=True) as connection:
        stop(connect, connection)
        connection.execute("SELECT pg_drop_replication_slot(%s)", (NAME,))
        assert f'replication slot "{NAME}" does not exist any more' in failure(connect)
        stop(connect, connection)
        connection.execute("INSERT INTO singles SELECT max(id) + 1 FROM singles")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (NAME,))
        assert f'replication slot "{NAME}" no longer holds the changes after' in failure(connect)
        stop(connect, connection)
        with kept_wal(connection, "1MB"):
            for _ in range(3):
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("INSERT INTO singles SELECT max(id) + 1 FROM singles")
            connection.execute("CHECKPOINT")
            assert f'replication slot "{NAME}" was invalidated (wal_removed)' in failure(connect)
        # Without an offset it begins anew, with a slot of its own.
        stop(connect, connection)
        connect.forget_offsets(NAME)
        before = trial.delivered(NAME)
        connect.resume(NAME)
        until(lambda: trial.delivered(NAME) > before, "the tables are read again", LIMIT_S)
        assert connection.execute("SELECT wal_status FROM pg_replication_slots").fetchall() == [("reserved",)]


def failure(connect: Connect) -> str:
    connect.resume(NAME)
    told: list[str] = []

    def failed() -> bool:
        state, trace = connect.state(NAME)
        told[:] = [trace]
        return state == "FAILED"

    until(failed, "the capture stops")
    return told[0]


def stop(connect: Connect, connection: psycopg.Connection) -> None:
    connect.stop(NAME)
    until(lambda: connect.state(NAME)[0] == "STOPPED", "the task's end")
    until(lambda: freed(connection), "the slot is free")


def freed(connection: psycopg.Connection) -> bool:
    found = connection.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (NAME,)).fetchone()
    return found is None or not found[0]


@contextlib.contextmanager
def kept_wal(connection: psycopg.Connection, size: str) -> Iterator[None]:
    try:
        connection.execute(f"ALTER SYSTEM SET max_slot_wal_keep_size = '{size}'")  # type: ignore[arg-type]
        connection.execute("SELECT pg_reload_conf()")
        yield
    finally:
        connection.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        connection.execute("SELECT pg_reload_conf()")
