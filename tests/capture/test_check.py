"""Every lack is found alone, and running the SQL of its finding makes it go away. Names are awkward on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from millrace.capture import postgres as pg
from millrace.capture.check import Finding, check_postgres
from millrace.capture.check import server as server_checks
from millrace.capture.database import Address, parsed
from millrace.capture.definition import OWN_SCHEMA, capture
from millrace.capture.postgres_source import PostgresSource
from millrace.config import Settings
from millrace.errors import CaptureInvalid
from tests.capture.check_cases import CASES, LINES, RESET, SETUP, TABLES, Case
from tests.command import until

ROLE, DATABASE, SLOT = "The capture's role", 'Shop "1"', "check_slot"
# Warnings that the local server's own settings bring.
USUAL = ("max_slot_wal_keep_size", "synchronized_standby_slots")


@dataclass(frozen=True)
class Shop:
    """A database and the role that captures it."""

    server: Address
    settings: Settings

    @property
    def address(self) -> Address:
        return Address("postgres", self.server.host, self.server.port, ROLE, DATABASE)

    @contextlib.contextmanager
    def admin(self, database: str = DATABASE, **options: Any) -> Iterator[psycopg.Connection[Any]]:
        where = {"host": self.server.host, "port": self.server.port, "user": self.server.user}
        with psycopg.connect(**where, dbname=database, autocommit=True, **options) as connection:
            yield connection

    def run(self, *statements: str, database: str = DATABASE) -> None:
        names: dict[str, Any] = {
            "role": sql.Identifier(ROLE),
            "database": sql.Identifier(DATABASE),
            "own": sql.Identifier(OWN_SCHEMA),
            "lines": pg.identifier(LINES),
            "slot": sql.Literal(SLOT),
        }
        with self.admin(database) as connection:
            for statement in statements:
                connection.execute(sql.SQL(statement).format(**names))

    def check(self, tables: tuple[str, ...] = TABLES, **options: Any) -> tuple[Finding, ...]:
        with pg.connect("shop", self.address) as connection:
            return check_postgres(connection, self.address, capture("shop", tables, **options))

    def mend(self, finding: Finding) -> None:
        """As a DBA would: line by line, as the superuser."""
        assert finding.sql is not None, finding
        replication = {"replication": "database"} if finding.sql.startswith("ALTER_REPLICATION_SLOT") else {}
        with self.admin(**replication) as connection:
            for line in finding.sql.splitlines():
                connection.execute(line.encode())

    def make(self, tables: tuple[str, ...] = TABLES, **options: Any) -> None:
        """What `capture add` does in the database, as the role."""
        PostgresSource(self.settings, "shop", self.address).prepare(capture("shop", tables, **options))


@pytest.fixture(scope="module")
def database(settings: Settings, postgres: str) -> Iterator[Shop]:
    shop = Shop(parsed("server", postgres), settings)
    shop.run("CREATE ROLE {role} LOGIN", "CREATE DATABASE {database}", database="postgres")
    yield shop
    shop.run(RESET)
    shop.run("DROP DATABASE {database} WITH (FORCE)", "DROP ROLE {role}", database="postgres")


@pytest.fixture
def shop(database: Shop) -> Shop:
    database.run(RESET, SETUP)
    return database


def those(findings: tuple[Finding, ...], level: str) -> list[Finding]:
    return [finding for finding in findings if finding.level == level and finding.subject not in USUAL]


@pytest.mark.server
def test_a_role_that_has_everything_hears_of_no_error_and_nothing_changes(shop: Shop) -> None:
    counted = [f"(SELECT count(*) FROM {name})" for name in ("pg_class", "pg_namespace", "pg_publication", "pg_policy")]
    catalogs = f"SELECT {', '.join(counted)}"
    with shop.admin() as connection:
        before = connection.execute(catalogs.encode()).fetchall()
        findings = shop.check()
        assert connection.execute(catalogs.encode()).fetchall() == before
    assert not those(findings, "error")
    assert not those(findings, "warning")
    assert {"server", "wal_level", "replication connection", f"role {ROLE}"} <= {each.subject for each in findings}
    (todo,) = [finding for finding in findings if finding.subject == "publication millrace_shop"]
    assert todo.sql is not None
    assert 'CREATE PUBLICATION "millrace_shop" FOR TABLE' in todo.sql
    assert '"My Shop"."Order\'s, Lines"' in todo.sql
    shop.make()
    assert not those(shop.check(), "error")
    assert any("it has the captured tables" in finding.what for finding in shop.check())


@pytest.mark.server
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_each_lack_is_found_alone_and_its_sql_mends_it(case: Case, shop: Shop) -> None:
    names = {"role": ROLE, "slot": SLOT, "own": OWN_SCHEMA}
    options = {name: value.format(**names) if isinstance(value, str) else value for name, value in case.options.items()}
    shop.run(case.spoil)
    found = those(shop.check(case.tables, **options), case.level)
    assert [finding.subject for finding in found] == [case.subject.format(**names)], found
    assert case.what.format(**names) in found[0].what
    assert found[0].why
    if not case.mended:
        assert found[0].sql is None
        return
    shop.mend(found[0])
    after = shop.check(case.tables, **options)
    assert not those(after, "error"), those(after, "error")
    assert not [finding for finding in after if (finding.subject, finding.what) == (found[0].subject, found[0].what)]
    shop.make(case.tables, **options)


@pytest.mark.server
def test_what_is_good_to_know_of_a_table(shop: Shop) -> None:
    shop.run(
        "CREATE TYPE mood AS ENUM ('good')",
        "CREATE TABLE t (id int PRIMARY KEY, story text, price money, feels mood, extra jsonb, paid numeric(8, 2))",
        "ALTER TABLE t OWNER TO {role}; INSERT INTO t SELECT n FROM generate_series(1, 500) n; ANALYZE t",
    )
    story, text, rows = [each for each in shop.check(("t",)) if each.subject == "table public.t"]
    assert {each.level for each in (story, text, rows)} == {"ok"}
    assert story.what == "large values may stand in story, extra"
    assert text.what == "shown as text: price (money)"
    assert rows.what.startswith("about 500 rows, ")
    shop.mend(story)
    assert not [each for each in shop.check(("t",)) if each.what == story.what]


@contextlib.contextmanager
def reading(shop: Shop, role: str) -> Iterator[None]:
    """Somebody reads the slot inside of the block."""
    server = shop.server
    with shop.admin() as admin:

        def active() -> bool:
            found = admin.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)).fetchone()
            return bool(found and found[0])

        where = make_conninfo(host=server.host, port=server.port, user=role, dbname=DATABASE, replication="database")
        reader = psycopg.pq.PGconn.connect(where.encode())
        reader.send_query(
            f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode()
        )
        try:
            until(active, "the slot is read")
            yield
        finally:
            reader.finish()
            until(lambda: not active(), "the slot is free again")


@pytest.mark.server
def test_a_slot_that_somebody_reads(shop: Shop) -> None:
    shop.run("SELECT pg_create_logical_replication_slot({slot}, 'pgoutput')")
    for reader, level in ((shop.server.user, "error"), (ROLE, "ok")):
        with reading(shop, reader):
            found = [each for each in shop.check(slot=SLOT) if each.subject == f"slot {SLOT}" and "read" in each.what]
        assert [finding.level for finding in found] == [level]
        assert f"role {reader}" in found[0].what


@pytest.mark.server
def test_on_a_managed_service_the_fix_is_the_services(shop: Shop) -> None:
    shop.run("CREATE ROLE rds_superuser; CREATE ROLE rds_replication; ALTER ROLE {role} NOREPLICATION")
    try:
        (refused,) = those(shop.check(), "error")
        assert refused.sql == 'GRANT "rds_replication" TO "The capture\'s role";'
        assert "Amazon RDS" in refused.why
        shop.mend(refused)
        # On a server that only looks like RDS the role is not enough, and the attempt says so.
        (refused,) = those(shop.check(), "error")
        assert refused.subject == "replication connection"
        kept = next(finding for finding in shop.check() if finding.subject == "max_slot_wal_keep_size")
        assert kept.sql is None
        assert "parameter group" in kept.why
    finally:
        shop.run("DROP ROLE rds_superuser; DROP ROLE rds_replication")


@pytest.mark.server
def test_long_transactions_are_named_if_the_role_may_see_them(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "LONG_TRANSACTION_S", -1)
    with shop.admin(application_name="the night's batch") as admin:
        admin.execute("BEGIN; CREATE TABLE busy ()")
        (hidden,) = [finding for finding in shop.check() if finding.subject == "transactions"]
        assert hidden.level == "ok"
        shop.mend(hidden)
        (seen,) = [finding for finding in shop.check() if finding.subject == "transactions"]
        assert seen.level == "warning"
        assert f"pid {admin.info.backend_pid}, role {shop.server.user}, the night's batch" in seen.what
    shop.run("REVOKE pg_read_all_stats FROM {role}")


def test_a_name_with_more_dots_is_refused() -> None:
    for name in ("a.b.c", ".a", "a.", ""):
        with pytest.raises(CaptureInvalid, match=r"sales\.orders"):
            capture("shop", [name])
