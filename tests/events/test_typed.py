"""Captured events as typed columns: what Spark gives is what a load in process gives, for every version and type; what
cannot be read stops the flow and is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from millrace.errors import EventFromFuture, EventInvalid
from millrace.events import event, personal, typed, unchanged
from millrace.events.kinds import kind_of

pytestmark = pytest.mark.spark

COLUMNS = (
    "position long, aggregate string, id string, version long, type string, schema int, at timestamp, command string, "
    "data string, seals string, meta string, __diff int"
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Line:
    item: str
    price: Decimal


@event
class Noted:
    """One version, no defaults: no Python is needed."""

    text: str
    good: bool
    count: int
    share: float
    amount: Decimal
    when: datetime
    day: date
    number: UUID
    colour: Colour
    lines: list[Line]
    names: dict[str, int]
    about: str | None
    secret: Annotated[str | None, personal]


def with_currency(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "currency": "EUR"}


def in_cents(data: dict[str, Any]) -> dict[str, Any]:
    return {"cents": int(Decimal(data["amount"]) * 100), "currency": data["currency"], "payer": data.get("payer")}


@event(name="Paid", version=4, upcasters={1: with_currency, 2: in_cents, 3: unchanged})
class Paid:
    cents: int
    currency: str
    payer: Annotated[str | None, personal]
    method: str = "card"


@event
class Happened:
    pass


moments = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))
amounts = st.decimals(-(10**12), 10**12, places=2)
noted = st.builds(
    Noted,
    text=st.text(st.characters(codec="utf-8")),
    good=st.booleans(),
    count=st.integers(-(2**63), 2**63 - 1),
    share=st.floats(allow_nan=False, allow_infinity=False),
    amount=amounts,
    when=moments,
    day=st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    number=st.uuids(),
    colour=st.sampled_from(Colour),
    lines=st.lists(st.builds(Line, st.text(st.characters(codec="utf-8"), max_size=3), amounts), max_size=3),
    names=st.dictionaries(st.sampled_from("abc"), st.integers(-5, 5)),
    about=st.none() | st.text("xyz"),
    secret=st.just(None),
)
currencies = st.sampled_from(["EUR", "USD"])
cents = st.integers(0, 9)
versions = {
    1: st.fixed_dictionaries({"amount": amounts.map(str)}),
    2: st.fixed_dictionaries(
        {"amount": amounts.map(str), "currency": currencies, "payer": st.sampled_from(["S", None])}
    ),
    3: st.fixed_dictionaries({"cents": cents, "currency": currencies, "payer": st.none()}),
    4: st.fixed_dictionaries({"cents": cents, "currency": currencies, "payer": st.none(), "method": st.text("ab")}),
}
paid = st.sampled_from(sorted(versions)).flatmap(lambda number: st.tuples(st.just(number), versions[number]))


def row(position: int, name: str, version: int, data: dict[str, Any]) -> tuple[Any, ...]:
    seals = json.dumps({"payer": "key"}) if data.get("payer") else None
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return (position, "A", "a", position, name, version, at, None, json.dumps(data), seals, None, 1)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, COLUMNS)


def plain(value: Any) -> Any:
    """A value of Python or of Spark, as both can be compared."""
    if isinstance(value, Enum | UUID):
        return str(value.value if isinstance(value, Enum) else value)
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # Spark gives the zone's own time
    if isinstance(value, list | tuple) and not hasattr(value, "asDict"):
        return [plain(each) for each in value]
    found = value.asDict() if hasattr(value, "asDict") else vars(value) if isinstance(value, Line) else value
    return {name: plain(each) for name, each in found.items()} if isinstance(found, dict) else found


def told(rows: DataFrame) -> dict[int, dict[str, Any]]:
    return {
        each.position: {name: plain(value) for name, value in each.event.asDict().items()} for each in rows.collect()
    }


few = settings(max_examples=6, suppress_health_check=list(HealthCheck))


@few
@given(st.lists(noted, min_size=1, max_size=40))
def test_every_type(spark: SparkSession, given: list[Noted]) -> None:
    rows = [row(number, "Noted", 1, kind_of(Noted).encode(each)) for number, each in enumerate(given)]
    found = typed(frame(spark, [*rows, row(99, "Other", 7, {})]), Noted)
    assert "PythonUDF" not in found._jdf.queryExecution().toString()
    assert "data" not in found.columns
    expected = [{name: plain(value) for name, value in vars(each).items() if name != "secret"} for each in given]
    assert told(found) == dict(enumerate(expected))


@few
@given(st.lists(paid, min_size=1, max_size=40))
def test_every_version(spark: SparkSession, given: list[tuple[int, dict[str, Any]]]) -> None:
    """By the upcasters, with the defaults, as a load in process has it; beside events of another class."""
    rows = [row(number, "Paid", version, data) for number, (version, data) in enumerate(given)]
    found = typed(frame(spark, [*rows, row(99, "Happened", 1, {})]), Paid, Happened).orderBy("position").collect()
    assert found.pop().event.asDict() == {"cents": None, "currency": None, "method": None}
    for each, (version, data) in zip(found, given, strict=True):
        loaded = kind_of(Paid).decode({**data, "payer": None} if data.get("payer") else data, version, 0)
        assert each.event.asDict() == {"cents": loaded.cents, "currency": loaded.currency, "method": loaded.method}


def test_what_cannot_be_read_is_told(spark: SparkSession) -> None:
    good = kind_of(Noted).encode(
        Noted("", True, 1, 0.5, Decimal("1.255"), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), UUID(int=1),
              Colour.RED, [], {}, None, None)
    )  # fmt: skip
    (only,) = typed(frame(spark, [row(1, "Noted", 1, good)]), Noted, decimals="string").collect()
    assert only.event.amount == "1.255"
    for rows, options, words in (
        ([row(7, "Noted", 2, good)], {}, "MR-EVENT-FROM-FUTURE"),
        ([row(7, "Noted", 1, {**good, "text": None})], {}, "'Noted' .* at position 7 cannot be read: it has no 'text'"),
        ([row(7, "Noted", 1, {**good, "count": "many"})], {}, "MALFORMED|Malformed"),
        ([row(7, "Noted", 1, {**good, "count": 2**63})], {}, "MALFORMED|Malformed|it has no 'count'"),
        ([row(7, "Noted", 1, good)], {"decimals": "decimal(18,2)"}, r"'amount' does not fit decimal\(18,2\)"),
        ([row(7, "Noted", 1, {**good, "amount": "1e30"})], {}, "'amount' does not fit"),
    ):
        with pytest.raises(Exception, match=words):
            typed(frame(spark, rows), Noted, **options).collect()
    with pytest.raises(Exception, match=EventFromFuture.code):
        typed(frame(spark, [row(7, "Paid", 5, {})]), Paid).collect()
    with pytest.raises(Exception, match=r"MR-EVENT-UNREADABLE.*position 7"):
        typed(frame(spark, [row(7, "Paid", 1, {"amount": "x"})]), Paid).collect()
    assert typed(frame(spark, [row(1, "Happened", 1, {})]), Happened).count() == 1

    @event(name="Other")
    class Other:
        count: str

    with pytest.raises(EventInvalid, match="one of them at a time"):
        typed(frame(spark, []), Noted, Other)
