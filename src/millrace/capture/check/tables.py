"""The tables: whether their rows can be told apart, and whether the log says enough about each change."""

from __future__ import annotations

from collections import Counter

from psycopg import sql

from millrace.capture import postgres
from millrace.capture.check.finding import Finding, Findings, error, listed, ok, size, warning
from millrace.capture.check.look import Look
from millrace.capture.check.relation import Relation
from millrace.errors import nearest

KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}

_ALTER = sql.SQL("ALTER TABLE {} ")


def check_table(look: Look, table: Relation) -> Findings:
    refused = _refused(look, table)
    if refused is not None:
        yield refused
        return
    yield from _key(look, table)
    yield from _identity(look, table)
    yield from _chosen_columns(look, table)
    yield from _columns(look, table)
    yield from _family(table)
    rows = sum(max(leaf["rows"], 0) for leaf in table.leaves)
    known = any(leaf["rows"] >= 0 for leaf in table.leaves)
    said = f"about {rows:,} rows" if known else "rows not counted yet (ANALYZE would)"
    yield ok(_subject(table), f"{said}, {size(sum(leaf['size'] for leaf in table.leaves))} for the snapshot to read")


def unknown(look: Look, name: str) -> Finding:
    hint = nearest(postgres.qualified(name), postgres.tables(look.connection))
    why = "names are as in the database, capitals included, without quotes; a table outside of schema public is "
    return error(f"table {postgres.qualified(name)}", f"there is no such table{hint}", why + "written schema.table")


def check_names(look: Look) -> Findings:
    """Two tables may not become one topic, nor one table two."""
    whole = [postgres.qualified(name) for name in look.capture.tables]
    for name, count in Counter(whole).items():
        if count > 1:
            yield error(f"table {name}", "it is named twice", "once with its schema and once without: name it once")
    topics: dict[str, str] = {}
    for name in dict.fromkeys(whole):
        if ";" in name or ":" in name:
            why = "Debezium cannot be given a name that has a ; or : in it: rename the table"
            yield error(f"table {name}", "its name cannot be captured", why)
        other = topics.setdefault(look.capture.topic(name), name)
        if other != name:
            why = "what a topic's name cannot hold becomes _, and both names become the same: rename one of the tables"
            yield error(f"table {name}", f"its topic would be that of {other}", why)
    if '"' in look.capture.own_schema or "." in look.capture.own_schema:
        why = "Debezium cannot write into a schema whose name has a double quote or a dot in it: choose another"
        yield error(f"schema {look.capture.own_schema}", "no name for Millrace's own schema", why)
    for option, columns in (("exclude", look.capture.exclude), ("mask", look.capture.mask)):
        for column in columns:
            table = postgres.qualified(column.rpartition(".")[0])
            if table not in whole:
                why = f"{option} names columns of tables that are captured: {listed(whole)}"
                yield error(f"column {column}", f"{table} is not captured{nearest(table, whole)}", why)


def _subject(table: Relation) -> str:
    return f"table {table.name}"


def _refused(look: Look, table: Relation) -> Finding | None:
    if '"' in table.name:
        why = "Debezium cannot read a table whose name, or schema's name, has a double quote in it: rename it"
        return error(_subject(table), "its name has a double quote in it", why)
    if table["schema"].startswith("pg_") or table["schema"] == "information_schema":
        return error(_subject(table), "it belongs to PostgreSQL itself", "system tables are not in the log")
    if table["kind"] in KINDS:
        why = "only tables have changes of their own in the log: capture the tables behind it"
        return error(_subject(table), f"it is {KINDS[table['kind']]}", why)
    for leaf in table.leaves:
        if leaf["kind"] == "f":
            return error(_subject(table), f"its partition {leaf.name} is a foreign table", "it has no log here")
    if table["persistence"] == "t":
        return error(_subject(table), "it is temporary", "temporary tables are not in the log")
    unlogged = [leaf for leaf in table.leaves if leaf["persistence"] == "u"]
    if unlogged:
        script = look.script(*(_ALTER.format(leaf.identifier) + sql.SQL("SET LOGGED") for leaf in unlogged))
        what = "it is unlogged" if unlogged == [table] else f"unlogged: {listed([leaf.name for leaf in unlogged])}"
        return error(_subject(table), what, "its changes are not in the log; SET LOGGED writes the whole table", script)
    return None


def _key(look: Look, table: Relation) -> Findings:
    if table.key:
        return
    why = (
        "a topic is keyed: rows that cannot be told apart cannot be updated or deleted in it, REPLICA IDENTITY FULL or "
    )
    why += "not. Either give the table a primary key, or a unique index over NOT NULL columns as its replica identity"
    nullable = {column["name"] for column in table.columns if not column["not_null"]}
    usable = [index for index in table.indexes if index.immediate]
    best = next((index for index in usable if not nullable & set(index.columns)), None) or next(iter(usable), None)
    if (
        table["kind"] == "p"
    ):  # its key has to hold what it is partitioned by, and the replica identity is the partitions'
        yield error(_subject(table), "it has no primary key", why)
        return
    if best is None:
        taken = {column["name"] for column in table.columns}
        fresh = next(name for name in ("id", "row_id", f"id_{table.oid}") if name not in taken)
        adds = sql.SQL("ADD COLUMN {} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY").format(sql.Identifier(fresh))
        why += "; the SQL adds a column and writes the table anew, ADD PRIMARY KEY over columns it has does not"
        script = look.script(_ALTER.format(table.identifier) + adds)
        yield error(_subject(table), "it has no primary key", why, script)
        return
    makes = [
        _ALTER.format(table.identifier) + sql.SQL("ALTER COLUMN {} SET NOT NULL").format(sql.Identifier(name))
        for name in best.columns
        if name in nullable
    ]
    uses = sql.SQL("REPLICA IDENTITY USING INDEX {}").format(sql.Identifier(best.name))
    script = look.script(*makes, _ALTER.format(table.identifier) + uses)
    what = f"it has no primary key, and its unique index {best.name} is not its replica identity"
    yield error(_subject(table), what, why, script)


