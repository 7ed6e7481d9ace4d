"""A lake table as `test_rebuilding` takes its sinks: how it is read, damaged and destroyed, and what a switch does."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from millrace.config import Settings
from millrace.lakehouse import Catalog, Committed
from millrace.lakehouse.asking import connected
from millrace.lakehouse.delta import Delta
from millrace.lakehouse.iceberg import Iceberg
from millrace.lakehouse.table import DATA
from millrace.sinks import VERSION
from millrace.sinks.lake import lake
from millrace.sinks.ledger import FileLedger

_numbers = itertools.count(1)


def lake_place(settings: Settings, name: str, kind: Any) -> tuple[Any, ...]:
    """The fields of a `Place`."""
    catalog = Catalog(settings)

    def rows() -> dict[int, str]:
        with catalog.opened(name) as table, connected() as connection:
            found = connection.sql(f"SELECT id, name FROM {table.scan()}").fetchall()
        return dict(found)

    def damage() -> None:
        forged = [row for row in rows().items() if row[0] not in (2, 3)] + [(3, "forged"), (99, "strange")]
        with catalog.opened(name) as table:
            given = [{"id": key, "name": text, VERSION: 5} for key, text in forged]
            path = table.folder / DATA / "hand" / f"{next(_numbers)}.parquet"
            path.parent.mkdir(exist_ok=True)
            parquet.write_table(pyarrow.Table.from_pylist(given, table.arrow()), path)
            gone = [each.path for each in table.files()]
            table.commit(Committed(None, [str(path.relative_to(table.folder))], gone))

    def destroy() -> None:
        shutil.rmtree(catalog.folder / name)

    def left() -> list[str]:
        with catalog.opened(name) as table:
            read = {str(Path(each.path).parents[1]) for each in table.files()}
            made = [str(path.relative_to(table.folder)) for path in (table.folder / DATA).glob("*/rebuilt*")]
            versions = {f"{DATA}/{each.note.folder}" for each in table.versions() if each.note}
        return [each for each in made if each not in read | versions]

    steps = [(Delta if kind == "delta" else Iceberg, "commit"), (FileLedger, "write")]
    return lake(name, format=kind), rows, damage, destroy, left, steps
