"""The clause that a refusal is about, as it was written: the parser remembers where a few words of it stood, and would
print the rest in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace.views.dialect import Written

# Words to either side of those whose place is known, among which the clause is looked for: CAST (, or AS numeric).
_AROUND = 8


def written(sql: str, node: exp.Expression) -> tuple[int, int] | None:
    """Where a clause begins and ends; None if it cannot be found."""
    tokens = sqlglot.tokenize(sql, read=Written)
    known = [each.meta for each in node.walk() if "start" in each.meta]
    alike = _words(sqlglot.tokenize(node.sql(dialect="postgres"), read=Written))
    if not known:
        return next(_said(tokens, alike), None)
    first, last = min(meta["start"] for meta in known), max(meta["end"] for meta in known)
    starts = [each.start for each in tokens if each.start <= first][: -_AROUND - 1 : -1]
    ends = [each.end + 1 for each in tokens if each.end >= last][:_AROUND]
    for begin, end in sorted(product(starts, ends), key=lambda each: each[1] - each[0]):
        if _is(sql[begin:end], node, alike):
            return begin, end
    return None


def place(sql: str, at: int) -> tuple[int, int]:
    """The line and the column, from 1 on."""
    return sql.count("\n", 0, at) + 1, at - sql.rfind("\n", 0, at)


def _is(text: str, node: exp.Expression, alike: list[str]) -> bool:
    try:
        words = _words(sqlglot.tokenize(text, read=Written))
        if words == alike:
            return True
        if words.count("(") != words.count(")"):  # the parser does not mind, here and there
            return False
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return bool(sqlglot.parse_one(text, read=Written) == node)
        template = next((template for kinds, template in _IN.items() if isinstance(node, kinds)), "SELECT {}")
        found = sqlglot.parse_one(template.format(text), read=Written)
    except (SqlglotError, ValueError):
        return False
    if isinstance(node, exp.Join):
        return found.args.get("joins") == [node]
    if template in _IN.values():
        return bool(found.args.get("from_")) and found.args["from_"].this == node and not found.args.get("joins")
    return bool(found == exp.Select(expressions=[node.copy()]))


# Where else than in the list of a SELECT such a clause can be read again.
_IN = {
    exp.Table: "SELECT 1 FROM {}",
    exp.Subquery: "SELECT 1 FROM {}",
    exp.Lateral: "SELECT 1 FROM {}",
    exp.Join: "SELECT 1 FROM x {}",
}


def _words(tokens: list[Any]) -> list[str]:
    return [each.text.upper() for each in tokens]


def _said(tokens: list[Any], alike: list[str]) -> Iterator[tuple[int, int]]:
    words = _words(tokens)
    for place_ in range(len(words) - len(alike) + 1):
        if words[place_ : place_ + len(alike)] == alike:
            yield tokens[place_].start, tokens[place_ + len(alike) - 1].end + 1
