"""One SELECT as the parser has it, before any table is known: what PostgreSQL does not read as SQL, and the parser
does, is refused here."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from millrace.views.clauses import place
from millrace.views.dialect import Written
from millrace.views.expressions import folded
from millrace.views.refusal import Refused, refuse

_DEEPEST = 100  # levels: Python's own limit is some 300
_FOREIGN = {
    "==": "write =",
    "<=>": "write IS NOT DISTINCT FROM",
    "??": "write coalesce(…, …)",
    "!": "write NOT",
}


def parsed(sql: str) -> Any:
    """One SELECT, or what is made of several; without any table known."""
    too_deep = Refused("it is nested too deep to be read", instead="put parts of it in WITH")
    try:
        _looked_over(sql)
        statements = [
            each
            for each in sqlglot.parse(sql, read=Written)
            if each is not None and not isinstance(each, exp.Semicolon)
        ]
    except RecursionError:
        raise too_deep from None
    except SqlglotError as error:
        told: dict[str, Any] = next(iter(getattr(error, "errors", [])), {})
        at = (told["line"], told["col"]) if told.get("line") else None
        reason = told.get("description") or str(error).splitlines()[0]
        raise Refused(f"it does not read as SQL: {reason}", clause=told.get("highlight") or "", place=at) from None
    if len(statements) != 1:
        second: Any = statements[1] if statements else None
        raise Refused("one SELECT is expected", node=second)
    found: Any = statements[0]
    if not isinstance(found, exp.Query):
        refuse(found, "a view is a SELECT")
    if _depth(found) > _DEEPEST:
        raise too_deep
    for select in found.find_all(exp.Select):
        if not select.expressions and not isinstance(select.parent, exp.Exists):
            refuse(select, "a SELECT without columns", "write * for all")
    return found


def _depth(node: Any) -> int:
    """How many levels there are; what stands beside AND, or beside OR, is on one."""
    deepest, waiting = 0, [(node, 1)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        for child in each.iter_expressions():
            is_beside = type(child) is type(each) and isinstance(child, exp.And | exp.Or)
            waiting.append((child, depth if is_beside else depth + 1))
    return deepest


def _looked_over(sql: str) -> None:
    """Refuses words that the parser takes for others."""
    tokens = sqlglot.tokenize(sql, read=Written)
    if tokens and tokens[0].token_type == TokenType.FROM:
        raise Refused("a view is a SELECT", clause=tokens[0].text, place=place(sql, tokens[0].start))
    for token, following in zip(tokens, [*tokens, None][1:], strict=True):
        at = place(sql, token.start)
        written = sql[token.start : token.end + 1]
        is_below = following is not None and "\n" in sql[token.end + 1 : following.start]
        _only_postgresqls(token, following, written, at, is_below)
        is_called = following is not None and following.text == "("
        if is_called and token.text.lower() == "date_part":  # for EXTRACT, whose result is a numeric
            raise Refused("date_part is in double precision", clause=token.text, place=at, instead="write EXTRACT")
        is_joined = following is not None and following.start == token.end + 1
        if following is not None and is_joined and token.text[:1].isdigit() and following.text[:1].isidentifier():
            # 1_000: for 1, under the name _000.
            clause = f"{token.text}{following.text}"
            raise Refused("a number with letters in it", clause=clause, place=at, instead="write its digits alone")


def _only_postgresqls(token: Any, following: Any, written: str, at: tuple[int, int], is_below: bool) -> None:
    """What other databases write, and the parser understands. A text on a line below another goes on with it."""
    is_word = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    if is_word and token.text in _FOREIGN:
        raise Refused("PostgreSQL has no such operator", clause=written, place=at, instead=_FOREIGN[token.text])
    is_from = following is not None and following.token_type == TokenType.FROM
    if is_word and is_from and token.text.upper() in ("(", ","):
        raise Refused(
            "it does not read as SQL: a list of columns stands before FROM",
            clause=written,
            place=at,
            instead="write * for all",
        )
    is_text = following is not None and following.token_type == TokenType.STRING
    goes_on = is_below and token.token_type == TokenType.STRING
    if is_text and not goes_on and (token.token_type == TokenType.STRING or (is_word and token.text.upper() == "AS")):
        reason = "a text in quotes stands where none can be"
        raise Refused(reason, clause=written, place=at, instead="join texts by ||, and put names in double quotes")


def tables(query: exp.Expression) -> tuple[str, ...]:
    """The names of the tables that a query reads."""
    found = [full_name(each) for each in query.find_all(exp.Table) if not _is_of_with(each)]
    return tuple(dict.fromkeys(found))


def _is_of_with(table: exp.Table) -> bool:
    """Whether WITH named it, before this place: WITH orders AS (SELECT … FROM orders) reads the table."""
    node: Any = table
    while table.args.get("db") is None and node.parent is not None:
        within, node = node, node.parent
        if isinstance(node, exp.With):
            known = node.expressions[: node.expressions.index(within)]
            within, node = node, node.parent
        else:
            known = node.args["with_"].expressions if node.args.get("with_") is not None else []
        if any(folded(cte.args["alias"].this) == full_name(table) for cte in known):
            return True
    return False


def full_name(table: exp.Table) -> str:
    parts = [table.args.get("db"), table.this]
    return ".".join(folded(part) for part in parts if part is not None)
