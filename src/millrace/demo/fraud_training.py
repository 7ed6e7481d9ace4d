"""How the model of the fraud demo came to its numbers: Spark ML over payments of the past that somebody labelled.

python -m millrace.demo.fraud_training    trains it on made-up payments, and prints what fraud.py has as MODEL
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEATURES = ("times_usual", "abroad", "failed")


def labelled(spark: SparkSession, payments: int = 4_000, seed: int = 1) -> DataFrame:
    """Payments of which it turned out whether they were fraud: one in ten. Thieves buy more, elsewhere, and fail more
    often; some honest people do so too."""
    chance = random.Random(seed)  # noqa: S311 -- made-up payments want to be repeatable, not secret
    rows = []
    for _ in range(payments):
        fraud = chance.random() < 0.1
        times_usual = chance.uniform(1, 25) if fraud else chance.uniform(0.3, 3)
        abroad = chance.random() < (0.7 if fraud else 0.05)
        failed = chance.choice((0, 0, 1, 2) if fraud else (0,) * 40 + (1,))
        rows.append((round(times_usual, 3), int(abroad), failed, float(fraud)))
    return spark.createDataFrame(rows, "times_usual double, abroad int, failed int, fraud double")


def train(past: DataFrame) -> dict[str, Any]:
    """The numbers of a logistic regression, as `mr.score` takes them. (pyspark.ml needs numpy: `pip install numpy`.)"""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import VectorAssembler

    vectors = VectorAssembler(inputCols=list(FEATURES), outputCol="features").transform(past)
    model = LogisticRegression(labelCol="fraud", regParam=0.001, tol=1e-9).fit(vectors)
    weights = [round(float(each), 4) for each in model.coefficients]
    return {"intercept": round(model.intercept, 4), "weights": dict(zip(FEATURES, weights, strict=True))}


def main() -> None:
    from millrace import config
    from millrace.engine.session import close, session

    spark = session(config.load(), "local[2]", "fraud training")
    try:
        print(json.dumps(train(labelled(spark))))
    finally:
        close(spark)


if __name__ == "__main__":
    main()
