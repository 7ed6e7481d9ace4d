"""Conditions with now(): while which rows are in a view, by a time of their own.

Each becomes a term without now(): `until(x)` of a row that is in while now() < x + extra, `since(x)` of one that is in
from now() = x + extra on, in µs. So a row's coming and going is known when the row is, and nothing has to be computed
again as time passes (`SignedSpan.java`).
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millrace.views.expressions import Resolver
from millrace.views.refusal import refuse
from millrace.views.terms import NOW, Call, Term, conjuncts
from millrace.views.types import BOOLEAN, TIMESTAMP, TIMESTAMPTZ

SINCE, UNTIL = "since", "until"
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DAY_US = 86_400_000_000


def conditions(resolver: Resolver, node: exp.Expression) -> list[Term]:
    """What has to be true for a condition of WHERE or HAVING to be."""
    if not _asks(node):
        return [resolver.condition(node)]
    found = conjuncts(replace(resolver, clock=True).condition(node))
    return [_spanned(node, each) if _has_now(each) else each for each in found]


def is_span(term: Term) -> bool:
    return isinstance(term, Call) and term.name in (SINCE, UNTIL)


def _asks(node: exp.Expression) -> bool:
    """Itself, and not a query inside of it, which has a WHERE of its own."""
    return any(isinstance(each, exp.CurrentTimestamp) for each in node.walk(prune=lambda at: isinstance(at, exp.Query)))


def _has_now(term: Term) -> bool:
    return term == NOW or (isinstance(term, Call) and any(map(_has_now, term.args)))


def _spanned(node: exp.Expression, term: Term) -> Term:
    if not (isinstance(term, Call) and term.name in _TURNED):
        refuse(
            node,
            "now() can only be compared with a row's time",
            "write it beside AND, by <, <=, > or >=: at > now() - interval '1 hour'",
        )
    name, (own, other) = term.name, term.args
    if _has_now(own):
        name, own, other = _TURNED[name], other, own
    if _has_now(own):
        refuse(node, "now() stands on both sides", "write the row's time on one of them")
    # own < now() + shift, and so on.
    shift_us = _shift_us(node, other)
    moment = own if own.type == TIMESTAMPTZ else Call("cast", (own,), TIMESTAMPTZ)
    # Times are whole µs: what is later than one is from the next one on.
    bound, more_us = {">": (UNTIL, 0), ">=": (UNTIL, 1), "<": (SINCE, 1), "<=": (SINCE, 0)}[name]
    return Call(bound, (moment,), BOOLEAN, (more_us - shift_us,))


def _shift_us(node: exp.Expression, term: Term) -> int:
    """How much later than now() a term is, that is made of it by intervals and AT TIME ZONE 'UTC'."""
    if term == NOW:
        return 0
    assert isinstance(term, Call)
    if term.name == "cast" and {term.type, term.args[0].type} == {TIMESTAMP, TIMESTAMPTZ}:
        return _shift_us(node, term.args[0])
    if term.name != "shift":
        refuse(
            node, "of now() only what is a fixed time earlier or later is supported", "write now() - interval '1 hour'"
        )
    months, days, micros = term.extra
    if months:
        refuse(
            node,
            "months have different lengths, and how long ago one began is not the same for all rows",
            "add them to the row's time: at + interval '1 month' > now() AT TIME ZONE 'UTC'",
        )
    return int(days * _DAY_US + micros) + _shift_us(node, term.args[0])
