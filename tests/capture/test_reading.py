"""Rows of a topic as a table's typed columns: Spark's against the Python decoder, and what neither lets through."""

from __future__ import annotations

import base64
import json
import random
import struct
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.capture import printed, reading, types
from millrace.capture.database import CapturedTable, Column
from millrace.errors import RowUnreadable, TableChanged
from millrace.model.latest import without
from tests.rotation import todays

ROWS = 300
DAY_US = 86_400_000_000
ENDS = {"infinity": 1, "-infinity": -1}


def column(name: str, root: str, dimensions: int = 0) -> Column:
    return Column(name, root, types.postgres(SimpleNamespace(root=root, dimensions=dimensions)))


def table(*columns: Column, name: str = "public.t") -> CapturedTable:
    return CapturedTable(name, "t", ("id",), columns, (tuple(each.name for each in columns),))


def _moment(rng: random.Random, clock: bool, zone: str = "") -> str:
    if rng.random() < 0.1:
        return rng.choice(["infinity", "-infinity"])
    year = rng.choice([rng.randint(1, 9999), rng.randint(-4711, 0), rng.randint(10_000, 200_000), 1582, 1969])
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    text = f"{sign}{abs(year):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    if clock:
        text += f"T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
        text += rng.choice(["", ".5", f".{rng.randint(0, 999_999):06}"]) + zone
    return text


def _float(rng: random.Random, code: str) -> float | str:
    size = struct.calcsize(code)
    (value,) = struct.unpack(code, rng.randbytes(size))
    text = {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value)
    return "NaN" if value != value else text or value


def _text(rng: random.Random) -> str:
    planes = [(1, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x2FFFF), (0xE0000, 0x10FFFF)]
    return "".join(chr(rng.randint(*rng.choice(planes))) for _ in range(rng.randint(0, 8)))


MAKERS: dict[str, Any] = {
    "smallint": lambda rng: rng.randint(-(2**15), 2**15 - 1),
    "integer": lambda rng: rng.choice([-(2**31), 2**31 - 1, rng.randint(-9, 9)]),
    "bigint": lambda rng: rng.randint(-(2**63), 2**63 - 1),
    "numeric": lambda rng: rng.choice(["NaN", "Infinity", "1.10", "9" * 60]),
    "numeric(38,10)": lambda rng: (
        f"{rng.choice(['', '-'])}{rng.randint(0, 10**28 - 1)}.{rng.randint(0, 10**10 - 1):010}"
    ),
    "numeric(4,0)": lambda rng: str(rng.randint(-9999, 9999)),
    "real": lambda rng: _float(rng, ">f"),
    "double precision": lambda rng: _float(rng, ">d"),
    "boolean": lambda rng: rng.random() < 0.5,
    "text": _text,
    "bytea": lambda rng: base64.b64encode(rng.randbytes(rng.randint(0, 9))).decode(),
    "date": lambda rng: _moment(rng, False),
    "timestamp without time zone": lambda rng: _moment(rng, True),
    "timestamp with time zone": lambda rng: _moment(rng, True, "Z"),
    "time without time zone": lambda rng: rng.choice(["24:00:00", "00:00:00.000001"]),
}
ELEMENTS = [
    "integer",
    "numeric(38,10)",
    "double precision",
    "boolean",
    "text",
    "bytea",
    "date",
    "timestamp with time zone",
]


def _element(made: Any) -> str:
    return made if isinstance(made, str) else json.dumps(made)


def generated(rng: random.Random) -> tuple[CapturedTable, list[str]]:
    columns = [column("id", "integer"), *(column(f"c {n}", root) for n, root in enumerate(MAKERS))]
    columns += [column(f"a`{n}", f"{root}[]") for n, root in enumerate(ELEMENTS)]
    columns.append(column("matrix", "integer[]", dimensions=2))
    known, rows = table(*columns), []
    for number in range(ROWS):
        row: dict[str, Any] = {"id": number}
        for each in columns[1:]:
            root = each.type.removesuffix("[]")
            if rng.random() < 0.1:
                row[each.name] = None
            elif each.name == "matrix":
                row[each.name] = rng.choice([["1", None], [printed.WHOLE + "{{1,2},{3,4}}"]])
            elif root != each.type:
                made = [MAKERS[root](rng) for _ in range(rng.randint(0, 3))]
                row[each.name] = [None if rng.random() < 0.2 else _element(item) for item in made]
            else:
                row[each.name] = MAKERS[root](rng)
        rows.append(json.dumps(row, ensure_ascii=rng.random() < 0.5))
    return known, rows


