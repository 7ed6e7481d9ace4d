"""What the checks know of one relation: read from the catalogs, where a role sees also what it may not touch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from psycopg import sql

from millrace.capture.check.look import Look
from millrace.capture.postgres import qualified

_RELATION = """
SELECT c.oid::bigint AS oid, n.oid::bigint AS schema_oid, n.nspname::text AS schema, c.relname::text AS table,
       c.relkind::text AS kind, c.relpersistence::text AS persistence, c.relreplident::text AS identity,
       c.relispartition AS is_partition, c.reltuples::bigint AS rows, pg_get_userbyid(c.relowner)::text AS owner,
       c.reltoastrelid <> 0 AS has_toast, pg_has_role(c.relowner, 'USAGE') AS owned,
       has_schema_privilege(n.oid, 'USAGE') AS schema_usable, has_table_privilege(c.oid, 'SELECT') AS readable,
       row_security_active(c.oid) AS filtered, coalesce(pg_total_relation_size(c.oid), 0)::bigint AS size,
       EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid) AS has_children
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_BY_NAME = _RELATION + " WHERE n.nspname = %s AND c.relname = %s AND c.relkind NOT IN ('i', 'I', 'c', 't')"
_LEAVES = _RELATION + " JOIN pg_catalog.pg_partition_tree(%s) t ON t.relid = c.oid WHERE t.isleaf ORDER BY c.relname"
_ANCESTORS = "SELECT relid::oid::bigint AS oid FROM pg_catalog.pg_partition_ancestors(%s) WHERE relid::oid <> %s"
_COLUMNS = """
SELECT a.attnum AS number, a.attname::text AS name, a.attnotnull AS not_null, a.attstorage::text AS storage,
       a.attgenerated::text AS generated, has_column_privilege(a.attrelid, a.attnum, 'SELECT') AS readable,
       t.typcategory IN ('S', 'E') OR a.atttypid IN ('json'::regtype, 'jsonb'::regtype, 'uuid'::regtype) AS is_text,
       a.atttypid IN ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype) AS is_maskable
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXES = """
SELECT i.relname::text AS name, x.indisprimary AS is_primary, x.indimmediate AS immediate,
       x.indisreplident AS is_identity,
       array(SELECT a.attname::text FROM unnest(x.indkey::int2[]) WITH ORDINALITY k(number, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number
             WHERE k.place <= x.indnkeyatts ORDER BY k.place) AS columns
FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid = %s AND x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL
ORDER BY x.indisprimary DESC, x.indnkeyatts, i.relname
"""


@dataclass(frozen=True)
class Index:
    """A unique index over plain columns and all rows. A deferrable one is not `immediate`, and no replica identity."""

    name: str
    is_primary: bool
    immediate: bool
    is_identity: bool
    columns: tuple[str, ...]


class Relation:
    """One relation. `relation["owner"]` is a fact by its name in the query above."""

    def __init__(self, look: Look, facts: dict[str, Any]) -> None:
        self.look, self.facts = look, facts
        self.oid: int = facts["oid"]
        self.name: str = f"{facts['schema']}.{facts['table']}"
        self.identifier = sql.Identifier(facts["schema"], facts["table"])

    def __getitem__(self, fact: str) -> Any:
        return self.facts[fact]

    @cached_property
    def columns(self) -> list[dict[str, Any]]:
        return self.look.rows(_COLUMNS, self.oid)

    @cached_property
    def indexes(self) -> list[Index]:
        found = self.look.rows(_INDEXES, self.oid)
        return [Index(**{**row, "columns": tuple(row["columns"])}) for row in found]

    @cached_property
    def leaves(self) -> list[Relation]:
        """Where its rows are: itself, or the partitions of a partitioned table."""
        if self["kind"] != "p":
            return [self]
        return [Relation(self.look, row) for row in self.look.rows(_LEAVES, self.oid)]

    @cached_property
    def ancestors(self) -> set[int]:
        return {row["oid"] for row in self.look.rows(_ANCESTORS, self.oid, self.oid)} if self["is_partition"] else set()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell its rows apart in the topic; empty if nothing does."""
        for index in self.indexes:
            if index.is_primary or (index.is_identity and not any(each.is_primary for each in self.indexes)):
                return index.columns
        return ()

    def named(self, columns: tuple[str, ...]) -> set[str]:
        """Those of `table.column` or `schema.table.column` that mean columns of this table, by their last part."""
        parts = (column.rpartition(".") for column in columns)
        return {column for table, _, column in parts if qualified(table) == self.name}

    @property
    def excluded(self) -> set[str]:
        return self.named(self.look.capture.exclude)


def relation(look: Look, name: str) -> Relation | None:
    schema, _, table = qualified(name).partition(".")
    found = look.row(_BY_NAME, schema, table)
    return None if found is None else Relation(look, found)
