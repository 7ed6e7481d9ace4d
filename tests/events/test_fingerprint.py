"""The fingerprint of code: another one for each change that counts, the same one for the same code."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from millrace.events.fingerprint import of_aggregate

HEAD = """
import enum, functools, operator, re
from collections import deque
from dataclasses import dataclass, field
from decimal import Context, Decimal
from os import environ
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo
from millrace.events import Aggregate, apply, event, personal
class Base:
    def vat(self): return 20
class Sort(enum.Enum):
    PLAIN = 1
    def rate(self): return 30
@dataclass(frozen=True)
class Line:
    sort: Sort
@event
class Deposited(Base):
    amount: int
    lines: tuple[Line, ...] = ()
    tags: tuple[str, ...] = field(default_factory=lambda: ("tag",))
    name: Annotated[str, personal(instead="gone")] = "x"
"""
TAIL = """
class Account(Aggregate):
    total: int = 0
    @apply
    def deposited(self, event: Deposited) -> None:
        self.total += {}
"""
TWO = "def high(x): return 2 * x\ndef low(x): return x\nrule = low\n"
TRY = (
    "def checked(x): pass\ndef noted(x): pass\n"
    "def tried(x):\n    try:\n        checked(x)\n        noted(x)\n"
    "    except ValueError:\n        return 1\n    return 2\n"
)
LATER = ("        noted(x)\n    except ValueError:\n        return 1\n",
         "    except ValueError:\n        return 1\n    else:\n        noted(x)\n")  # fmt: skip
TARIFF = (
    "@dataclass(frozen=True)\nclass Tariff:\n    rate: int\n    def fee(self): return self.rate * 2\n"
    "tariff = Tariff(3)\n"
)
PLAIN = "class Rules:\n    def fee(self): return 2\nrules = Rules()\n"
MEMBER = "class Rank(enum.Enum):\n    ONE = 1\n    def fee(self): return 2\nrank = Rank.ONE\n"
NAMED = "class Pair(NamedTuple):\n    a: int\n    def fee(self): return 2\npair = Pair(1)\n"
BY_TYPE = "@functools.singledispatch\ndef f(x): return 0\n@f.register\ndef _(x: int): return x * 2\n"
PARTIAL = "class Rules:\n    def f(self, x): return x\n    fee = functools.partialmethod(f, 2)\n"
DECORATED = (
    "class Doubled:\n    def __init__(self, f): functools.update_wrapper(self, f)\n"
    "    def __call__(self, x): return self.__wrapped__(x) * 2\n@Doubled\ndef f(x): return x\n"
)
FIELDS = "@dataclass\nclass Split:\n    a: int = 1\n    b: list = field(default_factory=lambda: [7])\n"

CHANGES = [
    (TWO, "high(1) + low(1) + rule(1)", "rule = low", "rule = high"),
    ("a, b = {1: 1}, {1: 2}\nused = a\n", "a[1] + b[1] + used[1]", "used = a", "used = b"),
    (TRY, "tried(1)", *LATER),
    ("def shown(x): return len(str(x))\n", "shown(1)", "shown(x)", "shown(*x)"),
    (TARIFF, "tariff.fee()", "rate * 2", "rate * 3"),
    (TARIFF.replace("tariff =", "fee =").replace("(3)", "(3).fee"), "fee()", "(3)", "(4)"),
    (PLAIN, "rules.fee()", "return 2", "return 3"),
    (MEMBER, "rank.fee()", "return 2", "return 3"),
    (NAMED, "pair.fee()", "return 2", "return 3"),
    (BY_TYPE, "f(1)", "x * 2", "x * 3"),
    (PARTIAL, "Rules().fee()", "(f, 2)", "(f, 3)"),
    (DECORATED, "f(1)", "(x) * 2", "(x) * 3"),
    (FIELDS, "Split().b[0]", "[7]", "[8]"),
    (FIELDS, "int(Split() == Split())", "@dataclass\nclass Split", "@dataclass(eq=False)\nclass Split"),
    ("get = operator.attrgetter('a')\n", "get(event)", "getter('a')", "getter('b')"),
    ("get = {1: 1}.get\n", "get(1)", "{1: 1}", "{1: 2}"),
    ("case = str.upper\n", "len(case('x'))", "str.upper", "str.lower"),
    ("found = re.compile('x' * 300 + '|a')\n", "len(found.findall('a'))", "|a", "|b"),
    ("zone = ZoneInfo('Europe/Berlin')\n", "len(zone.key)", "Europe/Berlin", "UTC"),
    ("steps = range(1, 5)\n", "len(steps)", "(1, 5)", "(1, 6)"),
    ("steps = deque([1])\n", "steps[0]", "[1]", "[2]"),
    ("class Cents(int): pass\nleast = Cents(5)\n", "least", "Cents(5)", "Cents(6)"),
    ("class Cents(int): pass\n", "int(Cents(1) / 2)", "Cents(int)", "Cents(Decimal)"),
    ("rounded = Context(prec=3)\n", "int(rounded.divide(1, 3))", "prec=3", "prec=4"),
    ("", "event.vat()", "return 20", "return 21"),
    ("", "event.lines[0].sort.rate()", "return 30", "return 31"),
    ("", "len(event.tags)", '("tag",)', '("tag", "tag")'),
    ("", "len(event.name)", "gone", "went"),
]

KEEPS = [
    ("kept = {}\ndef f(x):\n    kept[x] = x\n    return x\n", "f(event.amount)"),
    ("class Right(enum.Flag):\n    READ = 1\n    WRITE = 2\n", "(Right.READ | Right.WRITE).value"),
    ("rounded = Context(prec=3)\n", "int(rounded.divide(Decimal(event.amount), Decimal(3)))"),
    ("def f(x):\n    environ['MILLRACE_TEST'] = str(x)\n    return x\n", "f(event.amount)"),
    ("@dataclass\nclass Node:\n    next: object = None\nnode = Node()\nnode.next = node\n", "0 if node.next else 1"),
]


def loaded(folder: Path, source: str, patch: pytest.MonkeyPatch) -> Any:
    """The module `ledger`, of this source."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ledger.py").write_text(source)
    patch.setattr(sys, "dont_write_bytecode", True)  # sources of one size and second would be taken for one
    patch.syspath_prepend(folder)
    patch.delitem(sys.modules, "ledger", raising=False)
    return importlib.import_module("ledger")