def comparable(value: SparkColumn, spark_type: str) -> SparkColumn:
    """What Spark holds, without a way through Python's dates, which end where Spark's do not."""
    kinds = {
        "date": F.unix_date,
        "timestamp": F.unix_micros,
        "timestamp_ntz": lambda each: F.unix_micros(each.cast("timestamp")),
        "binary": F.base64,
        "float": lambda each: each.cast("double"),
    }
    if spark_type.startswith("array<"):
        return F.transform(value, lambda item: comparable(item, spark_type[6:-1]))
    return kinds.get(spark_type, lambda each: each)(value)


def plain(value: Any, spark_type: str) -> Any:
    """The Python decoder's value as `comparable` gives Spark's."""
    if value is None:
        return None
    if spark_type.startswith("array<"):
        return [plain(item, spark_type[6:-1]) for item in value]
    if spark_type in ("float", "double"):
        return struct.pack(">f" if spark_type == "float" else ">d", value).hex()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    bits = 31 if spark_type == "date" else 63
    if value in ENDS and spark_type in ("date", "timestamp", "timestamp_ntz"):
        return 2**bits - 1 if value == "infinity" else -(2**bits)
    if spark_type in ("date", "timestamp", "timestamp_ntz"):
        return _counted(value, spark_type)
    return value


def _counted(value: Any, spark_type: str) -> int:
    """Days or microseconds since 1970, of years that Python does not have by those 400 years away, and so on."""
    turns, cycle_days = 0, 146_097
    if isinstance(value, str):
        day, _, clock = value.rstrip("Z").partition("T")
        sign, year, rest = (-1 if day[0] == "-" else 1), int(day.lstrip("+-")[:-6]), day[-6:]
        turns, year = divmod(sign * year - 400, 400)
        text = f"{year + 400:04}{rest}"
        value = datetime.fromisoformat(f"{text}T{clock}") if clock else date.fromisoformat(text)
    if spark_type == "date":
        return (value - date(1970, 1, 1)).days + turns * cycle_days
    since: timedelta = value.replace(tzinfo=None) - datetime(1970, 1, 1)
    return since // timedelta(microseconds=1) + turns * cycle_days * DAY_US


def frame(spark: SparkSession, rows: list[str]) -> DataFrame:
    return spark.createDataFrame([(row, 1, "k") for row in rows], "row string, __diff int, key string")


@pytest.mark.spark
def test_spark_reads_what_the_python_decoder_reads(spark: SparkSession) -> None:
    known, rows = generated(random.Random(4))
    typed = reading.typed(frame(spark, rows), known)
    assert typed.columns == [*(each.name for each in known.columns), "__diff", "key"]
    shown = [comparable(typed[reading.quoted(each.name)], each.spark).alias(each.name) for each in known.columns]
    found = {row[0]: row for row in typed.select(*shown).collect()}
    assert dict(typed.dtypes) == {each.name: each.spark for each in known.columns} | {"__diff": "int", "key": "string"}
    for text in rows:
        python = reading.decoded(known, text)
        for place, each in enumerate(known.columns):
            value = found[python["id"]][place]
            meant = plain(python[each.name], each.spark)
            if each.spark in ("float", "double", "array<double>"):
                code = "float" if each.spark == "float" else each.spark
                value = plain(value, code)
            assert value == meant, (each.name, each.type, json.loads(text)[each.name])


@pytest.mark.spark
def test_the_json_is_parsed_once(spark: SparkSession) -> None:
    known = replace(table(*(column(name, "numeric(12,2)") for name in ("id", "a", "b", "c"))))
    plan = reading.typed(frame(spark, []), known)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1, plan


