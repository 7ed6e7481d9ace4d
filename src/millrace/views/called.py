"""Functions by the names that they were called by: the parser takes those of other databases for PostgreSQL's."""

from __future__ import annotations

from sqlglot import exp

from millrace.views.dialect import CALLED
from millrace.views.refusal import refuse

# As PostgreSQL calls what is read here.
FUNCTIONS = {
    "abs", "array_agg", "avg", "bool_and", "bool_or", "btrim", "ceil", "ceiling", "char_length", "character_length",
    "coalesce", "concat", "count", "current_date", "current_time", "current_timestamp", "date_trunc", "every",
    "floor", "greatest", "json_extract_path_text", "least", "left", "length", "localtime", "localtimestamp",
    "lower", "ltrim", "max", "min", "mod", "now", "nullif", "position", "replace", "round", "row_number", "rtrim",
    "stddev", "stddev_pop", "stddev_samp", "strpos", "substr", "substring", "sum", "trim", "trunc", "upper",
    "var_pop", "var_samp", "variance",
}  # fmt: skip


def refuse_foreign(node: exp.Expression) -> None:
    called = str(node.meta.get(CALLED, "")).lower()
    if called and called not in FUNCTIONS:  # nvl(), which the parser takes for coalesce()
        refuse(node, f"{called}() is not supported in a view")
