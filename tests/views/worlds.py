"""Random tables in a real PostgreSQL, and random transactions on them, told as the rows that they leave."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.types import TypeInfo
from psycopg.types.string import TextBinaryLoader

from millrace.model.signed import Bag, Table, canonical
from millrace.views import Relation, named
from millrace.views.steps import CLOCK
from millrace.views.types import enum

TYPES = (
    "integer", "integer", "bigint", "smallint", "numeric(8,2)", "numeric(8,2)", "numeric(12,4)", "numeric", "text",
    "text", "varchar(8)", "char(4)", "boolean", "boolean", "double precision", "real", "date", "timestamp",
    "timestamptz",
)  # fmt: skip
# Drawn only where plain Python answers: how rows of these come out of a topic is tried by `tests/capture`.
MORE = (
    *TYPES,
    "timestamp",
    "timestamptz",
    "time",
    "time(1)",
    "mood",
    "mood",
    "uuid",
    "uuid",
    "jsonb",
    "jsonb",
    "bytea",
)
LABELS = ("sad", "ok", "so so")
FIRST = datetime(2024, 1, 31, 22, 59, 59, 999_999)
BEGINS = FIRST.replace(tzinfo=UTC)
WORDS = ("", "a", "A", "ab", "abc", "b ", " x", "ä", "Zebra", "zebra", "\U0001f409", "a%b", "0", "12")


def value(draw: random.Random, type_: str) -> Any:
    """Few different ones, so that rows meet; now and then a null."""
    if draw.random() < 0.15:
        return None
    if type_ in ("integer", "bigint", "smallint"):
        return draw.choice((-7, -3, -1, 0, 0, 1, 1, 2, 2, 3, 5, 7, 100, 32000))
    if type_.startswith("numeric"):
        found = Decimal(
            draw.choice(("0", "0", "1", "1.5", "-1.5", "2.25", "7", "0.01", "-0.05", "333.33", "10", "99.99"))
        )
        if type_ == "numeric":
            return draw.choice(
                (found, found, Decimal("1.50"), Decimal("0.000000123"), Decimal("12345678901234567890.5"))
            )
        return found
    if type_ in ("double precision", "real"):
        return draw.choice((0.0, -0.0, 0.1, 0.5, 1.0, -2.5, 3.5, 1e10, 100.25))
    if type_ == "boolean":
        return draw.random() < 0.5
    if type_ == "date":
        return date(2024, 2, 27) + timedelta(days=draw.choice((0, 1, 2, 3, 40, 366, -60)))
    if type_.startswith("timestamp"):
        moment = FIRST + timedelta(hours=draw.choice((0, 1, 2, 24, 700, 9000)))
        return moment.replace(tzinfo=UTC) if type_ == "timestamptz" else moment
    if type_ in _FEW:
        return draw.choice(_FEW[type_])
    text = draw.choice(WORDS)
    return text[: int(type_[-2])] if type_.endswith(")") else text


_TIMES = ("00:00", "09:05:30", "12:00", "12:00:00.5", "12:00:00.45", "23:59:59.999999", "24:00")
_FEW: dict[str, tuple[Any, ...]] = {
    "time": _TIMES,
    "time(1)": _TIMES,
    "mood": LABELS,
    "uuid": tuple(f"{digit}000000A-0000-4000-8000-00000000000f" for digit in "019aF"),
    "bytea": (b"", b"\x00", b"a", b"\xff"),
    "jsonb": (
        '{"a": "x", "n": 1.50, "b": {"c": "y"}}', '{"a": null, "n": -2, "b": {"c": {"d": 1}}}', '{"a": 12, "b": [1]}',
        '{"n": "7.25", "a": {"c": "ü"}, "b": "c"}', '{"a": "", "n": null, "b": {"c": true}}', "{}", "[1]", "3",
        '"a"', "null",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """A table: what tells its rows apart (the first columns), `k` to join by, and others."""

    name: str
    columns: dict[str, str]
    key: tuple[str, ...] = ("id",)

    @property
    def relation(self) -> Relation:
        types = {name: enum(type_) if type_ == "mood" else named(type_) for name, type_ in self.columns.items()}
        return Relation(self.name, types, self.key)


def moods(connection: psycopg.Connection[Any]) -> None:
    """An enum, whose labels are read as texts."""
    connection.execute(f"CREATE TYPE mood AS ENUM {LABELS}")  # type: ignore[arg-type]
    info = TypeInfo.fetch(connection, "mood")
    assert info is not None
    connection.adapters.register_loader(info.oid, TextBinaryLoader)


def tables(draw: random.Random, types: Sequence[str] = TYPES) -> list[Made]:
    made = []
    for number in range(3):
        key = {"id": "integer", "p": "integer"} if types == MORE and draw.random() < 0.4 else {"id": "integer"}
        columns = {**key, "k": "integer"}
        columns |= {f"{'abcdefgh'[place]}": draw.choice(types) for place in range(draw.randint(3, 6))}
        made.append(Made(f"t{number}", columns, tuple(key)))
    return made


@dataclass
class World:
    """Tables in a schema of their own; `rows` are what they hold, by table and id, and `changes` the signed rows that
    made them. `before` is an LSN just before the last commit; `now` is what now() is taken for."""

    connection: psycopg.Connection[Any]
    draw: random.Random
    tables: list[Made]
    rows: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=dict)
    changes: dict[str, list[tuple[tuple[Any, ...], int]]] = field(default_factory=dict)
    before: int = 0
    now: datetime = BEGINS
    hours: int = 0

    def advance(self) -> None:
        """Often to the very moment at which a row comes or goes, or one µs later."""
        self.hours += self.draw.choice((0, 1, 12, 24, 664))
        self.now = BEGINS + timedelta(hours=self.hours, microseconds=self.draw.choice((0, 0, 1)))

    def at(self, sql: str) -> str:
        return sql.replace("now()", f"TIMESTAMPTZ '{self.now.isoformat()}'")

    def create(self) -> None:
        self.connection.execute("DROP SCHEMA IF EXISTS fuzz CASCADE")
        self.connection.execute("CREATE SCHEMA fuzz")
        self.connection.execute("SET search_path = fuzz")
        moods(self.connection)
        for table in self.tables:
            listed = ", ".join(f"{name} {type_}" for name, type_ in table.columns.items())
            self.connection.execute(f"CREATE TABLE {table.name} ({listed}, PRIMARY KEY ({', '.join(table.key)}))")
        self.connection.commit()
        self.rows = {table.name: {} for table in self.tables}
        self.changes = {table.name: [] for table in self.tables}

    def transaction(self) -> dict[str, Counter[str]]:
        """Changes some rows, and says what happened to each table."""
        happened: dict[str, Counter[str]] = {table.name: Counter() for table in self.tables}
        changes = self.draw.choice((1, 2, 4, 8)) if any(self.rows.values()) else 36
        for table in self.draw.choices(self.tables, k=changes):
            self._change(table, happened[table.name])
        found = self.connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert found is not None
        self.before = int(found[0])
        self.connection.commit()
        return happened

    def _change(self, table: Made, happened: Counter[str]) -> None:
        own, told = self.rows[table.name], self.changes[table.name]
        kind = self.draw.choices(("insert", "update", "delete"), (4, 3, 2))[0] if own else "insert"
        key = self.draw.choice(list(own)) if own and kind != "insert" else self._new(table)
        where, width = " AND ".join(f"{name} = %s" for name in table.key), len(table.key)
        others = {name: value(self.draw, type_) for name, type_ in table.columns.items() if name not in table.key}
        if kind == "update":
            names = self.draw.sample(list(others), self.draw.randint(1, len(others)))
            others = {name: others[name] for name in names}
            changed = dict(others)
            if self.draw.random() < 0.1:
                changed["id"] = max(own)[0] + 1
            listed = ", ".join(f"{name} = %s" for name in changed)
            found = self._run(
                f"UPDATE {table.name} SET {listed} WHERE {where} RETURNING new.*", (*changed.values(), *key)
            )
            told += [(own.pop(key), -1), (found, 1)]
            own[found[:width]] = found
        elif kind == "delete":
            self._run(f"DELETE FROM {table.name} WHERE {where} RETURNING id", key)
            told.append((own.pop(key), -1))
        else:
            places = ", ".join(["%s"] * (len(others) + width))
            found = self._run(f"INSERT INTO {table.name} VALUES ({places}) RETURNING *", (*key, *others.values()))
            own[found[:width]] = found
            told.append((found, 1))
        happened[kind] += 1
        happened["null"] += None in others.values()

    def _new(self, table: Made) -> tuple[Any, ...]:
        """A key of a row that is to come; of two columns often one that has half of another's."""
        own = self.rows[table.name]
        last = max((key[0] for key in own), default=0)
        if len(table.key) == 1:
            return (last + self.draw.randint(1, 3),)
        halves = [(number, part) for number in range(1, last + 1) for part in (0, 1) if (number, part) not in own]
        return self.draw.choice(halves) if halves and self.draw.random() < 0.6 else (last + 1, self.draw.randint(0, 1))

    def _run(self, sql: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        row = self.connection.execute(sql, values, binary=True).fetchone()  # type: ignore[call-overload]
        assert row is not None
        return tuple(canonical(each) for each in row)

    def held(self) -> dict[str, Table]:
        held = {table.name: Table(tuple(table.columns), Bag(self.rows[table.name].values())) for table in self.tables}
        return {**held, CLOCK: Table(("now",), Bag([(self.now,)]))}
