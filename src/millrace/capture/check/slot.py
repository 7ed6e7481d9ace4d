"""The slot, if somebody made it or an earlier start left it: is it one that the capture can go on from?"""

from __future__ import annotations

import re
from typing import Any

from psycopg import sql

from millrace.capture.check.finding import Finding, Findings, error, ok, size, warning
from millrace.capture.check.look import FAILOVER, Look

# Which columns it has depends on the version.
_SLOT = "SELECT to_jsonb(s) AS slot FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s"
_READER = "SELECT usename AS role, application_name AS application FROM pg_catalog.pg_stat_activity WHERE pid = %s"
_NAME = re.compile(r"[a-z0-9_]{1,63}")
_STANDBYS = "SELECT slot_name AS name FROM pg_catalog.pg_replication_slots WHERE slot_type = 'physical' ORDER BY 1"


def check_slot(look: Look) -> Findings:
    name = look.capture.slot_name
    subject = f"slot {name}"
    if look.capture.failover:
        yield from _failover_possible(look, subject)
    found = look.row(_SLOT, name)
    if not _NAME.fullmatch(name):
        yield error(subject, "no slot can have this name", "small letters, digits and _, at most 63")
    elif found is None and look.capture.slot is not None:
        why = "the definition names it, so it is somebody else's to make; from then on the server keeps log for it"
        yield error(subject, "there is no such slot", why, look.script(_created(look)))
    elif found is None:
        yield ok(subject, "the connector will make it")
    else:
        yield from _existing(look, subject, found["slot"])


def _created(look: Look) -> sql.Composed:
    name = sql.Literal(look.capture.slot_name)
    if look.capture.failover and look.settings.version >= FAILOVER:
        made = "SELECT pg_create_logical_replication_slot({}, 'pgoutput', failover => true)"
        return sql.SQL(made).format(name)
    return sql.SQL("SELECT pg_create_logical_replication_slot({}, 'pgoutput')").format(name)


def _existing(look: Look, subject: str, slot: dict[str, Any]) -> Findings:
    if (strange := _stranger(look, subject, slot)) is not None:
        yield strange
        return
    if slot["wal_status"] == "lost" or slot.get("invalidation_reason") or slot.get("conflicting"):
        reason = slot.get("invalidation_reason") or "its log is gone"
        drop = sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(slot["slot_name"]))
        script = look.script(drop, _created(look)) if look.capture.slot is not None else look.script(drop)
        why = "changes are missing from here on: drop it; `millrace capture snapshot --repair` reads everything again"
        yield error(subject, f"it was invalidated ({reason})", why, script)
        return
    if slot["wal_status"] == "unreserved":
        why = "more log than max_slot_wal_keep_size waits to be read: the next checkpoint may invalidate the slot"
        yield warning(subject, "it is about to be lost", why)
    if slot["active"]:
        yield _read(look, subject, slot["active_pid"])
    if look.capture.failover and slot.get("failover") is False:
        why = "it would not exist on a standby that takes over. This is a command of the replication protocol: run it "
        why += 'with psql "replication=database dbname=…" while nobody reads the slot'
        command = sql.SQL("ALTER_REPLICATION_SLOT {} (FAILOVER true)").format(sql.Identifier(slot["slot_name"]))
        yield error(subject, "it is not a failover slot", why, look.script(command))
    safe = slot.get("safe_wal_size")
    room = f"; {size(safe)} more log until it is lost" if safe is not None and safe > 0 else ""
    yield ok(subject, f"it is there, confirmed up to {slot['confirmed_flush_lsn']}{room}")


def _stranger(look: Look, subject: str, slot: dict[str, Any]) -> Finding | None:
    why = "it is somebody else's: name another slot"
    if slot["slot_type"] != "logical":
        return error(subject, "it is a physical slot", why)
    if slot["plugin"] != "pgoutput":
        return error(subject, f"its plugin is {slot['plugin']}, not pgoutput", why)
    if slot["database"] != look.role["database"]:
        return error(subject, f"it belongs to database {slot['database']}", why)
    if slot["temporary"]:
        return error(subject, "it is temporary", "it ends with the session that made it: name another slot")
    return None


def _read(look: Look, subject: str, pid: int) -> Finding:
    reader = look.row(_READER, pid) or {"role": None, "application": None}
    who = f"role {reader['role']}, {reader['application'] or 'no application name'}, pid {pid}"
    if reader["role"] == look.role["name"]:
        return ok(subject, f"it is being read ({who})", "by this capture's connector, if that runs")
    return error(
        subject, f"somebody else reads it ({who})", "a slot has one reader: stop that one, or name another slot"
    )


def _failover_possible(look: Look, subject: str) -> Findings:
    if look.settings.version < FAILOVER:
        yield error(subject, "this server has no failover slots", "they come with PostgreSQL 17: leave failover out")
        return
    if not look.settings.text("synchronized_standby_slots"):
        standbys = [row["name"] for row in look.rows(_STANDBYS)]
        why = "without it the capture may be ahead of the standby that takes over, and hold changes which the database "
        why += "then never had: list the physical slots of the standbys"
        script = None
        if standbys and look.service is None:
            value = sql.Literal(", ".join(standbys))
            setting = sql.SQL("ALTER SYSTEM SET synchronized_standby_slots = {}").format(value)
            script = look.script(setting, sql.SQL("SELECT pg_reload_conf()"))
        yield warning("synchronized_standby_slots", "it is empty", why, script)
