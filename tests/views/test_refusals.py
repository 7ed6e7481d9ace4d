"""What a view cannot keep true is refused: with the clause, its place, a reason, and another way to write it."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from sqlglot import exp

from millrace.errors import ViewRefused
from millrace.views import Relation, named, planned, read_tables
from millrace.views.expressions import _READERS, Resolver, Scope
from millrace.views.refusal import Refused
from millrace.views.steps import Top
from millrace.views.types import enum

COLUMNS = {
    "id": "integer", "customer": "integer", "amount": "numeric(12,2)", "free": "numeric", "note": "text",
    "at": "timestamp", "seen": "timestamptz", "ok": "boolean", "extra": "jsonb", "weight": "double precision",
    "code": "char(3)", "big": "bigint", "spent": "time(3) without time zone", "host": "inet",
}  # fmt: skip
TABLES = [
    Relation("orders", {**{name: named(type_) for name, type_ in COLUMNS.items()}, "mood": enum("mood")}, ("id",)),
    Relation("customers", {"id": named("integer"), "region": named("text")}, ("id",)),
]

REFUSED = {
    # not a query
    "SELEC 1": "does not read as SQL",
    "DELETE FROM orders": "a view is a SELECT",
    "SELECT id FROM orders; SELECT id FROM customers": "one SELECT is expected",
    "VALUES (1)": "a view is a SELECT",
    "SELECT id, 1_000 FROM orders": "a number with letters in it",
    "SELECT E'a' AS x FROM orders": "not supported",
    "SELECT id FROM orders WHERE amount > 'x'": "does not read as numeric",
    "SELECT '12.34'::numeric(3,2) AS x FROM orders": "does not read as numeric(3,2)",
    "SELECT '2024-01-01 00:00:00.1234567'::timestamp AS x FROM orders": "does not read as timestamp",
    "SELECT 1 AS x": "without FROM",
    # names
    "SELECT id FROM order_": "there is no table 'order_'; did you mean 'orders'",
    "SELECT idd FROM orders": "no such column; did you mean 'id'",
    "SELECT id FROM orders, customers": "more than one table has this column: say which: orders.id",
    "SELECT x.id FROM orders": "there is no table 'x' here",
    "SELECT id + 1 FROM orders": "needs a name: add AS",
    "SELECT id, customer AS id FROM orders": "two columns are named 'id'",
    "SELECT a.id FROM orders a, customers a": "two tables are named 'a'",
    "SELECT customer, note FROM orders GROUP BY customer": "neither in GROUP BY nor in an aggregate",
    # what depends on the database or the session
    "SELECT lower(note) AS x FROM orders": 'collation: lower(note COLLATE "C")',
    "SELECT id FROM orders WHERE note > 'a'": "the order of texts depends on the database's collation",
    "SELECT min(note) AS m FROM orders": "the order of texts depends on the database's collation",
    "SELECT seen::date AS d FROM orders": "AT TIME ZONE 'UTC'",
    "SELECT extract(hour FROM seen) AS h FROM orders": "AT TIME ZONE 'UTC'",
    "SELECT date_trunc('day', seen) AS h FROM orders": "AT TIME ZONE 'UTC'",
    "SELECT seen + interval '1 day' AS d FROM orders": "days and months of a timestamptz",
    "SELECT id FROM orders WHERE at = seen": "meet by the session's time zone",
    "SELECT '2024-01-01'::timestamptz AS t FROM orders": "with its offset from UTC",
    # what is computed otherwise
    "SELECT date_part('year', at) AS y FROM orders": "write EXTRACT",
    "SELECT weight::numeric(10,2) AS w FROM orders": "keeps 15 digits",
    "SELECT (amount / 3)::text AS t FROM orders": "how many zeros",
    "SELECT amount::numeric(40,2) AS t FROM orders": "at most 38 digits",
    "SELECT stddev(weight) AS s FROM orders": "not exact",
    "SELECT sum(amount / big) AS s FROM orders": "cast what is summed",
    "SELECT id FROM orders ORDER BY free LIMIT 3": "has no order in a view's state",
    "SELECT id FROM orders WHERE code = note": "char(3) and text do not fit together",
    "SELECT id FROM orders WHERE mood > 'sad'": "the order in which mood was declared is not known here",
    "SELECT max(mood) AS m FROM orders": "the order in which mood was declared",
    "SELECT id FROM orders WHERE mood = note": "mood and text do not fit together",
    "SELECT id FROM orders WHERE mood = 'sad'::mood": "a cast to mood is not supported in a view",
    "SELECT array_agg(mood ORDER BY id) AS m FROM orders": "an array of mood is not supported",
    "SELECT id FROM orders WHERE host = '10.0.0.1'": "a type that is only passed on: it can be shown, and no more",
    "SELECT host::text AS h FROM orders": "a cast of a type that is only passed on",
    "SELECT id FROM orders WHERE spent > '25:00'": "does not read as time",
    "SELECT spent + interval '1 hour' AS s FROM orders": "there is no time + interval in a view",
    "SELECT extract(hour FROM spent) AS h FROM orders": "hour of time is not supported",
    "SELECT at::time AS t FROM orders": "a cast of timestamp to time is not supported",
    "SELECT spent::time(0) AS t FROM orders": "a cast that rounds a time",
    "SELECT coalesce(code, 'x') AS c FROM orders": "char(n) meets another type of text",
    "SELECT id FROM orders WHERE extra = extra": "has no comparison",
    "SELECT DISTINCT extra FROM orders": "has no comparison",
    "SELECT extra ->> 0 AS x FROM orders": "by a name that is written out",
    "SELECT extra ->> note AS x FROM orders": "by a name that is written out",
    "SELECT extra ->> 'a'::varchar(1) AS x FROM orders": "by a name that is written out: write (data ->> 'amount')::",
    "SELECT note ->> 'a' AS x FROM orders": "a member of text, which is no JSON",
    "SELECT extra #>> '{a,b}' AS x FROM orders": "not supported",
    "SELECT (extra ->> 'a')::numeric AS x FROM orders": "say one: (…)::numeric(38,2)",
    "SELECT extra::text AS x FROM orders": "a cast of json to text is not supported",
    "SELECT at - at AS d FROM orders": "EXTRACT(EPOCH FROM (a - b))",
    # now()
    "SELECT id FROM orders WHERE at > now()": "meet by the session's time zone",
    "SELECT id, now() AS t FROM orders": "beside AND in WHERE or HAVING",
    "SELECT id FROM orders WHERE ok OR seen > now()": "now() can only be compared with a row's time",
    "SELECT id FROM orders WHERE seen = now()": "by <, <=, > or >=",
    "SELECT id FROM orders WHERE NOT seen > now()": "now() can only be compared with a row's time",
    "SELECT id FROM orders WHERE now() > now() - interval '1 hour'": "now() stands on both sides",
    "SELECT id FROM orders WHERE now() - seen < interval '1 hour'": "compare the row's time with it",
    "SELECT id FROM orders WHERE seen > now() - interval '1 day'": "write hours",
    "SELECT id FROM orders WHERE at > now() AT TIME ZONE 'UTC' - interval '1 month'": "add them to the row's time",
    "SELECT id FROM orders WHERE at > (now() AT TIME ZONE 'UTC')::date": "only what is a fixed time earlier or later",
    "SELECT id FROM orders WHERE at > current_date": "now() can only say",
    "SELECT id FROM orders WHERE seen > current_timestamp(0)": "or is rounded: write now()",
    "SELECT id FROM orders WHERE seen > clock_timestamp()": "clock_timestamp() is not supported",
    "SELECT count(*) FILTER (WHERE seen > now()) AS n FROM orders": "beside AND in WHERE or HAVING",
    "SELECT o.id FROM orders o LEFT JOIN orders p ON o.id = p.id AND p.seen > now()": "beside AND in WHERE or HAVING",
    "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.id AND o.seen > now())":
        "write that condition in the query around",
    "SELECT random() AS r FROM orders": "random() is not supported",
    "SELECT id FROM orders WHERE note ~ 'x'": "not supported",
    # what the parser takes for another function, or leaves out
    "SELECT concat_ws('-', note, note) AS x FROM orders": "concat_ws() is not supported in a view",
    "SELECT nvl(note, 'x') AS x FROM orders": "nvl() is not supported in a view",
    "SELECT len(note) AS x FROM orders": "len() is not supported in a view",
    "SELECT ceil(amount, 1) AS x FROM orders": "DECIMALS is not supported here",
    "SELECT replace(note, 'a') AS x FROM orders": "write replace(text, old, new)",
    "SELECT concat(code, note) AS x FROM orders": "cast it: code::text",
    "SELECT id || customer AS x FROM orders": "there is no || of numbers",
    "SELECT id FROM orders WHERE id IN ()": "IN of nothing",
    "SELECT count() AS n FROM orders": "write count(*)",
    "SELECT every(ok, ok) AS n FROM orders": "one condition is expected",
    # clauses
    "SELECT id FROM orders ORDER BY id": "a view's rows have no order",
    "SELECT id FROM orders LIMIT 3": "say which with ORDER BY",
    "SELECT id FROM orders ORDER BY id LIMIT 3 OFFSET 1": "OFFSET is not supported",
    "SELECT id FROM orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES": "WITH TIES",
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders": "WHERE rn <= 10",
    "SELECT sum(id) OVER (PARTITION BY customer) AS n FROM orders": "window functions other than row_number()",
    "SELECT array_agg(id) AS a FROM orders": "write array_agg(x ORDER BY",
    "SELECT array_agg('x' ORDER BY id) AS a FROM orders": "cast it: 'x'::text",
    "SELECT string_agg(note, ',') AS a FROM orders": "not supported",
    "SELECT sum(DISTINCT amount) AS s FROM orders": "aggregate a SELECT DISTINCT in FROM",
    "SELECT count(DISTINCT (id, customer)) AS c FROM orders": "count a SELECT DISTINCT in FROM",
    "SELECT id FROM orders WHERE id NOT IN (SELECT id FROM customers)": "write NOT EXISTS",
    "SELECT id FROM orders o WHERE EXISTS (SELECT nonsense FROM customers c WHERE c.id = o.id)": "no such column",
    "SELECT id FROM orders o WHERE EXISTS (SELECT n.* FROM customers c WHERE c.id = o.id)": "there is no table 'n'",
    "SELECT id FROM orders o WHERE EXISTS (SELECT count(*) FROM customers c WHERE c.id = o.id)":
        "names columns of the query around it",
    "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.id FOR UPDATE)": "FOR UPDATE",
    "SELECT id FROM orders o WHERE EXISTS (SELECT 1 INTO n FROM customers c WHERE c.id = o.id)": "INTO is not",
    "SELECT id FROM orders WHERE id IN (SELECT id, region FROM customers)": "has one column",
    "SELECT id FROM orders WHERE id IN (SELECT id, region FROM customers GROUP BY id, region)": "has one column",
    "SELECT id FROM orders WHERE id IN (SELECT '7' FROM customers)": "integer and text do not fit together",
    "SELECT DISTINCT ON (customer) customer, id FROM orders ORDER BY id": "other expressions than those of DISTINCT ON",
    "SELECT DISTINCT ON (customer, ok) id, ok FROM orders ORDER BY customer, id": "name those first",
    "SELECT customer AS a, id AS a FROM orders ORDER BY a LIMIT 1": "two columns of the list have this name",
    "SELECT o.id FROM orders o JOIN customers c": "every other JOIN has one: write JOIN … ON …, and",
    "SELECT o.id FROM orders o LEFT JOIN customers c": "every other JOIN has one",
    "SELECT o.id FROM orders o CROSS JOIN customers c ON o.id = c.id": "CROSS JOIN has no condition",
    "SELECT id FROM orders WHERE id == 1": "no such operator: write =",
    "SELECT id FROM orders WHERE id <=> 1": "write IS NOT DISTINCT FROM",
    "SELECT FROM orders": "a SELECT without columns",
    "SELECT DISTINCT FROM orders": "a SELECT without columns",
    "SELECT o.* EXCEPT (id) FROM orders o": "EXCEPT is not supported here",
    "SELECT o.id FROM orders o OUTER JOIN customers c ON o.id = c.id": "OUTER JOIN is not supported",
    "SELECT jsonb_agg(ok) FILTER (WHERE id > 1) AS x FROM orders": "jsonb_agg() is not supported",
    "SELECT logical_or(ok) FILTER (WHERE id > 1) AS x FROM orders": "logical_or() is not supported",
    "SELECT id FROM orders WHERE weight::real IN (0.1, 0.2)": "cast each: 0.1::real",
    "SELECT id FROM orders WHERE seen < '9999-12-31 23:59:59-05'": "does not read as timestamptz",
    "SELECT id FROM orders WHERE amount > '1e999999999'": "more than 38 digits",
    "SELECT id FROM orders WHERE weight > '1e400'": "does not read as double precision",
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c ORDER BY c.nope)": "no such column",
    "SELECT id, FROM orders": "a list of columns stands before FROM",
    "SELECT id FROM (FROM orders) o": "a list of columns stands before FROM",
    "FROM orders": "a view is a SELECT",
    "SELECT o.id FROM orders o LEFT JOIN customers c CROSS JOIN customers d ON o.id = c.id": "another in parentheses",
    "SELECT id AS 'a' FROM orders": "put names in double quotes",
    "SELECT 'a' 'b' AS x FROM orders": "join texts by ||",
    "SELECT id FROM orders WHERE ok OR EXISTS (SELECT 1 FROM customers)": "beside AND in WHERE",
    "SELECT id FROM orders o WHERE amount > (SELECT avg(amount) FROM orders i WHERE i.customer = o.customer)":
        "names columns of the query around it",
    "SELECT o.id FROM orders o JOIN LATERAL (SELECT 1 AS x FROM customers) c ON true": "LATERAL",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.id = c.id AND o.id > (SELECT max(id) FROM customers)":
        "a subquery in the condition of an outer join",
    "SELECT id FROM orders NATURAL JOIN customers": "NATURAL JOIN",
    "SELECT id FROM orders EXCEPT ALL SELECT id FROM customers": "EXCEPT ALL is not supported",
    "WITH RECURSIVE q AS (SELECT id FROM orders) SELECT id FROM q": "WITH RECURSIVE",
    "SELECT customer FROM orders GROUP BY GROUPING SETS ((customer))": "UNION ALL of several",
    "SELECT id FROM orders FOR UPDATE": "FOR UPDATE is not supported",
    "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM customers TABLESAMPLE system (3))": "TABLESAMPLE is not",
    "WITH q AS (SELECT id FROM orders), q AS (SELECT id FROM orders) SELECT id FROM q": "of WITH are named 'q'",
    "(SELECT id FROM orders ORDER BY id LIMIT 3) ORDER BY id LIMIT 2": "two ORDER BY or LIMIT of one query",
    "SELECT id FROM orders UNION ALL SELECT id FROM customers ORDER BY id + 1 LIMIT 2": "ordered by its columns alone",
    "SELECT customer FROM orders GROUP BY customer, 'a'": "a constant in GROUP BY",
    "SELECT id FROM orders WHERE at > '2024-W09-4'": "does not read as timestamp",
    "SELECT id FROM orders WHERE weight > '1_0'": "does not read as double precision",
    "SELECT CASE WHEN ok THEN 1 ELSE abs(id) END FROM orders": "needs a name",
    "SELECT id FROM orders TABLESAMPLE system (3)": "TABLESAMPLE is not supported",
    "SELECT id FROM ONLY orders": "ONLY is not supported",
    "SELECT id FROM orders WHERE id BETWEEN SYMMETRIC 3 AND 1": "SYMMETRIC is not supported",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_kept_true_is_refused(sql: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned("v", sql, TABLES)
    assert REFUSED[sql] in refused.value.sentence()
    assert refused.value.sentence().startswith("MR-VIEW-REFUSED the SQL of the view 'v' is refused at ")
    # The clause as it was written, and where it is.
    found = re.fullmatch(r" at (.+)", str(refused.value.facts["clause"]))
    place = re.fullmatch(r" \(line 1, column (\d+)\)", str(refused.value.facts["place"]))
    assert found is not None
    assert place is not None
    clause = ast.literal_eval(found[1]).removesuffix("…")
    assert clause
    assert sql[int(place[1]) - 1 :].startswith(clause)


# Those that have no parts, and those that are refused as they are.
OTHERS = (
    exp.Literal, exp.Boolean, exp.Null, exp.TryCast, exp.Subquery, exp.Select, exp.Exists, exp.CurrentTimestamp,
    exp.CurrentDate, exp.CurrentTime, exp.Localtime, exp.Localtimestamp,
)  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in _READERS if kind not in OTHERS])
def test_no_part_of_an_expression_is_left_out_in_silence(kind: Any) -> None:
    with pytest.raises(Refused, match="SURPRISE is not supported here"):
        Resolver(Scope()).term(kind(surprise=exp.true()))


CLAUSES = {
    "SELECT id,\n  lower(note) AS l\nFROM orders": "'lower(note)' (line 2, column 3)",
    "SELECT id\nFROM orders\n  WHERE note\n    > 'a'": '"note > \'a\'" (line 3, column 9)',
    "select o.id from orders o\nwhere cast(o.weight as numeric(10, 2)) > 1":
        "'cast(o.weight as numeric(10, 2))' (line 2, column 7)",
    "SELECT id, (amount + 1) * 2 FROM orders": "'(amount + 1) * 2' (line 1, column 12)",
    "SELECT *, customer AS id FROM orders": "'SELECT *, customer AS id FROM orders' (line 1, column 1)",
    "SELECT id AS a, customer AS a FROM orders UNION SELECT 1, 2 FROM orders": "'customer AS a' (line 1, column 17)",
    "SELECT id, at - at AS d FROM orders": "'at - at' (line 1, column 12)",
    "SELECT id AS __id FROM orders": "'id AS __id' (line 1, column 8)",
    "SELECT * FROM (SELECT id, row_number()\nOVER (ORDER BY id) AS n FROM orders) o":
        "'row_number() OVER (ORDER BY id)' (line 1, column 27)",
    "SELECT /* all of it */ Count(Distinct (id, note)) AS n FROM orders":
        "'Count(Distinct (id, note))' (line 1, column 24)",
}  # fmt: skip


@pytest.mark.parametrize("sql", CLAUSES)
def test_a_refusal_says_where(sql: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned("v", sql, TABLES)
    assert f"is refused at {CLAUSES[sql]}: " in refused.value.sentence()


@pytest.mark.parametrize("sql", ["", " ;", "-- nothing"])
def test_no_sql_at_all_is_refused(sql: str) -> None:
    with pytest.raises(ViewRefused, match="one SELECT is expected"):
        planned("v", sql, TABLES)


DEEP = {
    "parentheses": f"SELECT id FROM orders WHERE {'(' * 400}ok{')' * 400}",
    "sums": f"SELECT {'id + ' * 3000}id AS x FROM orders",
    "unions": " UNION ALL ".join(["SELECT id FROM orders"] * 300),
}


@pytest.mark.parametrize("name", DEEP)
def test_what_is_nested_too_deep_is_refused(name: str) -> None:
    with pytest.raises(ViewRefused, match="nested too deep to be read"):
        planned("v", DEEP[name], TABLES)


def test_a_text_goes_on_below() -> None:
    assert planned("v", "SELECT id FROM orders WHERE note = 'a'\n'b'", TABLES).steps


def test_long_lists_are_no_nesting() -> None:
    listed = ", ".join(map(str, range(1_000)))
    many = [f"id = {number}" for number in range(1_000)]
    for condition in (f"id IN ({listed})", " OR ".join(many), " AND ".join(many)):
        assert planned("v", f"SELECT id FROM orders WHERE {condition}", TABLES).steps
    with pytest.raises(ViewRefused, match="IN of more than 1000 values"):
        planned("v", f"SELECT id FROM orders WHERE id IN ({listed}, -1)", TABLES)


def test_a_column_has_postgresqls_name_and_type() -> None:
    relation = Relation("t", {"id": named("integer"), "r": named("real"), "n": named("numeric(8,2)")}, ("id",))
    sql = "SELECT CASE WHEN id = 1 THEN n ELSE r END, CASE WHEN id = 1 THEN id ELSE id + 1 END FROM t"
    plan = planned("v", sql, [relation])
    assert [(name, str(type_)) for name, type_ in plan.columns] == [("r", "real"), ("case", "integer")]


@pytest.mark.parametrize("written", ["{A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11"])
def test_a_uuid_is_the_same_however_it_is_written(written: str) -> None:
    relation = Relation("t", {"id": named("integer"), "u": named("uuid")}, ("id",))
    assert "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'" in repr(
        planned("v", f"SELECT id FROM t WHERE u = '{written}'; -- all", [relation]).steps
    )
    for wrong in ("xyz", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", f"{{{written}"):
        with pytest.raises(ViewRefused, match="does not read as uuid"):
            planned("v", f"SELECT id FROM t WHERE u = '{wrong}'", [relation])


def test_a_row_number_of_with_is_limited_where_it_is_read() -> None:
    sql = "WITH q AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders) SELECT id FROM q"
    plan = planned("v", f"{sql} WHERE n <= 3", TABLES)
    assert [step.count for step in plan.steps if isinstance(step, Top)] == [3]
    with pytest.raises(ViewRefused, match="has to be limited"):
        planned("v", f"{sql} WHERE n <= 3 UNION ALL SELECT id FROM q WHERE n <= 3", TABLES)


def test_a_table_is_read_also_by_the_query_that_with_names_like_it() -> None:
    sql = "WITH orders AS (SELECT * FROM orders WHERE ok) SELECT o.id FROM orders o JOIN customers c USING (id)"
    assert set(read_tables("v", sql)) == {"orders", "customers"}
    assert read_tables("v", "SELECT 1 FROM (WITH a AS (SELECT 1 FROM b) SELECT 1 FROM a) x") == ("b",)
    assert planned("v", sql, TABLES).steps


def test_the_tables_of_a_query_are_known_without_their_columns() -> None:
    sql = 'WITH q AS (SELECT 1 FROM a JOIN b USING (x)) SELECT * FROM q, Shop.C WHERE EXISTS (SELECT 1 FROM "D")'
    assert set(read_tables("v", sql)) == {"a", "b", "shop.c", "D"}


def test_a_plan_reads_what_it_needs_and_filters_before_it_joins() -> None:
    sql = """
        SELECT c.region, count(*) AS orders, sum(o.amount) AS total
        FROM orders o, customers c WHERE o.customer = c.id AND o.ok AND c.region <> 'x' GROUP BY c.region"""
    plan = planned("revenue", sql, TABLES)
    assert [(each.relation, [name for name, _, _ in each.columns]) for each in plan.inputs] == [
        ("orders", ["customer", "amount", "ok"]),
        ("customers", ["id", "region"]),
    ]
    kinds = [type(step).__name__ for step in plan.steps]
    assert kinds == ["Select", "Select", "Join", "Select", "Aggregate", "Select"]
    assert str(plan).count(" where ") == 2
    assert [(name, str(type_)) for name, type_ in plan.columns] == [
        ("region", "text"), ("orders", "bigint"), ("total", "numeric(22,2)")
    ]  # fmt: skip
    assert not plan.warnings
    assert not plan.nudged


def test_every_row_with_every_other_is_warned_of() -> None:
    plan = planned("v", "SELECT o.id, c.region FROM orders o, customers c", TABLES)
    assert "every row of one meets every row of the other" in plan.warnings[0]
    plan = planned("v", "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id > o.id)", TABLES)
    assert "EXISTS or IN looks for rows without an equality" in plan.warnings[0]
    for more in ("", " WHERE c.region = 'x'", " WHERE o.ok"):
        plan = planned("v", f"SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c{more})", TABLES)
        assert "EXISTS or IN looks for rows without an equality" in plan.warnings[0]
    # One row meets every other once.
    for one in ("amount > (SELECT avg(amount) FROM orders)", "EXISTS (SELECT max(id) FROM customers)"):
        assert not planned("v", f"SELECT id FROM orders WHERE {one}", TABLES).warnings
