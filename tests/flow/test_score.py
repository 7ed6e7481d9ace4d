"""A model as columns says what Spark ML says: over generated models of every shape, and rows with nulls, NaN, extreme
numbers and texts that were never seen. Spark ML is asked in the JVM: its Python needs numpy, and nothing here does."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.engine import realtime
from millrace.errors import OptionInvalid, StageRefused
from tests.rotation import todays

pytestmark = pytest.mark.spark

ROWS = "id long, Large double, small int, flag boolean, price decimal(8,2), city string, code int, label double"
CITIES = ["berlin", "paris", "rome", "42", ""]
LARGE = (None, float("nan"), 1e300, -1e300, 1e-300, float("inf"), -0.0, *[0.5, -3.0, 17.25] * 3)


class Ml:
    """Spark ML in the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.java: Any = spark._jvm
        self.ml = self.java.org.apache.spark.ml
        self.gateway: Any = spark.sparkContext._gateway

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        made = self.gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    def texts(self, values: Sequence[str]) -> Any:
        return self.array(self.java.java.lang.String, values)

    def doubles(self, values: Sequence[float]) -> Any:
        return self.array(self.gateway.jvm.double, values)

    def vector(self, values: Sequence[float]) -> Any:
        return self.ml.linalg.Vectors.dense(self.doubles(values))

    def pipeline(self, *stages: Any) -> Any:
        return self.ml.PipelineModel("pipeline", self.array(self.ml.Transformer, stages))

    def indexer(self, invalid: str, taken: str, made: str, labels: Sequence[str]) -> Any:
        indexer = self.ml.feature.StringIndexerModel(f"indexer_{made}", self.texts(labels))
        return indexer.setInputCol(taken).setOutputCol(made).setHandleInvalid(invalid)

    def encoder(self, invalid: str, taken: Sequence[str], made: Sequence[str], seen: Sequence[int], drop: bool) -> Any:
        encoder = self.ml.feature.OneHotEncoderModel("encoder", self.array(self.gateway.jvm.int, seen))
        encoder = encoder.setInputCols(self.texts(taken)).setOutputCols(self.texts(made))
        return encoder.setHandleInvalid(invalid).setDropLast(drop)

    def scaler(self, deviations: Sequence[float], means: Sequence[float], with_std: bool, with_mean: bool) -> Any:
        scaler = self.ml.feature.StandardScalerModel("scaler", self.vector(deviations), self.vector(means))
        scaler.set("withStd", with_std)
        scaler.set("withMean", with_mean)
        return scaler.setInputCol("all").setOutputCol("features")

    def linear(self, weights: Sequence[float], intercept: float, sparse: bool) -> Any:
        vector = self.vector(weights).toSparse() if sparse else self.vector(weights)
        return self.ml.regression.LinearRegressionModel("linear", vector, intercept)

    def logistic(self, weights: Sequence[Sequence[float]], intercepts: Sequence[float], sparse: bool) -> Any:
        flat = self.doubles([each for row in weights for each in row])
        matrix = self.ml.linalg.DenseMatrix(len(weights), len(weights[0]), flat, True)
        return self.ml.classification.LogisticRegressionModel(
            "logistic",
            matrix.toSparse() if sparse else matrix,
            self.vector(intercepts),
            max(2, len(weights)),
            len(weights) > 1,
        )

    def assembler(self, invalid: str, taken: Sequence[str], made: str) -> Any:
        assembler = self.ml.feature.VectorAssembler().setInputCols(self.texts(taken)).setOutputCol(made)
        return assembler.setHandleInvalid(invalid)

    def transformed(self, model: Any, rows: DataFrame) -> DataFrame:
        """With probabilities as an array."""
        found = model.transform(rows._jdf)
        names = list(found.columns())
        if "probability" in names:
            found = found.withColumn(
                "probability", self.ml.functions.vector_to_array(found.col("probability"), "float64")
            )
        else:
            found = found.withColumn("probability", F.lit(None).cast("array<double>")._jc)
        return DataFrame(found, self.spark).select("id", "prediction", "probability")


def made(draw: random.Random) -> list[tuple[Any, ...]]:
    """Whole rows, and rows in which something is odd."""
    return [
        (
            number,
            draw.choice(LARGE) if odd else draw.gauss(3, 2),
            draw.choice((None, 5, -7)) if odd else draw.randint(0, 9),
            draw.choice((None, True, False)) if odd else draw.random() < 0.5,
            draw.choice((None, "12.50", "-999999.99")) if odd else "3.25",
            draw.choice((None, "never seen", *CITIES)) if odd else draw.choice(CITIES[:3]),
            draw.choice((None, 99, *range(4))) if odd else draw.randint(0, 3),
            float(draw.randint(0, 1)),
        )
        for number, odd in ((number, number % 3 > 0) for number in range(150))
    ]


