"""The kernel's own code for patterns is the model, over random patterns, histories and cuts. It runs without Spark:
thousands of patterns would be thousands of queries."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest
from pyspark.sql.types import LongType

from millrace.errors import PatternInvalid, Where
from millrace.flow.places import Program, compiled
from millrace.model.match import Match, Matching, Row, order
from tests.kernel import drivers
from tests.rotation import today

HERE = Where("test", 1)
TIMES = ("", "", "", "*", "+", "?", "{2}", "{2,}", "{1,3}", "{,2}", "*?", "+?", "??", "{2,}?", "{1,3}?")
KINDS = ("count", "first", "last", "sum")
# In these a match may be decided while an earlier one is not.
WAITING = (
    "a b{2,} c | b",
    "a !c d | b+? c",
    "a !b | b c",
    "a (b | c)* d | c",
    "a{3} | a b",
    "(a | b){4} | b !d",
    "a+ b | a",
)


def made(draw: random.Random, depth: int = 2) -> str:
    """A pattern, or nearly."""
    kind = draw.choice(("name", "sequence", "sequence", "choice")) if depth else "name"
    if kind == "name":
        return draw.choice("abcd") + draw.choice(TIMES)
    parts = [made(draw, depth - 1) for _ in range(draw.randint(2, 3))]
    if kind == "choice":
        return f"({' | '.join(parts)}){draw.choice(TIMES)}"
    if draw.random() < 0.5:
        parts.insert(draw.randint(1, len(parts)), draw.choice(("!a", "!b", "!(c | d)")))
    return f"({' '.join(parts)}){draw.choice(TIMES)}" if draw.random() < 0.4 else " ".join(parts)


def program(draw: random.Random) -> tuple[str, Program]:
    while True:
        text = draw.choice(WAITING) if draw.random() < 0.25 else made(draw)
        try:
            return text, compiled(text, HERE)
        except PatternInvalid:
            continue


class Example:
    """One pattern and the history of one key; `values` are the rows' ids."""

    def __init__(self, number: int, most_rows: int = 14, steps: tuple[int, ...] = (0, 1, 1, 3)) -> None:
        self.draw = draw = random.Random(f"{number} {today()}")
        self.text, self.program = program(draw)
        self.within = draw.choice((1, 3, 8, 20))
        self.arrival = draw.random() < 0.2
        taken = [place.variable for place in self.program.places if place.variable]
        named = (draw.choice(("first", "last")), self.program.variables.index(draw.choice(taken)))
        self.after: Any = draw.choice(("past last row", "past last row", "next row", named))
        self.epochs = self._epochs(draw, most_rows, steps)

    def _epochs(self, draw: random.Random, most_rows: int, steps: tuple[int, ...]) -> list[tuple[int, list[Row]]]:
        width = len(self.program.variables)
        lateness, time, watermark, number = draw.choice((0, 2, 10)), 0, 0, 0
        epochs: list[tuple[int, list[Row]]] = []
        while number < most_rows:
            rows = []
            for _ in range(draw.choice((0, 1, 1, 2, 3, most_rows // 2))):
                time += draw.choice(steps)
                at = max(watermark, time - draw.randint(0, lateness))
                # Mostly one variable or two: a row that is all of them meets every pattern.
                flags = draw.choice(
                    (0, 1 << draw.randrange(width), 1 << draw.randrange(width), 1 << draw.randrange(width))
                )
                flags |= draw.choice((0, 0, 1 << draw.randrange(width)))
                rows += [Row("k", at, flags, (number,))] * draw.choice((1, 1, 1, 1, 1, 2))
                number += 1
            if self.arrival:
                newest = max([each.time for _, rows in epochs for each in rows], default=0)
                rows = sorted((row for row in rows if row.time >= newest), key=order)
            epochs.append((watermark, rows))
            watermark = max(watermark, time - lateness + draw.randint(0, 1))
        return [*epochs, (watermark + 1, []), (10**9, [])]

    def told(self) -> str:
        measures = [
            {"kind": kind, "type": LongType().json(), "variable": variable, "slot": -1 if kind == "count" else 0}
            for variable in range(-1, len(self.program.variables))
            for kind in KINDS
        ]
        how, variable = self.after if isinstance(self.after, tuple) else (self.after, -1)
        settings = {
            "pattern": self.program.told(), "withinUs": self.within, "after": how, "afterVariable": variable,
            "arrival": self.arrival, "keepsRefused": False, "most": 10_000, "measures": measures,
            "slots": [LongType().json()],
        }  # fmt: skip
        epochs = [
            {"watermark": watermark, "rows": [[row.time, row.flags, row.values[0]] for row in rows]}
            for watermark, rows in self.epochs
        ]
        return json.dumps({"settings": settings, "epochs": epochs})

    def expected(self) -> list[list[Any]]:
        model = Matching(self.program.told(), self.within, self.after, self.arrival)
        found = []
        for watermark, rows in self.epochs:
            out = model.epoch(rows, watermark)
            assert not out.refused
            found.append([[match.start, match.end, self._measured(match)] for match in out.matches])
        return found

    def _measured(self, match: Match) -> list[Any]:
        found: list[Any] = []
        for variable in range(-1, len(self.program.variables)):
            ids = [row.values[0] for row, number in match.rows if variable in (-1, number)]
            found += [len(ids), ids[0] if ids else None, ids[-1] if ids else None, sum(ids) if ids else None]
        return found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the kernel's code on examples."""
    return drivers.driver("MatchDriver", tmp_path_factory.mktemp("driver"))


def run(driver: list[str], examples: list[Example]) -> list[list[list[Any]]]:
    given = "".join(example.told() + "\n" for example in examples)
    done = subprocess.run(driver, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_pattern_is_the_models_epoch_by_epoch(driver: list[str]) -> None:
    examples = [Example(number) for number in range(2_000)]
    matched = waited = 0
    for number, (example, found) in enumerate(zip(examples, run(driver, examples), strict=True)):
        expected = example.expected()
        told = [sorted(each, key=str) for each in found] if example.after == "next row" else found
        wanted = [sorted(each, key=str) for each in expected] if example.after == "next row" else expected
        assert told == wanted, f"TEST_DAY={today()} {number}: {example.text} {example.after}"
        matched += sum(map(len, expected))
        waited += len(expected[-1])
    assert matched > 2_000
    assert 100 < waited < matched / 2


def test_long_histories_are_kept_in_pieces(driver: list[str]) -> None:
    """Hundreds of rows within the time of a match, out of order: pieces are split, read again, and go."""
    examples = []
    for number in range(24):
        example = Example(number, most_rows=700, steps=(0, 1, 1, 3) if number % 2 else (0, 0, 0, 0, 0, 1))
        example.within = 300
        if number % 3 == 0 and not example.arrival:
            example.epochs = [(watermark, rows[::-1]) for watermark, rows in example.epochs]
        examples.append(example)
    for number, (example, found) in enumerate(zip(examples, run(driver, examples), strict=True)):
        key: Any = (lambda each: str(each)) if example.after == "next row" else (lambda _: 0)
        wanted = [sorted(each, key=key) for each in example.expected()]
        assert [sorted(each, key=key) for each in found] == wanted, (
            f"TEST_DAY={today()} {number}: {example.text} {example.after}"
        )
