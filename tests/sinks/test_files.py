"""Epochs as folders of files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pytest

from millrace.sinks import Sink
from millrace.sinks.files import files
from millrace.testing.sinks import SinkSuite

pytestmark = pytest.mark.spark

_numbers = itertools.count(1)


class TestFiles(SinkSuite):
    format: ClassVar[Any] = "parquet"

    def sink(self, *, keyed: bool) -> Sink:  # noqa: ARG002 -- it takes every row
        return files(f"out/{next(_numbers)}", format=self.format)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        frame = self.spark.read.format(self.format).load(str(self.folder / sink.path))  # type: ignore[attr-defined]
        return [row.asDict() for row in frame.collect()]


class TestJson(TestFiles):
    format = "json"