def rows_of(spark: SparkSession, values: list[tuple[Any, ...]]) -> DataFrame:
    texts = spark.createDataFrame(values, ROWS.replace("decimal(8,2)", "string")).coalesce(1)
    return texts.withColumn("price", F.col("price").cast("decimal(8,2)"))


def generated(ml: Ml, draw: random.Random, number: int) -> Any:
    """A pipeline of every kind of stage: `invalid` as it may be where rows are odd, weights that may be 0."""
    skip_or_keep = ("skip", "keep")
    invalid, drop, sparse = draw.choice(skip_or_keep), draw.random() < 0.5, draw.random() < 0.5
    cities = ml.indexer(invalid, "city", "place", CITIES[:4])
    keeps, seen = draw.random() < 0.5, 4 + (invalid == "keep")
    one = ml.encoder("keep" if keeps else "error", ["place"], ["cities"], [seen], drop)
    # Codes are met that were never seen, and none at all.
    codes = draw.choice((2, 3))
    two = ml.encoder("keep", ["code"], ["codes"], [codes], draw.random() < 0.5)
    assembler = ml.assembler(draw.choice(skip_or_keep), ["large", "small", "cities", "flag", "codes", "price"], "all")
    size = 4 + seen + keeps - drop + codes + 1 - two.getDropLast()
    deviations = [draw.choice((0.0, 1.0, draw.uniform(0.1, 4))) for _ in range(size)]
    means = [draw.gauss(0, 2) for _ in range(size)]
    scaler = ml.scaler(deviations, means, draw.random() < 0.7, draw.random() < 0.5)

    def weights() -> list[float]:
        return [draw.choice((0.0, draw.gauss(0, 1), draw.gauss(0, 1))) for _ in range(size)]

    kind = ("linear", "binary", "many")[number % 3]
    if kind == "linear":
        model = ml.linear(weights(), draw.gauss(0, 1), sparse)
    elif kind == "binary":
        model = ml.logistic([weights()], [draw.gauss(0, 1)], sparse)
        if draw.random() < 0.7:
            model.setThreshold(draw.choice((0.0, 0.2, 0.9, 1.0)))
        else:
            model.setThresholds(ml.doubles([0.7, 0.2]))
    else:
        model = ml.logistic([weights() for _ in range(3)], [draw.gauss(0, 1) for _ in range(3)], sparse)
        if draw.random() < 0.6:
            model.setThresholds(ml.doubles([draw.choice((0.0, 0.3)), 0.8, 0.1]))
    label = ml.indexer("error", "not there", "nowhere", ["a"])  # what is passed over if there is nothing to index
    return ml.pipeline(label, cities, ml.pipeline(one, two, assembler), scaler, model)


def told(frames: Sequence[DataFrame]) -> dict[tuple[int, int], tuple[float, list[float] | None]]:
    numbered = [frame.select(F.lit(number).alias("model"), "*") for number, frame in enumerate(frames)]
    found = reduce(DataFrame.unionAll, numbered).collect()
    by_row = {(row.model, row.id): (row.prediction, row.probability) for row in found}
    assert len(by_row) == len(found)
    return by_row


def near(one: Any, two: Any) -> bool:
    if one is None or two is None:
        return one is two
    if isinstance(one, list):
        return len(one) == len(two) and all(map(near, one, two))
    return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(one) and math.isnan(two))


def with_both(scored: DataFrame) -> DataFrame:
    none = F.lit(None).cast("array<double>").alias("probability")
    return scored.select("id", "prediction", "probability" if "probability" in scored.columns else none)


@pytest.mark.parametrize("seed", todays(range(8), 1))
def test_columns_say_what_spark_ml_says(spark: SparkSession, seed: int) -> None:
    draw, ml = random.Random(seed), Ml(spark)
    rows = rows_of(spark, made(draw)).cache()
    models = [generated(ml, draw, number) for number in range(6)]
    expected = told([ml.transformed(model, rows) for model in models])
    found = told([with_both(mr.score(model, rows)) for model in models])
    assert found.keys() == expected.keys()
    assert len(models) * 50 < len(found) < len(models) * 150
    wrong = {each: (found[each], expected[each]) for each in found if not near([*found[each]], [*expected[each]])}
    assert wrong == {}


def test_a_model_that_stands_alone(spark: SparkSession) -> None:
    ml = Ml(spark)
    rows = spark.createDataFrame([(1, 2.0, 3), (2, None, 3), (3, float("nan"), 3)], "id long, a double, b int")
    line = mr.score(ml.linear([2.0, 10.0], 0.5, False), rows, features=["a", F.col("b") * 2])
    assert line.columns == ["id", "a", "b", "prediction"]
    values = [row.prediction for row in line.collect()]
    assert values[:2] == [64.5, None]
    assert math.isnan(values[2])
    model = ml.logistic([[1.0, -1.0]], [0.0], False).setPredictionCol("guess").setProbabilityCol("")
    for threshold, guess in ((0.2, 1.0), (0.3, 0.0)):  # the probability is 0.27
        found = mr.score(model.setThreshold(threshold), rows, features=["a", "b"]).collect()
        assert [row.guess for row in found] == [guess, None, 0.0]


