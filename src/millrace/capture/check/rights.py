"""The role that captures: may it replicate, and may it read every row of every table?"""

from __future__ import annotations

import psycopg
from psycopg import sql

from millrace.capture.check.finding import Findings, error, listed, ok, warning
from millrace.capture.check.look import Look, columns_of
from millrace.capture.check.relation import Relation
from millrace.capture.database import Address
from millrace.capture.postgres import CONNECT_S, first_line

_MEMBER = "SELECT pg_has_role(rolname, 'USAGE') AS member FROM pg_catalog.pg_roles WHERE rolname = %s"
_SENDERS_LEFT = """
SELECT current_setting('max_wal_senders')::int > (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS free
"""
# Policies that count for this role when it reads.
_POLICIES = """
SELECT p.polpermissive AS permissive, pg_get_expr(p.polqual, p.polrelid) AS condition
FROM pg_catalog.pg_policy p WHERE p.polrelid = %s AND p.polcmd IN ('r', '*')
  AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(r, 'USAGE'))
"""


def check_role(look: Look, address: Address) -> Findings:
    role = look.role
    subject = f"role {role['name']}"
    if role["superuser"]:
        yield ok(subject, "it is a superuser", "more than a capture needs: REPLICATION and SELECT are enough")
    elif role["replication"]:
        yield ok(subject, "it may replicate")
    elif not _is_member(look):
        service = look.service
        why = "reading the log takes this right; a superuser grants it"
        statement = sql.SQL("ALTER ROLE {} REPLICATION").format(look.to_role)
        if service is not None and service.replication is not None:
            why = f"reading the log takes this right; on {service.name} it comes with a role"
            statement = sql.SQL("GRANT {} TO {}").format(sql.Identifier(service.replication), look.to_role)
        yield error(subject, "it may not replicate", why, look.script(statement))
        return
    yield from _replication_connection(look, address)
    if look.capture.own_schema == role["name"]:
        why = "PostgreSQL looks for unqualified names in the schema called like the role first: once this one exists, "
        why += "this role's CREATE TABLE would put tables there"
        script = look.script(sql.SQL("ALTER ROLE {} SET search_path = public").format(look.to_role))
        found = look.row("SELECT current_setting('search_path') LIKE %s AS follows", "%$user%")
        if found and found["follows"]:
            yield warning(subject, f"it is called like the schema {look.capture.own_schema}", why, script)


def _is_member(look: Look) -> bool:
    group = look.service.replication if look.service else None
    found = look.row(_MEMBER, group) if group else None
    return bool(found and found["member"])


def _replication_connection(look: Look, address: Address) -> Findings:
    """The proof: pg_hba.conf and connection poolers may refuse what the role is allowed."""
    left = look.row(_SENDERS_LEFT)
    if not left or not left["free"]:
        return  # said already, of the WAL senders
    try:
        with psycopg.connect(
            connect_timeout=CONNECT_S,
            application_name="millrace check",
            autocommit=True,
            replication="database",
            **address.connecting,
        ) as connection:
            connection.execute("IDENTIFY_SYSTEM")
    except psycopg.Error as refusal:
        what = f"the server takes no replication connection of {look.role['name']} ({first_line(refusal)})"
        why = "the connector reads the log through one: see pg_hba.conf, and go past a connection pooler"
        yield error("replication connection", what, why)
        return
    yield ok("replication connection", "the server takes one")


def check_reading(look: Look, tables: list[Relation]) -> Findings:
    role = look.role["name"]
    for schema in sorted({table["schema"] for table in tables if not table["schema_usable"]}):
        statement = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(schema), look.to_role)
        why = "without USAGE nothing in the schema can be read"
        yield error(f"schema {schema}", f"role {role} may not use it", why, look.script(statement))
    for table in tables:
        wanted = [column for column in table.columns if column["name"] not in table.excluded]
        hidden = [column["name"] for column in wanted if not column["readable"]]
        if hidden and not table["readable"]:
            # Rights on single columns where some are left out: the least that is enough.
            some = sql.SQL(" ({})").format(columns_of([column["name"] for column in wanted]))
            which = some if table.excluded else sql.SQL("")
            grant = sql.SQL("GRANT SELECT{} ON {} TO {}").format(which, table.identifier, look.to_role)
            what = f"role {role} may not read " + (
                "it" if len(hidden) == len(wanted) else f"its columns {listed(hidden)}"
            )
            yield error(f"table {table.name}", what, "the snapshot reads every row once", look.script(grant))
        if table["filtered"]:
            yield from _row_security(look, table)


def _row_security(look: Look, table: Relation) -> Findings:
    policies = look.rows(_POLICIES, table.oid)
    restricted = any(not policy["permissive"] and policy["condition"] != "true" for policy in policies)
    if not restricted and any(policy["permissive"] and policy["condition"] == "true" for policy in policies):
        return
    role = look.role["name"]
    why = "the snapshot would miss rows that row-level security hides, while the log has the changes of all rows"
    if restricted:
        mends = sql.SQL("ALTER ROLE {} BYPASSRLS").format(look.to_role)
    else:
        policy = sql.SQL("CREATE POLICY {} ON {} FOR SELECT TO {} USING (true)")
        mends = policy.format(sql.Identifier(f"millrace_{role}"[:60]), table.identifier, look.to_role)
    yield error(f"table {table.name}", f"row-level security may hide rows from role {role}", why, look.script(mends))
