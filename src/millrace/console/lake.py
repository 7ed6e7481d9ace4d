"""The lake: its tables, their versions on a time line, and questions to them as they were."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from millrace.config import Settings
from millrace.console.grid import Grid, cell
from millrace.console.views import Answered
from millrace.errors import LakeMomentInvalid, PositionInvalid, RequestInvalid
from millrace.lakehouse import Catalog, LakeTable, Version, moments
from millrace.lakehouse.answers import readable, values
from millrace.lakehouse.asking import Choose, asked
from millrace.lakehouse.catalog import Unseen
from millrace.log import position

NEWEST = "newest"
QUERY_S = 30.0
MOST_ROWS = 10_000
# Those that a time line shows; the page says that there are older ones.
MOST_VERSIONS = 500


@dataclass(frozen=True)
class TableFacts:
    name: str
    format: str
    version: int
    at: datetime | None
    rows: int
    files: int
    size_bytes: int
    flow: str | None
    epoch: int | None


@dataclass(frozen=True)
class VersionFacts:
    """`holds` is by topic and partition the next offset to read: what the version has taken from the log."""

    number: int
    at: datetime
    operation: str
    epoch: int | None
    holds: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class TableLook:
    """A table, the newest of its versions (the oldest of these first), and how many more it has."""

    facts: TableFacts
    columns: Mapping[str, str]
    partition_by: tuple[str, ...]
    versions: tuple[VersionFacts, ...]
    older: int


def tables(settings: Settings) -> list[TableFacts | Unseen]:
    return list(Catalog(settings).looked(lambda table: _facts(table, table.versions())))


def look(settings: Settings, name: str) -> TableLook:
    with Catalog(settings).opened(name) as table:
        versions = table.versions()
        return TableLook(
            _facts(table, versions),
            {each.name: each.dataType.simpleString() for each in table.columns.fields},
            table.partition_by,
            tuple(_version(each) for each in versions[-MOST_VERSIONS:]),
            max(len(versions) - MOST_VERSIONS, 0),
        )


def ask(settings: Settings, name: str, sql: str, as_of: str, most_rows: int) -> Answered:
    """A query of DuckDB's SQL, of the lake alone. `as_of` is a version of the table `name`, and then other tables are
    as they were when it was made; or a time; or the newest."""
    if not 1 <= most_rows <= MOST_ROWS:
        reason, remedy = "it is no such number", f"ask for 1 to {MOST_ROWS:,} rows"
        raise RequestInvalid(parameter="the number of rows", given=most_rows, reason=reason, remedy=remedy)
    chosen: dict[str, str] = {}
    choose = choice(settings, name, as_of)

    def told(table: LakeTable) -> Version | None:
        version = choose(table)
        chosen[table.name] = f"version {table.version if version is None else version.number}"
        return version

    began = time.monotonic()
    with asked(settings, sql.strip().removesuffix(";"), told, limit_s=QUERY_S) as found:
        columns = tuple(found.columns)
        # Row by row as Arrow has them: columns may have the same name, of which a dict would keep one.
        arrow = found.limit(most_rows + 1).to_arrow_table()
    found_rows = zip(*(values(each) for each in arrow.columns), strict=True)
    rows = tuple(tuple(cell(readable(value)) for value in row) for row in found_rows)
    return Answered(Grid(columns, rows[:most_rows]), len(rows) > most_rows, time.monotonic() - began, chosen)


def choice(settings: Settings, name: str, as_of: str) -> Choose:
    """Which version of each table is meant."""
    word = as_of.strip()
    if word in ("", NEWEST, "latest"):
        return lambda _: None
    try:
        at = position(word)
    except PositionInvalid:
        raise LakeMomentInvalid(given=as_of) from None
    if isinstance(at, datetime):
        return lambda table: moments.of_time(table, at)
    if not isinstance(at, int):
        raise LakeMomentInvalid(given=as_of)
    with Catalog(settings).opened(name) as own:
        then = moments.numbered(own, at)
    return lambda table: moments.numbered(table, at) if table.name == name else moments.of_time(table, then.at)


def _facts(table: LakeTable, versions: list[Version]) -> TableFacts:
    files, note = table.files(), table.note()
    return TableFacts(
        table.name,
        table.format,
        table.version,
        versions[-1].at if versions else None,
        sum(each.rows for each in files),
        len(files),
        sum(each.size_bytes for each in files),
        None if note is None else note.flow,
        None if note is None else note.epoch,
    )


def _version(version: Version) -> VersionFacts:
    note = version.note
    holds = {} if note is None else moments.topics_of(note)
    return VersionFacts(version.number, version.at, version.operation, None if note is None else note.epoch, holds)
