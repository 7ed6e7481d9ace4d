"""Days and moments at the edges: before Christ, after the year 9999, and infinite ones.

PostgreSQL has all three, and writes years before Christ otherwise than ISO 8601 does. In Spark infinite ones are the
ends of its types (`capture/values.py`), which its functions would take for moments like others.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace.capture.values import ENDS, moment
from millrace.views import types
from millrace.views.types import Type

KINDS = ("date", "timestamp", "timestamptz")
_LAST_YEAR = 9999
_FORMS = {"timestamp": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "timestamptz": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
# What follows the year: -02-29, and -02-29T12:34:56.123456Z
_BEHIND_YEAR = {"date": 6, "timestamp": 22, "timestamptz": 23}


def ends(type_: Type) -> tuple[Column, Column]:
    """What stands for infinity and -infinity."""
    last, first = map(F.expr, ENDS[types.spark(type_)])
    return last, first


def otherwise(type_: Type, value: Column, later: Column, earlier: Column, finite: Column) -> Column:
    """What is computed of a moment that is finite, or what it is for infinite ones."""
    last, first = ends(type_)
    return F.when(value == last, later).when(value == first, earlier).otherwise(finite)


def kept(one: Type, value: Column, other: Type, finite: Column) -> Column:
    """What is infinite stays so, as another type too."""
    return otherwise(one, value, *ends(other), finite)


def year(value: Column) -> Column:
    """As PostgreSQL counts: before the year 1 is -1, which is 0 in ISO 8601."""
    found = F.year(value)
    return F.when(found > 0, found).otherwise(found - 1)


def told(type_: Type, value: Column) -> Column:
    """As text that PostgreSQL reads, the same for every moment that has one in ISO 8601."""
    text = value.cast("string") if type_.kind == "date" else F.date_format(value, _FORMS[type_.kind])
    counted = year(value)
    rest = F.right(text, F.lit(_BEHIND_YEAR[type_.kind]))
    years = F.concat(F.format_string("%04d", F.abs(counted)), rest)
    far = F.concat(years, F.when(counted < 0, " BC").otherwise(""))
    finite = F.when((counted > 0) & (counted <= _LAST_YEAR), text).otherwise(far)
    return otherwise(type_, value, F.lit("infinity"), F.lit("-infinity"), finite)


def read(type_: Type, text: Column) -> Column:
    """What was told so."""
    found = moment(text, types.spark(type_))
    wrong = F.raise_error(F.concat(F.lit(f"no {type_}: "), text)).cast(types.spark(type_))
    return F.when(text.isNotNull() & found.isNull(), wrong).otherwise(found)
