"""What Spark reads of a lake table is what DuckDB reads of it, of both formats and of older versions too."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

import millrace as mr
from millrace.config import Settings
from millrace.errors import LakeNotPlain
from millrace.flow import App
from millrace.lakehouse import LakeTable
from millrace.lakehouse.asking import asked
from tests.lakehouse.filled import COLUMNS, FORMATS, epoch, file_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", FORMATS)
def test_divided_grown_and_older_tables(project: Settings, made: LakeTable, spark: SparkSession) -> None:
    def read(version: int | None = None) -> Any:
        return mr.now(App("any").lake(made.name, version=version), spark, project)

    assert read().columns == COLUMNS.names
    assert read().count() == 0
    epoch(made, 0, [file_of(made, range(3)), file_of(made, [7], region="")])
    first = made.version
    made.add([StructField("more", StringType())])
    epoch(made, 1, [file_of(made, [8], None, more="x")])
    if made.grows:
        fields = [each for each in made.columns.fields if each.name != "amount"]
        made.grow(StructType([*fields, StructField("amount", DecimalType(14, 2))]))
    with asked(project, f"SELECT * FROM {made.name} ORDER BY id") as found:
        wanted = found.to_arrow_table().to_pylist()
    assert read().orderBy("id").toArrow().to_pylist() == wanted
    assert [row["region"] for row in wanted] == ["north"] * 3 + ["" if made.grows else None, None]
    assert [row["more"] for row in wanted] == [None] * 4 + ["x"]
    assert read(first).columns == COLUMNS.names
    assert sorted(row.id for row in read(first).collect()) == [0, 1, 2, 7]
    table: Any = made
    if made.format == "delta":
        from deltalake import TableFeatures

        table._table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    else:
        with table._table.update_schema() as update:
            update.rename_column("more", "further")
    with pytest.raises(LakeNotPlain, match=made.name):
        read()
