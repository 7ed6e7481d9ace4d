"""Columns of lake tables that have another name by now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.errors import OptionInvalid, SinkColumnUnfit, SinkKeyUnknown, SinkTargetUnfit
from millrace.lakehouse import LakeTable, Version
from millrace.lakehouse.asking import connected, words
from millrace.lakehouse.compacting import compact
from millrace.sinks import Feed
from millrace.sinks.lake import lake
from tests.lakehouse.readers import by_library
from tests.rotation import todays
from tests.sinks.lake_written import Written, numbers
from tests.sinks.test_lake import FORMATS

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture
def made(spark: SparkSession, settings: Settings, postgres: str, tmp_path: Path) -> Callable[[str], Written]:
    assert postgres
    return lambda kind: Written(spark, settings, tmp_path / str(next(numbers)), kind)


def everywhere(table: LakeTable, version: Version | None = None) -> list[dict[str, Any]]:
    """As DuckDB reads it by its extension, as it is asked here, and as the format's own library reads it: all alike."""
    found = []
    for scan in (table.scan(version), words(table, version)):
        with connected(scan) as connection:
            found.append(connection.sql(f"SELECT * FROM {scan}").to_arrow_table().to_pylist())
    found.append(by_library(table, version))
    ordered = [sorted(rows, key=lambda row: str(row.get("id", row.get("nr")))) for rows in found]
    assert ordered[0] == ordered[1] == ordered[2]
    return [{name: value for name, value in row.items() if name != "__version"} for row in ordered[0]]


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
@pytest.mark.parametrize("keyed", todays((True, False), 1))
def test_a_column_is_renamed_and_older_versions_keep_its_name(
    kind: str, keyed: bool, made: Callable[[str], Written]
) -> None:
    table, sql = made(kind), made(kind).spark.sql
    sink = table.sink(key="nr" if keyed else None)
    table.write(sql("SELECT 1 AS nr, 'a' AS text, 1.5BD AS price UNION ALL SELECT 2, 'b', 2.5BD"), sink)
    table.write(sql("SELECT 3 AS nr, 'c' AS text, 3.5BD AS price"), sink)
    older = [{"nr": n, "text": text, "price": n + 0.5} for n, text in ((1, "a"), (2, "b"), (3, "c"))]
    with table.table() as opened:
        before = opened.versions()[-1]

    # The key too; and with that, one that comes and one that grows.
    sink = table.sink(key="id" if keyed else None, renamed={"id": "nr", "label": "text"})
    table.write(sql("SELECT 2L AS id, 'new' AS label, 9.5BD AS price, true AS more"), sink)
    # Once is enough, and what is said again is nothing new.
    table.write(sql("SELECT 4L AS id, 'd' AS label, 4.5BD AS price, false AS more"), sink)
    wanted = [
        *({"id": n, "label": text, "price": n + 0.5, "more": None} for n, text in ((1, "a"), (2, "b"), (3, "c"))),
        {"id": 4, "label": "d", "price": 4.5, "more": False},
    ]
    if keyed:
        wanted[1] = {"id": 2, "label": "new", "price": 9.5, "more": True}
    else:
        wanted.insert(2, {"id": 2, "label": "new", "price": 9.5, "more": True})

    def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
        return sorted(map(str, (_plain(row) for row in found))) == sorted(map(str, wanted))

    with table.table() as opened:
        assert same(everywhere(opened), wanted)
        assert same(everywhere(opened, before), older)
        assert opened.plain(), "Spark and others read the files by their names"
        assert opened.columns_of(before).names[:3] == ["nr", "text", "price"]
        compact(opened)
        assert len(opened.files()) == 1
        assert same(everywhere(opened), wanted)
        assert same(everywhere(opened, before), older)
    table.write(sql("SELECT 4L AS id, 'e' AS label, 4.5BD AS price, true AS more"), sink)
    assert {row["label"] for row in table.rows()} >= {"a", "c", "e"}

    table.write(sql("SELECT 4L AS id, 'e' AS label, 1BD AS cost"), table.sink(key=sink.key or None))
    cost = sql("SELECT 1L AS id, 1BD AS cost")
    with pytest.raises(SinkTargetUnfit, match="it has 'price' and 'cost'"):
        table.write(cost, table.sink(key=sink.key or None, renamed={"cost": "price"}))
    # By `text` older versions of Iceberg's know the label.
    other = sql("SELECT 5L AS id, 'f' AS label, 'g' AS text")
    if kind == "iceberg":
        with pytest.raises(SinkTargetUnfit, match="another column was called 'text' there"):
            table.write(other, table.sink(key=sink.key or None))
    else:
        table.write(other, table.sink(key=sink.key or None))
        assert [row["text"] for row in table.rows() if row["id"] == 5] == ["g"]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(value) if name == "price" else value for name, value in row.items()}


def test_what_is_no_other_name(spark: SparkSession) -> None:
    for renamed in ({"a": 1}, {"a": "a"}, {"a": "b", "b": "c"}, {"a": "c", "b": "c"}, {"": "a"}):
        with pytest.raises(OptionInvalid, match="renamed"):
            lake("orders", renamed=renamed)  # type: ignore[arg-type]
    feed = Feed(spark.sql("SELECT 1 AS id, 2 AS nr").schema, ())
    with pytest.raises(SinkColumnUnfit, match="'nr': it is renamed, and still there"):
        lake("orders", renamed={"id": "nr"}).check(feed)
    with pytest.raises(SinkKeyUnknown, match="'nix'"):
        lake("orders", renamed={"nix": "old"}).check(feed)
