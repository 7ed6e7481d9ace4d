"""Whoever looks at a view sees it as it is at each epoch, whatever was read together with what."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import Settings
from millrace.console import following
from millrace.console.following import Following
from millrace.serve.epochs import Change, Epoch
from millrace.serve.reading import Found, Reached, Shape

SHAPE = Shape({"k": "text", "n": "numeric"}, ("k",))
AT = datetime(2026, 1, 1, tzinfo=UTC)


def reached(epoch: int, end: int) -> Reached:
    return Reached(epoch, f"0/{epoch:X}", AT, "topic", {0: end})


def row(key: str, n: int | None) -> str:
    return json.dumps({"k": key, "n": n})


def change(offset: int, key: str, n: int | None) -> Change:
    """Of one that is gone there is no `n`."""
    return Change(0, offset, json.dumps({"k": key}), None if n is None else row(key, n))


def followed() -> Following:
    return Following(Settings(Path()), "shop", "sums", Path("log"))


def held(view: Following) -> dict[str, Any]:
    return {each.values["k"]: each.values["n"] for each in view.rows.values()}


@given(st.integers(0, 10_000))
def test_rows_and_changes_are_those_of_a_plain_model(seed: int) -> None:
    """The store is ahead of the feed: of the first epoch only what lies behind the store's offsets is new."""
    chance = Random(seed)
    log = [(chance.choice("abcd"), chance.choice((None, 1, 2))) for _ in range(chance.randrange(1, 30))]
    known = chance.randrange(len(log) + 1)
    model: dict[str, int] = {}

    def apply(some: list[tuple[str, int | None]]) -> None:
        for key, n in some:
            if n is None:
                model.pop(key, None)
            else:
                model[key] = n

    apply(log[:known])
    view = followed()
    view.begin(Found(reached(0, known), SHAPE, tuple(row(*each) for each in model.items())))
    at = chance.randrange(known + 1)
    ends = known
    while at < len(log):
        to = chance.randrange(at + 1, len(log) + 1)
        before, seen = dict(model), len(view.changes)
        apply(log[max(at, ends) : to])
        epoch = Epoch(reached(to, to), {0: at}, tuple(change(at + n, *each) for n, each in enumerate(log[at:to])))
        view.take(epoch, {0: ends})
        assert held(view) == model
        moved = {each.key: each.what for each in list(view.changes)[: len(view.changes) - seen]}
        assert moved == {
            key: "came" if key not in before else "gone" if key not in model else "changed"
            for key in before | model
            if before.get(key) != model.get(key)
        }
        at, ends = to, max(ends, to)


def test_of_a_large_view_some_rows_are_held_and_kept_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_ROWS", 2)
    view = followed()
    view.begin(Found(reached(0, 0), SHAPE, (row("a", 1), row("b", 1)), more=True))
    changes = (change(0, "c", 5), change(1, "a", 2), change(2, "d", None))
    view.take(Epoch(reached(1, 3), {0: 0}, changes), {0: 0})
    assert held(view) == {"a": 2, "b": 1}
    assert [(each.what, each.key, each.told) for each in view.changes] == [
        ("gone", "d", "n: null"),
        ("changed", "a", "n: 1 → 2"),
        ("came or changed", "c", "n: 5"),
    ]


def test_a_view_that_grows_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_ROWS", 2)
    view = followed()
    view.begin(Found(reached(0, 0), SHAPE, (row("a", 1),)))
    view.take(Epoch(reached(1, 2), {0: 0}, (change(0, "b", 1), change(1, "c", 1))), {0: 0})
    assert (held(view), view.cut) == ({"a": 1, "b": 1}, True)


def test_rows_are_searched_and_ordered_nulls_last() -> None:
    view = followed()
    rows = (row("b", 10), row("a", 9), json.dumps({"k": "c", "n": None}), row("<d>", 100))
    view.begin(Found(reached(0, 0), SHAPE, rows))
    assert [each[0] for each in view.grid("", None, False)[0].rows] == ["<d>", "a", "b", "c"]
    assert [each[1] for each in view.grid("", "n", False)[0].rows] == ["9", "10", "100", None]
    assert [each[1] for each in view.grid("", "n", True)[0].rows] == ["100", "10", "9", None]
    assert view.grid("10", "k", True)[0].rows == (("b", "10"), ("<d>", "100"))
    view.take(Epoch(reached(1, 1), {0: 0}, (change(0, "a", 8),)), {0: 0})
    grid, fresh = view.grid("", None, False)
    assert [grid.rows[place][0] for place in fresh] == ["a"]
