"""Tentative rows in the view store: they stand in the view's own table, and the committed rows beside it.

What holds: the table with these put back is the view as its last mark says, to the row. Of each key that is tentative
the undo table has the row that is committed, or that there is none, and what was told of it in which epoch. All of it
is changed in the transactions of `Store`, with the view's position locked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from millrace.views.changelog import row_text

if TYPE_CHECKING:
    import psycopg

    from millrace.views.store import Shape, Store

THERE, EPOCH, KEY, VALUE = "millrace_there", "millrace_epoch", "millrace_key", "millrace_value"


@dataclass(frozen=True)
class Tentative:
    """What was told of a key in an epoch: a record's value, or that its row is gone."""

    value: str | None
    epoch: int

    def is_row(self, value: str | None) -> bool:
        """Whether a value of the changelog says the same: it names its source otherwise."""
        if self.value is None or value is None:
            return self.value is value
        return row_text(self.value.encode()) == row_text(value.encode())


class Overlay:
    """Of one view, on one connection, inside a transaction that holds its position."""

    def __init__(self, store: Store, shape: Shape, connection: psycopg.Connection[Any]) -> None:
        self._store, self._shape, self._connection = store, shape, connection
        self._undo = store.undo(shape.view)
        self._names = [name for name, _ in shape.columns]
        self._others = [name for name in self._names if name not in shape.key]

    def exists(self) -> bool:
        found = self._connection.execute("SELECT to_regclass(%s) IS NOT NULL", (self._undo.as_string(),)).fetchone()
        return found == (True,)

    def create(self) -> None:
        """With nothing in it."""
        self.gone()
        self._run(
            "CREATE TABLE {undo} (LIKE {table}, {there} boolean NOT NULL, {epoch} bigint NOT NULL,"
            " {told} text NOT NULL UNIQUE, {value} text)"
        )
        self._run("CREATE UNIQUE INDEX ON {undo} ({key}) NULLS NOT DISTINCT")

    def gone(self) -> None:
        self._run("DROP TABLE IF EXISTS {undo}")

    def count(self) -> int:
        ((found,),) = self._run("SELECT count(*) FROM {undo}").fetchall()
        return int(found)

    def held(self) -> dict[str, Tentative]:
        rows = self._run("SELECT {told}, {value}, {epoch} FROM {undo}").fetchall()
        return {key: Tentative(value, epoch) for key, value, epoch in rows}

    def lay(self, told: Mapping[str, Tentative]) -> None:
        """Shows tentative rows, and keeps what they hide."""
        alike: dict[tuple[bool, ...], list[str]] = {}
        for key in told:
            values = json.loads(key)
            alike.setdefault(tuple(values[name] is None for name in self._shape.key), []).append(key)
        for nulls, keys in alike.items():
            self._keep(keys, told, nulls)
        self._store.delete(self._connection, self._shape, [key for key, each in told.items() if each.value is None])
        self._store.upsert(self._connection, self._shape, [each.value for each in told.values() if each.value])

    def put_back(self, keys: Iterable[str] | None = None) -> None:
        """The committed rows of these keys, or of all."""
        some = None if keys is None else list(keys)
        if some == []:
            return
        wanted = "(%(keys)s::text[] IS NULL OR u.{told} = ANY(%(keys)s))"
        given = {"keys": some}
        whole = [sql.SQL("u.{} IS NOT NULL").format(sql.Identifier(name)) for name in self._shape.key]
        # Two statements: an index finds what is equal, and does not find IS NOT DISTINCT FROM.
        for condition, matched in (
            (sql.SQL(" AND ").join(whole), "t.{0} = u.{0}"),
            (sql.SQL("NOT ({})").format(sql.SQL(" AND ").join(whole)), "t.{0} IS NOT DISTINCT FROM u.{0}"),
        ):
            matches = sql.SQL(" AND ").join(sql.SQL(matched).format(sql.Identifier(name)) for name in self._shape.key)
            self._run(
                f"DELETE FROM {{table}} t USING {{undo}} u WHERE NOT u.{{there}} AND {wanted} AND {{condition}}"
                " AND {matches}",
                given,
                condition=condition,
                matches=matches,
            )
        self._run(
            f"INSERT INTO {{table}} ({{columns}}) SELECT {{columns}} FROM {{undo}} u WHERE u.{{there}} AND {wanted}"
            " ON CONFLICT ({key}) DO {done}",
            given,
            done=self._store.replacing(self._others),
        )
        self._run(f"DELETE FROM {{undo}} u WHERE {wanted}", given)

    def forget(self, keys: Sequence[str]) -> None:
        """That these are tentative: their rows are the committed ones now."""
        if keys:
            self._run("DELETE FROM {undo} WHERE {told} = ANY(%s)", (list(keys),))

    def certain(self, epoch: int) -> Certain:
        return Certain(self, epoch)

    def _keep(self, keys: list[str], told: Mapping[str, Tentative], nulls: tuple[bool, ...]) -> None:
        match = sql.SQL(" AND ").join(
            sql.SQL("t.{0} IS NULL" if is_null else "t.{0} = d.{0}").format(sql.Identifier(name))
            for name, is_null in zip(self._shape.key, nulls, strict=True)
        )
        columns = [
            sql.SQL("d.{}" if name in self._shape.key else "t.{}").format(sql.Identifier(name)) for name in self._names
        ]
        self._run(
            "INSERT INTO {undo} ({columns}, {there}, {epoch}, {told}, {value})"
            " SELECT {found}, t.tableoid IS NOT NULL, g.epoch, g.key, g.value"
            " FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS g (key, value, epoch)"
            " CROSS JOIN LATERAL json_populate_record(NULL::{table}, g.key::json) d LEFT JOIN {table} t ON {match}"
            " ON CONFLICT ({key}) DO UPDATE SET {epoch} = excluded.{epoch}, {value} = excluded.{value}",
            (keys, [told[key].value for key in keys], [told[key].epoch for key in keys]),
            found=sql.SQL(", ").join(columns),
            match=match,
        )

    def _run(self, text: str, given: Any = None, **parts: Any) -> psycopg.Cursor[Any]:
        listed = {
            "key": [sql.Identifier(name) for name in self._shape.key],
            "columns": [sql.Identifier(name) for name in self._names],
        }
        named = {
            "undo": self._undo,
            "table": sql.Identifier(self._store.schema, self._shape.view),
            "there": sql.Identifier(THERE),
            "epoch": sql.Identifier(EPOCH),
            "told": sql.Identifier(KEY),
            "value": sql.Identifier(VALUE),
            **{name: sql.SQL(", ").join(each) for name, each in listed.items()},
        }
        return self._connection.execute(sql.SQL(text).format(**named, **parts), given)


