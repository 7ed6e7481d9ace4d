"""Every error has a code of its own, a sentence and a fix, and is raised with exactly the facts that these name."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

import millrace
from millrace import errors
from millrace.errors import MillraceError

SOURCES = sorted(Path(millrace.__file__).parent.rglob("*.py"))
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, MillraceError) and "text" in vars(kind) and kind is not MillraceError
}


def fields(kind: type[MillraceError]) -> set[str]:
    parsed = string.Formatter().parse(kind.text + kind.fix)
    return {re.split(r"[.\[]", name)[0] for _, name, _, _ in parsed if name}


def test_codes_are_unique_and_follow_the_name() -> None:
    codes = [kind.code for kind in CLASSES.values()]
    assert len(codes) == len(set(codes))
    for name, kind in CLASSES.items():
        words = re.sub(r"(?<!^)(?=[A-Z])", "-", name).upper()
        assert kind.code == f"MR-{words}", name
        assert kind.fix, f"{name} does not say what to do"
        assert kind.exit_code in (1, 2)


def raises() -> list[tuple[str, str, set[str] | None]]:
    """Every call of an error class in the sources: (place, class, the facts given)."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                place = f"{path.name}:{node.lineno}"
                if any(word.arg is None for word in node.keywords):
                    found.append((place, node.func.id, None))  # given as **facts: cannot be told from here
                else:
                    found.append((place, node.func.id, {word.arg for word in node.keywords if word.arg} - {"where"}))
    return found


def test_every_raise_gives_the_facts_its_class_names() -> None:
    found = raises()
    assert len(found) > 20
    wrong = [
        f"{place} {name} is given {sorted(facts)}, names {sorted(fields(CLASSES[name]))}"
        for place, name, facts in found
        if facts is not None and facts != fields(CLASSES[name])
    ]
    assert not wrong


def test_every_error_is_raised_somewhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES if path.parent.name != "errors")
    unused = [name for name in CLASSES if not re.search(rf"\b{name}\b", text)]
    assert not unused


@pytest.mark.parametrize("kind", CLASSES.values(), ids=lambda kind: kind.code)
def test_it_reads_as_one_line(kind: type[MillraceError]) -> None:
    error = kind(where=errors.Where("shop.py", 12), **dict.fromkeys(fields(kind), "x"))
    assert "\n" not in str(error)
    assert str(error).startswith(kind.code)
    assert "shop.py:12" in str(error)
