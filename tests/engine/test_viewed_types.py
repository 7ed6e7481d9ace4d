"""Of which types a view takes the columns of a captured table: what the catalogue says of them, enums by their name."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from millrace.capture import CapturedTable, capture
from millrace.capture import postgres as catalogue
from millrace.capture.database import parsed
from millrace.engine.viewed import type_of

COLUMNS = {
    "id": ("integer", "integer"), "mood": ("mood", "mood"), "own": ("own.mood", "own.mood"),
    "moods": ("mood[]", "a type that is only passed on"), "spent": ("time", "time"), "short": ("time(3)", "time"),
    "away": ("timetz", "a type that is only passed on"), "hidden": ("mood", "a type that is only passed on"),
    "host": ("inet", "a type that is only passed on"), "note": ("varchar(3)", "text"),
}  # fmt: skip


@pytest.mark.server
def test_an_enum_is_told_from_what_is_only_passed_on(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        connection.execute("CREATE SCHEMA own CREATE TABLE nothing (id integer)")
        connection.execute("CREATE TYPE own.mood AS ENUM ('sad', 'ok')")
        listed = ", ".join(f"{name} {type_}" for name, (type_, _) in COLUMNS.items())
        connection.execute(f"CREATE TABLE t ({listed}, PRIMARY KEY (id))")  # type: ignore[arg-type]
    with catalogue.connect("types", parsed("types", postgres_database)) as connection:
        table = catalogue.tables(connection)["public.t"]
        wanted = capture("types", ["t"], mask=["t.hidden"])
        described = catalogue.described(connection, wanted, table)
    # As it is remembered, too; and what was remembered before enums were.
    kept = described.as_json()
    assert CapturedTable.from_json(kept) == described
    assert {each.name: str(type_of(each)) for each in described.columns} == {
        name: told for name, (_, told) in COLUMNS.items()
    }
    for each in kept["columns"]:
        del each["enum"]
    earlier = {each.name: str(type_of(each)) for each in CapturedTable.from_json(kept).columns}
    assert earlier["mood"] == "a type that is only passed on"
    assert earlier["spent"] == "time"


@pytest.fixture
def postgres_database(postgres: str) -> Iterator[str]:
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("CREATE DATABASE types")
    yield postgres.rpartition("/")[0] + "/types"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("DROP DATABASE types WITH (FORCE)")
