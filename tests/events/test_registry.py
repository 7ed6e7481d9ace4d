"""`millrace events check`: what somebody could not read any more is found before it is written."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest

from millrace.cli import main
from millrace.errors import RegistryUnreadable
from millrace.events import event, personal, subject, unchanged
from millrace.events.kinds import kind_of
from millrace.events.registry import Registry, check, samples

V1 = """
from millrace.events import event

@event
class Placed:
    order: str
    amount: int
"""
V2 = """
from decimal import Decimal
from millrace.events import event

def to_2(data):
    return {"order": data["order"], "amount": str(data["amount"]), "note": None}

@event(version=2, upcasters={1: to_2})
class Placed:
    order: str
    amount: Decimal
    note: str | None
"""


def found(made: type, shapes: dict[str, Any], compatibility: str = "backward") -> list[str]:
    kind = kind_of(made)
    return [each.what for each in check({kind.name: kind}, Registry(compatibility, {kind.name: shapes}))]  # type: ignore[dict-item]


class Size(Enum):
    SMALL, LARGE = "small", "large"


def test_a_change_needs_a_new_version() -> None:
    @event
    class Placed:
        order: str
        size: Size

    shape = {"order": "text", "size": {"enum": ["small", "large"]}}
    assert found(Placed, {1: shape}) == []
    assert found(Placed, {}) == ["it is not registered"]
    (what,) = found(Placed, {1: {"order": "integer", "gone": "text"}})
    assert "'gone' is gone, 'size' is new, 'order' was integer and is text" in what
    (what,) = found(Placed, {1: shape, 2: shape})
    assert "version 2 is registered, and the code has 1" in what
    (finding,) = check({}, Registry("backward", {"Placed": {1: shape}}))
    assert "does not know it any more" in finding.what


def test_upcasters_are_tried_on_events_of_every_registered_shape() -> None:
    def doubles(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "amount": data["amount"] * 2}

    @event(version=3, upcasters={1: unchanged, 2: doubles})
    class Placed:
        amount: int
        note: str | None = None

    shapes: dict[str, Any] = {1: {"amount": "integer"}, 2: {"amount": "integer", "note": {"optional": "text"}}}  # type: ignore[dict-item]
    assert found(Placed, shapes) == ["this version is not registered"]
    (what,) = found(Placed, {**shapes, 1: {"amount": {"optional": "integer"}}})  # type: ignore[dict-item]
    assert "version 1 cannot be read" in what
    assert "TypeError" in what
    assert found(Placed, {**shapes, 1: {"amount": {"optional": "integer"}}}, "forward") == [  # type: ignore[dict-item]
        "this version is not registered"
    ]


@pytest.mark.parametrize(
    ("old", "readable"),
    [
        ({"amount": "integer"}, True),
        ({"amount": "integer", "gone": {"optional": "text"}}, True),
        ({"amount": "integer", "gone": "text"}, False),
        ({"amount": "number"}, True),
        ({"amount": "text"}, False),
        ({"amount": {"optional": "integer"}}, True),
        ({"size": {"optional": {"enum": ["small", "large", "huge"]}}}, True),
        ({"size": {"optional": {"enum": ["small"]}}}, False),
        ({"size": {"enum": ["small", "large"]}}, False),
        ({"size": {"optional": "text"}}, True),
        ({"lines": {"list": {"record": {"article": "text"}}}}, True),
        ({"lines": {"list": {"record": {"article": "text", "gone": "text"}}}}, False),
        ({"named": {"map": "integer"}}, True),
        ({"named": {"map": "text"}}, False),
    ],
)
def test_forward(old: dict[str, Any], readable: bool) -> None:
    @event
    class Line:
        article: str
        count: int

    @event(version=2, upcasters={1: unchanged})
    class Placed:
        amount: int
        size: Size | None
        lines: list[Line]
        named: dict[str, int]

    assert (found(Placed, {1: old}, "forward") == ["this version is not registered"]) == readable  # type: ignore[dict-item]


def registered(made: type, personal: dict[int, Any] | None, compatibility: str = "backward") -> list[tuple[str, bool]]:
    """What is said of an event whose first version is registered with these personal fields; and whether that can be
    registered."""
    kind = kind_of(made)
    shapes = {kind.name: {1: {"customer": "text", "name": "text", "mail": {"optional": "text"}}}}
    known = Registry(compatibility, shapes, None if personal is None else {kind.name: personal})  # type: ignore[arg-type]
    return [(each.what, each.new) for each in check({kind.name: kind}, known)]


def test_what_is_personal_is_registered_too(tmp_path: Path) -> None:
    @event
    class Joined:
        customer: Annotated[str, subject]
        name: Annotated[str, personal(instead="?")]
        mail: str | None

    assert registered(Joined, {1: {"name": "customer"}}) == []
    ((what, new),) = registered(Joined, {1: {"name": "customer", "mail": "customer"}})
    assert "'mail' is not personal any more, and nobody could forget" in what
    ((what, again),) = registered(Joined, {})
    assert "'name' is personal now" in what
    ((what, last),) = registered(Joined, {1: {"name": None}})
    assert "'name' was personal data of the aggregate's id and is of customer" in what
    assert (new, again, last) == (False, False, False)
    # A file of before says nothing; it is told, and can be registered.
    assert registered(Joined, None) == [("which fields are personal is not registered", True)]
    kind, path = kind_of(Joined), tmp_path / "events.json"
    path.write_text(json.dumps({"compatibility": "full", "events": {"Joined": {"1": kind.record.shape}}}))
    assert [each.new for each in check({"Joined": kind}, Registry.read(path))] == [True]
    Registry.read(path).with_kinds([kind]).write(path)
    assert json.loads(path.read_text())["personal"] == {"Joined": {"1": {"name": "customer"}}}
    assert check({"Joined": kind}, Registry.read(path)) == []


def test_a_new_version_may_have_other_personal_fields_and_says_so() -> None:
    @event(version=2, upcasters={1: unchanged})
    class Joined:
        customer: Annotated[str, subject]
        name: str
        mail: Annotated[str | None, personal]

    before = {1: {"name": "customer"}}
    ((what, new),) = registered(Joined, before)
    assert what.startswith("this version is not registered; 'name' is not personal any more")
    assert "'mail' is personal now" in what
    assert new
    assert registered(Joined, before, "full") == [("who knows version 1 cannot read it: 'mail' is sealed", False)]


def test_samples_have_every_part_in_every_form() -> None:
    made = samples({"record": {"a": {"optional": {"enum": [1, 2]}}, "b": {"list": "text"}, "c": {"map": "boolean"}}})
    assert {each["a"] for each in made} == {None, 1, 2}
    assert [] in [each["b"] for each in made]
    assert {} in [each["c"] for each in made]


def test_as_a_command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (folder / "shop_1.py").write_text(V1)
    (folder / "shop_2.py").write_text(V2)

    def run(*args: str) -> tuple[int, str]:
        return main(["events", "check", *args]), capsys.readouterr().out

    assert run("shop_1")[1].startswith("Placed (version 1): it is not registered")
    assert run("shop_1", "--write") == (0, "")
    assert run("shop_1") == (0, "1 events, nothing found (backward)\n")
    code, out = run("shop_2", "--compatibility", "full", "--json")
    (finding,) = json.loads(out)
    assert (code, finding["what"]) == (1, "who knows version 1 cannot read it: 'amount' was integer and is decimal")
    assert run("shop_2", "--write") == (0, "")
    assert set(json.loads((folder / "events.json").read_text())["events"]["Placed"]) == {"1", "2"}
    assert run("shop_1")[0] == 1


def test_a_registry_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    for text in ("{", "[]", '{"compatibility": "sideways", "events": {}}'):
        path.write_text(text)
        with pytest.raises(RegistryUnreadable):
            Registry.read(path)
