"""Latest-by-key as one would write it in Python with transformWithState: what the kernel is measured against."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

OUTPUT = "topic string, key string, row string, __diff int, op string, partition int, offset long"
STATE = "row string, partition int, offset long"


class PythonLatest(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("row", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        found = self.state.get() if self.state.exists() else None
        held: Any = tuple(found) if found else None
        before = held
        for record in sorted(rows, key=lambda row: row.offset):
            if held and record.offset <= held[2]:
                continue
            envelope = json.loads(record.value) if record.value is not None else {"op": "d", "after": None}
            after = envelope["after"]
            row = None if after is None else json.dumps(after, separators=(",", ":"), ensure_ascii=False)
            old = held[0] if held else None
            held = (row, record.partition, record.offset) if row is not None else None
            if row == old:
                continue
            place: Any = (envelope["op"], record.partition, record.offset)
            for text, diff in ((old, -1), (row, 1)):
                if text is not None:
                    yield _signed(key, text, diff, *place)
        if held is None and before is not None:
            self.state.clear()
        elif held != before:
            self.state.update(held)

    def close(self) -> None:
        pass


def _signed(key: Any, row: str, diff: int, op: str, partition: int, offset: int) -> Row:
    return Row(topic=key[0], key=key[1], row=row, __diff=diff, op=op, partition=partition, offset=offset)


def latest_by_key_in_python(records: DataFrame) -> DataFrame:
    texts = records.selectExpr("topic", "cast(key as string) key", "cast(value as string) value", "partition", "offset")
    return texts.groupBy("topic", "key").transformWithState(PythonLatest(), OUTPUT, "Update", "None")
