"""The publication and the tables of our own: what is there, and whether the role may make what is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import sql

from millrace.capture import postgres
from millrace.capture.check.finding import Finding, Findings, error, listed, ok
from millrace.capture.check.look import COLUMN_LISTS, GENERATED, Look, columns_of
from millrace.capture.check.relation import Relation, relation

OWN_COLUMNS = {postgres.SIGNAL: {"id", "type", "data"}, postgres.HEARTBEAT: {"capture", "at"}}
OPERATIONS = ("insert", "update", "delete", "truncate")

# Which columns it has depends on the version.
_PUBLICATION = """
SELECT p.oid::bigint AS oid, to_jsonb(p) AS facts, pg_has_role(p.pubowner, 'USAGE') AS owned
FROM pg_catalog.pg_publication p WHERE pubname = %s
"""
_TABLES = "SELECT prrelid::bigint AS oid, NULL AS columns, false AS filtered FROM pg_publication_rel WHERE prpubid = %s"
_TABLES_15 = """
SELECT prrelid::bigint AS oid, prattrs::int2[] AS columns, prqual IS NOT NULL AS filtered
FROM pg_catalog.pg_publication_rel WHERE prpubid = %s
"""
_SCHEMAS = "SELECT pnnspid::bigint AS oid FROM pg_catalog.pg_publication_namespace WHERE pnpubid = %s"
_SCHEMA = """
SELECT oid::bigint AS oid, has_schema_privilege(oid, 'USAGE') AS usable,
       has_schema_privilege(oid, 'CREATE') AS may_create
