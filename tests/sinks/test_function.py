"""A function as a sink, and the terminal: at least once, each with a ledger in a file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.errors import FunctionFailed, OptionInvalid
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Sink
from millrace.sinks.function import function
from millrace.sinks.terminal import terminal
from millrace.testing.sinks import SinkSuite

pytestmark = pytest.mark.spark

_numbers = itertools.count(1)
_written: dict[str, list[dict[str, Any]]] = {}


class TestFunction(SinkSuite):
    def sink(self, *, keyed: bool) -> Sink:  # noqa: ARG002 -- it takes every row
        name = f"function{next(_numbers)}"
        _written[name] = []

        def write(rows: DataFrame, epoch: Epoch) -> None:
            _written[name].extend(row.asDict() for row in rows.collect())

        return function(write, name=name)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        return _written[sink.name]


def test_what_a_function_is_not() -> None:
    with pytest.raises(OptionInvalid, match="two parameters"):
        function(print)
    with pytest.raises(OptionInvalid, match="two parameters"):
        function(lambda _: None)  # type: ignore[misc, arg-type]


def test_an_exception_names_the_function(spark: SparkSession, tmp_path: Any) -> None:
    def write(rows: DataFrame, epoch: Epoch) -> None:
        raise ValueError(f"not {epoch.number}")

    rows = spark.createDataFrame([(1, 1, 1)], f"id long, {DIFF} int, {VERSION} long")
    writer = function(write).open(None, "flow", Feed(rows.schema), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(FunctionFailed, match=r"'function.write' failed \(ValueError: not 7\)"):
        writer.write(Epoch("flow", 7, "[]"), rows, lambda _: None)


def test_the_terminal(spark: SparkSession, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    columns = spark.createDataFrame([], "id long, name string").schema
    rows = spark.createDataFrame(
        [(1, "one", 1, 5), (2, "zwei", -1, 5), (3, None, 1, 5)], f"id long, name string, {DIFF} int, {VERSION} long"
    )
    sink = terminal(rows=2, name="shown")
    writer = sink.open(None, "flow", Feed(columns, signed=True), tmp_path)  # type: ignore[arg-type]
    for _ in range(2):
        writer.write(Epoch("flow", 0, "[]"), rows.coalesce(1), lambda _: None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["shown  … and 1 more"]
    assert [line.split(" ", 3)[:3] for line in lines[:2]] == [["shown", "", "+"], ["shown", "", "-"]]
    assert [json.loads(line.split(" ", 3)[3]) for line in lines[:2]] == [
        {"id": 1, "name": "one"},
        {"id": 2, "name": "zwei"},
    ]
