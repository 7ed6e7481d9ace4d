"""PostgreSQL's dialect as the parser has it, where what was written is lost on the way to it."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

# Under which a node of the parser's keeps the name that a function was called by.
CALLED = "called"
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def _set(node: exp.Expression) -> list[str]:
    return [name for name, part in node.args.items() if part]


class Written(Postgres):
    """For `read=`; what is printed is PostgreSQL's."""

    ORIGINAL_NAME_META_KEY = CALLED

    class Parser(PostgresParser):
        def _parse_interval(self, *_: object, **__: object) -> Any:
            """Its text whole: the parser's own keeps the first part of '1 day 12:00'."""
            if not self._match_pair(TokenType.INTERVAL, TokenType.STRING):
                return None
            written = exp.Literal.string(self._prev.text)
            unit = self._unit()
            if unit is not None and self._match_text_seq("TO"):
                unit = exp.IntervalSpan(this=unit, expression=self._unit())
            return self.expression(exp.Interval(this=written, unit=unit))

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
            """date '2024-01-31'::timestamp is a date first; for the parser's own it is a timestamp first."""
            at = self._index
            if not fallback_to_identifier and self._curr is not None and self._curr.token_type in self.TYPE_TOKENS:
                named = self._parse_types(check_func=True, allow_identifiers=False)
                if named is not None and self._match(TokenType.STRING) and not named.is_type("interval"):
                    literal = exp.Literal.string(self._prev.text)
                    return self._parse_column_ops(self.expression(exp.Cast(this=literal, to=named)))
                self._retreat(at)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_join(self, *args: Any, **options: Any) -> Any:
            """A JOIN without a condition is no comma, which the parser's own makes of it."""
            is_comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
            found = super()._parse_join(*args, **options)
            if isinstance(found, exp.Join) and not is_comma and set(_set(found)) == {"this"}:
                found.set("kind", "INNER")
            return found

        def _unit(self) -> exp.Expression | None:
            found = self._curr.text.upper() if self._curr is not None else ""
            if found not in _UNITS:
                return None
            self._advance()
            return exp.Var(this=found)
