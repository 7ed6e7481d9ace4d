"""A chain of signed rows from topic to topic: two tables joined, grouped, consolidated, in real time and in epochs."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine import Run
from millrace.engine.stopping import epochs
from millrace.flow import App
from millrace.kernel import signed
from millrace.model import signed as model
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.test_run import checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]

ORDERS = ("order", "customer", "amount")
CUSTOMERS = ("id", "region")


def app_of(mode: Any) -> App:
    app = App("shop")
    orders = app.topic("orders", "order long, customer long, amount decimal(12,2), diff int")
    customers = app.topic("customers", "id long, region string, diff int")

    # Longer than anything here takes: what comes out meanwhile did not wait for an epoch's end.
    @app.stream(orders, customers, key="region", mode=mode, epoch="10 minutes" if mode == "realtime" else None)
    def revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
        both = orders.withColumn("table", F.lit("orders")).unionByName(
            customers.withColumn("table", F.lit("customers")), allowMissingColumns=True
        )
        chain = signed.begin(
            both.withColumnRenamed("diff", signed.DIFF),
            {"orders": (F.col("table") == "orders", ORDERS), "customers": (F.col("table") == "customers", CUSTOMERS)},
        )
        measures = [
            signed.Measure("orders", "count"),
            signed.Measure("total", "sum", (F.col("amount"),)),
            signed.Measure("largest", "max", (F.col("amount"),)),
        ]
        chain = chain.join("orders", "customers", on=[("customer", "id")], how="left", into="joined")
        chain = chain.aggregate("joined", by=["region"], measures=measures, into="regions")
        return chain.consolidate("regions", into="regions").table("regions")

    return app


class Shop:
    """The tables as they were last written, and what the topic says of the view."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.orders, self.customers = model.Bag(), model.Bag()

    def order(self, number: int, customer: int | None, amount: str, diff: int = 1) -> None:
        self.orders[number, customer, Decimal(amount)] += diff
        self._write("orders", {"order": number, "customer": customer, "amount": amount, "diff": diff})

    def customer(self, number: int, region: str, diff: int = 1) -> None:
        self.customers[number, region] += diff
        self._write("customers", {"id": number, "region": region, "diff": diff})

    def _write(self, topic: str, row: dict[str, Any]) -> None:
        self.project.write(topic, [json.dumps(row).encode()], 0)

    def truth(self) -> model.Bag:
        tables = {"orders": model.Table(ORDERS, +self.orders), "customers": model.Table(CUSTOMERS, +self.customers)}
        joined = model.Chain(tables).join("orders", "customers", on=[("customer", "id")], how="left", into="joined")
        measures = [
            model.Measure("orders", "count"),
            model.Measure("total", "sum", ("amount",)),
            model.Measure("largest", "max", ("amount",)),
        ]
        return joined.aggregate("joined", by=["region"], measures=measures, into="regions").table("regions")

    def told(self) -> model.Bag:
        held: Counter[model.Row] = Counter()
        for record in self.project.log.read("revenue") if self.project.log.topics.exists("revenue") else ():
            row = record.json()
            amounts = (Decimal(str(row[name])).quantize(Decimal("0.01")) for name in ("total", "largest"))
            held[row.get("region"), row["orders"], *amounts] += row[signed.DIFF]
        return Counter({row: count for row, count in held.items() if count})

    def come(self, run: Run) -> None:
        until(lambda: run.poll() is not None and self.told() == self.truth(), f"{self.truth()}", 120)


@pytest.mark.turn(1, 2)
def test_a_join_and_its_groups_follow_each_change_at_once(project: Project, spark: SparkSession) -> None:
    for topic in ("orders", "customers"):
        project.log.topics.create(topic, partitions=1)
    shop = Shop(project)
    with Run(app_of("realtime"), project.settings, spark=spark) as run:
        for number in range(6):
            shop.order(number, number % 3, f"{number}.50")
        shop.order(6, None, "7.00")
        shop.come(run)
        shop.customer(0, "north")
        shop.customer(1, "south")
        shop.come(run)
        shop.customer(0, "north", -1)
        shop.customer(0, "south")
        shop.order(4, 1, "4.50", -1)
        shop.come(run)
        assert not epochs(checkpoint(project, "revenue", "shop") / "commits")
    # The same state epoch by epoch, and back.
    with Run(app_of("microbatch"), project.settings, spark=spark) as run:
        shop.customer(1, "south", -1)
        shop.order(7, 2, "0.25", 3)
        shop.come(run)
    with Run(app_of("realtime"), project.settings, spark=spark) as run:
        shop.customer(2, "east")
        shop.customer(0, "south", -1)
        shop.come(run)