class Certain:
    """What becomes certain with the mark of an epoch: tentative rows of it and of earlier ones are so no longer."""

    def __init__(self, overlay: Overlay, epoch: int) -> None:
        self._overlay, self._epoch = overlay, epoch
        self._held = overlay.held()
        self._again: dict[str, Tentative] = {}

    def unknown(self, changes: Mapping[str, str | None]) -> dict[str, str | None]:
        """Of values by key in the changelog, those that the table does not show already. Rows of a later epoch are
        taken out, so that what they hid can be changed, until the `end`."""
        met = {key: self._held.pop(key) for key in changes if key in self._held}
        later = {key: each for key, each in met.items() if each.epoch > self._epoch}
        self._overlay.put_back(later)
        self._again |= later
        self._overlay.forget([key for key in met if key not in later])
        shown = {key for key, each in met.items() if key not in later and each.is_row(changes[key])}
        return {key: value for key, value in changes.items() if key not in shown}

    def end(self) -> None:
        """What the changelog says nothing of never became certain."""
        self._overlay.put_back([key for key, each in self._held.items() if each.epoch <= self._epoch])
        self._overlay.lay(self._again)


def certain_rows(store: Store, view: str, columns: Sequence[str], key: Sequence[str]) -> Any:
    """A statement that gives a view's rows without tentative ones."""
    same = sql.SQL(" AND ").join(
        sql.SQL("u.{0} IS NOT DISTINCT FROM t.{0}").format(sql.Identifier(each)) for each in key
    )
    return sql.SQL(
        "SELECT t.* FROM {table} t WHERE NOT EXISTS (SELECT FROM {undo} u WHERE {same})"
        " UNION ALL SELECT {columns} FROM {undo} WHERE {there}"
    ).format(
        table=sql.Identifier(store.schema, view),
        undo=store.undo(view),
        same=same,
        columns=sql.SQL(", ").join(sql.Identifier(name) for name in columns),
        there=sql.Identifier(THERE),
    )
