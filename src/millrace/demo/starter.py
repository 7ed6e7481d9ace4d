"""What `millrace init` begins with: page views, counted by URL in windows of ten seconds."""

import random

from pyspark.sql import DataFrame

import millrace as mr

app = mr.App("starter")

pageviews = app.topic("pageviews", "url string, user long, at timestamp", time="at", lateness="2 seconds")


@app.stream(pageviews, key="url")
def views(p: DataFrame) -> DataFrame:
    """How often each page was looked at, in windows of ten seconds; a count comes again whenever it grows."""
    return mr.window(p, "10 seconds", by="url", views=mr.count(), emit="updates", late=mr.late.drop())


@app.traffic(pageviews, rate=50)
def visits(chance: random.Random) -> dict[str, object]:
    """Made-up visitors, so that there is something to count; `millrace run --no-traffic` leaves them out."""
    url = chance.choices(["/", "/shop", "/cart", "/about"], weights=[8, 4, 2, 1])[0]
    return {"url": url, "user": chance.randrange(1000)}
