"""The features of a model as columns: what the stages before it make of a row.

A vector is a list of its elements, here never a column of its own. That of a one-hot encoder is kept as the index that
it encodes, so that a thousand categories are one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NumericType, UserDefinedType

from millrace.errors import OptionInvalid, Where, nearest
from millrace.flow import leaving
from millrace.kernel.calling import quoted

# In place of an index: there is none, and every element of its vector is NaN.
_NONE = -1.0
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Plain:
    """One element of a vector, a double."""

    column: Column

    @property
    def size(self) -> int:
        return 1

    def scaled(self, shifts: Sequence[float], factors: Sequence[float]) -> Plain:
        moved = self.column - F.lit(shifts[0]) if shifts[0] else self.column
        return Plain(moved * F.lit(factors[0]) if factors[0] != 1 else moved)

    def times(self, weights: Sequence[float]) -> Column:
        return self.column * F.lit(weights[0])


@dataclass(frozen=True, eq=False)
class Hot:
    """As many elements as `on` has: each has its value of `on` if it is the one with the index, and of `off` otherwise.
    An index beyond them is of none."""

    index: Column
    on: tuple[float, ...]
    off: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.on)

    def scaled(self, shifts: Sequence[float], factors: Sequence[float]) -> Hot:
        def each(values: Sequence[float]) -> tuple[float, ...]:
            return tuple((v - s) * f for v, s, f in zip(values, shifts, factors, strict=True))

        return replace(self, on=each(self.on), off=each(self.off))

    def times(self, weights: Sequence[float]) -> Column:
        """The products of all elements, added up: for each index they are known."""
        none = sum(weight * off for weight, off in zip(weights, self.off, strict=True))
        sums = [none + w * (on - off) for w, on, off in zip(weights, self.on, self.off, strict=True)]
        known = F.get(F.array(*map(F.lit, sums)), self.index.cast("int")) if sums else F.lit(none)
        within = self.index < F.lit(float(self.size))
        found = F.when(self.index == F.lit(_NONE), F.lit(NAN)).when(within, known)
        return F.when(self.index.isNotNull(), found.otherwise(F.lit(none)))


Element: TypeAlias = Plain | Hot


class Features:
    """The rows on their way through the stages, and what these have made so far, by the names of their columns."""

    def __init__(self, rows: DataFrame, where: Where) -> None:
        self.rows = rows
        self.where = where
        self._given = {field.name.casefold(): field for field in rows.schema}
        self._made: dict[str, Column | list[Element]] = {}

    def put(self, name: str, made: Column | list[Element]) -> None:
        self._made[name.casefold()] = made

    def has(self, name: str) -> bool:
        return name.casefold() in self._made or name.casefold() in self._given

    def of(self, name: str) -> Column | list[Element]:
        """A column, or the elements of a vector."""
        if name.casefold() in self._made:
            return self._made[name.casefold()]
        if name.casefold() not in self._given:
            remedy = f"rows need a column {name!r}: the model looks at it{nearest(name, self.rows.columns)}"
            raise OptionInvalid(name="score", option="rows", given="no such column", remedy=remedy, where=self.where)
        given = self._given[name.casefold()]
        if isinstance(given.dataType, UserDefinedType):
            remedy = "score the numbers that it is made of: features=[…], or a VectorAssembler in the pipeline"
            raise OptionInvalid(name="score", option=name, given="a column of vectors", remedy=remedy, where=self.where)
        return F.col(quoted(given.name))

    def number(self, name: str) -> Column:
        """As a double: what stages make is one already."""
        found = self.of(name)
        if isinstance(found, Column) and name.casefold() in self._made:
            return found
        if isinstance(found, Column) and isinstance(self._given[name.casefold()].dataType, NumericType | BooleanType):
            return found.cast("double")
        remedy = "a column of numbers"
        raise OptionInvalid(name="score", option=name, given="no number", remedy=remedy, where=self.where)

    def vector(self, name: str) -> list[Element]:
        found = self.of(name)
        if isinstance(found, Column):
            remedy = (
                "a vector, made by a VectorAssembler of the pipeline; of a model that stands alone, say features=[…]"
            )
            raise OptionInvalid(name="score", option=name, given="no vector", remedy=remedy, where=self.where)
        return found

    def keep(self, column: Column) -> Column:
        """The same, computed once for all that look at it."""
        name = f"__score{len(self.rows.columns)}"
        self.rows = self.rows.select("*", column.alias(name))
        return F.col(name)

    def leave_out(self, condition: Column) -> None:
        self.rows = leaving.without(self.rows, condition)


def _columns(stage: Any) -> list[tuple[str, str]]:
    """What a stage takes and what it makes of it; either one of each or several."""
    if stage.isSet(stage.getParam("inputCols")):
        return list(zip(stage.getInputCols(), stage.getOutputCols(), strict=True))
    return [(stage.getInputCol(), stage.getOutputCol())]


def _failing(stage: Any, name: str, what: str) -> Column:
    text = f"{name} {what}, and {stage.uid()} was trained with handleInvalid='error': train it with 'keep' or 'skip'"
    return F.raise_error(F.lit(text))


def _assembled(stage: Any, features: Features) -> None:
    invalid, elements, skipped = stage.getHandleInvalid(), list[Element](), list[Column]()
    for name in stage.getInputCols():
        made = features.of(name)
        parts: list[Element] = [Plain(features.number(name))] if isinstance(made, Column) else made
        for part in parts:
            column = part.index if isinstance(part, Hot) else part.column
            lone = isinstance(made, Column)
            absent = column.isNull() | F.isnan(column) if lone else column.isNull()
            if invalid == "skip":
                skipped.append(absent)
            elif invalid == "keep":
                column = F.coalesce(column, F.lit(_NONE if isinstance(part, Hot) else NAN))
            else:
                column = F.when(absent, _failing(stage, name, "is null or NaN")).otherwise(column)
            elements.append(replace(part, index=column) if isinstance(part, Hot) else Plain(column))
    if skipped:
        features.leave_out(reduce(or_, skipped))
    features.put(stage.getOutputCol(), elements)


def _scaled(stage: Any, features: Features) -> None:
    means, deviations = list(stage.mean().toArray()), list(stage.std().toArray())
    shifts = means if stage.getWithMean() else [0.0] * len(means)
    factors = [1 / each if each else 0.0 for each in deviations] if stage.getWithStd() else [1.0] * len(means)
    elements, place = list[Element](), 0
    for each in features.vector(stage.getInputCol()):
        until = place + each.size
        elements.append(each.scaled(shifts[place:until], factors[place:until]))
        place = until
    features.put(stage.getOutputCol(), elements)


def _indexed(stage: Any, features: Features) -> None:
    invalid = stage.getHandleInvalid()
    for (name, out), labels in zip(_columns(stage), stage.labelsArray(), strict=True):
        if not features.has(name):
            continue  # as Spark ML has it: the labels that a model was trained with need not be there
        column = features.of(name)
        if not isinstance(column, Column):
            raise OptionInvalid(name="score", option=name, given="a vector", remedy="a text", where=features.where)
        known = list(labels)
        place = F.coalesce(F.array_position(F.array(*map(F.lit, known)), column.cast("string")), F.lit(0))
        place = features.keep(place if known else F.lit(0))
        index = (place - 1).cast("double")
        if invalid == "skip":
            features.leave_out(place == 0)
        elif invalid == "keep":
            index = F.when(place == 0, F.lit(float(len(known)))).otherwise(index)
        else:
            index = F.when(place == 0, _failing(stage, name, "is null or was never seen")).otherwise(index)
        features.put(out, index)


def _encoded(stage: Any, features: Features) -> None:
    keeps, drops = stage.getHandleInvalid() == "keep", stage.getDropLast()
    for (name, out), seen in zip(_columns(stage), stage.categorySizes(), strict=True):
        label = features.number(name)
        beyond = F.isnan(label) | (label < 0) | (label >= seen)
        index = F.when(beyond, F.lit(float(seen)) if keeps else _failing(stage, name, "was never seen"))
        size = seen + (1 if keeps else 0) - (1 if drops else 0)
        hot = Hot(features.keep(index.otherwise(F.floor(label).cast("double"))), (1.0,) * size, (0.0,) * size)
        features.put(out, [hot])


STAGES: dict[str, Callable[[Any, Features], None]] = {
    "VectorAssembler": _assembled,
    "StandardScalerModel": _scaled,
    "StringIndexerModel": _indexed,
    "OneHotEncoderModel": _encoded,
}
