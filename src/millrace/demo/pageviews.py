"""Page views: how often each page is looked at in each minute, and which are looked at most; exactly, and about.

millrace demo --only pageviews    made-up visitors, some with phones that were offline for hours

pageviews ──┬──▶ window 1 minute, by url ──▶ per_minute: told again when a phone sends what it saw hours ago
            ├──▶ window 1 minute, by url ──▶ top 10 ──▶ busiest_now: what changes in the ten, while the minute runs
            ├──▶ window 1 minute, by url ──▶ top 10 ──▶ busiest: the ten of a minute that is over
            └──▶ window 1 minute, a sketch of all urls ──▶ busiest_about: at least so often, at most so often
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

import millrace as mr

app = mr.App("pageviews")
pageviews = app.topic("pageviews", "url string, user long, at timestamp", time="at", lateness="2 seconds")

ERROR = 0.01  # a count of the sketch may be too small by this part of all views of the minute


@app.stream(pageviews, key="url")
def per_minute(p: DataFrame) -> DataFrame:
    """Told once, when the minute is over; and again, saying what it replaces, for views that come up to six hours late:
    phones send what they saw when they are online again."""
    return mr.window(p, "1 minute", by="url", views=mr.count(), emit="final", late=mr.late.update("6 hours"))


@app.stream(pageviews, key="url")
def busiest_now(p: DataFrame) -> DataFrame:
    """The ten of the minute that is running, as they change: signed rows, a reader takes away what went and adds what
    came."""
    counting = mr.window(p, "1 minute", by="url", views=mr.count(), emit="updates", late=mr.late.drop())
    return mr.top(
        counting,
        10,
        by="window_end",
        of="url",
        order=["-views", "url"],
        emit="updates",
        late=mr.late.drop(),
    )


@app.stream(pageviews, key="url")
def busiest(p: DataFrame) -> DataFrame:
    """The ten pages of each minute that were looked at most: every page is counted."""
    counted = mr.window(p, "1 minute", by="url", views=mr.count(), emit="final", late=mr.late.drop())
    return mr.top(counted, 10, by="window_end", order=["-views", "url"], emit="final")


@app.stream(pageviews, key="url")
def busiest_about(p: DataFrame) -> DataFrame:
    """The same from a sketch, which holds a hundred pages however many there are, and says how wrong it may be."""
    minutes = mr.window(
        p,
        "1 minute",
        pages=mr.frequent("url", 10, error=ERROR),
        views=mr.count(),
        emit="final",
        late=mr.late.drop(),
    )
    pages = minutes.selectExpr("window_end", "views", "posexplode(pages) AS (place, page)")
    return pages.selectExpr(
        "page.value AS url",
        "window_end",
        "place + 1 AS rank",
        "page.count AS at_least",
        f"page.count + CAST(floor({ERROR} * views) AS long) AS at_most",
        "views AS all_views",
    )


@app.traffic(pageviews, rate=50)
def made_up(chance: random.Random) -> dict[str, Any]:
    return view(chance, datetime.now(UTC))


def view(chance: random.Random, now: datetime, urls: int = 1_000) -> dict[str, Any]:
    """Somebody looks at a page, most often at one of a few; one in a hundred has done so while offline."""
    page = int(chance.paretovariate(0.9)) % urls
    offline_s = chance.uniform(600, 10_800) if chance.random() < 0.01 else 0.0
    url = "/" if page == 1 else f"/page/{page}"
    return {"url": url, "user": chance.randrange(100_000), "at": now - timedelta(seconds=offline_s)}
