"""PostgreSQL's numeric by the kernel's own code, without Spark, against the same in Python, which the tests of views
hold to PostgreSQL itself."""

from __future__ import annotations

import json
import random
import subprocess
from decimal import Decimal
from pathlib import Path

from millrace.views.numerics import NoAnswer
from millrace.views.terms import Call, Value
from millrace.views.types import NUMERIC
from millrace.views.values import computed
from tests.kernel.drivers import driver
from tests.rotation import seeded

CASES = 3_000


def number(draw: random.Random) -> Decimal:
    digits = draw.choice((0, 1, 3, 7, 10, 9999, 10000, draw.randrange(10 ** draw.randint(1, 30))))
    sign, scale = draw.choice((1, -1)), draw.choice((0, 0, 1, 2, 4, 5, 8, 12, 20))
    return Decimal(f"{digits * sign}E-{scale}")


def case(draw: random.Random) -> Call:
    name = draw.choice(("+", "-", "*", "/", "/", "/", "%", "neg", "abs", "round", "trunc", "ceil", "floor", "spread"))
    if name == "spread":
        values = [Decimal(draw.randrange(-10_000, 10_000)).scaleb(-2) for _ in range(draw.randint(0, 6))]
        found = [Decimal(len(values)), sum(values, Decimal("0.00")), sum((each * each for each in values), Decimal(0))]
        extra = (draw.random() < 0.5, draw.random() < 0.5)
    else:
        found = [number(draw) for _ in range(2 if name in "+-*/%" else 1)]
        extra = (draw.choice((0, 1, 5)),)
    return Call(name, tuple(Value(each, NUMERIC) for each in found), NUMERIC, extra)


def told(call: Call) -> str:
    spread = call.name == "spread"
    settings = {
        "operation": call.name,
        "mixed": [False] * len(call.args),
        "digits": 0 if spread else call.extra[0],
        "sample": spread and call.extra[0],
        "root": spread and call.extra[1],
    }
    return "\t".join([json.dumps(settings), *(f"{each.value:f}" for each in call.args if isinstance(each, Value))])


def expected(call: Call) -> str:
    try:
        found = computed(call)({})
        # Python has two zeros.
        return "null" if found is None else f"{found if found else abs(found):f}"
    except NoAnswer as none:
        return str(none)


def test_numbers_are_computed_and_rounded_as_in_python(tmp_path: Path) -> None:
    draw = seeded("numbers")
    cases = [case(draw) for _ in range(CASES)]
    given = "\n".join(map(told, cases))
    done = subprocess.run(driver("NumericDriver", tmp_path), input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for call, found in zip(cases, done.stdout.splitlines(), strict=True):
        assert found == expected(call), call