def fingerprint(folder: Path, source: str, patch: pytest.MonkeyPatch) -> str:
    return of_aggregate(loaded(folder, source, patch).Account)


@pytest.mark.parametrize(("body", "used", "old", "new"), CHANGES)
def test_a_change_that_counts_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, used: str, old: str, new: str
) -> None:
    source = HEAD + body + TAIL.format(used)
    assert old in source
    first = fingerprint(tmp_path, source, monkeypatch)
    assert fingerprint(tmp_path, source, monkeypatch) == first
    assert fingerprint(tmp_path, source.replace(old, new), monkeypatch) != first


@pytest.mark.parametrize(("body", "used"), KEEPS)
def test_code_that_has_run_is_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, used: str
) -> None:
    monkeypatch.setenv("MILLRACE_TEST", "")
    module = loaded(tmp_path, HEAD + body + TAIL.format(used), monkeypatch)
    first = of_aggregate(module.Account)
    module.Account("a").fold([module.Deposited(1), module.Deposited(2)])
    assert of_aggregate(module.Account) == first


def test_code_that_is_installed_is_the_users_nevertheless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = HEAD + TAIL.format("event.amount"), tmp_path / "site-packages"
    first = fingerprint(folder, source, monkeypatch)
    assert fingerprint(folder, source.replace("+= event", "-= event"), monkeypatch) != first


def test_every_process_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By source and by bytecode, as a module and as the program, with other hashes."""
    bodies = dict.fromkeys(chain((body for body, *_ in CHANGES), (body for body, _ in KEEPS)))
    defined = "\n".join(f"class M{number}:\n" + "".join(f"    {line}\n" for line in body.splitlines())
                        for number, body in enumerate(bodies) if body)  # fmt: skip
    used = f"len([{', '.join(f'M{number}' for number, body in enumerate(bodies) if body)}, {{'a', 'b', None, 1}}])"
    source = HEAD + defined + TAIL.format(used)
    shown = "from millrace.events.fingerprint import of_aggregate\n    print(of_aggregate(Account))\n"
    shown = f"\nif __name__ == '__main__':\n    {shown}"
    first = fingerprint(tmp_path, source + shown, monkeypatch)
    inside = "import ledger; from millrace.events.fingerprint import of_aggregate; print(of_aggregate(ledger.Account))"
    ways = (["-c", inside], ["-c", inside], ["-m", "ledger"], ["ledger.py"])
    for seed, way in enumerate(ways):
        env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(tmp_path)}
        told = subprocess.run([sys.executable, *way], check=True, capture_output=True, text=True, cwd=tmp_path, env=env)
        assert told.stdout.strip() == first
