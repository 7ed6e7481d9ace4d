"""The server: its version and settings, and whether it has room for one more slot and its reader."""

from __future__ import annotations

from typing import Any

from psycopg import sql

from millrace.capture.check.finding import Finding, Findings, error, listed, ok, size, warning
from millrace.capture.check.look import FAILOVER, GENERATED, Look, Service, Settings
from millrace.durations import spoken

OLDEST = 140_000
# The connector confirms its position every 10 s; a server that gives up sooner cuts it off again and again.
SHORTEST_SENDER_TIMEOUT_MS = 20_000
# Less log than this is soon written, and with it a stopped capture's slot is lost.
AMPLE_WAL_BYTES = 16 * 1024**3
PROPOSED_WAL = "64GB"
MUCH_WAL_BYTES = 1024**3
LONG_TRANSACTION_S = 300

_SLOTS = """
SELECT slot_name AS name, active,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END AS kept
FROM pg_catalog.pg_replication_slots ORDER BY 1
"""
# Only transactions with an id of their own count: readers do not hold up a slot. The start of other roles'
# transactions shows only to pg_read_all_stats.
_TRANSACTIONS = """
SELECT pid, usename AS role, application_name AS application, datname AS database,
       extract(epoch FROM clock_timestamp() - xact_start)::bigint AS age_s
FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY pid
"""
_PREPARED = """
SELECT gid, owner AS role, database, extract(epoch FROM clock_timestamp() - prepared)::bigint AS age_s
FROM pg_catalog.pg_prepared_xacts ORDER BY prepared
"""


def check_server(look: Look) -> Findings:
    yield from version(look.settings)
    if look.role["standby"]:
        why = "a capture makes a publication and writes heartbeats and signals: point its URL at the primary"
        yield error("server", "it is a standby", why)
    yield from wal_level(look.settings, look.service)
    yield from _slots(look)
    yield from _senders(look)
    yield from wal_kept(look.settings, look.service)
    yield from _timeouts(look)
    yield from _transactions(look)


def version(settings: Settings) -> Findings:
    found = settings.version
    said = f"PostgreSQL {settings.text('server_version') or found}"
    if found < OLDEST:
        yield error("server", f"{said} is too old", "14 is the oldest that Millrace captures from")
        return
    lacks = [
        word
        for since, word in (
            (150_000, "column lists in publications need 15"),
            (FAILOVER, "failover slots need 17"),
            (GENERATED, "stored generated columns in the log need 18"),
        )
        if found < since
    ]
    yield ok("server", said, "; ".join(lacks))


def wal_level(settings: Settings, service: Service | None) -> Findings:
    found = settings.text("wal_level")
    if found == "logical":
        yield ok("wal_level", "logical")
        return
    why = "changes of rows are in the log only with wal_level = logical; it takes effect after a restart of the server"
    if service is not None:
        why += f". This is {service.name}: set {service.logical} in {service.place}, then restart"
    yield error("wal_level", f"it is {found}", why, _set(service, "wal_level", "logical", reload=False))


def _set(service: Service | None, name: str, value: object, *, reload: bool) -> str | None:
    """The statement that changes a setting; managed services have a place of their own for it."""
    if service is not None:
        return None
    text = sql.SQL("ALTER SYSTEM SET {} = {};").format(sql.Identifier(name), sql.Literal(value)).as_string()
    return f"{text}\nSELECT pg_reload_conf();" if reload else text


def _how(service: Service | None, name: str, value: object) -> str:
    return "" if service is None else f". This is {service.name}: set {name} = {value} in {service.place}"


def _slots(look: Look) -> Findings:
    slots = look.rows(_SLOTS)
    most, ours = look.settings.number("max_replication_slots"), look.capture.slot_name
    idle = [slot for slot in slots if not slot["active"] and slot["name"] != ours]
    said = f"{len(slots)} of {most} in use"
    if idle:
        said += f"; nobody reads {listed([_with_wal(slot) for slot in idle])}"
    if len(slots) < most or any(slot["name"] == ours for slot in slots):
        yield ok("replication slots", said)
    else:
        why = "the capture needs a slot of its own. One that nobody will ever read again can be dropped instead: "
        why += "pg_drop_replication_slot(name). max_replication_slots takes effect after a restart"
        why += _how(look.service, "max_replication_slots", most + 4)
        statement = _set(look.service, "max_replication_slots", most + 4, reload=False)
        yield error("replication slots", said, why, statement)
    for slot in idle:
        if (slot["kept"] or 0) >= MUCH_WAL_BYTES:
            why = "the server keeps all log since that slot's position, until the disk is full. If its reader will "
            why += f"never come back, pg_drop_replication_slot('{slot['name']}') frees it"
            yield warning("replication slots", f"nobody reads {_with_wal(slot)}", why)


def _with_wal(slot: dict[str, Any]) -> str:
    return f"{slot['name']} (keeps {size(slot['kept'])} of log)" if slot["kept"] is not None else str(slot["name"])


