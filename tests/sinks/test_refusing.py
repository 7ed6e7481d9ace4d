"""A target that refuses more than some odd rows ends the epoch: then it is wrong, not the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.errors import SinkRefusesMost
from millrace.sinks import RefusedRow
from millrace.sinks.contract import MOST_REFUSED
from millrace.sinks.function import function
from millrace.sinks.ledger import Epoch
from millrace.sinks.tasks import refused_in_tasks

pytestmark = pytest.mark.spark


def write(rows: DataFrame, epoch: Epoch) -> None:
    """Never called: the tasks are looked at alone."""


SINK = function(write, name="picky")


def refusing(rows: Iterator[Any]) -> Iterable[RefusedRow]:
    for row in rows:
        yield RefusedRow(str(row["id"]), "{}", "no such customer")


@pytest.mark.parametrize("tasks", [1, 2], ids=["of one task", "of all together"])
def test_so_many_rows_and_no_more_are_refused(spark: SparkSession, tasks: int) -> None:
    assert len(refused_in_tasks(spark.range(0, MOST_REFUSED, 1, tasks), SINK, refusing)) == MOST_REFUSED
    with pytest.raises(SinkRefusesMost, match=r"'picky' refused more than 10000 rows .* because no such customer"):
        refused_in_tasks(spark.range(0, MOST_REFUSED + 1, 1, tasks), SINK, refusing)