FROM pg_catalog.pg_namespace WHERE nspname = %s
"""
_RIGHTS = """
SELECT bool_and(has_table_privilege(%s::oid, name)) AS all FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) name
"""


@dataclass(frozen=True)
class Publication:
    """`columns` and `filtered` are of the tables that it names; of all others it publishes everything."""

    facts: dict[str, Any]
    owned: bool
    columns: dict[int, set[int] | None]
    filtered: set[int]
    schemas: set[int]

    def has(self, oid: int | None, schema_oid: int | None) -> bool:
        return self.facts["puballtables"] or oid in self.columns or schema_oid in self.schemas


def check_publication(look: Look, tables: list[Relation]) -> Findings:
    found = _publication(look)
    own = {name: relation(look, name) for name in postgres.own_tables(look.capture)}
    yield from _own_tables(look, own)
    yield from _making(look, found, tables, own)
    if found is not None:
        yield from _published(look, found, tables)
        for table in tables:
            yield from _published_columns(look, found, table)
    elif look.settings.version < GENERATED or "publish_generated_columns" not in _plan(look, None, tables, own)[1]:
        for table in tables:
            yield from _generated(look, table, published=False)
    captured = {table.oid: table.name for table in tables}
    for table in tables:
        for oid in table.ancestors:
            under_root = found is not None and found.facts["pubviaroot"] and found.has(oid, None)
            if oid in captured or under_root:
                why = "its changes come as changes of the partitioned table: capture that one instead"
                yield error(f"table {table.name}", "it is a partition of a table that is published itself", why)
                break


def _publication(look: Look) -> Publication | None:
    row = look.row(_PUBLICATION, look.capture.publication_name)
    if row is None:
        return None
    modern = look.settings.version >= COLUMN_LISTS
    tables = look.rows(_TABLES_15 if modern else _TABLES, row["oid"])
    schemas = look.rows(_SCHEMAS, row["oid"]) if modern else []
    return Publication(
        row["facts"],
        row["owned"],
        {each["oid"]: set(each["columns"]) if each["columns"] else None for each in tables},
        {each["oid"] for each in tables if each["filtered"]},
        {each["oid"] for each in schemas},
    )


def _own_tables(look: Look, own: dict[str, Relation | None]) -> Findings:
    """Those that exist have to be what they are taken for, and writable."""
    schema = sql.Identifier(look.capture.own_schema)
    for name, table in own.items():
        if table is None:
            continue
        lacks = OWN_COLUMNS[name.rpartition(".")[2]] - {column["name"] for column in table.columns}
        if lacks or table["kind"] != "r":
            why = "Millrace keeps signals and heartbeats in tables of these names: let it use another schema"
            yield error(f"table {name}", "it exists already, and is something else", why)
            continue
        rights = look.row(_RIGHTS, table.oid)
        if not table["schema_usable"] or not rights or not rights["all"]:
            script = look.script(
                sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, look.to_role),
                sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(table.identifier, look.to_role),
            )
            what = f"role {look.role['name']} may not write it"
            yield error(f"table {name}", what, "signals and heartbeats go through this table", script)


def _plan(
    look: Look, found: Publication | None, tables: list[Relation], own: dict[str, Relation | None]
) -> tuple[list[Relation | str], str]:
    """Which tables the publication lacks, and the very statements that `capture add` would run."""
    schema = look.row(_SCHEMA, look.capture.own_schema)
    lacks: list[Relation | str] = [t for t in tables if found is None or not found.has(t.oid, t["schema_oid"])]
    for name, table in own.items():
        oid = table.oid if table else None
        if found is None or not found.has(oid, schema["oid"] if schema else None):
            lacks.append(table or name)
    existing = {name for name, table in own.items() if table is not None}
    wanted = [*(table.name for table in tables), *own]
    missing = {each if isinstance(each, str) else each.name for each in lacks}
    published = None if found is None else {name for name in wanted if name not in missing}
    todo = postgres.statements(
        look.capture,
        [table.name for table in tables],
        existing,
        published,
        schema_there=schema is not None,
        version=look.settings.version,
    )
    return lacks, look.script(*todo)


def _making(look: Look, found: Publication | None, tables: list[Relation], own: dict[str, Relation | None]) -> Findings:
    capture, role = look.capture, look.role["name"]
    subject = f"publication {capture.publication_name}"
    lacks, todo = _plan(look, found, tables, own)
    if not todo:
        yield ok(subject, "it has the captured tables, and those of Millrace's own")
        return
    strange = [each for each in lacks if isinstance(each, Relation) and not each["owned"]]
    if lacks and (capture.publication is not None or strange or (found is not None and not found.owned)):
        yield _for_others(look, found, lacks, strange, todo + _grants(look, own))
        return
    schema = look.row(_SCHEMA, capture.own_schema)
    grants = []
    if (found is None or schema is None) and not look.role["may_create"]:
        database = sql.Identifier(look.role["database"])
        grants.append(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, look.to_role))
    if schema is not None and None in own.values() and not (schema["usable"] and schema["may_create"]):
        owner = sql.Identifier(capture.own_schema)
        grants.append(sql.SQL("GRANT USAGE, CREATE ON SCHEMA {} TO {}").format(owner, look.to_role))
    if not grants:
        yield ok(subject, "Millrace will make what is lacking", "it runs these statements itself", todo)
        return
    why = "Millrace makes a publication of just the captured tables, and a schema for signals and heartbeats"
    what = f"role {role} may not create what is lacking in database {look.role['database']}"
    yield error(subject, what, why, look.script(*grants))


def _grants(look: Look, own: dict[str, Relation | None]) -> str:
    """What the role needs on tables that somebody else makes for it."""
    if None not in own.values():
        return ""
    usage = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(look.capture.own_schema), look.to_role)
    names = sql.SQL(", ").join(map(postgres.identifier, own))
    write = sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(names, look.to_role)
    return "\n" + look.script(usage, write)


def _for_others(
    look: Look, found: Publication | None, lacks: list[Relation | str], strange: list[Relation], script: str
) -> Finding:
    subject = f"publication {look.capture.publication_name}"
    names = [each if isinstance(each, str) else each.name for each in lacks]
    what = "there is no such publication" if found is None else f"it lacks {listed(names)}"
    if look.capture.publication is not None:
        why = "the definition names it, so it is somebody else's to make and to change"
    elif strange:
        owners = sorted({table["owner"] for table in strange})
        why = f"only the owner of a table may publish it, and {listed([table.name for table in strange])} belong to "
        why += f"{listed(owners)}: let a superuser, or a member of these roles, run this once"
    else:
        why = f"only its owner may add tables, and role {look.role['name']} is not"
    return error(subject, what, why, script)


def _published(look: Look, found: Publication, tables: list[Relation]) -> Findings:
    """What kinds of change it publishes, and under which name those of partitions."""
    subject, name = f"publication {look.capture.publication_name}", sql.Identifier(look.capture.publication_name)
    silent = [operation for operation in OPERATIONS if not found.facts[f"pub{operation}"]]
    if silent:
        value = sql.Literal(", ".join(OPERATIONS))
        script = look.script(sql.SQL("ALTER PUBLICATION {} SET (publish = {})").format(name, value))
        yield error(subject, f"it does not publish {listed(silent)}", "the topics would miss such changes", script)
    divided = [table.name for table in tables if table["kind"] == "p" and found.has(table.oid, table["schema_oid"])]
    if divided and not found.facts["pubviaroot"]:
        script = look.script(sql.SQL("ALTER PUBLICATION {} SET (publish_via_partition_root = true)").format(name))
        why = "their changes would come under the names of partitions, which are not captured"
        yield error(subject, f"it publishes {listed(divided)} by partition", why, script)


def _published_columns(look: Look, found: Publication, table: Relation) -> Findings:
    subject, name = f"publication {look.capture.publication_name}", sql.Identifier(look.capture.publication_name)
    if not found.has(table.oid, table["schema_oid"]):
        return
    chosen = found.columns.get(table.oid)
    generated = found.facts.get("pubgencols") == "s"
    if chosen is None and not generated:
        yield from _generated(look, table, published=True)
    logged = ("", "s") if look.settings.version >= GENERATED else ("",)
    wanted = [c for c in table.columns if c["name"] not in table.excluded and c["generated"] in logged]
    hidden = [c["name"] for c in wanted if chosen is not None and c["number"] not in chosen]
    filtered = table.oid in found.filtered
    if not hidden and not filtered:
        return
    # Generated columns are published by name only; with an exclusion the list stays as short as it can be.
    named = bool(table.excluded) or any(c["generated"] for c in wanted)
    short = sql.SQL(" ({})").format(columns_of([c["name"] for c in wanted])) if named else sql.SQL("")
    script = look.script(
        sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, table.identifier),
        sql.SQL("ALTER PUBLICATION {} ADD TABLE {}{}").format(name, table.identifier, short),
    )
    if hidden:
        why = "changes would come without them, while the snapshot has them: publish or exclude them"
        if set(hidden) & set(table.key):
            why = "PostgreSQL refuses updates and deletes of a published table whose key is hidden"
        yield error(subject, f"of {table.name} it hides {listed(hidden)}", why, script)
    else:
        why = "the snapshot reads every row: those outside of the filter would never be updated or deleted in the topic"
        yield error(subject, f"it publishes only some rows of {table.name}", why, script)


def _generated(look: Look, table: Relation, *, published: bool) -> Findings:
    """`published`: the publication exists, and somebody may change it."""
    columns = [c["name"] for c in table.columns if c["generated"] == "s" and c["name"] not in table.excluded]
    if not columns:
        return
    what = f"its generated columns {listed(columns)} are not published"
    why = "changes would come without them, while the snapshot has them: exclude them from the capture"
    script = None
    if published and look.settings.version >= GENERATED:
        why += ", or publish them"
        alter = sql.SQL("ALTER PUBLICATION {} SET (publish_generated_columns = stored)")
        script = look.script(alter.format(sql.Identifier(look.capture.publication_name)))
    yield error(f"table {table.name}", what, why, script)