def _senders(look: Look) -> Findings:
    (found,) = look.rows("SELECT count(*) AS used FROM pg_catalog.pg_stat_replication")
    most, used = look.settings.number("max_wal_senders"), found["used"]
    said = f"{used} of {most} in use"
    (ours,) = look.rows(
        "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s AND active) AS active",
        look.capture.slot_name,
    )
    if used < most or ours["active"]:
        yield ok("WAL senders", said)
        return
    why = "a capture reads through one WAL sender. max_wal_senders takes effect after a restart"
    why += _how(look.service, "max_wal_senders", most + 4)
    yield error("WAL senders", said, why, _set(look.service, "max_wal_senders", most + 4, reload=False))


def wal_kept(settings: Settings, service: Service | None) -> Findings:
    """Both ways have their price: without a limit a stopped capture fills the disk, with one it loses its place."""
    name = "max_slot_wal_keep_size"
    limit = settings.size_bytes(name)
    if limit is not None:
        lost = f"while the capture stands still the server keeps {size(limit)} of log for it; once more is written its "
        lost += "slot is invalidated and every table has to be read again (`millrace capture snapshot --repair`)"
        yield (ok if limit >= AMPLE_WAL_BYTES else warning)(name, size(limit), lost)
        return
    why = (
        "the server keeps all log that the capture has not read: while it stands still the disk can fill, which stops "
    )
    why += f"the database. With a limit the capture would lose its slot instead; {PROPOSED_WAL} is a proposal, choose "
    why += f"what the disk can spare{_how(service, name, PROPOSED_WAL)}"
    yield warning(name, "no limit", why, _set(service, name, PROPOSED_WAL, reload=True))


def _timeouts(look: Look) -> Findings:
    settings, to_role = look.settings, look.to_role

    def role_sets(name: str, value: str) -> str:
        return look.script(
            sql.SQL("ALTER ROLE {} SET {} = {}").format(to_role, sql.Identifier(name), sql.Literal(value))
        )

    sender = settings.length_ms("wal_sender_timeout")
    if sender == 0:
        why = "a connection that died silently holds the slot for ever, and the capture cannot take it again"
        yield warning("wal_sender_timeout", "switched off", why, role_sets("wal_sender_timeout", "60s"))
    elif sender < SHORTEST_SENDER_TIMEOUT_MS:
        why = "the connector reports every 10 seconds: a busy one would be cut off and start again, over and over"
        yield warning("wal_sender_timeout", spoken(sender), why, role_sets("wal_sender_timeout", "60s"))
    idle = settings.length_ms("idle_replication_slot_timeout")
    if idle:
        name = "idle_replication_slot_timeout"
        why = f"a capture that stands still for {spoken(idle)} loses its slot, and every table has to be read again"
        why += _how(look.service, name, 0)
        yield warning(name, spoken(idle), why, _set(look.service, name, 0, reload=True))
    for name in (
        "statement_timeout",
        "transaction_timeout",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
    ):
        if found := settings.length_ms(name):
            why = "the snapshot reads each table in one statement, all in one transaction: longer ones are cut off"
            yield warning(name, f"{spoken(found)} for role {look.role['name']}", why, role_sets(name, "0"))
    if settings.text("default_transaction_read_only") == "on":
        why = "heartbeats and signals are written"
        statement = role_sets("default_transaction_read_only", "off")
        yield error("default_transaction_read_only", f"on for role {look.role['name']}", why, statement)


def _transactions(look: Look) -> Findings:
    found = look.rows(_TRANSACTIONS)
    for row in found:
        if row["age_s"] is not None and row["age_s"] > LONG_TRANSACTION_S:
            who = f"pid {row['pid']}, role {row['role']}, {row['application'] or 'no application name'}"
            what = f"one is open for {spoken(row['age_s'] * 1000)} in database {row['database']} ({who})"
            yield warning(
                "transactions", what, _HOLDS_UP + f"pg_terminate_backend({row['pid']}) ends it, and undoes it"
            )
    if any(row["age_s"] is None for row in found) and not look.role["sees_activity"]:
        statement = look.script(sql.SQL("GRANT pg_read_all_stats TO {}").format(look.to_role))
        why = "with it the check also sees for how long other roles' transactions are open"
        yield ok("transactions", "those of other roles cannot be seen", why, statement)
    for row in look.rows(_PREPARED):
        if row["age_s"] > LONG_TRANSACTION_S:
            what = f"{row['gid']!r} of role {row['role']} in database {row['database']} is prepared for "
            what += spoken(row["age_s"] * 1000)
            yield _prepared(row["gid"], what)


_HOLDS_UP = "a slot is ready only when all transactions have ended that began before it, and log is kept for them; "


def _prepared(gid: str, what: str) -> Finding:
    literal = sql.Literal(gid).as_string()
    why = f"COMMIT PREPARED {literal} or ROLLBACK PREPARED {literal} ends it: its owner has to say which"
    return warning("prepared transactions", what, _HOLDS_UP + why)
