"""The worked examples of the standard texts, as plays. (A 3:30 event in hopping windows: tests/flow/test_edges.py.)"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr
from millrace.testing import Play

pytestmark = pytest.mark.spark

Begin = Callable[..., Play]


def test_a_lag_of_two_minutes_and_a_latest_event_of_14_10_close_what_ended_by_14_08(play: Begin) -> None:
    app = mr.App("texts")
    views = app.topic("views", "user string, at timestamp", time="at", lateness="2 minutes")

    @app.stream(views)
    def per_minute(v: DataFrame) -> DataFrame:
        return mr.window(v, "1 minute", views=mr.count(), emit="final", late=mr.late.drop())

    @app.stream(views)
    def visits(v: DataFrame) -> DataFrame:
        return mr.session(v, "30 minutes", by="user", views=mr.count(), emit="final", late=mr.late.drop())

    @app.stream(views)
    def with_phones(v: DataFrame) -> DataFrame:
        return mr.window(v, "1 minute", views=mr.count(), emit="final", late=mr.late.update("5 hours"))

    p = play(app)
    #     14:06   14:07   14:08   14:09   14:10
    # ------|-------|---x---|x------|-------x
    p.feed(views, [{"user": "u", "at": f"14:{at}"} for at in ("07:30", "08:00", "10:00")])
    p.expect(per_minute, [{"window_start": "14:07", "window_end": "14:08", "views": 1}])
    p.expect(with_phones, [{"window_start": "14:07", "views": 1, "replaces": None}])

    # A phone that was offline for four hours sends what it saw, and the minutes that it saw are told again.
    p.feed(views, [{"user": "u", "at": "14:07:50", "arrival": "18:07:50"}])
    p.expect(per_minute)
    replaced = [{"start": "2026-01-01T14:07:00.000000Z", "end": "2026-01-01T14:08:00.000000Z"}]
    p.expect(with_phones, [{"window_start": "14:07", "views": 2, "replaces": replaced}])
    assert p.late(per_minute) == 1

    # Thirty minutes without an event end a visit; 29 do not.
    p.expect(visits)
    p.feed(views, [{"user": "u", "at": at} for at in ("14:39:00", "15:10:00", "15:45:00")])
    p.expect(
        visits,
        [
            {"window_start": "14:07:30", "window_end": "15:09:00", "views": 5},
            {"window_start": "15:10:00", "window_end": "15:40:00", "views": 1},
        ],
    )


def test_an_impression_at_14_00_05_and_a_click_at_14_07_33_are_7_minutes_28_apart(play: Begin) -> None:
    app = mr.App("texts")
    impressions = app.topic("impressions", "ad string, at timestamp", time="at", lateness="10 seconds")
    clicks = app.topic("clicks", "ad string, at timestamp", time="at", lateness="10 seconds")

    @app.stream(impressions, clicks)
    def attributed(shown: DataFrame, clicked: DataFrame) -> DataFrame:
        both = mr.join(shown, clicked, on="ad", within=("0 seconds", "30 minutes"), how="left", prefix="click_")
        return both.select("ad", "at", (F.unix_seconds("click_at") - F.unix_seconds("at")).alias("seconds"))

    p = play(app)
    p.feed(impressions, [{"ad": "shoes", "at": "14:00:05"}, {"ad": "hats", "at": "14:00:05"}])
    p.feed(clicks, [{"ad": "shoes", "at": "14:07:33"}])
    p.expect(attributed, [{"ad": "shoes", "seconds": 7 * 60 + 28}])
    p.feed(impressions, [{"ad": "bags", "at": "14:31:00"}])
    p.feed(
        clicks, [{"ad": "hats", "at": "14:30:06"}, {"ad": "bags", "at": "14:31:00"}]
    )  # a second too late for the hat
    p.expect(attributed, [{"ad": "bags", "seconds": 0}, {"ad": "hats", "seconds": None}])
