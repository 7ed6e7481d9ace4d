"""Trending hashtags: the ten that most posts of the last five minutes have, once a minute.

millrace demo --only trending    made-up posts; each minute the ten are printed when the minute is complete

posts ──▶ explode tags ──▶ window 5 minutes, every 1 minute, by tag ──▶ top 10 of each window ──▶ trending
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

import millrace as mr

app = mr.App("trending")
posts = app.topic("posts", "id string, tags array<string>, at timestamp", time="at", lateness="5 seconds", key="id")


@app.stream(posts, key="tag")
def trending(posts: DataFrame) -> DataFrame:
    """The ten first of each window, with their ranks, when it has closed.

    A post counts in five windows, one after the other, and then no more: that is how a tag fades.
    """
    tags = posts.selectExpr("explode(array_distinct(transform(tags, tag -> lower(tag)))) AS tag", "at")
    counted = mr.window(
        tags, "5 minutes", every="1 minute", by="tag", posts=mr.count(), emit="final", late=mr.late.drop()
    )
    return mr.top(counted, 10, by="window_end", order=["-posts", "tag"], emit="final")


@app.traffic(posts, rate=50)
def made_up(chance: random.Random, n: int) -> dict[str, Any]:
    return post(chance, n, datetime.now(UTC))


def post(chance: random.Random, n: int, at: datetime) -> dict[str, Any]:
    """Some tags are always common; one more comes up in each minute, and is not posted any more in the next."""
    common = [f"#topic{int(chance.paretovariate(1.1)) % 40}" for _ in range(chance.randrange(4))]
    rising = [f"#News{int(at.timestamp()) // 60 % 1_000}"] if chance.random() < at.second / 120 else []
    return {"id": f"{n}-{at:%H%M%S%f}", "tags": [*common, *rising], "at": at}
