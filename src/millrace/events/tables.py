"""The tables of an event store, and the one function that writes events.

**Order.** `position` numbers all events as they are committed: 1, 2, 3, without gaps. It is given under a lock that is
held until the commit is done and seen by others, so whoever sees position 7 sees 1 to 6, and no smaller one appears
later. A sequence would not do: a writer who took 7 and commits after the one who took 8 is passed over by a reader who
has read 8. What it costs, and what else was tried: docs/design/0022.

The lock is an advisory one: locking the table would cancel autovacuum each time.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from millrace.capture.postgres import NEVER_CHANGED
from millrace.errors import StoreFormUnknown
from millrace.events.sealing import Keys

FORM = 2
# The first half of the advisory lock's number, so that it is not one of the user's own; the second is the table's.
LOCK = 0x4D52_4556

_TABLES = """
CREATE SCHEMA {schema};
CREATE TABLE {schema}.form (number integer NOT NULL);
INSERT INTO {schema}.form VALUES ({form});
CREATE TABLE {schema}.event (
    position bigint PRIMARY KEY,
    aggregate text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    type text NOT NULL,
    schema integer NOT NULL,
    at timestamptz NOT NULL,
    command text,
    data json NOT NULL,
    seals json,
    meta json,
    UNIQUE (aggregate, id, version)
);
CREATE INDEX event_by_type ON {schema}.event (type, position);
CREATE INDEX event_by_command ON {schema}.event (command) WHERE command IS NOT NULL;
CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never changed or deleted' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER {never_changed} BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.event EXECUTE FUNCTION {schema}.refuse();
CREATE TABLE {schema}.shape (
    type text, version integer, fields json NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (type, version)
);
CREATE TABLE {schema}.snapshot (
    aggregate text, id text, version bigint NOT NULL, position bigint NOT NULL, fingerprint text NOT NULL,
    state json NOT NULL, subjects text[] NOT NULL, PRIMARY KEY (aggregate, id)
);
CREATE TABLE {schema}.reader (name text PRIMARY KEY, position bigint NOT NULL, fingerprint text NOT NULL);
CREATE TABLE {schema}.deadline (
    saga text, key text, due timestamptz NOT NULL, PRIMARY KEY (saga, key)
);
"""

# Volatile, in PL/pgSQL: each statement in it sees what was committed before it, that is, before the lock was had. One
# event, which most appends are, goes by plain statements: arrays that are opened up cost more than the rest of it.
_APPEND = """
CREATE OR REPLACE FUNCTION {schema}.append(
    given text, aggregates text[], ids text[], versions bigint[], types text[], schemas integer[], contents json[],
    sealed json[], about json,
    OUT outcome text, OUT first bigint, OUT moment timestamptz, OUT place bigint, OUT stands bigint
) LANGUAGE plpgsql AS $$
DECLARE
    newest record;
BEGIN
    PERFORM pg_advisory_xact_lock({lock}, '{name}.event'::regclass::oid::integer);
    IF given IS NOT NULL THEN
        SELECT min(e.position), min(e.at) INTO first, moment FROM {schema}.event e WHERE e.command = given;
        IF first IS NOT NULL THEN
            outcome := 'repeated';
            RETURN;
        END IF;
    END IF;
    IF cardinality(ids) = 1 THEN
        SELECT coalesce(max(e.version), 0) INTO stands FROM {schema}.event e
        WHERE e.aggregate = aggregates[1] AND e.id = ids[1];
        place := CASE WHEN stands <> versions[1] - 1 THEN 1 END;
    ELSE
        SELECT w.place, f.version INTO place, stands
        FROM (SELECT u.a, u.i, min(u.v) AS expected, min(u.n) AS place
              FROM unnest(aggregates, ids, versions) WITH ORDINALITY AS u(a, i, v, n) GROUP BY u.a, u.i) w
        CROSS JOIN LATERAL (
            SELECT coalesce(max(e.version), 0) AS version FROM {schema}.event e
            WHERE e.aggregate = w.a AND e.id = w.i) f
        WHERE f.version <> w.expected - 1 LIMIT 1;
    END IF;
    IF place IS NOT NULL THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    SELECT e.position, e.at INTO newest FROM {schema}.event e ORDER BY e.position DESC LIMIT 1;
    first := coalesce(newest.position, 0) + 1;
    moment := greatest(clock_timestamp(), newest.at);
    IF cardinality(ids) = 1 THEN
        INSERT INTO {schema}.event (position, aggregate, id, version, type, schema, at, command, data, seals, meta)
        VALUES (first, aggregates[1], ids[1], versions[1], types[1], schemas[1], moment, given, contents[1], sealed[1],
            about);
    ELSE
        INSERT INTO {schema}.event (position, aggregate, id, version, type, schema, at, command, data, seals, meta)
        SELECT first + u.n - 1, u.a, u.i, u.v, u.t, u.s, moment, given, u.d, u.e, about
        FROM unnest(aggregates, ids, versions, types, schemas, contents, sealed) WITH ORDINALITY
            AS u(a, i, v, t, s, d, e, n);
    END IF;
    outcome := 'written';
END $$;
"""


# What brings a store of an older form to the next one.
_NEXT = {1: _APPEND}


def make(connection: Connection[Any], schema: str, database: str) -> None:
    """Makes the tables if they are not there. Processes that start at once make them once."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK, schema))
        fields = {
            "schema": sql.Identifier(schema),
            "name": sql.SQL('"{}"').format(sql.SQL(schema)),  # letters, digits and _
            "form": sql.Literal(FORM),
            "lock": sql.Literal(LOCK),
            "never_changed": sql.Identifier(NEVER_CHANGED),
        }
        row = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".form',)).fetchone()
        if row is None or row[0] is None:
            connection.execute(sql.SQL(_TABLES).format(**fields))
            connection.execute(sql.SQL(_APPEND).format(**fields))
            connection.execute(Keys(schema).create())
        find = sql.SQL("SELECT number FROM {schema}.form").format(**fields)
        row = connection.execute(find).fetchone()
        while row is not None and row[0] in _NEXT:
            connection.execute(sql.SQL(_NEXT[row[0]]).format(**fields))
            connection.execute(sql.SQL("UPDATE {schema}.form SET number = number + 1").format(**fields))
            row = connection.execute(find).fetchone()
        if row is None or row[0] != FORM:
            raise StoreFormUnknown(schema=schema, database=database, found=row and row[0], known=FORM)
