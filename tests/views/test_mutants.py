"""The fuzzer finds what is wrong: of each kind of step a broken one, and the oracle has to say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from millrace.errors import Where
from millrace.model.signed import Bag
from millrace.views import Plan, Relation, named, planned
from millrace.views.steps import Aggregate, Consolidate, Distinct, Join, Select, Span, Step, Top, Union
from tests.views import fuzz
from tests.views.fuzz import Report, connected, misprinted, run, same

MOST_WORLDS = 40


def _measures(was: str, becomes: str) -> Callable[[Step], Step]:
    def broken(step: Step) -> Step:
        if not isinstance(step, Aggregate):
            return step
        return replace(
            step, measures=tuple(replace(each, kind=becomes) if each.kind == was else each for each in step.measures)
        )

    return broken


MUTANTS: dict[str, Callable[[Step], Step]] = {
    "a condition that is left out": lambda step: replace(step, where=None) if isinstance(step, Select) else step,
    "a left join that drops rows without a partner": lambda step: (
        replace(step, how="inner") if isinstance(step, Join) and step.how == "left" else step
    ),
    "rows that have a partner, for those that have none": lambda step: (
        replace(step, how="semi") if isinstance(step, Join) and step.how == "anti" else step
    ),
    "duplicates that stay": lambda step: Consolidate(step.table, step.into) if isinstance(step, Distinct) else step,
    "a union that forgets one side": lambda step: (
        replace(step, tables=step.tables[:1]) if isinstance(step, Union) else step
    ),
    "one row too many": lambda step: replace(step, count=step.count + 1) if isinstance(step, Top) else step,
    "the wrong end of an order": lambda step: (
        replace(step, order=tuple((name, not down, nulls) for name, down, nulls in step.order))
        if isinstance(step, Top)
        else step
    ),
    "rows that stay for a moment too long": lambda step: (
        replace(step, until=tuple((name, us + 1) for name, us in step.until)) if isinstance(step, Span) else step
    ),
    "rows that are there before their time": lambda step: replace(step, since=()) if isinstance(step, Span) else step,
    "the least for the greatest": _measures("max", "min"),
    "values counted as often as they come, for once": _measures("distinct", "count"),
}


@pytest.mark.server
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_step_is_found(postgres: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def broken(view: str, sql: str, relations: list[Relation], *, where: Where | None = None) -> Plan:
        plan = planned(view, sql, relations, where=where)
        return replace(plan, steps=tuple(MUTANTS[name](step) for step in plan.steps))

    monkeypatch.setattr(fuzz, "planned", broken)
    report = Report()
    with connected(postgres) as connection:
        for seed in range(1, MOST_WORLDS):
            run(connection, seed, report)
            if report.faults:
                break
        connection.execute("DROP SCHEMA fuzz CASCADE")
    assert report.faults
    assert "PostgreSQL also has" in report.faults[0]


def test_other_digits_are_found() -> None:
    """Where PostgreSQL's digits are known: of a coalesce of different scales they are each value's own."""
    table = Relation("t", {"n": named("numeric(8,2)"), "w": named("numeric"), "f": named("double precision")})
    plan = planned("x", "SELECT n, w, coalesce(n, 0) AS mixed, f FROM t", [table])
    two, one = Decimal("0.00"), Decimal("0.0")
    assert same(Bag([(one, one, one, 1.0)]), Bag([(two, two, two, 1.0)]))
    assert not misprinted([(two, one, one, 1.0)], [(two, one, two, 1.0 + 1e-12)], plan)
    assert misprinted([(one, one, two, 1.0)], [(two, one, two, 1.0)], plan) == [(one, one, two, 1.0)]
    assert misprinted([(two, two, two, 1.0)], [(two, one, two, 1.0)], plan)
    # Of rows that are equal PostgreSQL keeps which it likes; what a bag of ours keeps is one of those that it prints.
    assert not misprinted([(two, one, two, 1.0)], [(two, two, two, 1.0), (two, one, two, 1.0)], plan)
    distinct = planned("x", "SELECT DISTINCT n, w FROM t", [table])
    assert not misprinted([(two, one)], [(two, two)], distinct)
    assert misprinted([(one, two)], [(two, two)], distinct)
