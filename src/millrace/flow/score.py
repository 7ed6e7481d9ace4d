"""A model that Spark ML trained, as plain columns: it then runs wherever columns do, also in real time.

Spark ML's own transformers are functions over vectors, which Spark cannot look into. Here a model becomes additions,
multiplications and comparisons of columns, with the same answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass, JavaObject
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.errors import OptionInvalid, StageRefused, Where
from millrace.flow.features import STAGES, Features, Plain
from millrace.flow.nodes import caller
from millrace.flow.regressions import MODELS, weighed
from millrace.kernel.calling import quoted


def score(model: Any, rows: DataFrame, /, *, features: Sequence[str | Column] | None = None) -> DataFrame:
    """Rows with what a model says of each: `prediction`, and of a logistic regression `probability`, an array with that
    of each class.

    `model` is a `PipelineModel`, a `LinearRegressionModel` or a `LogisticRegressionModel` of Spark ML, or the path
    where one was saved; or the plain numbers of a logistic regression, by the names of the columns that they weigh:
    `{"intercept": -2.5, "weights": {"amount": 0.31, "tries": 1.2}}`. `features` are the columns of the features, in
    their order, of a model that stands alone. Where a feature is null, so is what is said. Answers are those of the
    model's own `transform`, `handleInvalid` and thresholds included, in columns of the names that it gives them.
    """
    where = caller()
    found = Features(rows, where)
    if isinstance(model, Mapping):
        if features is not None:
            remedy = "leave it out: the weights have the names of their columns"
            raise OptionInvalid(name="score", option="features", given=str(features), remedy=remedy, where=where)
        return _beside(found, weighed(*_numbers(model, where), found), rows, where)
    stages = list(_stages(model, rows.sparkSession, where))
    if features is not None:
        _given(stages, features, found, where)
    out: dict[str, Column] = {}
    for stage in stages:
        kind = stage.getClass().getSimpleName()
        if kind in STAGES:
            STAGES[kind](stage, found)
        elif kind in MODELS:
            out |= MODELS[kind](stage, found)
        else:
            raise _refused(stage.uid(), kind, where)
    if not out:
        remedy = f"a model that ends with a {' or a '.join(MODELS)}"
        raise OptionInvalid(name="score", option="model", given=str(model), remedy=remedy, where=where)
    return _beside(found, out, rows, where)


def _numbers(model: Mapping[str, Any], where: Where) -> tuple[dict[str, float], float]:
    """Of a model that is plain numbers: its weights and its intercept."""
    weights, intercept = model.get("weights", {}), model.get("intercept", 0)
    given = isinstance(weights, Mapping) and weights and set(model) == {"weights", "intercept"}
    if not given or not all(_is_number(each) for each in (intercept, *dict(weights).values())):
        remedy = 'numbers of a logistic regression are {"intercept": -2.5, "weights": {"amount": 0.31}}'
        raise OptionInvalid(name="score", option="model", given=str(dict(model)), remedy=remedy, where=where)
    return dict(weights), float(intercept)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def _beside(found: Features, out: Mapping[str, Column], rows: DataFrame, where: Where) -> DataFrame:
    """The rows with the columns that the model gives."""
    taken = {name.casefold() for name in rows.columns}
    for name in out:
        if name.casefold() in taken:
            remedy = "rename it: the model gives a column of that name"
            raise OptionInvalid(name="score", option="rows", given=f"a column {name!r}", remedy=remedy, where=where)
    names = [F.col(quoted(name)) for name in rows.columns]
    return found.rows.select(*names, *(column.alias(name) for name, column in out.items()))


def _given(stages: Sequence[Any], columns: Sequence[str | Column], found: Features, where: Where) -> None:
    """The features of a model that stands alone."""
    if len(stages) != 1 or stages[0].getClass().getSimpleName() not in MODELS:
        remedy = "leave it out: the stages of a pipeline say themselves which columns they take"
        raise OptionInvalid(name="score", option="features", given=str(columns), remedy=remedy, where=where)
    wanted = stages[0].numFeatures()
    if isinstance(columns, str) or len(columns) != wanted:
        remedy = f"name {wanted} columns: the model has as many features"
        raise OptionInvalid(name="score", option="features", given=str(columns), remedy=remedy, where=where)
    named = (F.col(quoted(each)) if isinstance(each, str) else each for each in columns)
    found.put(stages[0].getFeaturesCol(), [Plain(column.cast("double")) for column in named])


def _stages(model: Any, spark: SparkSession, where: Where) -> Iterator[Any]:
    """What a model consists of, as objects of Spark's JVM; pipelines in pipelines too."""
    if isinstance(model, str | Path):
        model = _loaded(str(model), spark, where)
    if not isinstance(model, JavaObject):
        yield from _of_python(model, spark, where)
    elif hasattr(model, "stages") and model.getClass().getSimpleName() == "PipelineModel":
        for stage in model.stages():
            yield from _stages(stage, spark, where)
    else:
        yield model


def _of_python(model: Any, spark: SparkSession, where: Where) -> Iterator[Any]:
    if type(model).__name__ == "PipelineModel":
        for stage in model.stages:
            yield from _of_python(stage, spark, where)
    elif hasattr(model, "_to_java"):
        yield from _stages(model._to_java(), spark, where)
    elif hasattr(model, "uid"):
        raise _refused(model.uid, type(model).__name__, where)
    else:
        remedy = "a model of Spark ML, or the path of a saved one"
        raise OptionInvalid(name="score", option="model", given=str(model), remedy=remedy, where=where)


def _loaded(path: str, spark: SparkSession, where: Where) -> Any:
    """A saved model says in its metadata what it is."""
    try:
        line = spark.read.text(f"{path}/metadata").first()
    except AnalysisException:
        line = None
    if line is None:
        remedy = "the path where a model was saved, with model.write().save(…)"
        raise OptionInvalid(name="score", option="model", given=path, remedy=remedy, where=where)
    metadata = json.loads(line[0])
    java: Any = spark._jvm
    for word in metadata["class"].split("."):
        java = getattr(java, word)
    if not isinstance(java, JavaClass):
        raise _refused(metadata["uid"], metadata["class"], where)
    return java.load(path)


def _refused(stage: str, kind: str, where: Where) -> StageRefused:
    return StageRefused(stage=stage, kind=kind, known=", ".join([*STAGES, *MODELS]), where=where)
