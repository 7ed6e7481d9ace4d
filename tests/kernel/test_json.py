"""What the kernel reads of JSON is what `from_json` reads; of the rest it says nothing."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from millrace.kernel.calling import json_row
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

FIELDS = "n long, i int, d double, price decimal(10,2), b boolean, name string, at timestamp, day date"
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}

# Pieces of JSON and of what is nearly JSON.
NUMBERS = [
    "0", "-0", "7", "-12", "01", "+1", "1.5", "-0.0", "1.", ".5", "1e3", "1E-2", "2147483647", "2147483648",
    "-2147483649", "999999999999999999", "9223372036854775807", "9223372036854775808", "0.1", "12345678.99",
    "12345678.999", "123456789.1", "NaN", "Infinity", "- 1", "1 2", "123456789012345678901234567890",
    "0.30000000000000004", "1_000",
]  # fmt: skip
TEXTS = [
    '"a"', '""', '"a b"', '"ä€😀"', '"q\\"q"', '"b\\\\"', '"t\\t\\n\\/"', '"u\\u00e4"', '"x\\x"', '"open', "'single'",
    '"a\tb"', '"1"', '"true"', '"null"',
]  # fmt: skip
TIMES = [
    '"2026-01-31T23:59:59Z"', '"2026-01-31 23:59:59"', '"2026-01-31T23:59:59.5Z"', '"2026-01-31T23:59:59.123456Z"',
    '"2026-01-31T23:59:59.1234567Z"', '"2026-01-31T23:59:59+02:00"', '"2026-01-01T00:00:00.5-11:30"',
    '"2026-01-31T23:59:59+00:00"', '"2026-01-31T23:59:59-00:00"', '"2026-01-31T23:59:59+19:00"',
    '"2026-01-31T23:59:59+02:60"', '"2026-01-31T23:59:59*02:00"', '"2026-01-31T23:59:59+0200"',
    '"2026-01-31T23:59:59+17:59"', '"2026-01-31T23:59:59+2:00"', '"2026-02-30T00:00:00Z"', '"2024-02-29T00:00:00Z"',
    '"1899-12-31T00:00:00Z"', '"2026-01-31"', '"2026-01-31T24:00:00Z"', '"2026-01-31T23:59:60Z"', '"2026-1-1"',
    '"0001-01-01"', "1790000000", "-5", "1790000000000", "1.5", '"2026-01-31T23:59"', '"2026-01-31T23:59:59."',
    '"2026-01-31x23:59:59Z"', '"2026-01-31T23:59:59 Z"', '"2026-13-01T00:00:00Z"', '"2026-00-01"',
    '" 2026-01-31"', '"2026-01-31T23:59:59z"',
]  # fmt: skip
OTHERS = ["true", "false", "null", "tru", "True", "{}", "[]", '{"n":1}', "[1,[2]]", '{"a":', "nul", "", "truefalse"]
VALUES = [*NUMBERS, *TEXTS, *TIMES, *OTHERS]
WHITE = ["", "", "", " ", "\n", "\t ", "\r\n", "\f", "\u00a0"]
FITTING = {
    "n": NUMBERS[:4], "i": NUMBERS[:4], "d": ["1.5", "-0.0", "7", "-0", "0.1"], "price": ["1.50", "7", "-12.3"],
    "b": ["true", "false"], "name": TEXTS[:7], "at": [*TIMES[:4], *TIMES[5:8], "1790000000"],
    "day": ['"2026-01-31"', '"2024-02-29"'],
}  # fmt: skip


def made(draw: random.Random) -> str:
    """An object whose values mostly fit, now and then with something wrong in it."""
    wild = draw.random() < 0.6
    names = [name for name in FITTING if draw.random() < 0.8]
    if draw.random() < 0.3:
        draw.shuffle(names)
    if wild:
        names += draw.choices([*FITTING, "other", "N", "na\\me"], k=draw.choice((0, 0, 1, 2)))

    def white() -> str:
        return draw.choice(WHITE) if wild and draw.random() < 0.2 else ""

    def value(name: str) -> str:
        return draw.choice(VALUES if wild and draw.random() < 0.3 else [*FITTING.get(name, VALUES), "null"])

    fields = (f'{white()}"{name}"{white()}:{white()}{value(name)}{white()}' for name in names)
    text = white() + "{" + ",".join(fields) + "}" + white()
    if wild and draw.random() < 0.2:
        place = draw.randrange(len(text) + 1)
        text = (
            text[:place] + draw.choice(["", "}", ",", '"', "x", " ", '{"n":1}']) + text[place + draw.choice((0, 1)) :]
        )
    return text


# As text: Python has no year 0, and takes 0.0 for -0.0.
SHOWN = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}


@pytest.mark.parametrize("seed", todays([1, 2, 3], 1))
def test_rows_are_those_of_from_json(spark: SparkSession, seed: int) -> None:
    draw = seeded(f"json {seed}")
    texts = [made(draw) for _ in range(4_000)] + VALUES
    row = StructType.fromDDL(FIELDS)
    assert isinstance(row, StructType)
    fields = [StructField("row", row), StructField("end", BooleanType()), StructField("corrupt", StringType())]
    whole = StructType(fields)
    frame = spark.createDataFrame([(text.encode(),) for text in texts], "value binary")
    wrapped = F.concat(F.lit('{"row":'), F.col("value").cast("string"), F.lit(',"end":true}'))
    found = frame.select(
        F.col("value").cast("string").alias("text"),
        F.to_json(json_row(F.col("value"), whole, utc=True), SHOWN).alias("kernel"),
        F.to_json(F.from_json(wrapped, whole, OPTIONS), SHOWN).alias("spark"),
    ).collect()
    told = [each for each in found if each.kernel is not None]
    for each in told:
        assert each.kernel == each.spark, each.text
        json.loads(each.text)
    # It is not silent either, least of all where everything fits.
    assert len(told) > len(texts) / 3
    for at in ("2026-01-31T23:59:59.5Z", "2026-01-31T23:59:59.500+00:00"):
        simple = spark.createDataFrame(
            [(b'{"n":1,"name":"a","at":"%b","more":[{"a":1}]}' % at.encode(),)], "value binary"
        )
        assert simple.select(json_row(F.col("value"), whole, utc=True).isNotNull()).first() == (True,)
