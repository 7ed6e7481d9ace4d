"""Today's random epochs, other ones every day; `make fuzz-lake` takes many."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.lakehouse import Catalog, Committed
from tests.lakehouse.fuzz import Fuzz
from tests.lakehouse.fuzz_captured import Captured
from tests.rotation import today, todays
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "rows"])
@pytest.mark.parametrize("kind", todays(("delta", "iceberg"), 1))
def test_every_version_is_what_the_table_was(
    kind: str, keyed: bool, spark: SparkSession, settings: Settings, postgres: str, tmp_path: Path
) -> None:
    assert postgres
    fuzz = Fuzz(spark, settings, tmp_path, kind, today() % 10_000, keyed)
    assert fuzz.run(8 if keyed else 5) == []
    # The judge sees a file that is missing from the last version.
    with Catalog(settings).opened(fuzz.sink.table) as table:
        table.commit(Committed(table.note(), gone=[table.files()[0].path]))
        fuzz.versions[table.version] = fuzz.state
    assert "differs" in str(fuzz.faults())


@pytest.mark.turn(2, 3)
def test_every_version_is_what_a_captured_database_was(spark: SparkSession, shop: Shop) -> None:
    captured = Captured(spark, shop, today() % 10_000)
    assert captured.run(10) == []
    assert captured.compared > 5
    # The judge sees a row of PostgreSQL's that the table lacks.
    state = captured.states[-1]["items"]
    state[(-1,)] = next(iter(state.values()), ())
    assert "differs" in str(captured.faults())
