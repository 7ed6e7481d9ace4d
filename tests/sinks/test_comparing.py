"""What two targets hold, compared: by key or by count, in one part or in many."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from millrace.sinks import comparing
from millrace.sinks.comparing import Held, canonical, compare


def of(rows: Iterable[Held]) -> comparing.Reading:
    kept = list(rows)
    return lambda: kept


@pytest.mark.parametrize("keys_held", [1_000_000, 7])
def test_by_key_in_however_many_parts(keys_held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "KEYS_HELD", keys_held)
    chance = random.Random(3)
    wanted = {f"k{n}": str(chance.random()) for n in range(300)}
    held = {key: row for key, row in wanted.items() if key not in ("k1", "k2")} | {"k3": "other", "x": "1", "y": "2"}
    rows = [*held.items(), *list(held.items())[:20]]  # a scan may give a key twice
    found = compare(of(rows), of(wanted.items()), keyed=True)
    assert (found.wanted, found.missing, found.surplus, found.different) == (300, 2, 2, 1)
    assert found.keys == {"k1": "missing", "k2": "missing", "k3": "different", "x": "surplus", "y": "surplus"}
    assert found.text() == "2 missing, 2 surplus, 1 different"
    left = found.without(["k1", "x", "unknown"])
    assert (left.missing, left.surplus, left.different, left.count) == (1, 1, 1, 3)


def test_by_count() -> None:
    held, wanted = of([("a", None), ("a", None), ("b", None)]), of([("a", None), ("c", None), ("c", None)])
    found = compare(held, wanted, keyed=False)
    assert (found.missing, found.surplus, found.different) == (2, 2, 0)
    assert not compare(held, held, keyed=False).count


def test_one_spelling_of_json() -> None:
    assert canonical('{"b": 1.50, "a": [1, 2.0]}') == canonical('{"a":[1.0,2],"b":15e-1}')
    assert canonical('{"a": 12345678901234567890.10}') != canonical('{"a": 12345678901234567890.11}')
    assert canonical('{"a": 1}') != canonical('{"a": "1"}')
    assert canonical('{"a": null}') != canonical("{}")
