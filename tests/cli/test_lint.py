"""`millrace lint` as a person runs it: paragraphs, JSON and exit codes, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import millrace

SHOP = """\
import millrace as mr

app = mr.App("shop")
views = app.topic("views", "url string, user long, at timestamp", time="at", lateness="10 seconds")
db = app.capture("shop", tables=["orders"])


@app.stream(views, key="user", emit="updates")
def visitors(p):
    return p.groupBy("user").count()


@app.stream(db.orders)
def orders(rows):
    return rows
"""


@pytest.mark.spark
@pytest.mark.turn(1, 2)
def test_findings_are_paragraphs_or_json_and_strict_fails(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "millrace.toml").write_text('[run]\napp = "shop:app"\n')

    done = millrace("lint", "--strict", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    what, why, fix = done.stdout.splitlines()
    assert what == "unbounded-state: visitors groups by user and by no window of event time (at shop.py:8)"
    assert "grows until the disk is full" in why
    assert fix.startswith("        fix: ")
    assert done.stderr.splitlines() == [
        "not looked at: orders, because only the running capture knows the columns of shop.orders"
    ]

    done = millrace("lint", "shop:app", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(each["rule"], each["node"], each["where"]) for each in told["findings"]] == [
        ("unbounded-state", "visitors", {"file": "shop.py", "line": 8})
    ]
    assert list(told["not_looked_at"]) == ["orders"]
    assert not (tmp_path / ".millrace" / "kafka").exists()


def test_an_app_that_is_not_there_is_told_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    done = millrace("lint", "shop:ap", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: MR-APP-MISSING ")
    assert not (tmp_path / ".millrace").exists()
