"""What a run refuses, and how: an error of one sentence with the line of the user's file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace import errors
from millrace.engine import Run
from millrace.engine.lock import HOLDER, LOCK
from millrace.errors import MillraceError
from millrace.flow import App
from tests.engine.conftest import Project
from tests.engine.test_run import checkpoint, counting, once

pytestmark = [pytest.mark.spark, pytest.mark.server]


def keyed(schema: str, stateful: bool = True, topic: str = "views") -> App:
    app = App("shop")
    views = app.topic(topic, schema)
    if stateful:
        app.stream(views, name="counts", key="url", emit="updates")(lambda p: p.groupBy("url").count())
    else:
        app.stream(views, name="counts")(lambda p: p)
    return app


def fails_at_once(p: DataFrame) -> DataFrame:
    return p.select("urll")


def divides(p: DataFrame) -> DataFrame:
    return p.select((F.col("user") / 0).alias("x"))


def gives_text(p: DataFrame) -> Any:
    return "text"


def sorts(p: DataFrame) -> DataFrame:
    return p.orderBy("url")


def counts_all(p: DataFrame) -> DataFrame:
    return p.groupBy("url").count()


REFUSED: dict[Callable[..., Any], tuple[type[MillraceError], str, dict[str, Any]]] = {
    fails_at_once: (errors.BodyFailed, "urll", {}),
    divides: (errors.BodyFailed, "DIVIDE_BY_ZERO", {}),
    gives_text: (errors.BodyResult, "a str", {}),
    sorts: (errors.FlowRefused, "sort", {}),
    counts_all: (errors.EmissionUnset, 'emit="updates"', {}),
    keyed: (errors.KeyUnknown, "did you mean 'user'", {"key": "users"}),
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_a_body_that_cannot_run(spark: SparkSession, project: Project, body: Callable[..., Any]) -> None:
    kind, words, options = REFUSED[body]
    app = App("shop")
    views = app.topic("views", "url string, user long")
    app.stream(views, name="flow", **options)((lambda p: p) if body is keyed else body)
    project.log.topics.create("views")
    project.write("views", [b'{"url":"a","user":1}'])
    with pytest.raises(kind) as caught:
        once(spark, project, app)
    assert words in caught.value.what.lower() or words in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_refusals.py")
    if kind is errors.BodyFailed:
        assert caught.value.where.line == body.__code__.co_firstlineno + 1
    # What was refused holds nothing: the next run is not told that another is running.
    with pytest.raises(kind):
        once(spark, project, app)


def test_a_changed_schema_is_refused_for_a_flow_with_state(spark: SparkSession, project: Project) -> None:
    once(spark, project, keyed("url string, user long"))
    project.write("views", [b'{"url":"a","user":1}'] * 3)
    once(spark, project, keyed("url STRING,  user BIGINT"))  # the same, in other words

    changed = keyed("url string, user string")
    with pytest.raises(errors.SchemaChanged) as caught:
        once(spark, project, changed)
    assert caught.value.facts["old"] == "url string, user bigint"
    assert caught.value.facts["new"] == "url string, user string"
    assert caught.value.where == changed.graph().topics[0].where
    assert "--fresh counts" in str(caught.value)

    with Run(changed, project.settings, once=True, fresh=["counts"], spark=spark) as run:
        while not run.done:
            run.poll()
    aside = run.aside["counts"]
    assert (aside / "offsets").is_dir()
    assert (aside / "flow.json").is_file()
    rows = [record.json() for record in project.log.read("counts")]
    assert rows[-1] == {"url": "a", "count": 3}  # from the oldest records, not 6


def test_a_flow_without_state_may_gain_columns_and_nothing_else(spark: SparkSession, project: Project) -> None:
    once(spark, project, keyed("url string", stateful=False))
    once(spark, project, keyed("url string, user long", stateful=False))
    for other in ("user long", "url string, user string"):
        with pytest.raises(errors.SchemaChanged):
            once(spark, project, keyed(other, stateful=False))
    with pytest.raises(errors.InputsChanged, match="now reads engine"):
        once(spark, project, keyed("url string, user long", stateful=False, topic="others"))


def test_other_state_than_the_checkpoint_holds_is_told(spark: SparkSession, project: Project) -> None:
    once(spark, project, keyed("url string, user long"))
    project.write("views", [b'{"url":"a","user":1}'])
    once(spark, project, keyed("url string, user long"))
    app = App("shop")
    views = app.topic("views", "url string, user long")
    app.stream(views, name="counts", key="user", emit="updates")(lambda p: p.groupBy("user").count())
    project.write("views", [b'{"url":"a","user":1}'])
    with pytest.raises(errors.StateChanged, match="--fresh counts"):
        once(spark, project, app)


def test_the_same_flow_twice_in_one_process(spark: SparkSession, project: Project) -> None:
    with Run(counting(), project.settings, spark=spark) as run:
        with pytest.raises(errors.FlowLocked) as caught:
            once(spark, project, counting())
        assert caught.value.facts["pid"] == os.getpid()
        run.poll()  # the first one holds on
        first = run.flows["counts"].lock.holder.incarnation
    with Run(counting(), project.settings, spark=spark) as run:
        assert run.flows["counts"].lock.holder.incarnation == first + 1


def test_a_flow_whose_folder_was_taken_away_stops(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    folder = checkpoint(project, "counts").parent
    with Run(counting(), project.settings, spark=spark) as run:
        run.poll()
        (folder / HOLDER).unlink()
        (folder / LOCK).unlink()
        run._locks_seen = 0.0
        with pytest.raises(errors.FlowReplaced, match="deleted or moved"):
            run.poll()


def test_names_that_the_app_does_not_have(project: Project) -> None:
    for option in ("only", "fresh"):
        with pytest.raises(errors.FlowUnknown, match="did you mean 'counts'"):
            Run(counting(), project.settings, **{option: ["count"]})


def read_then_delete_views(spark: SparkSession, project: Project, until: Callable[..., None]) -> None:
    once(spark, project, counting())
    project.write("views", [b"{}"] * 5, partition=0)
    once(spark, project, counting())
    project.log.topics.delete("views")
    until(lambda: not project.log.topics.exists("views"), "the topic is gone")


def test_records_that_are_gone_before_they_were_read(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    read_then_delete_views(spark, project, until)
    with pytest.raises(errors.RecordsGone, match="--fresh counts"):
        once(spark, project, counting())


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    """Its offsets may fit by chance: then the first of its records would be passed over."""
    read_then_delete_views(spark, project, until)
    project.log.topics.create("views", partitions=2)
    project.write("views", [b"{}"] * 9, partition=0)
    with pytest.raises(errors.RecordsGone, match="--fresh counts"):
        once(spark, project, counting())
