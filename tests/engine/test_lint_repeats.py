"""Whether a row that comes again in real time is known: what lint says of it. No server runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace import config
from millrace.config import Settings
from millrace.engine.lint import lint
from millrace.flow import App
from tests.engine.test_lint import VIEWS, Body, only, shop

pytestmark = pytest.mark.spark


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    return config.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "partitions", "by", "says"),
    [
        ("user", 2, "user", None),
        ("user", 2, ["url", "user"], None),
        (None, 1, "user", None),
        ("url", 2, "page", None),  # nobody can tell
        ("url", 3, "user", "it is by user, and views is in 3 partitions by url"),
        (["user", "url"], 2, "user", "it is by user, and views is in 2 partitions by user, url"),
        (None, 2, "user", "views has 2 partitions, and nobody says by what key it is written"),
    ],
)
def test_whether_a_repeat_is_known_in_real_time(
    spark: SparkSession, project: Settings, key: Any, partitions: int, by: Any, says: str | None
) -> None:
    app = App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds", partitions=partitions, key=key)
    lately: Any = {"ttl": "1 day", "late": mr.late.drop()}
    body: Body = lambda p: mr.latest(p.withColumn("page", F.lower("url")), by=by, **lately)  # noqa: E731
    app.stream(views, name="newest", mode="realtime")(body)
    found = lint(app, project, spark).findings
    assert [finding.what.partition("first: ")[2] for finding in found] == ([] if says is None else [says])


@pytest.mark.parametrize(
    ("key", "partitions", "by", "says"),
    [
        ("user", 2, ["user"], None),
        ("user", 2, ["mobile", "user"], None),
        (None, 1, ["user"], None),
        ("user", 2, ["page"], None),  # nobody can tell
        ("url", 3, ["user"], "it is by user{at}, and views is in 3 partitions by url"),
        (None, 2, ["user"], "views has 2 partitions, and nobody says by what key it is written"),
    ],
)
def test_whether_a_repeat_of_sparks_own_is_known_in_real_time(
    spark: SparkSession, project: Settings, key: Any, partitions: int, by: list[str], says: str | None
) -> None:
    app = App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds", partitions=partitions, key=key)
    bodies: dict[str, tuple[Body, Any, str]] = {
        "groupBy": (lambda p: p.groupBy(F.window("at", "1 minute"), *by).count(), "updates", ""),
        "dropDuplicates": (lambda p: p.dropDuplicates([*by, "at"]), None, ", at"),
    }
    for name, (body, emit, _) in bodies.items():
        paged: Body = lambda p, body=body: body(p.withColumn("page", F.lower("url")))  # type: ignore[misc]  # noqa: E731
        app.stream(views, name=name, mode="realtime", emit=emit)(paged)
    found = {
        each.what.partition(" of ")[0]: each.what.partition("first: ")[2] for each in lint(app, project, spark).findings
    }
    assert found == ({} if says is None else {name: says.format(at=at) for name, (_, _, at) in bodies.items()})


def test_all_rows_in_one_group_come_in_another_order_too(spark: SparkSession, project: Settings) -> None:
    found = only(lint(shop(lambda p: p.groupBy().count(), mode="realtime", emit="updates"), project, spark))
    assert found.what.startswith("groupBy of flow0 tells what depends on which event is first: views has ")
    assert found.fix.startswith("let it have one partition")