def test_plain_numbers_are_a_model_too(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 2.0, 3), (2, None, 3), (3, -1e3, 4)], "id long, a double, b int")
    model = Ml(spark).logistic([[1.5, -0.5]], [0.25], False)
    expected = mr.score(model, rows, features=["a", "b"]).collect()
    assert mr.score({"intercept": 0.25, "weights": {"a": 1.5, "b": -0.5}}, rows).collect() == expected
    assert [row.prediction for row in expected] == [1.0, None, 0.0]
    for wrong in ({"weights": {"a": 1}}, {"intercept": 0, "weights": {}}, {"intercept": 0, "weights": {"a": math.inf}}):
        with pytest.raises(OptionInvalid, match="numbers of a logistic regression are"):
            mr.score(wrong, rows)
    with pytest.raises(OptionInvalid, match="rows need a column 'c'"):
        mr.score({"intercept": 0, "weights": {"c": 1}}, rows)
    with pytest.raises(OptionInvalid, match="the weights have the names"):
        mr.score({"intercept": 0, "weights": {"a": 1}}, rows, features=["a"])


def test_trained_saved_loaded_and_taken_by_real_time(spark: SparkSession, tmp_path: Path) -> None:
    ml, draw = Ml(spark), random.Random("trained")
    clean = [row for row in made(draw) if row[0] % 3 == 0]
    rows = rows_of(spark, clean).coalesce(1)
    before = [
        ml.indexer("error", "city", "place", CITIES[:3]),
        ml.encoder("error", ["place"], ["cities"], [3], True),
        ml.assembler("error", ["Large", "cities"], "features"),
    ]
    regression = ml.ml.classification.LogisticRegression().setMaxIter(3)
    model = ml.pipeline(*before, regression.fit(ml.pipeline(*before).transform(rows._jdf)))
    path = tmp_path / "model"
    model.write().save(str(path))
    expected, found = told([ml.transformed(model, rows)]), told([mr.score(path, rows).drop(*rows.columns[1:])])
    assert found.keys() == expected.keys()
    assert all(near([*found[each]], [*expected[each]]) for each in found)
    assert len({prediction for prediction, _ in found.values()}) == 2

    app = mr.App("now")
    events = app.topic("events", "city string, Large double, at timestamp", time="at", lateness="1 minute")
    stream = app.stream(events, name="scored", mode="realtime")(lambda events: mr.score(path, events))
    streaming = spark.readStream.format("rate").load().selectExpr("'rome' AS city", "value + 0.5D AS Large")
    realtime.refuse(stream, mr.score(model, streaming))

    odd = rows_of(spark, [(*clean[0][:5], None, *clean[0][6:])])
    with pytest.raises(PySparkException, match=r"city is null or was never seen, .* train it with 'keep' or 'skip'"):
        mr.score(model, odd).collect()


def test_what_cannot_be_scored(spark: SparkSession, tmp_path: Path) -> None:
    ml = Ml(spark)
    rows = spark.createDataFrame([], "id long, a double, city string, Prediction double")
    plain = rows.drop("Prediction")
    bucketizer = ml.ml.feature.Bucketizer("bucketizer").setInputCol("a").setOutputCol("b")
    with pytest.raises(StageRefused, match="the stage 'bucketizer' of the model is a Bucketizer, which cannot become"):
        mr.score(ml.pipeline(bucketizer), rows)
    assembler, line = ml.assembler("keep", ["a", "id"], "features"), ml.linear([1.0, 1.0], 0.0, False)
    with pytest.raises(OptionInvalid, match=r"a column 'prediction'.*rename it"):
        mr.score(ml.pipeline(assembler, line), rows)
    with pytest.raises(OptionInvalid, match="name 2 columns"):
        mr.score(line, plain, features=["a"])
    with pytest.raises(OptionInvalid, match="say features="):
        mr.score(line, plain.withColumnRenamed("a", "features"))
    with pytest.raises(OptionInvalid, match="rows need a column 'features'"):
        mr.score(line, plain)
    with pytest.raises(OptionInvalid, match="leave it out"):
        mr.score(ml.pipeline(assembler, line), plain, features=["a", "id"])
    with pytest.raises(OptionInvalid, match="city='no number'"):
        mr.score(ml.pipeline(ml.assembler("keep", ["a", "city"], "features"), line), plain)
    with pytest.raises(OptionInvalid, match="ends with a LinearRegressionModel or a Logistic"):
        mr.score(ml.pipeline(assembler), plain)
    with pytest.raises(OptionInvalid, match="the path where a model was saved"):
        mr.score(str(tmp_path), plain)
    with pytest.raises(OptionInvalid, match="a model of Spark ML"):
        mr.score(5, plain)
