"""What lint finds in views: without a session, for their plans need none."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace import config
from millrace.config import Settings
from millrace.engine.lint import Finding, Report, lint
from millrace.flow import App


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    return config.load(tmp_path)


def only(report: Report) -> Finding:
    (finding,) = report.findings
    return finding


ENDLESS = {
    "SELECT a.id, b.y FROM a JOIN b ON a.id = b.id": ["v joins a, and keeps every row", "v joins b, and keeps every"],
    "SELECT a.id, t.y FROM a LEFT JOIN t ON a.id = t.id": ["v joins a,"],
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM a WHERE a.id = t.id)": ["v joins a,"],
    "SELECT id FROM t WHERE id > (SELECT max(x) FROM a)": ["v keeps every value of max of a for ever"],
    "SELECT x, min(id) AS i, count(DISTINCT id) AS n, max(id) AS a FROM a GROUP BY x": [
        "v keeps every value of min, max, count(DISTINCT …) of a"
    ],
    "SELECT x, array_agg(id ORDER BY id) AS i FROM (SELECT * FROM a UNION ALL SELECT id, y, at FROM b) u GROUP BY x": [
        "array_agg of a", "array_agg of b"
    ],
    "SELECT DISTINCT ON (x) x, id FROM a ORDER BY x, id": ["v ranks a, and keeps every row of it for ever"],
    "SELECT id FROM a WHERE x > 3 ORDER BY id LIMIT 3": ["v ranks a,"],
    "SELECT p.id, t.y FROM passed p JOIN t ON p.id = t.id": ["v joins passed,"],
    "SELECT a.id, b.y FROM a JOIN b ON a.id = b.id WHERE a.at > now() - interval '1 hour' AND b.at < now()": [
        "v joins b,"
    ],
    "SELECT a.id FROM a JOIN t ON a.id = t.id WHERE at > now() - interval '1 hour'": [],
    "SELECT x, max(id) AS m FROM a WHERE at > now() - interval '1 hour' GROUP BY x": [],
    "SELECT n.x, t.y FROM (SELECT x, count(*) AS n FROM a GROUP BY x) n JOIN t ON n.x = t.id": [],
    "SELECT x, count(*) AS n, sum(id) AS s, avg(id) AS a FROM a GROUP BY x": [],
    "SELECT DISTINCT x FROM a": [],
    "SELECT id FROM a WHERE x > 3": [],
    "SELECT t.id, max(t.y) AS y FROM t JOIN t AS u ON t.id = u.id GROUP BY t.id": [],
    "SELECT t.id, c.n FROM t JOIN counted c ON t.id = c.x": [],
}  # fmt: skip


@pytest.mark.parametrize("sql", ENDLESS)
def test_a_view_that_keeps_a_stream_for_ever(project: Settings, sql: str) -> None:
    app = App("shop")
    app.topic("a", "id long, x long, at timestamp")
    app.topic("b", "id long, y long, at timestamp")
    app.table("t", "id long, y long", key="id")
    app.view("passed", key="id", sql="SELECT id, x FROM a WHERE x > 3")
    app.view("counted", key="x", sql="SELECT x, count(*) AS n FROM a GROUP BY x")
    app.view("v", key="x" if sql.startswith(("SELECT x", "SELECT n.x", "SELECT DISTINCT")) else "id", sql=sql)
    report = lint(app, project)
    assert {(each.rule, each.node) for each in report.findings} <= {("unbounded-state", "v")}
    assert len(report.findings) == len(ENDLESS[sql])
    for finding, part in zip(sorted(report.findings, key=lambda each: each.what), ENDLESS[sql], strict=True):
        assert part in finding.what
    assert not report.left_out


def test_a_view_with_a_stream_beside_a_captured_table_is_named(project: Settings) -> None:
    app = App("shop")
    app.topic("a", "id long, x long, at timestamp")
    app.capture("shop", tables=["orders"])
    app.view("v", key="id", sql="SELECT o.id FROM orders o JOIN a ON a.id = o.id")
    report = lint(app, project)
    assert not report.findings
    assert report.left_out == {"v": "only the running capture knows the columns of orders, a"}


CAPTURED = {
    "SELECT o.id, c.region FROM orders o, customers c": ["c is joined without an equality"],
    "SELECT o.id, c.region FROM orders o CROSS JOIN customers c WHERE o.id > c.id AND o.id = 3": ["c is joined"],
    "SELECT o.id FROM orders o, customers c, orders p WHERE o.id = c.id AND c.x = p.x": [],
    "SELECT o.id FROM orders o JOIN customers c USING (id)": [],
    "SELECT o.id FROM orders o, (SELECT max(id) AS most FROM customers) m": [],
    "WITH m AS (SELECT max(id) AS most FROM customers) SELECT o.id FROM orders o, m": [],
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id > o.id)": ["EXISTS or IN looks"],
    "SELECT o.id FROM orders o WHERE o.x AND NOT EXISTS (SELECT 1 FROM customers c WHERE c.id = 3)": ["EXISTS or IN"],
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.id)": [],
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT max(c.id) FROM customers c)": [],
    "SELECT o.id FROM orders o WHERE o.id IN (SELECT c.id FROM customers c)": [],
    "SELECT id FROM orders": [],
}


def test_a_view_that_keeps_a_cross_product(project: Settings) -> None:
    app = App("shop")
    app.table("a", "id long, x long", key="id")
    app.table("b", "id long, y long", key="id")
    app.view("crossed", key="id", sql="SELECT a.id, b.y FROM a, b WHERE a.id > b.id")
    app.view("joined", key="id", sql="SELECT a.id, b.y FROM a, b WHERE a.id = b.id AND a.x > b.y")
    app.view("above", key="id", sql="SELECT id FROM a WHERE x > (SELECT avg(y) FROM b)")
    report = lint(app, project)
    assert (only(report).rule, only(report).node) == ("cross-product", "crossed")
    assert not report.left_out


@pytest.mark.parametrize("sql", CAPTURED)
def test_a_view_whose_columns_only_the_capture_knows_is_judged_by_its_words(project: Settings, sql: str) -> None:
    app = App("shop")
    app.capture("shop", tables=["customers", "orders"])
    app.view("v", key="id", sql=sql)
    report = lint(app, project)
    assert len(report.findings) == len(CAPTURED[sql])
    for finding, told in zip(report.findings, CAPTURED[sql], strict=True):
        assert told in finding.what
    assert not report.left_out
    app.view("unsaid", key="id", sql="SELECT o.id FROM orders o JOIN customers c ON customer = c.id")
    assert set(lint(app, project).left_out) == {"unsaid"}
