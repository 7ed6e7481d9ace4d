"""Definitions: what may be written, and that every mistake is told with the line that made it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millrace import errors
from millrace.errors import MillraceError
from millrace.flow import App, Fixed, Stream, Topic

SCHEMA = "url string, user long, at timestamp"


def app_with_views() -> tuple[App, Topic]:
    app = App("shop")
    return app, app.topic("pageviews", SCHEMA, time="at", lateness="10 seconds")


def passes(p: Any) -> Any:
    return p


def nothing() -> Any:
    return {}


def joins(a: Any, b: Any) -> Any:
    return (a, b)


def test_nodes_are_frozen_and_know_their_line() -> None:
    _, views = app_with_views()
    assert views.lateness == Fixed(10_000)
    assert views.where.file.endswith("test_app.py")
    assert "app.topic(" in Path(__file__).read_text().splitlines()[views.where.line - 1]
    with pytest.raises(FrozenInstanceError):
        views.name = "other"  # type: ignore[misc]


def test_a_stream_is_a_node_and_still_the_function_it_was() -> None:
    app, views = app_with_views()

    @app.stream(views, key="url", schema="url string, n long")
    def counts(p: Any) -> Any:
        return ("counted", p)

    @app.stream(counts, key=["url", "n"])
    def top(c: Any) -> Any:
        return c

    assert isinstance(counts, Stream)
    assert counts("frame") == ("counted", "frame")  # type: ignore[arg-type,comparison-overlap]
    assert counts.reads == (views,)
    assert top.reads == (counts.output,)
    assert top.key == ("url", "n")
    assert counts.output.name == "counts"


def test_traffic_makes_rows_from_a_seeded_random() -> None:
    app, views = app_with_views()

    @app.traffic(views, rate=50)
    def visits(random: Random) -> dict[str, Any]:
        return {"url": "/", "user": random.randrange(10)}

    @app.traffic(views, rate=0.5)
    def numbered(random: Random, n: int) -> dict[str, Any]:
        return {"url": "/", "user": n}

    assert visits(Random(1)) == visits(Random(1))
    assert numbered(Random(1), 7)["user"] == 7
    assert [node.name for node in app.graph().traffic] == ["visits", "numbered"]


def _later(app: App, views: Topic, **options: Any) -> Callable[[Any], Any]:
    return app.stream(views, **options)


MISTAKES: dict[str, tuple[type[MillraceError], Callable[[App, Topic], Any], str]] = {
    "topic twice": (errors.NameTaken, lambda app, _: app.topic("pageviews", SCHEMA), "topic"),
    "stream named as a topic": (
        errors.NameTaken,
        lambda app, views: app.stream(views, name="pageviews")(passes),
        "to=",
    ),
    "stream twice": (
        errors.NameTaken,
        lambda app, views: [app.stream(views)(passes) for _ in range(2)],
        "'passes'",
    ),
    "bad topic name": (errors.NameInvalid, lambda app, _: app.topic("page views", SCHEMA), "page views"),
    "name that leaves the folder": (errors.NameInvalid, lambda app, _: app.topic("../x", SCHEMA), "../x"),
    "name too long": (errors.NameInvalid, lambda app, _: app.topic("x" * 181, SCHEMA), "180"),
    "an unknown guarantee": (
        errors.OptionInvalid,
        lambda app, views: _later(app, views, delivery="twice")(passes),
        '"exactly once"',
    ),
    "exactly once in real time": (
        errors.OptionInvalid,
        lambda app, views: _later(app, views, delivery="exactly once", mode="realtime")(passes),
        "leave before their epoch",
    ),
    "at most once in real time": (
        errors.OptionInvalid,
        lambda app, views: _later(app, views, delivery="at most once", mode="realtime")(passes),
        "leave before their epoch",
    ),
    "a header that is no text": (
        errors.OptionInvalid,
        lambda app, _: app.topic("other", SCHEMA, headers={"trace": 7}),
        '{"id": "millrace-id"}',
    ),
    "a header called like a column": (
        errors.OptionInvalid,
        lambda app, _: app.topic("other", SCHEMA, headers={"url": "millrace-id"}),
        "the value has url: give the header another name",
    ),
    "no input": (errors.InputMissing, lambda app, _: app.stream()(passes), "passes"),
    "input by name": (
        errors.InputUnknown,
        lambda app, _: app.stream("pageview")(passes),  # type: ignore[arg-type]
        "did you mean 'pageviews'",
    ),
    "input that is something else": (errors.InputUnknown, lambda app, _: app.stream(7)(passes), "a int"),  # type: ignore[arg-type]
    "input of another app": (
        errors.InputForeign,
        lambda app, _: app.stream(App("shop").topic("pageviews", SCHEMA))(passes),
        "another app",
    ),
    "lake tables alone": (errors.InputStill, lambda app, _: app.stream(app.lake("x"))(passes), "--from lake"),
    "a version of a lake table that streams": (
        errors.OptionInvalid,
        lambda app, _: app.lake("x", "id long", version=1),  # type: ignore[call-overload]
        "goes on with what is added",
    ),
    "a topic's option for a table that stands still": (
        errors.OptionInvalid,
        lambda app, _: app.lake("x", time="at"),  # type: ignore[call-overload]
        "give the columns too",
    ),
    "a lake table twice": (errors.NameTaken, lambda app, _: [app.lake("x") for _ in range(2)], "lake/x"),
    "no name of a lake table": (errors.OptionInvalid, lambda app, _: app.lake("x.y"), "`millrace lake list`"),
    "no version of a lake table": (
        errors.OptionInvalid,
        lambda app, _: app.lake("x", version="newest"),  # type: ignore[arg-type]
        "`millrace lake history x`",
    ),
    "no schema": (errors.SchemaMissing, lambda app, _: app.topic("x", ""), "url string"),
    "schema of None": (errors.SchemaMissing, lambda app, _: app.topic("x", None), "url string"),  # type: ignore[arg-type]
    "schema without a type": (errors.SchemaInvalid, lambda app, _: app.topic("x", "url"), "'url'"),
    "schema with a column twice": (errors.SchemaInvalid, lambda app, _: app.topic("x", "a int, a int"), "twice"),
    "schema that ends with a comma": (errors.SchemaInvalid, lambda app, _: app.topic("x", "a int,"), "empty"),
    "stream of a stream without a schema": (
        errors.SchemaMissing,
        lambda app, views: app.stream(app.stream(views)(passes), name="second")(passes),
        "schema=",
    ),
    "time without lateness": (errors.LatenessMissing, lambda app, _: app.topic("x", SCHEMA, time="at"), "lateness="),
    "lateness without time": (errors.TimeMissing, lambda app, _: app.topic("x", SCHEMA, lateness="1 s"), "time="),
    "time that is no column": (
        errors.TimeInvalid,
        lambda app, _: app.topic("x", SCHEMA, time="att", lateness="1 s"),
        "did you mean 'at'",
    ),
    "time that is no timestamp": (
        errors.TimeInvalid,
        lambda app, _: app.topic("x", SCHEMA, time="url", lateness="1 s"),
        "is a string",
    ),
    "lateness that is no duration": (
        errors.OptionInvalid,
        lambda app, _: app.topic("x", SCHEMA, time="at", lateness="soon"),
        "10 seconds",
    ),
    "lateness that is a number": (
        errors.OptionInvalid,
        lambda app, _: app.topic("x", SCHEMA, time="at", lateness=5),  # type: ignore[arg-type]
        "10 seconds",
    ),
    "no partitions": (errors.OptionInvalid, lambda app, _: app.topic("x", SCHEMA, partitions=0), "from 1"),
    "empty key": (errors.OptionInvalid, lambda app, views: _later(app, views, key=[])(passes), "key"),
    "unknown emission": (errors.OptionInvalid, lambda app, views: _later(app, views, emit="often")(passes), "updates"),
    "schema beside to": (
        errors.OptionInvalid,
        lambda app, views: _later(app, views, to=views, schema="a int")(passes),
        "leave it out",
    ),
    "too few parameters": (errors.ParametersInvalid, lambda app, v: app.stream(v, v)(passes), "1 parameter, but"),
    "too many parameters": (
        errors.ParametersInvalid,
        lambda app, views: app.stream(views)(joins),
        "given 1 input",
    ),
    "traffic without parameters": (
        errors.ParametersInvalid,
        lambda app, views: app.traffic(views, rate=1)(nothing),
        "takes 0",
    ),
    "no rate": (errors.OptionInvalid, lambda app, views: app.traffic(views, rate=0)(passes), "above 0"),
    "traffic into a stream": (
        errors.InputUnknown,
        lambda app, views: app.traffic(app.stream(views)(passes), rate=1, name="t")(passes),  # type: ignore[arg-type]
        "the stream 'passes'",
    ),
    "traffic as an input": (
        errors.InputUnknown,
        lambda app, views: app.stream(app.traffic(views, rate=1)(passes), name="s")(passes),  # type: ignore[arg-type]
        "the traffic 'passes'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(mistake: str) -> None:
    kind, make, words = MISTAKES[mistake]
    app, views = app_with_views()
    with pytest.raises(kind) as caught:
        make(app, views)
    assert words in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_app.py")


def test_lambdas_need_a_name() -> None:
    app, views = app_with_views()
    with pytest.raises(errors.NameInvalid, match="<lambda>"):
        app.stream(views)(lambda p: p)
    app.stream(views, name="same")(lambda p: p)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("a int", ["a"]),
        ("a: int, b: string", ["a", "b"]),
        ("m decimal(12,2), x struct<a:int,b:map<string,int>>, l array<int>", ["m", "x", "l"]),
        ("`a, b` int not null comment 'x, y', c string", ["a, b", "c"]),
    ],
)
def test_columns_of_a_schema_are_found_without_spark(schema: str, names: list[str]) -> None:
    from millrace.errors import Where
    from millrace.flow.schema import columns

    assert list(columns("x", schema, Where("", 0))) == names


def test_defining_an_app_does_not_import_spark_or_kafka() -> None:
    code = (
        "import sys, millrace as mr\n"
        "app = mr.App('shop')\n"
        "views = app.topic('views', 'a int')\n"
        "app.stream(views, name='s')(lambda p: p)\n"
        "app.graph().text()\n"
        "print([name for name in ('pyspark', 'confluent_kafka') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
