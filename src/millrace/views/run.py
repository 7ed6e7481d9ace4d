"""A plan as a chain of the kernel's steps."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.kernel import signed
from millrace.kernel.calling import quoted
from millrace.kernel.signed import Chain
from millrace.kernel.tallies import Measure
from millrace.kernel.values import Unfit
from millrace.views import steps, types
from millrace.views.columns import column
from millrace.views.steps import Aggregate, Consolidate, Copy, Distinct, Join, Plan, Select, Span, Step, Top, Union

# With others, Spark answers otherwise than the plan says.
_NEEDED = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}


def chain(plan: Plan, changes: DataFrame, tables: Mapping[str, tuple[Column, Mapping[str, Column]]]) -> Chain:
    """The chain over signed rows, whose sign is their column DIFF. A table has the rows for which its condition is
    true, and of them columns by name, of the types that `types.spark` says. The view's rows are those of the table
    `plan.output`."""
    for name, wanted in _NEEDED.items():
        found = str(changes.sparkSession.conf.get(name))
        if found.lower() != wanted.lower():
            raise Unfit(f"a view in a session whose {name} is {found}")
    begun = {}
    for each in plan.inputs:
        condition, columns = tables[each.relation]
        begun[each.relation] = (
            condition,
            [columns[source].cast(types.spark(type_)).alias(own) for source, own, type_ in each.columns],
        )
    found_chain = signed.begin(changes, begun, nudged=plan.nudged)
    for step in plan.steps:
        found_chain = stepped(found_chain, step)
    return found_chain


def stepped(chain: Chain, step: Step) -> Chain:
    if isinstance(step, Select):
        columns = [column(term).alias(name) for name, term in step.columns]
        where = None if step.where is None else column(step.where)
        return chain.select(step.table, columns, where=where, into=step.into)
    if isinstance(step, Copy):
        return chain.copy(step.table, into=step.into)
    if isinstance(step, Union):
        return chain.union(step.tables, into=step.into)
    if isinstance(step, Join):
        assert step.how != "full"
        return chain.join(step.left, step.right, on=step.on, how=step.how, into=step.into)
    if isinstance(step, Aggregate):
        measures = [_measure(each) for each in step.measures]
        return chain.aggregate(step.table, by=step.by, measures=measures, into=step.into)
    if isinstance(step, Distinct):
        return chain.distinct(step.table, into=step.into)
    if isinstance(step, Top):
        return chain.top(step.table, by=step.by, order=step.order, count=step.count, number=step.number, into=step.into)
    if isinstance(step, Span):
        return chain.span(step.table, step.clock, since=step.since, until=step.until, into=step.into)
    assert isinstance(step, Consolidate)
    return chain.consolidate(step.table, into=step.into)


def _measure(measure: steps.Measure) -> Measure:
    of = tuple(F.col(quoted(name)) for name in measure.of)
    order = tuple((F.col(quoted(name)), descending, first) for name, descending, first in measure.order)
    return Measure(measure.name, measure.kind, of, order)  # type: ignore[arg-type]
