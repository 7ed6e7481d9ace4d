"""Each rule finds its mistake, and not what merely looks like it. No server runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace import config, errors
from millrace.config import Settings
from millrace.demo import pageviews
from millrace.engine.lint import Finding, Report, lint
from millrace.flow import App
from tests import test_guide, test_readme

pytestmark = pytest.mark.spark

Body: TypeAlias = Callable[..., DataFrame]

VIEWS = "url string, user long, mobile boolean, tags array<string>, at timestamp"


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    return config.load(tmp_path)


def shop(*bodies: Body, **options: Any) -> App:
    """An app of streams over one topic; a body of two parameters reads a second one too."""
    app = App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds")
    clicks = app.topic("clicks", VIEWS, time="at", lateness="10 seconds")
    for number, body in enumerate(bodies):
        inputs = (views, clicks)[: body.__code__.co_argcount]
        app.stream(*inputs, name=f"flow{number}", **options)(body)
    return app


def rules(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


def only(report: Report) -> Finding:
    (finding,) = report.findings
    return finding


def counted(p: DataFrame, **options: Any) -> DataFrame:
    chosen = {"emit": "final", "late": mr.late.drop(), **options}
    return mr.window(p, "1 minute", n=mr.count(), **chosen)


def joined(condition: str) -> Body:
    return lambda a, b: a.alias("a").join(b.alias("b"), F.expr(condition)).select("a.url", "b.user")


PAIRED = "a.url = b.url AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR"

MISTAKES: dict[str, tuple[str, Body, Mapping[str, Any]]] = {
    "a time of computing as a column": ("processing-time", lambda p: p.withColumn("x", F.current_timestamp()), {}),
    "in a condition": ("processing-time", lambda p: p.where("at > now() - INTERVAL 1 HOUR"), {}),
    "as a key": ("processing-time", lambda p: counted(p, by=[F.current_date().alias("day"), "url"]), {}),
    "without a zone": ("processing-time", lambda p: p.select("url", F.localtimestamp().alias("x")), {}),
    "hidden in another function": ("processing-time", lambda p: p.select(F.unix_timestamp().alias("x")), {}),
    "a random number": ("unrepeatable-id", lambda p: p.withColumn("x", F.rand()), {}),
    "a random number with a seed": ("unrepeatable-id", lambda p: p.where(F.randn(7) > 0), {}),
    "a random id": ("unrepeatable-id", lambda p: p.selectExpr("concat('view-', uuid()) AS id"), {"key": "id"}),
    "a random order": ("unrepeatable-id", lambda p: p.select(F.shuffle("tags").alias("tags")), {}),
    "groups without a window": ("unbounded-state", lambda p: p.groupBy("url").count(), {"emit": "updates"}),
    "groups by a time that is not the watermark's": (
        "unbounded-state",
        lambda p: p.groupBy(F.date_trunc("hour", "at").alias("hour")).count(),
        {"emit": "updates"},
    ),
    "repeats without the time": ("unbounded-state", lambda p: p.dropDuplicates(["user"]), {}),
    "different rows without the time": ("unbounded-state", lambda p: p.select("user").distinct(), {}),
    "a join without a bound": ("unbounded-state", joined("a.url = b.url"), {}),
    "a join with half a bound": ("unbounded-state", joined("a.url = b.url AND b.at > a.at"), {}),
    "the newest row of ever new keys": ("unbounded-state", lambda p: mr.latest(p, by="user"), {}),
    "the best rows of ever new keys": (
        "unbounded-state",
        lambda p: mr.top(p, 3, by=["mobile", "url"], order="-user", emit="updates"),
        {},
    ),
    "the best of all that ever came": (
        "unbounded-state",
        lambda p: mr.top(p, 3, by=(), of="user", order="url", emit="updates"),
        {},
    ),
    "the same key for all records": ("constant-key", lambda p: p.withColumn("k", F.lit("all")), {"key": "k"}),
    "the same key, computed": (
        "constant-key",
        lambda p: p.withColumn("k", F.lit(1)).where("user > 5").withColumn("k2", F.col("k") + 1),
        {"key": ["k", "k2"]},
    ),
    "a window by a constant": ("constant-key", lambda p: counted(p, by=F.lit("all").alias("k")), {}),
    "a session by a constant": (
        "constant-key",
        lambda p: mr.session(
            p.withColumn("k", F.lit(0)), "1 hour", by="k", n=mr.count(), emit="final", late=mr.late.drop()
        ),
        {},
    ),
    "Spark's own window by a constant": (
        "constant-key",
        lambda p: p.withColumn("k", F.lit(0)).groupBy(F.window("at", "1 minute"), "k").count(),
        {"emit": "final"},
    ),
    "a lookback by a constant": (
        "constant-key",
        lambda p: mr.lookback(p.withColumn("k", F.lit(1)), by="k", n=mr.count(over="1 hour"), late=mr.late.drop()),
        {},
    ),
    "first rows of a constant": (
        "constant-key",
        lambda p: mr.dedup(p.withColumn("k", F.lit("all")), on="k", late=mr.late.drop()),
        {},
    ),
    "a real-time answer of a topic whose key nobody says": (
        "uncertain-repeat",
        lambda p: mr.lookback(p, by="user", n=mr.count(over="1 hour"), late=mr.late.drop()),
        {"mode": "realtime"},
    ),
    "a real-time answer of two topics": (
        "uncertain-repeat",
        lambda a, b: mr.latest(a.unionByName(b), by="user", time="at", ttl="1 day", late=mr.late.drop()),
        {"mode": "realtime"},
    ),
    "a real-time group by what nobody says to be the key": (
        "uncertain-repeat",
        lambda p: p.groupBy("mobile").count(),
        {"mode": "realtime", "emit": "updates"},
    ),
    "the first of repeats in real time": (
        "uncertain-repeat",
        lambda p: p.dropDuplicates(["user", "at"]),
        {"mode": "realtime"},
    ),
    "one of what else repeats have": (
        "uncertain-repeat",
        lambda p: p.dropDuplicates(["user", "at"]).where("mobile").select("user"),
        {"mode": "realtime"},
    ),
    "a grace of a month": ("long-lateness", lambda p: counted(p, by="url", late=mr.late.allow("30 days")), {}),
    "corrections for a month": ("long-lateness", lambda p: counted(p, by="url", late=mr.late.update("30 days")), {}),
    "a month before rows go aside": (
        "long-lateness",
        lambda p: counted(p, by="url", late=mr.late.side("too_late", allow="30 days")),
        {},
    ),
}

NEAR_MISSES: dict[str, tuple[Body, Mapping[str, Any]]] = {
    "a time that is given": (lambda p: p.where("at > timestamp '2026-01-01'").where("month(at) = 1"), {}),
    "an id of what the event says": (lambda p: p.select(F.sha2(F.concat_ws("|", "url", "at"), 256).alias("id")), {}),
    "groups by a window": (lambda p: p.groupBy(F.window("at", "1 minute"), "url").count(), {"emit": "updates"}),
    "groups by a session": (lambda p: p.groupBy(F.session_window("at", "1 hour"), "url").count(), {"emit": "final"}),
    "one group": (lambda p: p.groupBy().count(), {"emit": "updates"}),
    "two groups": (lambda p: p.groupBy("mobile").count(), {"emit": "updates"}),
    "repeats with the time": (lambda p: p.dropDuplicates(["user", "at"]), {}),
    "repeats within the watermark": (lambda p: p.dropDuplicatesWithinWatermark(["user"]), {}),
    "a join with a bound": (joined(PAIRED), {}),
    "a join with its bound behind it": (
        lambda a, b: a.alias("a").join(b.alias("b"), F.expr("a.url = b.url")).where(PAIRED).select("a.url"),
        {},
    ),
    "a join by windows": (
        lambda a, b: (
            a.groupBy(F.window("at", "1 minute"), "url")
            .count()
            .join(b.withColumn("window", F.window("at", "1 minute")).select("window", "user"), "window")
            .select("url", "user")
        ),
        {"emit": "final"},
    ),
    "our own join": (lambda a, b: mr.join(a, b, on="url", within=("0 seconds", "1 hour"), how="left"), {}),
    "one constant among the keys": (lambda p: p.withColumn("k", F.lit("all")), {"key": ["k", "url"]}),
    "constants that differ": (
        lambda a, b: a.withColumn("k", F.lit("view")).unionByName(b.withColumn("k", F.lit("click"))),
        {"key": "k"},
    ),
    "a window over all rows": (lambda p: counted(p), {}),
    "the best of all rows": (lambda p: mr.top(p, 3, by=(), order="-user", emit="updates"), {}),
    "the best rows of two keys": (lambda p: mr.top(p, 3, by="mobile", order="-user", emit="updates"), {}),
    "the newest row, for a time": (lambda p: mr.latest(p, by="user", ttl="1 day", late=mr.late.drop()), {}),
    "the best for a time": (
        lambda p: mr.top(p, 3, by="url", of="user", order="at", emit="updates", ttl="1 day", late=mr.late.drop()),
        {},
    ),
    "the best of windows": (
        lambda p: mr.top(counted(p, by="url"), 3, by=["url", "window_end"], order="-n", emit="final"),
        {},
    ),
    "a real-time answer that is told once": (lambda p: counted(p, by="user"), {"mode": "realtime"}),
    "rows that differ, in real time": (lambda p: p.select("user", "at").distinct(), {"mode": "realtime"}),
    "repeats of which nothing else is told": (
        lambda p: p.dropDuplicates(["user", "at"]).select("user", "at"),
        {"mode": "realtime"},
    ),
    "a group of what nobody says to be the key, epoch by epoch": (
        lambda p: p.groupBy("mobile").count(),
        {"emit": "updates"},
    ),
    "real time, row by row": (lambda p: p.where("user > 5"), {"mode": "realtime"}),
    "a session over all rows": (
        lambda p: mr.session(p, "1 hour", n=mr.distinct("user"), emit="final", late=mr.late.drop()),
        {},
    ),
    "a window by a constant and a column": (lambda p: counted(p, by=[F.lit("all").alias("k"), "url"]), {}),
    "values counted for a year": (
        lambda p: mr.window(p, "365 days", by="url", n=mr.distinct("user"), emit="final", late=mr.late.drop()),
        {},
    ),
    "a grace of a week": (lambda p: counted(p, by="url", late=mr.late.update("7 days")), {}),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_found(spark: SparkSession, project: Settings, case: str) -> None:
    rule, body, options = MISTAKES[case]
    app = shop(body, **options)
    finding = only(lint(app, project, spark))
    assert (finding.rule, finding.node) == (rule, "flow0")
    assert finding.where.file.endswith("test_lint.py")
    assert finding.what
    assert finding.why
    assert finding.fix


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_a_near_miss_is_not(spark: SparkSession, project: Settings, case: str) -> None:
    body, options = NEAR_MISSES[case]
    assert lint(shop(body, **options), project, spark).findings == ()


def test_the_line_is_that_of_the_mistake_where_spark_knows_it(spark: SparkSession, project: Settings) -> None:
    def recent(p: DataFrame) -> DataFrame:
        kept = p.where("user > 0")
        return kept.where(F.col("at") > F.current_timestamp())

    finding = only(lint(shop(recent), project, spark))
    assert finding.where.line == recent.__code__.co_firstlineno + 2
    assert finding.what == "flow0 calls current_timestamp()"
    assert "'at'" in finding.fix


def test_which_side_of_a_join_grows(spark: SparkSession, project: Settings) -> None:
    (half, none) = lint(shop(joined("a.url = b.url AND b.at > a.at"), joined("a.url = b.url")), project, spark).findings
    assert half.what == "flow0 joins two streams and keeps the rows of the left one for ever"
    assert none.what == "flow1 joins two streams and keeps the rows of both for ever"


@pytest.mark.parametrize(
    ("lateness", "found"),
    [("8 days", True), ("7 days", False), (mr.adaptive(max="30 days"), True), (mr.monotonic(), False)],
)
def test_a_topic_that_waits_for_long(spark: SparkSession, project: Settings, lateness: Any, found: bool) -> None:
    app = App("shop")
    views = app.topic("views", VIEWS, time="at", lateness=lateness)
    app.stream(views, name="flow")(lambda p: p)
    report = lint(app, project, spark)
    assert rules(report) == ["long-lateness"] * found
    if found:
        assert only(report).node == "views"
        assert "days" in only(report).what


def test_a_flow_that_writes_what_a_capture_writes(spark: SparkSession, project: Settings) -> None:
    app = App("shop")
    app.capture("db", tables=["orders", "sales.items"])
    app.table("theirs", "id long", key="id")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds")
    app.stream(views, name="orders", to=app.topic("db.public.orders", "id long"))(lambda p: p)
    app.stream(views, name="db.sales.items")(lambda p: p)
    app.stream(views, name="late")(lambda p: counted(p, late=mr.late.side("theirs")))
    app.stream(views, name="db.sales.orders.large")(lambda p: p)
    app.stream(views, name="items")(lambda p: p)
    app.traffic(app.topic("db.shop.orders", "id long"), rate=1, name="made_up")(lambda _: {})
    report = lint(app, project, spark)
    assert {(finding.rule, finding.node) for finding in report.findings} == {
        ("dual-write", "orders"),
        ("dual-write", "db.sales.items"),
        ("dual-write", "late"),
        ("dual-write", "made_up"),
    }
    assert "which the capture db writes" in report.findings[0].what


def test_late_rows_that_come_back_to_where_they_were_late(spark: SparkSession, project: Settings) -> None:
    def circular(into: str) -> App:
        app = App("shop")
        late = app.topic("late", VIEWS)
        again = app.stream(late, name="again", schema=VIEWS, time="at", lateness="10 seconds")(lambda p: p)
        app.stream(again, name="counts")(lambda p: counted(p, late=mr.late.side(into)))
        return app

    finding = only(lint(circular("late"), project, spark))
    assert (finding.rule, finding.node) == ("own-source", "counts")
    assert "counts -> late -> again -> counts" in finding.what
    assert lint(circular("other"), project, spark).findings == ()


def test_late_rows_that_another_stream_reads_are_fine(spark: SparkSession, project: Settings) -> None:
    app = App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds")
    late = app.topic("late", "row string, late_ms long")
    app.stream(views, name="counts")(lambda p: counted(p, late=mr.late.side("late")))
    app.stream(late, name="told")(lambda p: p)
    assert lint(app, project, spark).findings == ()


@pytest.mark.parametrize(
    ("master", "partitions", "found"),
    [("local[4]", 2, 1), ("local[4]", 4, 0), ("local[*]", 1, 0), ("spark://there:7077", 1, 0), ("local", 1, 0)],
)
def test_cores_without_a_partition(
    spark: SparkSession, project: Settings, master: str, partitions: int, found: int
) -> None:
    app = App("shop")
    app.stream(app.topic("views", VIEWS, partitions=partitions), name="flow")(lambda p: p)
    settings = replace(project, spark=replace(project.spark, master=master))
    report = lint(app, settings, spark)
    assert rules(report) == ["idle-parallelism"] * found
    if found:
        assert "2 of the 4 cores have nothing to read" in only(report).why


def test_flows_share_the_cores(spark: SparkSession, project: Settings) -> None:
    app = App("shop")
    for name in ("views", "clicks"):
        app.stream(app.topic(name, VIEWS, partitions=2), name=f"{name}_read")(lambda p: p)
    settings = replace(project, spark=replace(project.spark, master="local[4]"))
    assert lint(app, settings, spark).findings == ()


def test_readers_of_a_table_are_looked_at_and_those_of_a_capture_named(spark: SparkSession, project: Settings) -> None:
    app = App("shop")
    db = app.capture("db", tables=["orders"])
    theirs = app.table("theirs", "id long, name string", key="id")
    app.stream(theirs, name="numbered")(lambda rows: rows.withColumn("n", F.monotonically_increasing_id()))
    app.stream(db.orders, name="orders")(lambda rows: rows)
    app.stream(db.orders.changes, name="changes")(lambda rows: rows)
    report = lint(app, project, spark)
    assert (only(report).rule, only(report).node) == ("unrepeatable-id", "numbered")
    assert set(report.left_out) == {"orders", "changes"}
    assert report.left_out["orders"] == "only the running capture knows the columns of db.orders"


def test_groups_of_a_table_are_as_many_as_it_has(spark: SparkSession, project: Settings) -> None:
    app = App("shop")
    theirs = app.table("theirs", "id long, region string", key="id")
    app.stream(theirs, name="regions", emit="updates")(lambda rows: rows.groupBy("region").agg(F.sum("__diff")))
    app.stream(theirs, theirs, name="pairs")(lambda one, two: one.join(two, "region").select("region"))
    assert [(finding.rule, finding.node) for finding in lint(app, project, spark).findings] == [
        ("unbounded-state", "pairs")
    ]


def test_a_lookup_keeps_as_much_as_its_table_has(spark: SparkSession, project: Settings) -> None:
    app = App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds")
    users = app.table("users", "id long, name string", key="id")

    @app.stream(views, users)
    def by_name(views: DataFrame, users: DataFrame) -> DataFrame:
        return counted(mr.lookup(views, users, on="user"), by="name")

    report = lint(app, project, spark)
    assert not report.findings
    assert not report.left_out


@pytest.mark.parametrize(
    ("body", "options", "kind"),
    [
        (lambda p: p.select("urll"), {}, errors.BodyFailed),
        (lambda p: p.columns, {}, errors.BodyResult),
        (lambda p: p, {"key": "urll"}, errors.KeyUnknown),
        (lambda p: p.groupBy("url").count(), {}, errors.EmissionUnset),
        (lambda p: p.orderBy("url"), {}, errors.FlowRefused),
        (lambda p: p.groupBy("url").count(), {"emit": "final"}, errors.FlowRefused),
    ],
)
def test_what_cannot_be_planned_is_told_by_its_own_error(
    spark: SparkSession, project: Settings, body: Body, options: Any, kind: type[errors.MillraceError]
) -> None:
    with pytest.raises(kind) as caught:
        lint(shop(body, **options), project, spark)
    assert caught.value.where is not None


def test_the_demo_and_the_guide_have_no_mistakes(spark: SparkSession, project: Settings, tmp_path: Path) -> None:
    texts = {"README.md": test_readme.block("python")}
    for page in sorted(test_guide.GUIDE.glob("*.md")):
        for block in test_guide.blocks(page.name):
            if "mr.App(" in block:
                texts[page.name] = block
    texts["score.md"] = test_guide.scoring(spark, tmp_path)
    assert {"README.md", "flows.md", "time.md", "capture.md"} <= set(texts)
    apps = {"demo": pageviews.app}
    for name, text in texts.items():
        names: dict[str, Any] = {}
        exec(text, names)
        apps[name] = names["app"]
    for name, app in apps.items():
        report = lint(app, project, spark)
        assert report.findings == (), name
        assert bool(report.left_out) is (name in ("as-of.md", "capture.md", "event-sourcing.md")), name


def test_every_rule_stands_in_the_guide() -> None:
    known = {rule for rule, *_ in MISTAKES.values()} | {"dual-write", "own-source", "idle-parallelism", "cross-product"}
    told = re.findall(r"^\| `([a-z-]+)`", (test_guide.GUIDE / "lint.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(told) == known
