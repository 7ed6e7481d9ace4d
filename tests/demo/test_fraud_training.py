"""The model of the fraud demo is what Spark ML makes of the archive in the lake, whose rows say what the flow saw."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace.demo import fraud, fraud_training
from millrace.engine import Run
from millrace.testing import Play
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import LIMIT_S, environ
from tests.demo import recomputed
from tests.demo.paying import customers, payments
from tests.engine.conftest import Project
from tests.rotation import today

pytestmark = pytest.mark.spark

TABLES = {
    "payments": (fraud_training.PAYMENTS, fraud.PAYMENT),
    "customers": (fraud_training.CUSTOMERS, fraud.CUSTOMER),
    "chargebacks": (fraud_training.CHARGEBACKS, fraud.CHARGEBACK),
}


@pytest.mark.turn(0, 2)
def test_what_the_model_is_trained_with_is_what_the_flow_judged(play: Callable[..., Play]) -> None:
    """The same payments told live, and as a batch over what the archive has of them."""
    paid, known = payments(300, today()), customers()
    p = play(fraud.archived)
    nodes = {node.name: node for node in p.app.graph().nodes}
    p.feed(nodes["customers"], known, key="customer")
    p.feed(nodes["payments"], paid, key="card")
    back = [{"payment": row["id"], "at": row["at"]} for row in paid[::7]]
    p.feed(nodes["chargebacks"], [*back, *back[:3]], key="payment")
    for table, (lake, schema) in TABLES.items():
        rows = [{name: value for name, value in row.items() if name != "__diff"} for row in p.rows(f"lake.{table}")]
        p.lake(lake, schema, rows)
    trained = fraud_training.training_set(p.spark, p.settings)
    rows = mr.score(fraud.MODEL, trained).collect()
    assert len(rows) == len(paid)
    assert {row.id for row in rows if row.fraud} == {row["payment"] for row in back}
    suspicious = {row.id for row in rows if row.probability is not None and row.probability[1] > fraud.SUSPICIOUS}
    live = {row["payment"] for row in p.rows("alerts") if row["rule"] == "model"}
    assert suspicious == live
    assert live == {each.payment for each in recomputed.alerts(paid, known).values() if each.rule == "model"}


@pytest.mark.turn(1, 2)
def test_the_models_numbers_are_what_the_archive_gives(play: Callable[..., Play]) -> None:
    p = play(fraud.archived)
    for (lake, schema), rows in zip(TABLES.values(), fraud_training.made_up_past(), strict=True):
        p.lake(lake, schema, rows)
    trained = fraud_training.train(fraud_training.training_set(p.spark, p.settings))
    weights = fraud.MODEL["weights"]
    assert list(trained["weights"]) == list(weights)
    assert math.isclose(trained["intercept"], fraud.MODEL["intercept"], abs_tol=0.01), trained
    for name, weight in weights.items():
        assert math.isclose(trained["weights"][name], weight, abs_tol=0.01), trained


@pytest.mark.server
@pytest.mark.turn(0, 3)
def test_the_script_trains_with_what_the_flow_has_archived(project: Project, spark: SparkSession) -> None:
    """From the topics by the flow into a lake, and from there by the script to the numbers."""
    for topic, rows in zip(TABLES, fraud_training.made_up_past(), strict=True):
        project.log.topics.create(topic, partitions=2)
        with project.log.writer(topic) as writer:
            for row in rows:
                writer.write({name: str(value) if name == "at" else value for name, value in row.items()})
    with Run(fraud.archived, project.settings, only=list(TABLES), once=True, spark=spark, traffic=False) as run:
        while not run.done:
            run.poll()
        run.stop()
    folder = project.settings.folder
    options = f'[spark]\nmaster = "local[2]"\n[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    (folder / "millrace.toml").write_text(f'prefix = "{project.settings.prefix}"\n{options}')
    done = subprocess.run(
        [sys.executable, "-m", "millrace.demo.fraud_training"],
        cwd=folder,
        env=environ({"MILLRACE_LAKE_FOLDER": str(project.settings.lake_folder)}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    trained = json.loads(done.stdout.splitlines()[-1])
    assert math.isclose(trained["intercept"], fraud.MODEL["intercept"], abs_tol=0.01), trained
    assert trained["weights"] == pytest.approx(fraud.MODEL["weights"], abs=0.01), trained


def test_the_archive_and_who_charges_back() -> None:
    archived, usual = ({topic.name for topic in app.graph().topics} for app in (fraud.archived, fraud.app))
    assert archived - usual == {"chargebacks"}
    with pytest.raises(ValueError, match="customers as a topic"):
        fraud.application("no", "bank", archive=True)
    numbers = [int(fraud.made_up_chargeback(None, n)["payment"].rpartition("-")[2]) for n in range(100)]  # type: ignore[arg-type]
    assert numbers == [n for n in range(numbers[-1] + 1) if fraud.theft(n) is not None]