CASES = [
    # Table, row, and what is said; the first group is of values that the Python decoder gives as text instead.
    (column("v", "timestamp without time zone"), '{"id":7,"v":"+294276-12-31T23:59:59"}', "v is no timestamp_ntz"),
    (column("v", "numeric(12,2)"), '{"id":7,"v":"NaN"}', "v is no decimal(12,2): NaN"),
    (column("v", "numeric(12,2)"), '{"id":7,"v":"1.234"}', "v is no decimal(12,2): 1.234"),
    (column("v", "numeric(12,2)"), '{"id":7,"v":"12345678901.00"}', "v is no decimal(12,2)"),
    (column("v", "integer"), '{"id":7,"v":2147483648}', "v is no int: 2147483648"),
    (column("v", "integer"), '{"id":7,"v":"five"}', "its values are not of its columns' types"),
    (column("v", "date"), '{"id":7,"v":"2024-02-30"}', "v is no date"),
    (column("v", "bytea"), '{"id":7,"v":"!"}', "v is no binary"),
    (column("v", "integer[]"), '{"id":7,"v":["1","x"]}', "v is no array<int>"),
    (column("v", "integer[]"), '{"id":7,"v":["\\u0000{{1},{2}}"]}', "v is no array<int>"),
    (column("v", "text[]"), '{"id":7,"v":["\\u0000{{a},{b}}"]}', "v is no array<string>: {{a},{b}}"),
]


@pytest.mark.spark
@pytest.mark.parametrize(("tried", "row", "said"), todays(CASES, 5))
def test_a_value_that_is_none_of_its_type_is_never_null(
    spark: SparkSession, tried: Column, row: str, said: str
) -> None:
    known = table(column("id", "integer"), tried)
    with pytest.raises(PySparkException) as raised:
        reading.typed(frame(spark, [row]), known).collect()
    assert f'MR-ROW-UNREADABLE public.t {{"id":{"7" if "types" not in said else chr(34) + "7" + chr(34)}}}' in str(
        raised.value
    )
    assert said in str(raised.value)
    if "294276" not in row:
        with pytest.raises(RowUnreadable, match="MR-ROW-UNREADABLE"):
            reading.decoded(known, row)


@pytest.mark.spark
def test_rows_of_other_shapes_are_filled_or_refused(spark: SparkSession) -> None:
    five = replace(column("five", "integer"), default="5")
    known = replace(
        table(column("id", "integer"), replace(column("title", "text"), was=("name",)), column("name", "text"), five),
        shapes=(("id", "name"), ("id", "name", "gone"), ("id", "title", "name", "five")),
        dropped=("gone",),
    )
    rows = [
        '{"id":1,"name":"a"}',
        '{"id":2,"name":"b","gone":true}',
        '{"id":3,"title":"c","name":"d","five":null}',
    ]
    found = [
        row.asDict() for row in reading.typed(frame(spark, rows), known).drop("__diff", "key").orderBy("id").collect()
    ]
    assert found == [reading.decoded(known, row) for row in rows]
    assert found == [
        {"id": 1, "title": "a", "name": None, "five": 5},
        {"id": 2, "title": "b", "name": None, "five": 5},
        {"id": 3, "title": "c", "name": "d", "five": None},
    ]
    both = frame(spark, rows[:1]).withColumn("before", F.lit(None).cast("string")).withColumnRenamed("row", "after")
    (pair,) = reading.structs(both, known, "before", "after").collect()
    assert pair.before is None
    assert pair.after.asDict() == found[0]

    strange = '{"id":4,"name":"a","new":1}'
    # Of a table narrowed to some columns, rows say the same with the others and without them.
    for wanted in ([], ["title"], ["name"], ["five"], ["title", "five"]):
        narrow, left_out = reading.narrowed(known, wanted)
        assert ("gone" in left_out, "name" in left_out) == (True, not {"title", "name"} & {*wanted})
        less = [without(row, left_out) for row in rows]
        both = frame(spark, rows + less).select(F.col("row").alias("after"))
        pairs = reading.structs(both, narrow, "after", left_out=left_out).collect()
        told = [{name: pair.after[name] for name in wanted} for pair in pairs]
        for whole, row in zip(told[: len(rows)], found, strict=True):
            assert whole == {name: row[name] for name in wanted}
        assert told[len(rows) :] == told[: len(rows)]
        changed = frame(spark, [without(strange, left_out)]).select(F.col("row").alias("after"))
        with pytest.raises(PySparkException, match=r'MR-TABLE-CHANGED public.t \["id",("name",)?"new"\]'):
            reading.structs(changed, narrow, "after", left_out=left_out).collect()
    with pytest.raises(PySparkException, match=r'MR-TABLE-CHANGED public.t \["id","name","new"\]'):
        reading.typed(frame(spark, [strange]), known).collect()
    with pytest.raises(TableChanged, match='"new"'):
        reading.decoded(known, strange)