def _identity(look: Look, table: Relation) -> Findings:
    """What the log holds of a row that was changed or deleted has to be enough to know its key."""
    wrong: dict[str, list[Relation]] = {}
    for leaf in table.leaves if table.key else ():
        primary = next((index for index in leaf.indexes if index.is_primary), None)
        chosen = next((index for index in leaf.indexes if index.is_identity), None)
        if leaf["identity"] == "n" or (leaf["identity"] == "i" and chosen is None):
            wrong.setdefault("NOTHING", []).append(leaf)
        elif leaf["identity"] == "d" and primary is not None and not primary.immediate:
            wrong.setdefault("DEFAULT, but its primary key is deferrable", []).append(leaf)
        elif leaf["identity"] == "d" and primary is None:
            wrong.setdefault("DEFAULT, but it has no primary key of its own", []).append(leaf)
        elif leaf["identity"] == "i" and chosen is not None and not set(table.key) <= set(chosen.columns):
            wrong.setdefault(f"index {chosen.name}, which lacks columns of the key", []).append(leaf)
    for what, leaves in wrong.items():
        simple = all(any(index.is_primary and index.immediate for index in leaf.indexes) for leaf in leaves)
        mends = sql.SQL("REPLICA IDENTITY DEFAULT") if simple else sql.SQL("REPLICA IDENTITY FULL")
        script = look.script(*(_ALTER.format(leaf.identifier) + mends for leaf in leaves))
        whose = "" if leaves == [table] else f" on {listed([leaf.name for leaf in leaves])}"
        why = "the log would not say which row was updated or deleted; PostgreSQL refuses such changes once published"
        yield error(_subject(table), f"its replica identity{whose} is {what}", why, script)
    large = [
        column["name"] for column in table.columns if column["storage"] in "xe" and column["name"] not in table.key
    ]
    plain = [leaf for leaf in table.leaves if leaf["identity"] != "f" and leaf["has_toast"]]
    if large and plain and not wrong:
        full = look.script(*(_ALTER.format(leaf.identifier) + sql.SQL("REPLICA IDENTITY FULL") for leaf in plain))
        why = "values beyond 2 kB that an update leaves alone are not in the log; Millrace reads them from the table "
        why += "instead, perhaps as they are a moment later. "
        why += "With REPLICA IDENTITY FULL they are in the log, which grows by the old row of every change"
        yield ok(_subject(table), f"large values may stand in {listed(large)}", why, full)


def _chosen_columns(look: Look, table: Relation) -> Findings:
    known = [column["name"] for column in table.columns]
    for option, columns in (("exclude", look.capture.exclude), ("mask", look.capture.mask)):
        for name in sorted(table.named(columns)):
            subject = f"column {table.name}.{name}"
            if name not in known:
                yield error(subject, f"there is no such column{nearest(name, known)}", f"{option} names it")
            elif name in table.key:
                why = f"the topic is keyed by ({', '.join(table.key)}): take it out of {option}"
                yield error(subject, f"{option} names it, and it is part of the key", why)
            elif option == "mask" and not _is_maskable(table, name):
                yield error(subject, "mask names it, and it is no text", "only texts can be masked: exclude it instead")


def _is_maskable(table: Relation, name: str) -> bool:
    """Debezium lets values of other types pass as they are."""
    return any(column["name"] == name and column["is_maskable"] for column in table.columns)


def _columns(look: Look, table: Relation) -> Findings:
    folded = Counter(column["name"].lower() for column in table.columns)
    for name, count in folded.items():
        if count > 1:
            twins = [column["name"] for column in table.columns if column["name"].lower() == name]
            why = "Debezium does not tell such columns apart: rename one"
            yield error(_subject(table), f"its columns {listed(twins)} differ only in capitals", why)
    virtual = [c["name"] for c in table.columns if c["generated"] == "v" and c["name"] not in table.excluded]
    if virtual:
        why = "it is computed when it is read and so is not in the log; compute it again where it is needed"
        yield warning(_subject(table), f"virtual generated columns are left out: {listed(virtual)}", why)
    seen = postgres.Table(table.name, table.oid, table["kind"], table["identity"], 0, table["owner"])
    text = {column["name"] for column in table.columns if column["is_text"]} | table.named(look.capture.mask)
    shown = [
        f"{column.name} ({column.type})"
        for column in postgres.described(look.connection, look.capture, seen).columns
        if column.spark == "string" and column.name not in text
    ]
    if shown:
        yield ok(_subject(table), f"shown as text: {listed(shown)}", "Spark has no type that holds every value of it")


def _family(table: Relation) -> Findings:
    if table["has_children"] and table["kind"] == "r":
        why = "a snapshot of it reads their rows too, but changes of these are logged under their own names"
        yield error(_subject(table), "other tables inherit from it", why + ": capture tables without heirs")
