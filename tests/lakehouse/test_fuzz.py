"""Today's random epochs, other ones every day; `make fuzz-lake` takes many."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.lakehouse import Catalog, Committed
from tests.lakehouse.fuzz import Fuzz
from tests.rotation import today, todays

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.parametrize("kind", todays(("delta", "iceberg"), 1))
def test_every_version_is_what_the_table_was(
    kind: str, spark: SparkSession, settings: Settings, postgres: str, tmp_path: Path
) -> None:
    assert postgres
    fuzz = Fuzz(spark, settings, tmp_path, kind, today() % 10_000)
    assert fuzz.run(8) == []
    # The judge sees a file that is missing from the last version.
    with Catalog(settings).opened(fuzz.sink.table) as table:
        table.commit(Committed(table.note(), gone=[table.files()[0].path]))
        fuzz.versions[table.version] = fuzz.state
    assert "differs" in str(fuzz.faults())
