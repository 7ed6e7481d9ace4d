"""What can be wrong with a database, one thing a case: the SQL that spoils it, and the finding that this brings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LINES = "My Shop.Order's, Lines"
TABLES = ("customers", LINES)
CUSTOMERS = "table public.customers"
OURS, DBAS = "publication millrace_shop", "publication The DBA's"
DBA: dict[str, Any] = {"publication": "The DBA's"}
NAMED: dict[str, Any] = {"slot": "{slot}"}

# {role}, {database}, {slot}, {own} (the schema of Millrace's own) and {lines} (the awkward table) stand for names.
SETUP = """
CREATE SCHEMA "My Shop";
GRANT USAGE ON SCHEMA "My Shop" TO {role};
GRANT CREATE ON DATABASE {database} TO {role};
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, code text UNIQUE NOT NULL, phone text);
CREATE TABLE {lines} ("Order" int, "Line No" int, "Größe, ""q"" cm" numeric, PRIMARY KEY ("Order", "Line No"));
ALTER TABLE customers OWNER TO {role};
ALTER TABLE {lines} OWNER TO {role};
"""
RESET = """
DROP PUBLICATION IF EXISTS millrace_shop; DROP PUBLICATION IF EXISTS "The DBA's";
DROP SCHEMA IF EXISTS public, "My Shop", {own}, {role} CASCADE;
CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC;
ALTER ROLE {role} RESET ALL; ALTER ROLE {role} REPLICATION NOBYPASSRLS;
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = {slot};
"""
PUBLISHED = """
CREATE SCHEMA {own};
CREATE TABLE {own}.signal (id text PRIMARY KEY, type text NOT NULL, data text);
CREATE TABLE {own}.heartbeat (capture text PRIMARY KEY, at timestamptz NOT NULL);
GRANT USAGE ON SCHEMA {own} TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {own}.signal, {own}.heartbeat TO {role};
CREATE PUBLICATION "The DBA's" FOR TABLE customers, {lines}, {own}.signal, {own}.heartbeat;
"""
ALTERED = PUBLISHED + """ALTER PUBLICATION "The DBA's" """
KEYLESS = "CREATE TABLE t (a int NOT NULL, b int, c text); ALTER TABLE t OWNER TO {role};"
DIVIDED = """
CREATE TABLE t (id int PRIMARY KEY, b int) PARTITION BY RANGE (id);
CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9);
ALTER TABLE t OWNER TO {role}; ALTER TABLE t1 OWNER TO {role};
"""
GUARDED = "ALTER TABLE customers ENABLE ROW LEVEL SECURITY; ALTER TABLE customers FORCE ROW LEVEL SECURITY;"


@dataclass(frozen=True)
class Case:
    """`mended` False: no SQL can mend it. `options` are those of the capture."""

    name: str
    spoil: str
    subject: str
    what: str
    level: str = "error"
    tables: tuple[str, ...] = TABLES
    options: dict[str, Any] = field(default_factory=dict)
    mended: bool = True


def _for_t(name: str, spoil: str, what: str, *, mended: bool = True) -> Case:
    return Case(name, spoil, "table public.t", what, tables=("t",), mended=mended)


def _hopeless(
    name: str, subject: str, what: str, spoil: str = "SELECT", tables: tuple[str, ...] = TABLES, **options: Any
) -> Case:
    return Case(name, spoil, subject, what, tables=tables, options=options, mended=False)


_ROLE = [
    Case("replication", "ALTER ROLE {role} NOREPLICATION", "role {role}", "may not replicate"),
    Case("create", "REVOKE CREATE ON DATABASE {database} FROM {role}", OURS, "may not create"),
    Case("usage", 'REVOKE USAGE ON SCHEMA "My Shop" FROM {role}', "schema My Shop", "may not use it"),
    Case("select", "REVOKE SELECT ON customers FROM {role}", CUSTOMERS, "may not read it"),
    Case(
        "select on some columns",
        "REVOKE SELECT ON customers FROM {role}; GRANT SELECT (id, name) ON customers TO {role}",
        CUSTOMERS,
        "may not read its columns code",
        options={"exclude": ("customers.phone",)},
    ),
    Case("sender timeout", "ALTER ROLE {role} SET wal_sender_timeout = '5s'", "wal_sender_timeout", "5 sec", "warning"),
    Case("no sender timeout", "ALTER ROLE {role} SET wal_sender_timeout = 0", "wal_sender_timeout", "off", "warning"),
    Case("timeout", "ALTER ROLE {role} SET statement_timeout = '30s'", "statement_timeout", "30 sec", "warning"),
    Case(
        "read only",
        "ALTER ROLE {role} SET default_transaction_read_only = on",
        "default_transaction_read_only",
        "on for role",
    ),
    Case("same name", "SELECT", "role {role}", "called like the schema", "warning", options={"own_schema": "{role}"}),
    Case("row security", GUARDED, CUSTOMERS, "row-level security may hide rows"),
    Case(
        "restrictive policy",
        GUARDED
        + "CREATE POLICY a ON customers USING (true); CREATE POLICY b ON customers AS RESTRICTIVE USING (id > 5)",
        CUSTOMERS,
        "row-level security may hide rows",
    ),
    Case(
        "other owner",
        "ALTER TABLE customers OWNER TO millrace; GRANT SELECT ON customers TO {role}",
        OURS,
        "there is no such publication",
    ),
]

_TABLES = [
    Case("unlogged", "ALTER TABLE customers SET UNLOGGED", CUSTOMERS, "unlogged"),
    _for_t("view", "CREATE VIEW t AS SELECT 1 AS id", "it is a view", mended=False),
    _for_t("no key", KEYLESS, "no primary key"),
    _for_t("unique index", KEYLESS + 'CREATE UNIQUE INDEX "The ""one"" x" ON t (a)', 'The "one" x is not its'),
    _for_t("nullable index", KEYLESS + "CREATE UNIQUE INDEX two ON t (a, b)", "two is not its replica"),
    _for_t("partial index", KEYLESS + "CREATE UNIQUE INDEX p ON t (a) WHERE b > 1", "no primary key"),
    _for_t("full but no key", KEYLESS + "ALTER TABLE t REPLICA IDENTITY FULL", "no primary key"),
    _for_t("deferrable key", KEYLESS + "ALTER TABLE t ADD PRIMARY KEY (a) DEFERRABLE", "primary key is deferrable"),
    _for_t("partition", DIVIDED + "ALTER TABLE t1 REPLICA IDENTITY NOTHING", "on public.t1 is NOTHING"),
    _for_t(
        "heirs", KEYLESS + "ALTER TABLE t ADD PRIMARY KEY (a); CREATE TABLE h () INHERITS (t)", "inherit", mended=False
    ),
    Case("nothing", "ALTER TABLE customers REPLICA IDENTITY NOTHING", CUSTOMERS, "identity is NOTHING"),
    Case(
        "other index",
        "ALTER TABLE customers REPLICA IDENTITY USING INDEX customers_code_key",
        CUSTOMERS,
        "index customers_code_key, which lacks",
    ),
    _hopeless("unknown", "table public.custmers", "did you mean 'public.customers'", tables=("custmers",)),
    _hopeless(
        "quote",
        'table public.t"t',
        "double quote",
        'CREATE TABLE "t""t" (id int PRIMARY KEY); ALTER TABLE "t""t" OWNER TO {role}',
        tables=('t"t',),
    ),
    _hopeless("root", "table public.t1", "partition of a table", DIVIDED, tables=("t", "t1")),
    _hopeless("twice", CUSTOMERS, "named twice", tables=("customers", "public.customers")),
    _hopeless(
        "one topic for two",
        "table public.a_b",
        "its topic would be that of public.a b",
        'CREATE TABLE "a b" (id int PRIMARY KEY); ALTER TABLE "a b" OWNER TO {role}; '
        "CREATE TABLE a_b (id int PRIMARY KEY); ALTER TABLE a_b OWNER TO {role}",
        tables=("a b", "a_b"),
    ),
    _hopeless("excluded key", f"column {LINES}.Line No", "part of the key", exclude=(f"{LINES}.Line No",)),
    _hopeless("masked key", "column public.customers.id", "part of the key", mask=("customers.id",)),
    _hopeless("column", "column public.customers.phon", "did you mean 'phone'", exclude=("customers.phon",)),
    _hopeless("other table", "column custom.phone", "did you mean 'public.customers'", mask=("custom.phone",)),
    _hopeless("capitals", CUSTOMERS, "differ only in capitals", 'ALTER TABLE customers ADD "Name" text'),
    Case(
        "virtual",
        "ALTER TABLE customers ADD twice bigint GENERATED ALWAYS AS (id * 2) VIRTUAL",
        CUSTOMERS,
        "left out: twice",
        "warning",
        mended=False,
    ),
]

_PUBLICATIONS = [
    Case(
        "own schema",
        'CREATE SCHEMA {own}; CREATE PUBLICATION "The DBA\'s" FOR ALL TABLES',
        DBAS,
        "may not create",
        options=DBA,
    ),
    Case(
        "own table",
        PUBLISHED + "REVOKE UPDATE ON {own}.heartbeat FROM {role}",
        "table {own}.heartbeat",
        "may not write it",
        options=DBA,
    ),
    Case("own table gone", PUBLISHED + "DROP TABLE {own}.heartbeat", DBAS, "lacks {own}.heartbeat", options=DBA),
    _hopeless("own schema's name", 'schema my "own"', "no name for", own_schema='my "own"'),
    _hopeless(
        "not our table",
        "table {own}.signal",
        "something else",
        "CREATE SCHEMA {own}; GRANT ALL ON SCHEMA {own} TO {role}; "
        "CREATE TABLE {own}.signal (x int); ALTER TABLE {own}.signal OWNER TO {role}",
    ),
    Case("no publication", "SELECT", DBAS, "no such publication", options=DBA),
    Case("not published", ALTERED + "DROP TABLE customers", DBAS, "it lacks public.customers", options=DBA),
    Case("operations", ALTERED + "SET (publish = 'insert, update')", DBAS, "publish delete, truncate", options=DBA),
    Case(
        "row filter",
        ALTERED + "SET TABLE customers WHERE (id > 5), {lines}, {own}.signal, {own}.heartbeat",
        DBAS,
        "only some rows",
        options=DBA,
    ),
    Case(
        "column list",
        ALTERED + "SET TABLE customers (id, name), {lines}, {own}.signal, {own}.heartbeat",
        DBAS,
        "it hides code",
        options={**DBA, "exclude": ("customers.phone",)},
    ),
    Case(
        "key hidden",
        ALTERED + 'SET TABLE customers, {lines} ("Order"), {own}.signal, {own}.heartbeat',
        DBAS,
        "it hides Line No",
        options=DBA,
    ),
    Case("by partition", DIVIDED + ALTERED + "ADD TABLE t", DBAS, "by partition", tables=("t",), options=DBA),
    Case(
        "generated",
        PUBLISHED + "ALTER TABLE customers ADD twice bigint GENERATED ALWAYS AS (id * 2) STORED",
        CUSTOMERS,
        "generated columns twice",
        options=DBA,
    ),
]

_SLOTS = [
    Case("no slot", "SELECT", "slot {slot}", "no such slot", options=NAMED),
    _hopeless("slot's name", "slot The Slot", "no slot can have", slot="The Slot"),
    _hopeless(
        "plugin",
        "slot {slot}",
        "plugin is test_decoding",
        "SELECT pg_create_logical_replication_slot({slot}, 'test_decoding')",
        **NAMED,
    ),
    _hopeless(
        "physical", "slot {slot}", "a physical slot", "SELECT pg_create_physical_replication_slot({slot})", **NAMED
    ),
    Case(
        "no failover",
        "SELECT pg_create_logical_replication_slot({slot}, 'pgoutput')",
        "slot {slot}",
        "not a failover slot",
        options={**NAMED, "failover": True},
    ),
]

CASES = [*_ROLE, *_TABLES, *_PUBLICATIONS, *_SLOTS]
