"""Random views as flows over captured tables: whole transactions only, and of these what PostgreSQL answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.engine import viewing
from tests.rotation import seeds
from tests.shop import opened
from tests.views.flows import RECORDS_AN_EPOCH, Checked, check


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.turn(1, 3)
def test_views_hold_what_postgresql_answers_at_the_same_lsn(
    settings: Settings,
    connect: str,
    postgres: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At many positions, interrupted in between, and with epochs that are done again; one also in the view store.
    Other ones every day. A broken step and an epoch that is lost are seen."""
    monkeypatch.setattr(viewing, "FIRST_RECORDS_AN_EPOCH", RECORDS_AN_EPOCH)
    checked = Checked()
    for seed in seeds(4):
        with opened(settings) as shop:
            check(spark, shop, seed, tmp_path, checked, count=3, transactions=20, stored=1)
    print(checked)
    assert not checked.faults, "\n".join(checked.faults[:3])
    assert checked.positions > 2
    assert checked.restarts > 0
    assert checked.answers > 10
    assert checked.broken == checked.lost == checked.worlds
