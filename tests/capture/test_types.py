"""Which Spark type shows a column, and what rows from before it was added hold."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.capture import printed, types


def column(root: str, missing: str | None = None, dimensions: int = 0) -> Any:
    return SimpleNamespace(root=root, missing=missing, dimensions=dimensions)


@pytest.mark.parametrize(
    ("root", "spark"),
    [
        ("smallint", "smallint"),
        ("integer", "int"),
        ("bigint", "bigint"),
        ("oid", "bigint"),
        ("real", "float"),
        ("double precision", "double"),
        ("boolean", "boolean"),
        ("bytea", "binary"),
        ("date", "date"),
        ("timestamp(3) without time zone", "timestamp_ntz"),
        ("timestamp with time zone", "timestamp"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("numeric(38,38)", "decimal(38,38)"),
        ("numeric(39,2)", "string"),  # more digits than Spark's decimals have
        ("numeric(5,-2)", "string"),
        ("numeric(3,5)", "string"),
        ("numeric", "string"),
        ("character varying(10)", "string"),
        ("time without time zone", "string"),
        ("interval", "string"),
        ("uuid", "string"),
        ("jsonb", "string"),
        ("public.date", "string"),  # somebody's own
        ("integer[]", "array<int>"),
        ("numeric(8,2)[]", "array<decimal(8,2)>"),
        ("timestamp(3) with time zone[]", "array<timestamp>"),
        ("mood[]", "array<string>"),
    ],
)
def test_what_spark_can_hold_has_its_type_and_all_else_is_text(root: str, spark: str) -> None:
    assert types.postgres(column(root)) == spark


def test_an_array_that_was_declared_with_more_dimensions_is_text() -> None:
    assert types.postgres(column("double precision[]", dimensions=2)) == "string"


@pytest.mark.parametrize(
    ("root", "missing", "held"),
    [
        ("integer", "{5}", 5),
        ("bigint", "{-9223372036854775808}", -9223372036854775808),
        ("double precision", "{1e+300}", 1e300),
        ("double precision", "{-Infinity}", "-Infinity"),
        ("boolean", "{t}", True),
        ("numeric(12,2)", "{1.50}", "1.50"),
        ("text", '{"a, \\"b\\" \\\\ {c}"}', 'a, "b" \\ {c}'),
        ("text", '{"NULL"}', "NULL"),
        ("text", '{""}', ""),
        ("bytea", '{"\\\\x00ff"}', "AP8="),
        ("date", '{"0044-03-15 BC"}', "-0043-03-15"),
        ("date", "{infinity}", "infinity"),
        ("timestamp without time zone", '{"2024-02-29 12:34:56.5"}', "2024-02-29T12:34:56.5"),
        ("timestamp with time zone", '{"10000-01-01 00:00:00+00"}', "+10000-01-01T00:00:00Z"),
        ("interval", "{P1DT2H}", "P1DT2H"),
        ("money", '{"-$1,234.50"}', "-1234.50"),
        ("box", "{(2,3),(0.1,1)}", "(2,3),(0.1,1)"),
        ("integer[]", '{"{1,NULL,3}"}', ["1", None, "3"]),
        ("text[]", '{"{a,\\"b,c\\",NULL,\\"NULL\\"}"}', ["a", "b,c", None, "NULL"]),
        ("integer[]", '{"{{1,2},{3,4}}"}', [printed.WHOLE + "{{1,2},{3,4}}"]),
        ("jsonb", '{"{\\"a\\": 1}"}', '{"a": 1}'),
    ],
)
def test_a_default_of_older_rows_is_written_as_in_the_topic(root: str, missing: str, held: Any) -> None:
    found = types.missing(column(root, missing))
    assert found is not None
    assert json.loads(found) == held


@pytest.mark.parametrize(("root", "missing"), [("integer", None), ("integer", "{NULL}"), ("public.hstore", '{"a=>1"}')])
def test_a_default_that_there_is_not_or_that_is_not_known(root: str, missing: str | None) -> None:
    assert types.missing(column(root, missing)) is None
