"""The harness is the engine: what a play shows is what a run would do, by the same code, under the test's own time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import millrace as mr
from millrace.config import Settings
from millrace.engine import Run
from millrace.engine.replay import Replay
from millrace.engine.restarts import passes
from millrace.errors import BodyFailed, EmissionTwice, FlowFailed, PlayMisused, PlayRowsInvalid, ReplayInvalid
from millrace.flow import Stream, Topic
from millrace.testing import Play
from millrace.testing.folder import CRASHED, FolderLog

pytestmark = pytest.mark.spark

Begin = Callable[..., Play]

VIEWS = "url string, n long, at timestamp"


def counting(late: Any = None, emit: Any = "final") -> tuple[mr.App, Topic, Stream]:
    app = mr.App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="10 seconds")

    @app.stream(views)
    def per_minute(v: DataFrame) -> DataFrame:
        return mr.window(v, "1 minute", by="url", views=mr.count(), emit=emit, late=late or mr.late.drop())

    return app, views, per_minute


def test_time_passes_only_when_it_is_told_to(play: Begin) -> None:
    app, views, per_minute = counting(mr.late.side("too_late", allow="30 seconds"))
    p = play(app, partitions=2)
    p.feed(
        views,
        """
        | url | n | at       | partition |
        | --- | - | -------- | --------- |
        | /a  | 1 | 10:00:05 | 0         |
        | /a  | 2 | 10:00:50 | 0         |
        | /b  |   | 10:01:15 | 0         |
    """,
    )
    p.expect(per_minute)  # nothing is known of partition 1
    p.advance("29 seconds")
    p.expect(per_minute)
    p.advance("1 second")  # 30 seconds of silence: it is not waited for
    p.expect(
        per_minute,
        """
        | url | window_start | views |
        | /a  | 10:00        | 2     |
    """,
    )
    rows = [{"url": "/a", "at": "10:00:55", "partition": 1}, {"url": "/b", "at": "10:01:45", "partition": 1}]
    p.feed(views, rows)  # late, and within the grace
    p.expect(per_minute, [{"url": "/a", "views": 3}])
    p.feed(views, [{"url": "/a", "at": "10:00:56", "partition": 1}])
    p.expect(per_minute)
    p.expect("too_late", [{"window_start": "10:00", "late_ms": 35_000}])
    assert p.late(per_minute) == p.late() == 2
    assert str(p.now) == "2026-01-01 10:01:45+00:00"


def test_a_crash_at_every_point_leaves_only_the_checkpoint(play: Begin) -> None:
    app, views, per_minute = counting(emit="updates")

    @app.stream(views)
    def long_ones(v: DataFrame) -> DataFrame:
        return v.where("n > 10")

    p = play(app)
    p.feed(views, [{"url": "/a", "n": 1, "at": "10:00:01"}])
    p.expect(per_minute, [{"views": 1}])
    p.feed(views, [{"url": "/a", "n": 20, "at": "10:00:02"}], crash="before write")
    p.expect(per_minute)
    p.expect(long_ones)
    p.feed(views, [{"url": "/a", "n": 21, "at": "10:00:03"}], crash="after write")  # the epoch of before comes first
    p.expect(per_minute, [{"views": 2}])
    p.expect(long_ones, [{"n": 20}])
    p.restart()
    p.expect(per_minute, [{"views": 2}, {"views": 3}])  # once more, and then the row that waited
    p.expect(long_ones, [{"n": 20}, {"n": 21}], ordered=True)
    p.feed(views, b"not a row", crash="after commit")
    assert p.dead(views) == []
    p.feed(views, [], crash="after write")  # letters that were left behind are no part of an epoch
    assert p.dead(views) == [("not a row", "not a JSON object")]
    p.crash()
    p.feed(views, [{"url": "/a", "n": 1, "at": "10:00:04"}])
    p.expect(per_minute, [{"views": 4}])


def test_what_flows_tell_each_other_is_there_at_the_next_line(play: Begin) -> None:
    app = mr.App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="0 seconds")

    @app.stream(views, schema=VIEWS, time="at", lateness="0 seconds")
    def large(v: DataFrame) -> DataFrame:
        return v.where("n > 10")

    @app.stream(large, key="url")
    def urls(v: DataFrame) -> DataFrame:
        return v.select("url")

    p = play(app)
    p.feed(views, [{"url": f"/{n}", "n": n, "at": "10:00"} for n in (9, 10, 11, 12)])
    p.expect(urls, [{"url": "/11"}, {"url": "/12"}])
    assert [row["n"] for row in p.rows(large)] == [11, 12]


def test_tables_are_fed_as_rows(play: Begin) -> None:
    app = mr.App("shop")
    db = app.capture("shop", tables=["customers"])

    @app.stream(db.customers, key="id")
    def names(c: DataFrame) -> DataFrame:
        return c.selectExpr("id", "upper(name) AS name", "__diff")

    p = play(app)
    p.table(db.customers, "id long, name string", key="id")
    p.feed(db.customers, [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}])
    p.expect(names, [{"id": 1, "name": "ADA", "__diff": 1}, {"id": 2, "name": "BOB", "__diff": 1}])
    p.feed(db.customers, [{"id": 1, "name": "eve"}], crash="after commit")
    p.expect(names, [{"name": "ADA", "__diff": -1}, {"name": "EVE", "__diff": 1}])
    p.delete(db.customers, [{"id": 1}, {"id": 9}])
    p.expect(names, [{"name": "EVE", "__diff": -1}])
    for row, says in (({"id": 1, "nam": "x"}, "did you mean 'name'"), ({"name": "x"}, "row 1 lacks 'id'")):
        with pytest.raises(PlayMisused, match=says):
            p.feed(db.customers, [row])
    with pytest.raises(PlayMisused, match="no 'number'"):
        p.table(db.customers, "id long, name string", key="number")


def test_a_table_of_somebody_elses_capture(play: Begin) -> None:
    app = mr.App("shop")
    orders = app.table("erp.orders", "id long, total decimal(8,2)", key="id")

    @app.stream(orders)
    def large(o: DataFrame) -> DataFrame:
        return o.where("total > 10")

    p = play(app)
    p.feed(orders, [{"id": 1, "total": "12.50"}, {"id": 2, "total": "9.00"}])
    p.expect(large, [{"id": 1, "total": "12.5", "__diff": 1}])


def test_events_meet_the_table_as_it_is(play: Begin) -> None:
    app = mr.App("shop")
    db = app.capture("shop", tables=["customers"])
    views = app.topic("views", "customer long, at timestamp", time="at", lateness="0 seconds")

    @app.stream(views, db.customers)
    def by_name(v: DataFrame, customers: DataFrame) -> DataFrame:
        named = mr.lookup(v, customers, on="customer")
        return mr.window(named, "1 minute", by="name", views=mr.count(), emit="updates", late=mr.late.drop())

    p = play(app)
    p.table(db.customers, "id long, name string", key="id")
    p.feed(db.customers, [{"id": 1, "name": "ada"}])
    p.feed(views, [{"customer": 1, "at": "10:00"}, {"customer": 2, "at": "10:00"}])
    p.expect(by_name, [{"name": "ada", "views": 1}, {"name": None, "views": 1}])
    p.feed(db.customers, [{"id": 1, "name": "eve"}, {"id": 2, "name": "bob"}], crash="after write")
    p.restart()
    p.feed(views, [{"customer": 1, "at": "10:00"}, {"customer": 2, "at": "10:00"}])
    p.expect(by_name, [{"name": "eve", "views": 1}, {"name": "bob", "views": 1}])
    p.delete(db.customers, [{"id": 2}])
    p.feed(views, [{"customer": 2, "at": "10:00"}, {"customer": 2, "at": "9:00"}])
    p.expect(by_name, [{"name": None, "views": 2}])
    assert p.late(by_name) == 1


def test_a_replay_has_outputs_of_its_own(play: Begin) -> None:
    app = mr.App("shop")
    views = app.topic("views", VIEWS, time="at", lateness="0 seconds")

    @app.stream(views, schema=VIEWS, time="at", lateness="0 seconds")
    def large(v: DataFrame) -> DataFrame:
        return v.where("n > 10")

    @app.stream(large)
    def per_minute(v: DataFrame) -> DataFrame:
        late = mr.late.side("too_late")
        return mr.window(v, "1 minute", numbers=mr.sum("n"), emit="final", late=late)

    p = play(app)
    p.feed(views, [{"url": "/", "n": n, "at": f"10:0{n // 10}:00"} for n in (5, 15, 25, 35)])
    p.feed(views, [{"url": "/", "n": 16, "at": "10:01:30"}])
    p.feed(views, b"no row")
    p.expect(per_minute, [{"numbers": 15}, {"numbers": 25}])
    p.expect("too_late", [{"late_ms": 60_000}])
    live = p.rows(per_minute)
    p.replay("whole")
    p.expect("large.whole", p.rows(large))
    p.expect("per_minute.whole", [{"numbers": 31}, {"numbers": 25}])  # all is one epoch now, and nothing is late in it
    p.expect("too_late.whole")
    p.replay("part", start="10:01", until="10:03")
    p.expect("large.part", [{"n": 15}, {"n": 25}])
    p.expect("per_minute.part", [{"numbers": 15}])
    assert p.rows(per_minute) == live  # the live ones were not touched
    assert len(p.rows(large)) == 4
    assert len(p.dead(views)) == 1
    p.feed(views, [{"url": "/", "n": 45, "at": "10:04:00"}])
    p.expect(per_minute, [{"numbers": 35}])
    with pytest.raises(ReplayInvalid, match="'part' was begun from 2026-01-01T10:01"):
        p.replay("part", start="10:01", until="10:05")
    for name in ("dead", "old.dead"):
        with pytest.raises(ReplayInvalid, match="dead letters"):
            p.replay(name)
    p.log.topics.ensure("per_minute.first")
    Run(app, p._settings, only=["large"], log=p.log, replay=Replay("first")).prepare()
    with pytest.raises(ReplayInvalid, match=r"per_minute\.first is there already"):  # of the stream that joins it
        p.replay("first")
    p.log.topics.ensure("large.other")
    with pytest.raises(ReplayInvalid, match=r"large\.other is there already"):
        p.replay("other")
    p.replay("whole")  # goes on where it stood
    p.expect("per_minute.whole", [{"numbers": 35}])


@pytest.mark.parametrize("seed", [1, 2])
def test_cuts_and_crashes_by_a_seed_change_nothing(play: Begin, seed: int) -> None:
    app, views, per_minute = counting()
    p = play(app, seed=seed)
    p.feed(views, [{"url": f"/{n % 3}", "n": n, "at": f"10:00:{n:02}"} for n in range(30)])
    p.feed(views, [{"url": "/1", "n": 0, "at": "10:02:00"}])
    p.expect(per_minute, [{"url": f"/{n}", "views": 10} for n in range(3)])
    assert len({each.epoch for each in p.progress}) > 2


def test_what_is_wrong_is_said_in_a_sentence(play: Begin) -> None:
    app, views, per_minute = counting()
    p = play(app)
    with pytest.raises(PlayRowsInvalid, match=r"'n' of row 2: 'x' is no long.*test_play\.py:\d+\)"):
        p.feed(views, "| n |\n| 1 |\n| x |")
    with pytest.raises(PlayMisused, match=r"'views' has no column 'ulr'; did you mean 'url'\?"):
        p.feed(views, [{"ulr": "/a"}])
    for rows in (None, 5, {"url": "/a"}, ["/a"]):
        with pytest.raises(PlayRowsInvalid, match=r"test_play\.py:\d+\)"):
            p.feed(views, rows)  # type: ignore[arg-type]
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: p.advance(5), 'advance\\("5 seconds"\\)'),  # type: ignore[arg-type]
        (lambda: p.late("minute"), "no stream 'minute'; did you mean 'per_minute'"),
        (lambda: p.delete(views, []), "what a topic holds stays"),  # type: ignore[arg-type]
        (lambda: p.expect(5), "5 is no stream or topic"),  # type: ignore[arg-type]
    ]
    for call, says in calls:
        with pytest.raises(PlayMisused, match=says):
            call()
    with pytest.raises(PlayRowsInvalid, match="has 1 cells, the head 2"):
        p.feed(views, "| url | n |\n| x |")
    for row in ({"partition": 1}, {"partition": "x"}, {"arrival": "soon"}):
        with pytest.raises(PlayMisused):
            p.feed(views, [row])
    with pytest.raises(PlayMisused, match="no column 'uri'"):
        p.feed(views, [{"url": "/a"}], key="uri")
    with pytest.raises(PlayMisused, match="to topics and tables"):
        p.feed(per_minute, [])  # type: ignore[arg-type]
    with pytest.raises(PlayMisused, match="no crash 'now'"):
        p.feed(views, [], crash="now")  # type: ignore[arg-type]
    p.feed(views, [{"url": "/a", "at": "10:00"}, {"url": "/a", "at": "11:00"}])
    with pytest.raises(PlayMisused, match=r"no topic 'per_minut'; did you mean 'per_minute'\?"):
        p.expect("per_minut", [])
    with pytest.raises(PlayMisused, match="no topic 'nosuch'"):
        p.dead("nosuch")
    with pytest.raises(AssertionError) as told:
        p.expect(per_minute, [{"url": "/a", "views": 2}])
    lines = str(told.value).splitlines()
    assert lines[0] == "per_minute"
    assert lines[lines.index("not got:") + 2] == "| /a  | 2     |"
    broken = mr.App("shop")
    numbers = broken.topic("numbers", "n int")

    @broken.stream(numbers)
    def halves(n: DataFrame) -> DataFrame:
        return n.selectExpr("1 / (n - 1) AS half")

    q = play(broken)
    for _ in range(2):
        with pytest.raises(BodyFailed, match="Division by zero") as failed:
            q.feed(numbers, [{"n": 1}])
        assert "DIVIDE_BY_ZERO" in Path(str(failed.value.facts["log"])).read_text()
    twice = mr.App("shop")
    again = twice.topic("views", VIEWS, time="at", lateness="10 seconds")
    given = {"emit": "updates", "late": mr.late.drop()}
    twice.stream(again, name="minutes", emit="final")(lambda v: mr.window(v, "1 minute", n=mr.count(), **given))
    with pytest.raises(EmissionTwice, match="emit='final'"):
        play(twice).feed(again, [])


@pytest.mark.server
def test_the_same_play_on_a_broker(play: Begin, settings: Settings) -> None:
    app, views, per_minute = counting()
    p = play(app, settings=settings)
    p.feed(views, [{"url": "/a", "n": 1, "at": "10:00:01"}])
    p.feed(views, [{"url": "/a", "n": 1, "at": "10:01:30"}], crash="after write")
    p.expect(per_minute, [{"url": "/a", "views": 1}])
    p.restart()
    p.expect(per_minute, [{"url": "/a", "views": 1}])
    p.feed(views, [{"url": "/b", "n": 1, "at": "10:02:30"}, {"url": "/b", "n": 1, "at": "10:05:00"}])
    p.replay("part", start="10:01", until="10:05")
    p.expect("per_minute.part", [{"url": "/a", "window_start": "10:01", "views": 1}])
    with pytest.raises(PlayMisused, match="needs the log in a folder"):
        p.feed(views, [], crash="before write")


def test_a_write_that_fails_is_not_the_users_fault(play: Begin) -> None:
    """Where our own code divides an epoch's rows, Spark's message has a Python traceback: ours, not the user's."""
    app, views, _ = counting(mr.late.side("too_late"), emit="updates")
    p = play(app)
    assert isinstance(p.log, FolderLog)
    p.feed(views, [])
    p.log.arm("before write")
    with pytest.raises(FlowFailed, match=CRASHED) as told:
        p.feed(views, [{"url": "/a", "n": 1, "at": "10:00:01"}])
    assert passes(told.value)
