"""Epochs as folders of files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from millrace.errors import FilesForeign
from millrace.sinks import Epoch, Sink
from millrace.sinks.files import LEDGER, entry_in, files
from millrace.sinks.ledger import entry_text
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


def test_what_is_called_otherwise_is_passed_over_and_an_epoch_without_its_ledger_is_refused(tmp_path: Path) -> None:
    sink, flow = files(str(tmp_path)), "shop.orders"
    assert entry_in(tmp_path, sink) is None
    for number in (2, 10):
        folder = tmp_path / f"epoch={number}"
        folder.mkdir()
        (folder / LEDGER).write_text(entry_text(Epoch(flow, number, "[]")))
    for name in ("epoch=12 (copy)", "epoch=latest", "epoch=1_000", "epoch=012", "epoch="):
        (tmp_path / name).mkdir()
    assert entry_in(tmp_path, sink) == Epoch(flow, 10, "[]")

    last = tmp_path / "epoch=2026"
    last.touch()
    with pytest.raises(FilesForeign, match=r"epoch=2026 has no _ledger\.json") as refused:
        entry_in(tmp_path, sink)
    assert refused.value.where == sink.where
    last.unlink()
    last.mkdir()
    for text in (None, "", '{"flow": "shop.or', "[]", '{"flow": "shop.orders"}'):
        if text is not None:
            (last / LEDGER).write_text(text)
        with pytest.raises(FilesForeign):
            entry_in(tmp_path, sink)
