"""Lake tables written as a flow writes them, epoch by epoch, and read by DuckDB."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace.config import Settings
from millrace.lakehouse import Catalog, LakeTable
from millrace.lakehouse.asking import connected
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Writer, lake_files
from millrace.sinks.lake import Lake, lake

numbers = itertools.count(1)


def rows_of(table: LakeTable) -> list[dict[str, Any]]:
    """As DuckDB reads them."""
    with connected() as connection:
        found: list[dict[str, Any]] = connection.sql(f"SELECT * FROM {table.scan()}").to_arrow_table().to_pylist()
    return found


@dataclass
class Written:
    """A sink with its target, written to epoch by epoch."""

    spark: SparkSession
    settings: Settings
    folder: Path
    format: Any
    number: int = 0

    def __post_init__(self) -> None:
        self.name = f"made{next(numbers)}"

    def sink(self, **options: Any) -> Lake:
        return lake(self.name, format=self.format, name="lake", **options)

    @contextlib.contextmanager
    def opened(self, sink: Lake, columns: StructType, *, flow: str = "flow", key: tuple[str, ...]) -> Iterator[Writer]:
        feed = Feed(columns, key, bool(key))
        sink.check(feed)
        with contextlib.closing(sink.open(self.settings, flow, feed, self.folder / "own")) as writer:
            yield writer

    def write(self, rows: DataFrame, sink: Lake | None = None, *, flow: str = "flow", gone: bool = False) -> None:
        """The next epoch."""
        sink = sink or self.sink()
        given = rows.withColumn(DIFF, F.lit(-1 if gone else 1)).withColumn(VERSION, F.lit(self.number).cast("long"))
        before = self.settings_of_spark()
        with self.opened(sink, rows.schema, flow=flow, key=sink.key) as writer:
            writer.write(Epoch(flow, self.number, f"[{self.number}]"), given, refuse)
        assert self.settings_of_spark() == before, "the session is the user's"
        self.number += 1

    def settings_of_spark(self) -> dict[str, str]:
        return {name: self.spark.conf.get(name) or "" for name in (*lake_files._SESSION, *lake_files._ONE_BY_ONE)}

    @contextlib.contextmanager
    def table(self) -> Iterator[LakeTable]:
        with Catalog(self.settings).opened(self.name) as table:
            yield table

    def asked(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """As DuckDB answers, by what the format's extension makes of the commits."""
        with self.table() as table, connected() as connection:
            found = connection.execute(query.format(table.scan()), values)
            return [dict(zip([each[0] for each in found.description], row, strict=True)) for row in found.fetchall()]

    def rows(self) -> list[dict[str, Any]]:
        with self.table() as table:
            return rows_of(table)


def refuse(rows: Any) -> None:
    raise AssertionError(rows)
