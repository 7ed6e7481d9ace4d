"""ORDER BY and LIMIT."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millrace.views.expressions import unordered
from millrace.views.refusal import refuse
from millrace.views.terms import Term
from millrace.views.tree import Ordered


def limit_of(node: exp.Expression) -> int:
    """The number of a LIMIT, which has an order beside it."""
    order, limit, offset = (node.args.get(each) for each in ("order", "limit", "offset"))
    if offset is not None:
        refuse(offset, "OFFSET is not supported in a view", "skip rows when the view is read")
    if limit is None:
        refuse(order or node, "a view's rows have no order", "leave out ORDER BY, and order when the view is read")
    if order is None:
        refuse(limit, "LIMIT without ORDER BY may be any rows", "say which with ORDER BY")
    written = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
        refuse(limit, "WITH TIES and PERCENT are not supported in a view")
    if not isinstance(written, exp.Literal) or written.is_string or not written.this.isdigit() or int(written.this) < 1:
        refuse(limit, "LIMIT is supported with a number that is written out, from 1 on")
    return int(written.this)


def ordering(node: exp.Expression, term: Term) -> Ordered:
    if not term.type.is_ordered:
        unordered(node.this, term.type)
    descending = bool(node.args.get("desc"))
    nulls_first = node.args.get("nulls_first")
    return Ordered(term, descending, descending if nulls_first is None else bool(nulls_first))


def position(node: exp.Expression, columns_: list[Any]) -> Any:
    number = int(str(node.this)) if str(node.this).isdigit() else 0
    if not 1 <= number <= len(columns_):
        refuse(node, "there is no column at this place")
    return columns_[number - 1]
