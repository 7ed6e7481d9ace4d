"""Types that Debezium cannot live with: one of them anywhere in the database, others only in a captured column."""

from __future__ import annotations

from psycopg import sql

from millrace.capture.check.finding import Findings, error
from millrace.capture.check.look import Look
from millrace.capture.check.relation import Relation

# Debezium asks for the labels of everything that counts as an enum, which a domain over one does too, and has none.
_WITHOUT_LABELS = """
SELECT n.nspname::text AS schema, t.typname::text AS name, t.typtype = 'd' AS is_domain
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE t.typcategory = 'E' AND NOT EXISTS (SELECT FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) ORDER BY 1, 2
"""
_CURSORS = """
SELECT a.attname::text AS name FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 'pg_catalog.refcursor'::regtype
"""


def check_kinds(look: Look) -> Findings:
    for row in look.rows(_WITHOUT_LABELS):
        subject, name = f"type {row['schema']}.{row['name']}", sql.Identifier(row["schema"], row["name"])
        why = "Debezium 3.6 cannot start in a database that has such a type, in a captured table or not"
        if row["is_domain"]:
            why += ": let its columns have the enum itself, and drop the domain"
            yield error(subject, "it is a domain over an enum", why)
        else:
            script = look.script(sql.SQL("ALTER TYPE {} ADD VALUE 'none'").format(name))
            yield error(subject, "it is an enum without values", why, script)


def check_cursors(look: Look, table: Relation) -> Findings:
    for row in look.rows(_CURSORS, table.oid):
        if row["name"] not in table.excluded:
            why = f'a snapshot would try to open the cursors: leave it out with exclude=["{table.name}.{row["name"]}"]'
            yield error(f"column {table.name}.{row['name']}", "it is of type refcursor", why)
