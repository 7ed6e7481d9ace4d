"""Tables whose files are written by hand: what commits, versions and queries do needs no Spark."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType, TimestampType

from millrace import config
from millrace.config import Lake, Secret, Settings
from millrace.lakehouse import Committed, LakeTable, Note
from millrace.lakehouse.asking import asked

IN_S3 = "delta in S3"
ON_DISK = ("delta", pytest.param("iceberg", marks=pytest.mark.server))
FORMATS = (*ON_DISK, pytest.param(IN_S3, marks=[pytest.mark.server, pytest.mark.turn(1, 3)]))
COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("region", StringType()),
        StructField("amount", DecimalType(12, 2)),
        StructField("placed", TimestampType()),
    ]
)
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
_numbers = itertools.count(1)


def project_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> Settings:
    """A project of one's own for tables of this kind; Iceberg's catalog is the shared PostgreSQL's, and the bucket the
    shared S3's."""
    found = config.load(folder)
    if kind == "delta":
        return found
    if kind == IN_S3:
        shared: Settings = request.getfixturevalue("bucket")
        return replace(found, lake=replace(shared.lake, bucket=f"{shared.lake.bucket}/own{uuid.uuid4().hex[:8]}"))
    url = request.getfixturevalue("postgres").rpartition("/")[0] + "/millrace"
    return replace(found, lake=Lake(catalog=Secret("lake.catalog", url)))


def format_of(kind: str) -> str:
    return kind.partition(" ")[0]


def file_of(table: LakeTable, ids: Iterable[int], region: str | None = "north", more: str | None = None) -> str:
    """A file as Spark would write it; its path."""
    keys = list(ids)
    path = f"data/flow/{table.version + 1}-hand{next(_numbers)}/part.parquet"
    columns: dict[str, Any] = {
        "id": pyarrow.array(keys, pyarrow.int64()),
        "region": pyarrow.array([region] * len(keys), pyarrow.string()),
        "amount": pyarrow.array([Decimal(key) for key in keys], pyarrow.decimal128(12, 2)),
        "placed": pyarrow.array([AT] * len(keys), pyarrow.timestamp("us", "UTC")),
    }
    if more is not None:
        columns["more"] = pyarrow.array([more] * len(keys))
    place = table.place
    place.make(path.rpartition("/")[0])
    parquet.write_table(pyarrow.table(columns), place.arrow(path), filesystem=place.filesystem)
    return path


def ids(settings: Settings, table: LakeTable, choose: Callable[[LakeTable], Any] = lambda _: None) -> list[int]:
    with asked(settings, f"SELECT id FROM {table.name} ORDER BY id", choose) as found:
        return [row["id"] for row in found.to_arrow_table().to_pylist()]


def epoch(table: LakeTable, number: int, files: Iterable[str], gone: Iterable[str] = ()) -> None:
    """Commits an epoch that read ten records of each of two partitions."""
    first, end = 10 * number, 10 * number + 10
    ranges = f'[{{"shop.orders":{{"0":[{first},{end}],"1":[{first},{end}]}}}}]'
    table.commit(Committed(Note("flow", number, ranges, f"flow/{number}"), list(files), list(gone)))