def test_what_debezium_writes_by_itself_is_read_too() -> None:
    """Days, microseconds and its words for infinity: of MySQL, and of topics that are somebody else's."""
    names = {"d": "date", "t": "timestamp without time zone", "c": "time without time zone", "n": "numeric(5,2)"}
    known = replace(table(column("id", "integer"), *(column(name, root) for name, root in names.items())), shapes=())
    row = '{"id":1,"d":19782,"t":1709210096123456,"c":45296700000,"n":5}'
    assert reading.decoded(known, row) == {
        "id": 1,
        "d": date(2024, 2, 29),
        "t": datetime(2024, 2, 29, 12, 34, 56, 123456),
        "c": "12:34:56.7",
        "n": Decimal("5.00"),
    }


@pytest.mark.spark
def test_spark_reads_what_debezium_writes_by_itself(spark: SparkSession) -> None:
    names = {"d": "date", "t": "timestamp without time zone", "z": "timestamp with time zone", "n": "numeric(5,2)"}
    columns = [column(name, root) for name, root in names.items()]
    known = replace(table(column("id", "integer"), *columns, column("c", "time")), shapes=())
    row = '{"id":1,"d":19782,"t":1709210096123456,"z":"2024-02-29T10:34:56.100000Z","n":5,"c":-45296700001}'
    typed = reading.typed(frame(spark, [row]), known).drop("__diff", "key")
    (found,) = typed.withColumn("z", F.unix_micros("z")).collect()
    assert found.asDict() == {
        "id": 1,
        "d": date(2024, 2, 29),
        "t": datetime(2024, 2, 29, 12, 34, 56, 123456),
        "z": 1709202896100000,
        "n": Decimal("5.00"),
        "c": "-12:34:56.700001",
    }


WORDS = (
    ("0044-03-15 BC", "0001-12-31T23:59:59.999999 BC", "4713-01-01T00:00:00.000000Z BC"),
    ("10000-01-01", "10000-12-31T00:00:00.500000", "99999-12-31T23:59:59.999999Z"),
    ("infinity", "-infinity", "infinity"),
)
ISO = (
    ("-0043-03-15", "0000-12-31T23:59:59.999999", "-4712-01-01T00:00:00.000000Z"),
    ("+10000-01-01", "+10000-12-31T00:00:00.500000", "+99999-12-31T23:59:59.999999Z"),
    ("infinity", "-infinity", "infinity"),
)


@pytest.mark.spark
def test_moments_are_read_as_postgresql_says_them_too(spark: SparkSession) -> None:
    """As they are in a view's changelog, which another app reads as a table."""
    names = {"d": "date", "t": "timestamp without time zone", "z": "timestamp with time zone"}
    columns = [column(name, root) for name, root in names.items()]
    known = replace(table(column("id", "integer"), *columns), shapes=())
    found = []
    for given in (WORDS, ISO):
        rows = [json.dumps({"id": 1, **dict(zip(names, row, strict=True))}) for row in given]
        typed = reading.typed(frame(spark, rows), known)
        shown = [comparable(typed[each.name], each.spark).alias(each.name) for each in columns]
        found.append((sorted(typed.select(*shown).collect()), [reading.decoded(known, row) for row in rows]))
    assert found[0] == found[1]
    assert [each["d"] for each in found[0][1]] == ["-0043-03-15", "+10000-01-01", "infinity"]
    with pytest.raises(RowUnreadable, match="d is no date"):
        reading.decoded(known, '{"id":1,"d":"yesterday BC","t":null,"z":null}')
