"""What specimens are given: events and changes of a table, epoch by epoch, as files that a stream reads."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from millrace.capture import CapturedTable
from millrace.capture.database import Column
from millrace.model import latest
from tests.kernel import epochs
from tests.kernel.epochs import SECOND

START = datetime(2026, 3, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAG_S = 10
TABLE = CapturedTable(
    "public.items", "items", ("item",), (Column("item", "text", "string"), Column("name", "text", "string"))
)
ITEMS = "abcdef"


class Event(NamedTuple):
    """No two have the same time: of rows at the same time, models do not always say which is first."""

    id: int
    key: str | None
    time: int
    amount: int
    price: Decimal | None
    item: str

    @property
    def end(self) -> int:
        return (self.time // (10 * SECOND) + 1) * 10 * SECOND


class Part(NamedTuple):
    """What an epoch reads; when it has been, also the time of day at which it began (ms)."""

    events: list[Event]
    changes: list[latest.Change]
    began: int = 0


@dataclass(frozen=True)
class Twin:
    """A model, and what it gives of an epoch with this watermark (µs)."""

    model: Any
    epoch: Callable[[Part, int], list[Any]]


def us(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def moment(time: int) -> str:
    return (EPOCH + timedelta(microseconds=time)).isoformat(timespec="microseconds")


def made(draw: random.Random, count: int) -> list[Part]:
    """Events of a few keys, a null one and a hot one among them, that move on by 15 s an epoch, some late; and at last
    one that ends everything."""
    parts, id_, offset = [], 0, 0
    for number in range(count):
        events, changes = [], []
        keys = [key for key in ("a", "b", "c", "d", None) for _ in range(draw.choice((0, 1, 2, 4)))] + ["hot"] * 40
        draw.shuffle(keys)
        for key in keys:
            id_ += 1
            second = number * 15 + draw.randrange(20) - draw.choice((0, 0, 0, 5, 15, 60))
            price = draw.choice((None, Decimal(draw.randint(-999, 999)).scaleb(-2)))
            time = us(START) + second * SECOND + id_
            events.append(Event(id_, key, time, draw.randint(0, 9), price, draw.choice(ITEMS)))
        for item in draw.sample(ITEMS, 3):
            offset += 1
            changes.append(changed(draw, item, offset))
        parts.append(Part(events, changes))
    parts.append(Part([Event(id_ + 1, "end", us(START) + 3_600 * SECOND, 1, None, "a")], []))
    return parts


def changed(draw: random.Random, item: str, offset: int) -> latest.Change:
    value = None
    if draw.random() < 0.7:
        row = {"item": item, "name": f"{item} {offset}"}
        value = json.dumps({"before": None, "after": row, "op": "c"}).encode()
    return latest.Change(TABLE.topic, json.dumps({"item": item}), value, 0, offset)


def write(folder: Path, number: int, part: Part) -> None:
    """As the files that epoch `number` reads."""
    events = (
        {
            **event._asdict(),
            "at": moment(event.time),
            "ends": moment(event.end),
            "price": None if event.price is None else str(event.price),
            "partition": 0,
        }
        for event in part.events
    )
    epochs.put(folder / "in", number, events)
    coded = (
        change._replace(value=change.value and base64.b64encode(change.value).decode())._asdict()
        for change in part.changes
    )
    epochs.put(folder / "records", number, coded)


def read(folder: Path) -> list[Part]:
    """What `write` wrote."""
    parts = []
    for path in sorted((folder / "in").glob("*.json")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        events = [
            Event(
                row["id"], row["key"], row["time"], row["amount"], row["price"] and Decimal(row["price"]), row["item"]
            )
            for row in rows
        ]
        lines = (folder / "records" / path.name).read_text(encoding="utf-8").splitlines()
        changes = [latest.Change(**json.loads(line)) for line in lines]
        parts.append(
            Part(events, [each._replace(value=each.value and base64.b64decode(each.value)) for each in changes])
        )
    return parts
