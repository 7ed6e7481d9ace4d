"""Random views as flows over captured tables: whole transactions only, and of these what PostgreSQL answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.engine import viewing
from tests.rotation import todays
from tests.shop import Shop
from tests.views.flows import RECORDS_AN_EPOCH, Checked, check


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.turn(1, 3)
def test_views_hold_what_postgresql_answers_at_the_same_lsn(
    shop: Shop, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At many positions, interrupted in between, and with epochs that are done again."""
    monkeypatch.setattr(viewing, "FIRST_RECORDS_AN_EPOCH", RECORDS_AN_EPOCH)
    checked = Checked()
    for seed in todays(range(1, 5), 1):
        check(spark, shop, seed, tmp_path, checked, count=3, transactions=12)
    print(checked)
    assert not checked.faults, "\n".join(checked.faults[:3])
    assert checked.positions > 3
    assert checked.restarts > 0
    assert checked.answers > 10
