"""`capture check`: everything that could keep a capture of PostgreSQL from being true, found without changing anything.

Each finding comes with the SQL that mends it, so that a DBA can read it, agree, and run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millrace.capture.check.finding import Finding, Level
from millrace.capture.definition import Capture

if TYPE_CHECKING:
    import psycopg

    from millrace.capture.database import Address

__all__ = ["Finding", "Level", "check_postgres"]


def check_postgres(connection: psycopg.Connection[Any], address: Address, capture: Capture) -> tuple[Finding, ...]:
    """What stands against the capture, and what speaks for it. The connection is one of the capture's own role."""
    from millrace.capture.check.kinds import check_cursors, check_kinds
    from millrace.capture.check.look import Look
    from millrace.capture.check.publication import check_publication
    from millrace.capture.check.relation import relation
    from millrace.capture.check.rights import check_reading, check_role
    from millrace.capture.check.server import check_server
    from millrace.capture.check.slot import check_slot
    from millrace.capture.check.tables import check_names, check_table, unknown

    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        look = Look(connection, capture)
        findings = [*check_server(look)]
        if look.role["standby"]:
            return tuple(findings)
        findings += [*check_role(look, address), *check_names(look), *check_kinds(look)]
        seen = {name: relation(look, name) for name in capture.tables}
        findings += [unknown(look, name) for name, table in seen.items() if table is None]
        tables = {table.oid: table for table in seen.values() if table is not None and table["kind"] in "rp"}
        found = list(tables.values())
        for table in (each for each in seen.values() if each is not None):
            findings += [*check_table(look, table), *check_cursors(look, table)]
        findings += [*check_reading(look, found), *check_publication(look, found), *check_slot(look)]
    return tuple(findings)
