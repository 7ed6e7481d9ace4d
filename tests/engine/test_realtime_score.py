"""A model scores in real time: each row leaves at once with what a saved model says of it."""

from __future__ import annotations

import json
import math

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from millrace.engine.stopping import epochs
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.test_run import checkpoint
from tests.flow.test_score import Ml

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]


@pytest.mark.turn(2, 3)
def test_a_row_leaves_with_its_probability(project: Project, spark: SparkSession) -> None:
    ml = Ml(spark)
    path = str(project.settings.folder / "model")
    assembler = ml.assembler("keep", ["amount"], "features")
    ml.pipeline(
        ml.indexer("keep", "country", "place", ["de", "fr"]),
        ml.encoder("keep", ["place"], ["countries"], [3], True),
        assembler.setInputCols(ml.texts(["amount", "countries"])),
        ml.logistic([[0.5, 1.0, -1.0, 2.0]], [-3.0], False),
    ).write().save(path)

    app = mr.App("now")
    payments = app.topic("payments", "card string, amount double, country string")

    @app.stream(payments, key="card", mode="realtime", epoch="10 minutes")
    def scored(p: DataFrame) -> DataFrame:
        return mr.score(path, p)

    asked = {"a": (6.0, "de", 1.0), "b": (2.0, "fr", -3.0), "c": (0.0, None, -1.0)}

    def told() -> dict[str, float]:
        there = project.log.topics.exists("scored")
        rows = [record.json() for record in project.log.read("scored")] if there else []
        return {
            row["card"]: row["probability"][1] for row in rows if row["prediction"] == (row["probability"][1] > 0.5)
        }

    project.log.topics.create("payments", partitions=1)
    with Run(app, project.settings, spark=spark) as run:
        rows = [{"card": card, "amount": amount, "country": country} for card, (amount, country, _) in asked.items()]
        project.write("payments", [json.dumps(row).encode() for row in rows], 0)
        until(lambda: run.poll() is not None and len(told()) == 3, "three rows", 120)
        assert not epochs(checkpoint(project, "scored", "now") / "commits")
    for card, (_, _, margin) in asked.items():
        assert math.isclose(told()[card], 1 / (1 + math.exp(-margin)), abs_tol=1e-9)
