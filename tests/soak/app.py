"""What runs: a captured table kept in step by a sink, and events with state, written exactly once. All of it holds as
much after hours as after minutes: the same thousand rows change, and a minute of events is kept."""

from __future__ import annotations

from pyspark.sql import DataFrame

import millrace as mr

app = mr.App("soak")
db = app.capture("shop", tables=["orders"])
clicks = app.topic("clicks", "id long, key string, sent double, at timestamp", time="at", lateness="5 seconds")


@app.stream(clicks, key="key", delivery="exactly once")
def answered(events: DataFrame) -> DataFrame:
    found = mr.lookback(events, by="key", n=mr.count(over="1 minute"), late=mr.late.drop())
    return found.select("id", "key", "n", "sent")


@app.stream(clicks, key="key")
def counted(events: DataFrame) -> DataFrame:
    return mr.window(events, "10 seconds", by="key", n=mr.count(), emit="final", late=mr.late.drop())


db.orders.to(mr.postgres("orders_copy", database="shop"))
