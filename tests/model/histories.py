"""Made-up histories of captured tables, with everything that a real log may hold, and what the tables then are."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass, field

from millrace.model import Change
from millrace.model.latest import UNAVAILABLE

TOPICS = ("shop.public.orders", "shop.public.customers")
PARTITIONS = 2
KEYS = 7

# Values as text, as a converter may write them. None of them may come out rounded, escaped anew or in other order.
NUMBERS = (
    "0",
    "-0",
    "1.10",
    "12345678901234567890123456789.000000000000000000001",
    "1E400",
    "3.141592653589793238462643",
)
TEXTS = ('"plain"', r'"a \"quoted\" \\ \u00e9 \n"', '"grüße 🌊"', '"{\\"op\\": \\"d\\"}"', '""', "null")
LARGE = {
    "text": (['"LARGE"', '"' + "x" * 3000 + '"', "null"], json.dumps(UNAVAILABLE)),
    "bytes": (['"QUJD"', '""'], json.dumps(base64.b64encode(UNAVAILABLE.encode()).decode())),
    "list": (['["a","b"]', "[]", '[["x"]]'], json.dumps([UNAVAILABLE])),
    "numbers": (["[1, 2, 3]", "[95,95]", "[95,95,[1]]"], json.dumps(list(UNAVAILABLE.encode()))),
    "map": (['{"k":"v"}', "{}", '{"k":{"d":[]}}'], json.dumps({UNAVAILABLE: UNAVAILABLE})),
}
BROKEN = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"{}",
    b'{"id": 1, "name": "flattened", "__deleted": "false"}',
    b'{"op": "d", "id": 1}',
    b'{"op": 7, "after": {"id": 1}}',
    b'{"before": null, "after": null, "op": "c"}',
    b'{"before": null, "after": [1], "op": "u"}',
    b'{"before": null, "after": {"id": 1}}',
    b'{"before": null, "after": {"id": 1}, "op": "x"}',
    b'{"before": null, "after": null, "op": "t"}',
    b'{"op": "m", "message": {}}',
    b'{"before": null, "after": {"id": 1}, "op": "c"} and more',
    b'{"before": null, "after": {"id": NaN}, "op": "c"}',
    b'{"before": null, "after": {"id": 01}, "op": "c"}',
    b'{"before": null, "after": {"name": "\xff"}, "op": "c"}',
    b'{"before": null, "after": {"name": "\xed\xa0\x80"}, "op": "c"}',
    '{"before": null, "after": {"id": 1}, "op": "c"}'.encode("utf-16"),
    b'\xef\xbb\xbf{"before": null, "after": {"id": 1}, "op": "c"}',
    b'{"schema": {}, "payload": null}',
    b'{"schema": {}, "payload": {"id": 1}}',
)


@dataclass
class History:
    """Changes to two tables. `table` is what they hold at the end; no record but its own ever changes a row of it."""

    seed: int
    changes: list[Change] = field(default_factory=list)
    table: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.ends = dict.fromkeys(((topic, part) for topic in TOPICS for part in range(PARTITIONS)), 0)

    def grown(self, steps: int) -> History:
        acts = [self.written] * 12 + [self.deleted] * 3 + [self.broken] * 2 + [self.repeated, self.snapshot]
        for _ in range(steps):
            self.chance.choice(acts)()
        return self

    def rows(self) -> dict[tuple[str, str], str]:
        return {key: text_of(row) for key, row in self.table.items()}

    def written(self) -> None:
        topic, key = self.some_key()
        old = self.table.get((topic, key))
        row = {"id": json.loads(key)["id"], "n": self.chance.choice(NUMBERS), "name": self.chance.choice(TEXTS)}
        shown = dict(row)
        for column, (values, placeholder) in LARGE.items():
            row[column] = shown[column] = self.chance.choice(values)
            if old and self.chance.random() < 0.4:
                row[column], shown[column] = old[column], placeholder
        if self.chance.random() < 0.1:
            row["added"] = shown["added"] = "true"
        self.table[topic, key] = row
        self.append(topic, key, self.envelope("u" if old else "c", old, shown))

    def deleted(self) -> None:
        if not self.table:
            return
        topic, key = self.chance.choice(sorted(self.table))
        old = self.table.pop((topic, key))
        # Compaction may have left the tombstone alone, and a connector may be set up to write none.
        kind = self.chance.randrange(3)
        if kind != 0:
            self.append(topic, key, self.envelope("d", old, None))
        if kind != 1:
            self.append(topic, key, None)

    def snapshot(self) -> None:
        """The tables are read again."""
        for (topic, key), row in sorted(self.table.items()):
            self.append(topic, key, self.envelope("r", None, row))

    def repeated(self) -> None:
        """A connector that was killed writes again what it does not remember to have written."""
        for change in self.changes[-self.chance.randrange(1, 15) :]:
            self.append(change.topic, change.key, change.value)

    def broken(self) -> None:
        topic, key = self.some_key()
        self.append(topic, key, self.chance.choice(BROKEN))

    def some_key(self) -> tuple[str, str]:
        return self.chance.choice(TOPICS), f'{{"id":{self.chance.randrange(KEYS)}}}'

    def append(self, topic: str, key: str | None, value: bytes | None) -> None:
        partition = sum((key or "").encode()) % PARTITIONS
        offset = self.ends[topic, partition]
        # Compaction and transactions leave holes.
        self.ends[topic, partition] += self.chance.choice((1, 1, 2, 5))
        self.changes.append(Change(topic, key, value, partition, offset))

    def envelope(self, op: str, before: dict[str, str] | None, after: dict[str, str] | None) -> bytes:
        members = [
            f'"before":{text_of(before) if before and self.chance.random() < 0.5 else "null"}',
            f'"after":{text_of(after) if after else "null"}',
            '"source":{"ts_ms":1700000000000,"ts_us":1700000000000001,"lsn":4711,"sequence":"[null,\\"1\\"]"}',
            f'"op":"{op}"',
            '"ts_ms":1700000000001',
        ]
        self.chance.shuffle(members)
        text = "{" + ",".join(members) + "}"
        if self.chance.random() < 0.2:
            text = f'{{"schema":{{"type":"struct","fields":[]}},"payload":{text}}}'
        return text.encode()

    def epochs(self, most: int) -> list[list[Change]]:
        """Cut at random places; a shuffle within an epoch, and some records twice in it, as an executor's retry may."""
        left, found = list(self.changes), []
        while left:
            count = self.chance.randrange(1, most)
            epoch, left = left[:count], left[count:]
            epoch += self.chance.sample(epoch, len(epoch) // 5)
            self.chance.shuffle(epoch)
            found.append(epoch)
        return found


def text_of(row: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}":{value}' for name, value in row.items()) + "}"
