"""A plan carried out in plain Python, over the tables as they are: what a view has to hold."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.model.signed import Bag, Chain, Measure, Table
from millrace.views.steps import Aggregate, Consolidate, Copy, Distinct, Join, Plan, Select, Span, Step, Top, Union
from millrace.views.values import computed


def answer(plan: Plan, tables: Mapping[str, Table]) -> Bag:
    """The view's rows, of the rows of all its tables."""
    chain = Chain({each.relation: tables[each.relation] for each in plan.inputs})
    for each in plan.inputs:
        chain = chain.select(each.relation, {own: source for source, own, _ in each.columns}, into=each.relation)
    for step in plan.steps:
        chain = stepped(chain, step)
    return chain.table(plan.output)


def stepped(chain: Chain, step: Step) -> Chain:
    if isinstance(step, Select):
        where = None if step.where is None else computed(step.where)
        terms = {name: computed(term) for name, term in step.columns}
        return chain.compute(step.table, terms, where=where, into=step.into)
    if isinstance(step, Copy):
        return chain.copy(step.table, into=step.into)
    if isinstance(step, Union):
        return chain.union(step.tables, into=step.into)
    if isinstance(step, Join):
        return chain.join(step.left, step.right, on=step.on, how=step.how, into=step.into)
    if isinstance(step, Aggregate):
        measures = [Measure(each.name, each.kind, each.of, each.order) for each in step.measures]
        return chain.aggregate(step.table, by=step.by, measures=measures, into=step.into)
    if isinstance(step, Distinct):
        return chain.distinct(step.table, into=step.into)
    if isinstance(step, Top):
        order = [(name, descending, nulls_first) for name, descending, nulls_first in step.order]
        return chain.top(step.table, by=step.by, order=order, count=step.count, number=step.number, into=step.into)
    if isinstance(step, Span):
        return chain.span(step.table, step.clock, since=step.since, until=step.until, into=step.into)
    assert isinstance(step, Consolidate)
    return chain.consolidate(step.table, into=step.into)
