"""Tentative rows in the view store, against a dictionary: what is shown, and what is certain."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest

from millrace.config import Endpoint, Secret, Settings
from millrace.views import named
from millrace.views.changelog import HEAD, TAIL, Mark
from millrace.views.overlay import Tentative
from millrace.views.store import Shape, Store

pytestmark = pytest.mark.server

COLUMNS = (("v", named("text")), ("t", named("integer")), ("value", named("numeric(12,2)")), ("note", named("text")))
SHAPE = Shape("t", COLUMNS, ("v", "t"), (("value",),), in_real_time=True)
KEYS: list[tuple[str | None, int | None]] = [("a", 1), ("a", None), (None, 1), (None, None), ("b", 2), ("c", 3)]

Key = tuple[str | None, int | None]


@pytest.fixture
def own(settings: Settings, postgres: str) -> Iterator[Settings]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE overlay")
    url = f"{postgres.rpartition('/')[0]}/overlay"
    yield replace(settings, views=Endpoint(Secret("views.url", url)))
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE overlay WITH (FORCE)")


def text(key: Key) -> str:
    return json.dumps({"v": key[0], "t": key[1]})


def value(key: Key, number: int | None, source: str) -> str | None:
    if number is None:
        return None
    row = {"v": key[0], "t": key[1], "value": number, "note": None}
    return f'{HEAD}{json.dumps(row)}{TAIL}{{"of": "{source}"}}}}'


@dataclass
class Model:
    """What the store has to hold, and how a flow would have told it."""

    store: Store
    epoch: int = 0
    certain: dict[Key, int] = field(default_factory=dict)
    # By epoch: what its flow told, in order, and nothing of which is certain yet.
    told: dict[int, dict[Key, int | None]] = field(default_factory=dict)

    def shown(self) -> dict[Key, int]:
        found: dict[Key, int | None] = dict(self.certain)
        for epoch in sorted(self.told):
            found |= self.told[epoch]
        return {key: number for key, number in found.items() if number is not None}

    def show(self, epoch: int, rows: dict[Key, int | None]) -> None:
        self.store.show(SHAPE, "topic", {text(key): Tentative(value(key, n, "?"), epoch) for key, n in rows.items()})
        if epoch > self.epoch:
            self.told.setdefault(epoch, {}).update(rows)

    def mark(self, epoch: int, rows: dict[Key, int | None]) -> None:
        changes = [
            (text(key).encode(), n if n is None else str(value(key, n, "lsn")).encode()) for key, n in rows.items()
        ]
        self.store.apply(SHAPE, "topic", Mark(epoch, "shop", epoch, 0, {0: epoch}, True), changes)
        self.epoch = epoch
        for key, number in rows.items():
            self.certain.pop(key, None)
            if number is not None:
                self.certain[key] = number
        self.told = {of: rows for of, rows in self.told.items() if of > epoch}

    def compare(self, *, told: bool = True) -> None:
        _, rows, position = self.store.rows("t")
        assert {(row[0], row[1]): int(row[2]) for row in rows} == (self.shown() if told else self.certain)
        _, rows, _ = self.store.rows("t", certain=True)
        assert {(row[0], row[1]): int(row[2]) for row in rows} == self.certain
        assert position.tentative == len({key for each in self.told.values() for key in each}) * told


def some(draw: random.Random) -> dict[Key, int | None]:
    return {key: draw.choice((None, draw.randint(1, 9))) for key in draw.sample(KEYS, draw.randint(0, 4))}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_certain_never_depends_on_what_is_shown(own: Settings, seed: int) -> None:
    draw = random.Random(seed)
    with closing(Store(own, "bank")) as store:
        assert store.begin(SHAPE, "topic") is None
        store.show(SHAPE, "topic", {text(("a", 1)): Tentative(value(("a", 1), 1, "?"), 0)})  # nobody sees it yet
        model = Model(store)
        model.mark(1, dict.fromkeys(KEYS[:4], 5))
        for _ in range(40):
            model.compare()
            what = draw.choice(("show", "show", "later", "settled", "settled", "crash", "old"))
            if what in ("show", "later"):
                # Of each key in the order of epochs: the later one has begun because the other has ended.
                is_later = what == "later" or any(epoch > model.epoch + 1 for epoch in model.told)
                model.show(model.epoch + 1 + is_later, some(draw))
            elif what == "settled":
                model.mark(model.epoch + 1, dict(model.told.get(model.epoch + 1, {})) | some(draw))
            elif what == "old":
                model.show(model.epoch, some(draw))  # of an epoch that is certain: it comes too late
            else:
                # Killed: another incarnation speaks, a run begins, or an epoch is done again and has other keys.
                if (done := draw.choice((store.put_back, store.begin, None))) is not None:
                    done(SHAPE, "topic")
                    model.told.clear()
                    model.compare()
                model.mark(model.epoch + 1, some(draw))
        model.compare()


def test_another_mode_or_changelog_leaves_nothing_tentative(own: Settings) -> None:
    with closing(Store(own, "bank")) as store:
        store.begin(SHAPE, "topic")
        model = Model(store)
        model.mark(1, {("a", 1): 1})
        model.show(2, {("a", 1): 2, ("b", 2): 3})
        model.compare()
        store.begin(replace(SHAPE, in_real_time=False), "topic")
        model.compare(told=False)
        store.begin(SHAPE, "topic")
        model.show(2, {("a", 1): 2})
        store.apply(
            SHAPE, "other", Mark(0, "shop", 9, 0, {0: 1}, True), [(text(("c", 3)).encode(), _bytes(("c", 3), 4))]
        )
        assert [row[:3] for row in store.rows("t")[1]] == [("c", 3, 4)]
        assert store.rows("t")[2].tentative == 0
        store.show(SHAPE, "other", {text(("c", 3)): Tentative(None, 1)})
        assert store.rows("t")[1] == []


def _bytes(key: Key, number: int) -> Any:
    return str(value(key, number, "lsn")).encode()
