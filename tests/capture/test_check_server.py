"""A server's own settings, on a server of one's own: the SQL of the findings mends them, if need be with a restart."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from millrace import config
from millrace.capture import postgres as pg
from millrace.capture.check import Finding, check_postgres, server
from millrace.capture.check.finding import size
from millrace.capture.check.look import SERVICES, Settings
from millrace.capture.database import Address
from millrace.capture.definition import capture
from millrace.local.declare import HOST, NOBODY, Site, as_nobody, choose_ports, is_root
from millrace.local.servers.postgres import NAME, SERVER
from tests.command import until

SCANTY = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
wal_level = replica
max_replication_slots = 1
max_wal_senders = 1
max_prepared_transactions = 1
idle_replication_slot_timeout = '1h'
autovacuum = off
"""


class Scanty:
    """A server that has as little as possible; what ALTER SYSTEM says counts after a restart."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(config.load(folder), SERVER, choose_ports({"sql": 15499}, {}, set()))
        self.site.folder.mkdir(parents=True)
        if is_root():
            os.chown(self.site.folder, NOBODY, NOBODY)
        SERVER.prepare(self.site)
        with (self.site.data / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write(f"{SCANTY}port = {self.site.port}\n")
        self.address = Address("postgres", HOST, self.site.port, NAME, NAME)
        self.start()

    def start(self) -> None:
        argv = SERVER.command(self.site).argv[:3]  # without the settings of Millrace's own server
        with (self.site.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                as_nobody(argv) if is_root() else argv, stdout=log, stderr=log, start_new_session=True
            )
        until(self._answers, "the server answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.site.folder / "log").read_text(encoding="utf-8")
        with contextlib.suppress(psycopg.OperationalError):
            SERVER.ready(self.site)
            return True
        return False

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(host=HOST, port=self.site.port, user=NAME, dbname=NAME, autocommit=True, **options)

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def check(self) -> dict[str, Finding]:
        """What is not ok, by subject."""
        with pg.connect("shop", self.address) as connection:
            findings = check_postgres(connection, self.address, capture("shop", ["t"]))
        return {finding.subject: finding for finding in findings if finding.level != "ok"}

    def mend(self, *findings: Finding) -> None:
        for finding in findings:
            assert finding.sql is not None, finding
            self.run(*finding.sql.splitlines())


@pytest.fixture
def scanty(tmp_path: Path) -> Iterator[Scanty]:
    server = Scanty(tmp_path)
    yield server
    server.stop()


@pytest.mark.server
def test_a_servers_settings_are_mended_by_the_sql_of_the_findings(
    scanty: Scanty, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanty.run("CREATE TABLE t (id int PRIMARY KEY)", "SELECT pg_create_physical_replication_slot('standby', true)")
    occupied = psycopg.pq.PGconn.connect(
        make_conninfo(host=HOST, port=scanty.site.port, user=NAME, dbname=NAME, replication="database").encode()
    )
    found = scanty.check()
    occupied.finish()
    errors = {"wal_level", "replication slots", "WAL senders"}
    assert {subject for subject, finding in found.items() if finding.level == "error"} == errors
    assert set(found) - errors == {"max_slot_wal_keep_size", "idle_replication_slot_timeout"}
    assert "standby" in found["replication slots"].what
    assert found["idle_replication_slot_timeout"].what == "1 hour"
    scanty.mend(*found.values())
    assert set(scanty.check()) <= errors  # these wait for the restart
    scanty.stop()
    scanty.start()
    assert scanty.check() == {}

    # A slot whose log is gone.
    scanty.run(
        "SELECT pg_create_logical_replication_slot('millrace_shop', 'pgoutput')",
        "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'",
        "SELECT pg_reload_conf()",
    )
    for _ in range(3):
        scanty.run("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t", "SELECT pg_switch_wal()")
    until(lambda: scanty.run("CHECKPOINT") or "slot millrace_shop" in scanty.check(), "the slot is lost")
    lost = scanty.check()
    assert lost["slot millrace_shop"].level == "error"
    assert lost["max_slot_wal_keep_size"].what == "1 MB"
    scanty.mend(lost["slot millrace_shop"])
    assert "slot millrace_shop" not in scanty.check()

    monkeypatch.setattr(server, "LONG_TRANSACTION_S", -1)
    scanty.run("BEGIN; INSERT INTO t VALUES (1000); PREPARE TRANSACTION 'it''s mine'")
    assert "ROLLBACK PREPARED 'it''s mine'" in scanty.check()["prepared transactions"].why


def settings(**values: tuple[str, str]) -> Settings:
    return Settings(values)


def test_managed_services_have_their_own_word_for_logical_decoding() -> None:
    replica = settings(wal_level=("replica", ""))
    for service, word in zip(SERVICES, ("rds.logical_replication = 1", "cloudsql.", "alloydb.", "azure."), strict=True):
        (finding,) = server.wal_level(replica, service)
        assert finding.level == "error"
        assert finding.sql is None
        assert word in finding.why
    (finding,) = server.wal_level(replica, None)
    assert finding.sql == "ALTER SYSTEM SET \"wal_level\" = 'logical';"


@pytest.mark.parametrize(("version", "level"), [("130015", "error"), ("140000", "ok"), ("180006", "ok")])
def test_versions(version: str, level: str) -> None:
    (finding,) = server.version(settings(server_version_num=(version, "")))
    assert finding.level == level
    assert ("failover slots need 17" in finding.why) == (version == "140000")


@pytest.mark.parametrize(
    ("megabytes", "level", "what"),
    [("-1", "warning", "no limit"), ("1024", "warning", "1 GB"), ("65536", "ok", "64 GB")],
)
def test_log_kept_for_slots_has_a_price_both_ways(megabytes: str, level: str, what: str) -> None:
    (finding,) = server.wal_kept(settings(max_slot_wal_keep_size=(megabytes, "MB")), None)
    assert (finding.level, finding.what) == (level, what)


def test_sizes_are_said_as_people_say_them() -> None:
    said = [size(count) for count in (0, 1023, 1536, 200 * 1024**2, 3 * 1024**4)]
    assert said == ["0 bytes", "1023 bytes", "1.5 kB", "200 MB", "3 TB"]
