"""A log in a folder instead of Kafka: what flows and tests need of a `Log`, without a broker.

The layout is that of `millrace/testing/LogFolder.java`, by which Spark reads and writes it. One process at a time; what
is written together becomes visible together.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Generator, Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from millrace.config import Settings
from millrace.errors import TopicUnknown, nearest
from millrace.log import DataSource, Log, Record
from millrace.log.deadletters import DeadLetters
from millrace.log.record import Headers, Value, header_pairs, moment, timestamp_ms, value_bytes
from millrace.log.topics import Topics

FORMAT = "millrace.testing.FolderLog"
# How the error of a fault begins.
CRASHED = "a play crashes "

_ENDS, _FAULT = "ends.json", "fault"


class FolderTopics(Topics):
    def __init__(self, root: Path, settings: Settings) -> None:
        self.root, self.settings = root, settings

    def outside(self, name: str) -> str:
        return self.settings.named(name)

    def exists(self, name: str) -> bool:
        return (self._folder(name) / _ENDS).exists()

    def ensure(self, name: str, **options: Any) -> bool:
        if self.exists(name):
            return False
        self._folder(name).mkdir(parents=True)
        self.end_at(name, dict.fromkeys(range(options.get("partitions") or 1), 0))
        return True

    def identity(self, name: str) -> str:
        return self.outside(name)

    def config(self, name: str) -> dict[str, str]:  # noqa: ARG002 -- nothing is configured here
        return {}

    def offsets(self, name: str, **_: Any) -> dict[int, tuple[int, int]]:
        return {number: (0, end) for number, end in self.ends_of(name).items()}

    def ends_of(self, name: str) -> dict[int, int]:
        if not self.exists(name):
            names = [self.settings.unnamed(folder.name) or "" for folder in self.root.iterdir()]
            raise TopicUnknown(topic=name, hint=nearest(name, names))
        told = json.loads((self._folder(name) / _ENDS).read_text(encoding="utf-8"))
        return {int(number): end for number, end in told.items()}

    def at(self, name: str, moment: datetime) -> dict[int, int]:
        found = {}
        for number, end in self.ends_of(name).items():
            times = [line["time"] for line in self.lines(name, number, end)]
            found[number] = next((place for place, each in enumerate(times) if each >= timestamp_ms(moment)), end)
        return found

    def end_at(self, name: str, ends: Mapping[int, int]) -> None:
        draft = self._folder(name) / "ends.new"
        draft.write_text(json.dumps(ends), encoding="utf-8")
        draft.replace(self._folder(name) / _ENDS)

    def lines(self, name: str, partition: int, end: int) -> list[dict[str, Any]]:
        """The records of a partition, as they are written, before this offset."""
        texts = self.file(name, partition).read_text(encoding="utf-8").splitlines()[:end] if end else []
        return [json.loads(text) for text in texts]

    def file(self, name: str, partition: int) -> Path:
        return self._folder(name) / f"{partition}.jsonl"

    def _folder(self, name: str) -> Path:
        return self.root / self.outside(name)


class FolderWriter:
    """Like `millrace.log.Writer`; what it was given becomes visible, all at once, when it is flushed."""

    def __init__(self, topics: FolderTopics, topic: str) -> None:
        self._topics, self._topic = topics, topic
        self._partitions = len(topics.ends_of(topic))
        self._lines: dict[int, list[str]] = {}

    def write(
        self,
        value: Value,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] | None = None,
        partition: int | None = None,
        time: datetime | None = None,
    ) -> None:
        key_bytes = key.encode() if isinstance(key, str) else key
        if partition is None:
            partition = zlib.crc32(key_bytes or b"") % self._partitions
        line = {
            "time": timestamp_ms(time or datetime.now(UTC)),
            "key": _text(key_bytes),
            "value": _text(value_bytes(self._topic, value)),
            "headers": [[name, _text(each)] for name, each in header_pairs(headers)],
        }
        self._lines.setdefault(partition, []).append(json.dumps(line))

    def flush(self) -> None:
        ends = self._topics.ends_of(self._topic)
        for partition, lines in self._lines.items():
            with self._topics.file(self._topic, partition).open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
            ends[partition] += len(lines)
        self._topics.end_at(self._topic, ends)
        self._lines.clear()

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        if kind is None:
            self.flush()


class FolderLog(Log):
    """`time` names the clock (`kernel.times`) of which records that Spark writes get their time."""

    def __init__(self, settings: Settings, root: Path, time: str) -> None:
        super().__init__(settings)
        self.root, self.time = root, time
        root.mkdir(parents=True, exist_ok=True)

    @property
    def data_source(self) -> DataSource:
        return DataSource(FORMAT, {"folder": str(self.root), "time": self.time}, self.time)

    @cached_property
    def topics(self) -> FolderTopics:
        return FolderTopics(self.root, self.settings)

    @cached_property
    def dead(self) -> DeadLetters:
        return DeadLetters(self._connection, self.topics)

    def writer(self, topic: str, **_: Any) -> FolderWriter:  # type: ignore[override]
        return FolderWriter(self.topics, topic)

    def write(self, topic: str, value: Value, **options: Any) -> None:
        with self.writer(topic) as writer:
            writer.write(value, **options)

    def read(self, topic: str, *_: Any, **__: Any) -> Generator[Record, None, None]:
        """All records, partition after partition."""
        for number, end in self.topics.ends_of(topic).items():
            for offset, line in enumerate(self.topics.lines(topic, number, end)):
                yield _record(topic, number, offset, line)

    def arm(self, fault: str | None) -> None:
        """Puts a fault in the way of all that Spark writes here, "before write" or "after write"; None ends it."""
        armed = self.root / _FAULT
        if fault is None:
            armed.unlink(missing_ok=True)
        else:
            armed.write_text(fault, encoding="utf-8")


def _record(topic: str, partition: int, offset: int, line: Mapping[str, Any]) -> Record:
    headers: Headers = tuple((name, _bytes(value)) for name, value in line["headers"])
    return Record(topic, partition, offset, moment(line["time"]), _bytes(line["key"]), _bytes(line["value"]), headers)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
