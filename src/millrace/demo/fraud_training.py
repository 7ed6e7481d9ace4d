"""How the model of the fraud demo comes to its numbers: Spark ML over past payments in the lake, of which it is known
by now which were charged back.

python -m millrace.demo.fraud_training    trains a model on what millrace.demo.fraud:archived has written, and prints
                                          it as fraud.py has its MODEL
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import millrace as mr
from millrace.demo.fraud import CARDS, customer, features, payment, theft

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millrace.config import Settings

FEATURES = ("times_usual", "abroad", "failed")

_past = mr.App("fraud_past")
PAYMENTS, CUSTOMERS, CHARGEBACKS = (_past.lake(table) for table in ("payments", "customers", "chargebacks"))

Rows = list[dict[str, Any]]


def training_set(spark: SparkSession | None = None, settings: Settings | None = None) -> DataFrame:
    """Every payment with what the rules saw of it when it was made, and whether it was fraud."""
    from pyspark.sql import functions as F

    paid, known, back = (mr.now(each, spark, settings) for each in (PAYMENTS, CUSTOMERS, CHARGEBACKS))
    fraud = back.select(F.col("payment").alias("id"), F.lit(1.0).alias("fraud")).distinct()
    return features(paid, known).join(fraud, "id", "left").fillna(0.0, ["fraud"])


def train(past: DataFrame) -> dict[str, Any]:
    """The numbers of a logistic regression, as `mr.score` takes them. (pyspark.ml needs numpy: `pip install numpy`.)"""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import VectorAssembler

    known = past.dropna(subset=list(FEATURES))  # from a payment of an unknown customer nothing can be learned
    vectors = VectorAssembler(inputCols=list(FEATURES), outputCol="features").transform(known)
    model = LogisticRegression(labelCol="fraud", regParam=0.001, tol=1e-9).fit(vectors)
    weights = [round(float(each), 4) for each in model.coefficients]
    return {"intercept": round(model.intercept, 4), "weights": dict(zip(FEATURES, weights, strict=True))}


def made_up_past(count: int = 6_000, seed: int = 1) -> tuple[Rows, Rows, Rows]:
    """Payments, customers and chargebacks of five minutes: what MODEL was trained with."""
    chance, began = random.Random(seed), datetime(2026, 1, 1, tzinfo=UTC)  # noqa: S311 -- repeatable, not secret
    times = [began + timedelta(milliseconds=50 * n) for n in range(count)]
    paid = [payment(chance, n, at) for n, at in enumerate(times)]
    back = [
        {"payment": paid[n]["id"], "at": times[n] + timedelta(days=9)} for n in range(count) if theft(n) is not None
    ]
    return paid, [customer(number, began) for number in range(CARDS // 2)], back


def main() -> None:
    from millrace import config
    from millrace.engine.session import close, session

    settings = config.load()
    spark = session(settings, "local[2]", "fraud training")
    try:
        print(json.dumps(train(training_set(spark, settings))))
    finally:
        close(spark)


if __name__ == "__main__":
    main()
