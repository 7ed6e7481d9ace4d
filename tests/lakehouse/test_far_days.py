"""Days and moments that Python does not know (PostgreSQL's infinity, the year 12000), in tables of both formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.types import DateType, LongType, StructField, StructType, TimestampNTZType, TimestampType

from millrace.lakehouse import Committed, LakeTable
from millrace.lakehouse.answers import values
from millrace.lakehouse.asking import connected, words
from millrace.lakehouse.compacting import compact
from millrace.lakehouse.delta import Delta
from millrace.lakehouse.iceberg import Iceberg
from millrace.lakehouse.place import Disk

COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("day", DateType()),
        StructField("at", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField("placed", DateType()),
    ]
)
DAYS, MICROS = (2**31 - 1, -(2**31), 3_663_441, 0), (2**63 - 1, -(2**63), 253_402_300_800_000_000, 0)
ENDS, EVER = ["infinity", "-infinity"], "+10000-01-01T00:00:00"


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LakeTable]:
    place = Disk(tmp_path / "far")
    catalog = SqlCatalog("millrace", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    found = Delta("far", place) if request.param == "delta" else Iceberg("far", place, catalog)
    found.create(COLUMNS, ())
    yield found
    found.close()


def test_they_are_kept_found_and_shown(table: LakeTable) -> None:
    for number, (day, micros) in enumerate(zip(DAYS, MICROS, strict=True)):
        columns = {
            "id": pyarrow.array([number]),
            "day": pyarrow.array([day], pyarrow.int32()).cast(pyarrow.date32()),
            "at": pyarrow.array([micros]).cast(pyarrow.timestamp("us", "UTC")),
            "local": pyarrow.array([micros]).cast(pyarrow.timestamp("us")),
            "placed": pyarrow.array([20_000 + number], pyarrow.int32()).cast(pyarrow.date32()),
        }
        table.place.make(f"data/flow/{number}")
        path = f"data/flow/{number}/part.parquet"
        parquet.write_table(pyarrow.table(columns), table.place.arrow(path))
        table.commit(Committed(None, [path]))
    # Of other days files say the least and the greatest all the same.
    assert all({"id", "placed"} <= each.low.keys() <= set(COLUMNS.names) for each in table.files())
    assert sorted(len(each.low) for each in table.files()) == [2, 2, 2, 5]
    for _ in range(2):
        with connected() as connection:
            for scan in (table.scan(), words(table)):
                found = connection.sql(f"SELECT * FROM {scan} ORDER BY id").to_arrow_table()
                assert values(found["day"])[:3] == [*ENDS, "+12000-02-29"]
                assert values(found["at"])[:3] == [*ENDS, f"{EVER}+00:00"]
                assert values(found["local"])[:3] == [*ENDS, EVER]
                for where in ("day = 'infinity'", "\"at\" = 'infinity'", "local = 'infinity'"):
                    assert connection.sql(f"SELECT id FROM {scan} WHERE {where}").fetchall() == [(0,)], where
        compact(table)
    assert len(table.files()) == 1
