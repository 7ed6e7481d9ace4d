"""Linear and logistic regressions as columns, over features that are columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace.flow.features import Element, Features, Plain

_INFINITE = float("inf")


def _linear(model: Any, features: Features) -> dict[str, Column]:
    weights = list(model.coefficients().toArray())
    elements = features.vector(model.getFeaturesCol())
    found = _margin(elements, weights, model.intercept(), _is_sparse(model.coefficients()))
    return _named({model.getPredictionCol(): found})


def _logistic(model: Any, features: Features) -> dict[str, Column]:
    matrix, elements = model.coefficientMatrix(), features.vector(model.getFeaturesCol())
    classes, columns, flat = matrix.numRows(), matrix.numCols(), list(matrix.toArray())
    intercepts = list(model.interceptVector().toArray())
    margins = [
        features.keep(
            _margin(elements, [flat[each * classes + row] for each in range(columns)], intercept, _is_sparse(matrix))
        )
        for row, intercept in enumerate(intercepts)
    ]
    predict = _one_of_two if classes == 1 else _one_of_many
    probabilities, prediction = predict(model, margins)
    known = margins[0].isNotNull()
    return _named(
        {
            model.getProbabilityCol(): F.when(known, F.array(*probabilities)),
            model.getPredictionCol(): F.when(known, prediction),
        }
    )


def _named(columns: dict[str, Column]) -> dict[str, Column]:
    """Spark ML leaves out those whose name is empty."""
    return {name: column for name, column in columns.items() if name}


def weighed(weights: Mapping[str, float], intercept: float, features: Features) -> dict[str, Column]:
    """A logistic regression of two classes that is given as plain numbers: the weight of each column."""
    elements = [Plain(features.number(name)) for name in weights]
    margin = features.keep(_margin(elements, list(weights.values()), intercept, sparse=False))
    probabilities, prediction = _two(margin, 0.5)
    known = margin.isNotNull()
    return {"probability": F.when(known, F.array(*probabilities)), "prediction": F.when(known, prediction)}


def _one_of_two(model: Any, margins: Sequence[Column]) -> tuple[list[Column], Column]:
    (margin,) = margins
    return _two(margin, model.getThreshold())


def _two(margin: Column, threshold: float) -> tuple[list[Column], Column]:
    edge = -_INFINITE if threshold == 0 else _INFINITE if threshold == 1 else math.log(threshold / (1 - threshold))
    first = F.lit(1.0) / (F.lit(1.0) + F.exp(margin))
    # SQL takes NaN for the greatest number; for Spark ML it is greater than none.
    prediction = F.when(~F.isnan(margin) & (margin > F.lit(edge)), F.lit(1.0)).otherwise(F.lit(0.0))
    return [first, F.lit(1.0) - first], prediction


def _one_of_many(model: Any, margins: Sequence[Column]) -> tuple[list[Column], Column]:
    greatest = F.greatest(*margins)
    powers = [F.exp(margin - greatest) for margin in margins]
    total = _sum(powers)
    first = _first_greatest(margins)
    # As Spark ML has it: beside the first that is infinite all others are nothing, but for those that are no numbers or
    # infinite too. (SQL takes NaN for the greatest, so it is not asked whether that is infinite.)
    infinite = F.array_position(F.array(*margins), F.lit(_INFINITE))
    probabilities = [
        F.when(infinite > 0, F.when(infinite == place, F.lit(1.0)).otherwise(margin * 0.0)).otherwise(power / total)
        for place, (margin, power) in enumerate(zip(margins, powers, strict=True), 1)
    ]
    if not model.isDefined(model.getParam("thresholds")):
        return probabilities, first
    return probabilities, _first_greatest(
        [
            each / F.lit(threshold) if threshold else F.when(each > 0, F.lit(_INFINITE)).otherwise(F.lit(-_INFINITE))
            for each, threshold in zip(probabilities, model.getThresholds(), strict=True)
        ]
    )


def _first_greatest(columns: Sequence[Column]) -> Column:
    """Its place. NaN is less than all others, but for the first one, which nothing is greater than."""
    compared = F.array(columns[0], *(F.nanvl(each, F.lit(-_INFINITE)) for each in columns[1:]))
    place = F.array_position(compared, F.array_max(compared)) - 1
    return F.when(F.isnan(columns[0]), F.lit(0.0)).otherwise(place.cast("double"))


def _margin(elements: Sequence[Element], weights: Sequence[float], intercept: float, sparse: bool) -> Column:
    terms, place = list[Column](), 0
    for each in elements:
        own = weights[place : place + each.size]
        place += each.size
        # Where Spark ML does not look at an element whose weight is 0, NaN times 0 is 0.
        if not sparse or any(own):
            terms.append(each.times(own))
    return _sum([*terms, F.lit(intercept)])


def _is_sparse(weights: Any) -> bool:
    return str(weights.getClass().getSimpleName()).startswith("Sparse")


def _sum(terms: Sequence[Column]) -> Column:
    """In halves: a thousand terms one after the other would be an expression too deep for Spark."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return _sum(terms[:middle]) + _sum(terms[middle:])


MODELS: dict[str, Callable[[Any, Features], dict[str, Column]]] = {
    "LinearRegressionModel": _linear,
    "LogisticRegressionModel": _logistic,
}
