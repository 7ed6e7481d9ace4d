"""The Python of the guide runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millrace import local
from millrace.capture import Captures
from millrace.config import Secret, Settings
from millrace.engine import Run
from millrace.engine.plan import flows_of
from millrace.events import Store
from millrace.local import java
from millrace.log import Log
from millrace.queues.drain import Drain
from millrace.sinks import Epoch

# (id, time) of the files of a folder, one an epoch. A repeat, a row that is late, and one that its card's last minute
# makes suspicious.
PAYMENTS = [[(1, "12:00:01"), (2, "12:00:02"), (2, "12:00:02")], [(3, "12:10:00")], [(4, "12:00:59"), (5, "12:10:30")]]
GAMES = [("ann", 50), ("bob", 30), ("cat", 40), ("ann", 10)]
GUIDE = Path(__file__).parent.parent / "docs" / "guide"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (GUIDE / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.spark
def test_flows(spark: Any) -> None:
    app, tables, test = blocks("flows.md")
    names: dict[str, Any] = {}
    exec(app, names)
    assert {stream.name for stream in names["app"].graph().streams} == {"large", "by_minute"}
    exec(tables, names)
    assert {"named_orders", "by_region"} < {stream.name for stream in names["app"].graph().streams}
    asked = [(1, 17, 5, datetime(2026, 1, 1)), (2, 18, 6, datetime(2026, 1, 1))]
    orders = spark.createDataFrame(asked, "id long, customer long, amount int, at timestamp")
    customers = spark.createDataFrame([(17, "north")], "id long, region string")
    found = names["named_orders"](orders, customers).orderBy("id").collect()
    assert [(row.id, row.region) for row in found] == [(1, "north"), (2, None)]
    (hour,) = names["by_region"](orders, customers).collect()
    assert (hour.region, hour.total) == ("north", 5)
    exec(test, names)
    names["test_large"](spark)


def test_delivery_into_kafka() -> None:
    names: dict[str, Any] = {}
    for block in blocks("delivery-kafka.md"):
        exec(block, names)
    text = names["app"].graph().text()
    for told in ("large; key card; exactly once", "seen; key card; at most once", "alerts_once"):
        assert told in text, text


@pytest.mark.spark
def test_testing(spark: Any, play: Any) -> None:
    app, function = blocks("testing.md")
    names: dict[str, Any] = {}
    exec(app, names)
    names["test_a_minute_is_counted_once"](play)
    exec(function, names)
    names["test_the_function"](spark)


@pytest.mark.spark
def test_time(spark: Any) -> None:
    block, sketches = blocks("time.md")
    names: dict[str, Any] = {}
    exec(block, names)
    exec(sketches, names)
    rows = [("/", 1, datetime(2026, 1, 1, 0, 0, second)) for second in (1, 2, 59)]
    frame = spark.createDataFrame(rows, "url string, user long, at timestamp")
    (minute,) = names["per_minute"](frame).collect()
    assert (minute.views, minute.users) == (3, 1)
    (visit,) = names["visits"](frame).collect()
    assert (visit.pages, visit.entry) == (3, "/")
    found = names["audience"](frame).collect()
    assert len(found) == 12
    assert [(row.users, row.hours, row.regulars[0]["count"]) for row in found] == [(1, [0, 0], 3)] * 12


@pytest.mark.spark
def test_lookback(spark: Any) -> None:
    events, windows = blocks("lookback.md")
    names: dict[str, Any] = {}
    exec(events, names)
    rows = [
        ("1", "a", 10, "failed", "x", 52.52, 13.4, datetime(2026, 1, 1, 0, 0)),
        ("2", "a", 10, "failed", "x", 52.52, 13.4, datetime(2026, 1, 1, 0, 3)),
        ("3", "a", 10, "failed", "y", 52.52, 13.4, datetime(2026, 1, 1, 0, 4)),
        ("4", "a", 10, "ok", "y", 48.85, 2.35, datetime(2026, 1, 1, 0, 5)),
    ]
    schema = "id string, card string, amount int, status string, merchant string, lat double, lon double, at timestamp"
    third, fourth = names["suspicious"](spark.createDataFrame(rows, schema)).orderBy("id").collect()
    assert (third.id, third.failed, third.spent, third.merchants, third.kmh) == ("3", 3, 30, 2, 0)
    assert (fourth.id, fourth.failed, round(fourth.kmh)) == ("4", 2, 52661)  # some 878 km in a minute
    exec(windows, names)
    views = [("/", datetime(2026, 1, 1, 0, minute)) for minute in (*range(6), *[6] * 20)]
    (risen,) = names["rising"](spark.createDataFrame(views, "url string, at timestamp")).collect()
    assert (risen.window_end.minute, risen.views, round(risen.usual, 2)) == (7, 20, 3.71)


@pytest.mark.spark
def test_as_of(spark: Any, play: Any) -> None:
    app, test, lake = blocks("as-of.md")
    names: dict[str, Any] = {}
    exec(app, names)
    assert {stream.name for stream in names["app"].graph().streams} == {"priced", "addressed"}
    exec(test, names)
    names["test_priced"](spark)
    exec(lake, names)
    p = play(names["app"])
    p.lake(names["past_orders"], names["orders"].schema, [{"id": 1, "item": 7, "customer": 3, "at": "10:00:30"}])
    p.lake(
        names["past_prices"],
        names["prices"].schema,
        [{"item": 7, "price": price, "at": at} for price, at in ((10, "10:00"), (12, "10:01"))],
    )
    p.lake(
        names["past_customers"],
        "id long, city string, gone boolean, at timestamp, place long",
        [{"id": 3, "city": city, "gone": False, "at": "10:00", "place": n} for n, city in enumerate(("Ulm", "Bonn"))],
    )
    (row,) = names["training_set"](spark, p.settings).collect()
    assert (row.asDict().keys(), row.price, row.city) == ({"id", "item", "customer", "at", "price", "city"}, 10, "Bonn")


@pytest.mark.spark
def test_features(play: Any) -> None:
    from millrace.demo import features

    (block,) = blocks("features.md")
    names: dict[str, Any] = {}
    exec(block, names)
    p = play(features.app, views=False)
    bought = [{"id": name, "customer": 1, "amount": 20, "at": f"10:0{n}"} for n, name in enumerate("ab")]
    p.lake(features.past_purchases, features.PURCHASE, bought)
    profile = {"customer": 1, "segment": "gold", "credit": 100, "at": "10:00"}
    p.lake(features.past_profiles, features.PROFILE, [profile])
    p.lake(features.past_returns, features.RETURN, [{"purchase": "b", "at": "11:00"}])
    (row,) = names["trained"](p.spark, p.settings).collect()
    assert (row.segment, row["count(returned)"], round(row["avg(of_credit)"], 2)) == ("gold", 2, 0.3)


@pytest.mark.spark
def test_lakehouse(play: Any) -> None:
    _, view, reading, streaming = blocks("lakehouse.md")
    names: dict[str, Any] = {}
    exec(view, names)
    assert [(flow.name, flow.sinks[0].name) for flow in flows_of(names["app"].graph())] == [("revenue", "lake.revenue")]
    exec(reading, names)
    p = play(names["app"])
    p.lake(names["products"], "id long, name string", [{"id": 7, "name": "tea"}])
    p.feed(names["orders"], [{"id": 1, "product": 7, "at": "10:00"}])
    p.expect(names["named"], [{"id": 1, "name": "tea"}])
    exec(streaming, names)
    p = play(names["app"])
    p.feed(names["orders"], [{"id": n, "amount": 50 * n, "at": "10:00"} for n in (1, 2, 3)])
    p.expect(names["large"], [{"id": 3, "amount": 150}])


@pytest.mark.spark
def test_patterns(spark: Any) -> None:
    (block,) = blocks("patterns.md")
    names: dict[str, Any] = {}
    exec(block, names)
    asked = [("c", Decimal(amount), datetime(2026, 1, 1, 0, n)) for n, amount in enumerate(("1", "0.5", "1.2", "900"))]
    cards = spark.createDataFrame(asked, "card string, amount decimal(12,2), at timestamp")
    (found,) = names["tested_cards"](cards).collect()
    assert (found.tries, found.first, found.big, found.match_end.minute) == (3, 1, 900, 3)
    happened = [
        (1, "order", datetime(2026, 1, 1)),
        (1, "payment", datetime(2026, 1, 1, 1)),
        (2, "order", datetime(2026, 1, 1)),
    ]
    events = spark.createDataFrame(
        [*happened, (2, "payment", datetime(2026, 1, 1, 0, 59))], "customer long, what string, at timestamp"
    )
    assert [row.customer for row in names["unpaid"](events).collect()] == [1]


@pytest.mark.turn(0, 2)
def test_pyspark(folder: Path) -> None:
    """In a process of its own: its session is not Millrace's."""
    (folder / "payments").mkdir()
    for number, rows in enumerate(PAYMENTS):
        path = folder / "payments" / f"{number}.json"
        told = [{"id": id_, "card": "a", "amount": 600, "at": f"2026-01-01T{at}Z"} for id_, at in rows]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in told))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    asked = (
        'dropped = [s["numRowsDroppedByWatermark"] for p in query.recentProgress for s in p["stateOperators"]]\n'
        "print(late_rows(query), sum(dropped))\n"
    )
    (folder / "job.py").write_text("\n".join([*blocks("pyspark.md"), asked]))
    home = str(java.find().resolve().parent.parent)
    quiet = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "job.py"], env={**os.environ, "JAVA_HOME": home, **quiet}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0"], done.stdout
    found = [json.loads(line) for path in (folder / "alerts").glob("*.json") for line in path.read_text().splitlines()]
    assert {(row["id"], row["n"], row["spent"]) for row in found} == {(2, 2, 1200), (3, 1, 1800), (5, 2, 2400)}


@pytest.mark.spark
def test_top(spark: Any) -> None:
    (block,) = blocks("top.md")
    names: dict[str, Any] = {}
    exec(block, names)
    rows = [("go", name, points, datetime(2026, 1, 1, 0, 0, at)) for at, (name, points) in enumerate(GAMES)]
    frame = spark.createDataFrame(rows, "game string, player string, points long, at timestamp")
    found = names["leaders"](frame).orderBy("rank").collect()
    assert [(row.player, row.points) for row in found] == [("cat", 40), ("bob", 30), ("ann", 10)]
    found = names["busiest"](frame).orderBy("rank").collect()
    assert [(row.player, row.played) for row in found] == [("ann", 2), ("bob", 1), ("cat", 1)]
    assert {(row.player, row.points) for row in names["last_game"](frame).collect()} == set(GAMES[1:])


def scoring(spark: Any, folder: Path) -> str:
    """The app of the page, with a model that is trained as it says; in `folder`, since Spark has one of its own."""
    train, app = blocks("score.md")
    names: dict[str, Any] = {}
    exec(train, names)
    seen = [(float(n % 7), n % 3, "de" if n % 2 else "fr", float(n % 7 > 4)) for n in range(40)]
    model = str(folder / "fraud")
    names["train"](spark.createDataFrame(seen, "amount double, tries int, country string, fraud double"), model)
    assert "models/fraud" in app
    return app.replace("models/fraud", model)


@pytest.mark.spark
def test_score(spark: Any, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(scoring(spark, tmp_path), names)
    asked = [("a", 6.0, 2, "de"), ("b", 0.0, 0, None)]
    found = names["suspicious"](spark.createDataFrame(asked, "card string, amount double, tries int, country string"))
    assert [row.card for row in found.collect()] == ["a"]


@pytest.fixture
def bank(postgres: str) -> Iterator[None]:
    """Two pages have a database of that name, each its own."""
    yield
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS bank WITH (FORCE)")


def check_versions(aggregate: str, versions: str) -> None:
    """The changed class in the place of the first: what was written before is read as if it were of now."""
    first = "@event\nclass Deposited:\n    amount: Decimal\n"
    assert first in aggregate
    names: dict[str, Any] = {}
    exec(aggregate.replace(first, versions).replace("Deposited(amount)", 'Deposited(amount, "EUR")'), names)
    with Store.open("bank") as store:
        events = [each.event for each in store.history(names["Account"], "a-1")]
    deposited = [each for each in events if isinstance(each, names["Deposited"])]
    assert {each.currency for each in deposited} == {"EUR"}


@pytest.mark.server
@pytest.mark.usefixtures("bank", "folder")
def test_event_sourcing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate, test, store, versions, personal, projection, saga, topic, view, flow = blocks("event-sourcing.md")
    names: dict[str, Any] = {}
    exec(aggregate, names)
    exec(test, names)
    names["test_an_account"]()
    monkeypatch.setattr("millrace.config.load", lambda: settings)
    exec(store, names)
    assert names["accounts"].load("a-1").balance == 50
    exec(personal, names)
    exec(projection, names)
    assert [row["amount"] for row in names["rows"]] == [51]
    names["accounts"].change("a-2", names["Account"].open, "bob")
    exec(saga, names)
    transfer, later = names["Transfer"], datetime.now(UTC) + timedelta(days=2)
    moves, saga_run = names["store"].repository(transfer), names["store"].saga(names["transfers"])
    for number, (target, amount) in enumerate((("a-2", 30), ("a-2", 30), ("nobody", 5))):
        moves.change(f"t-{number}", transfer.ask, "a-1", target, Decimal(amount))
        saga_run.catch_up()
    assert [moves.load(f"t-{number}").status for number in range(3)] == ["ended", "ended", "taken"]
    assert names["accounts"].load("a-1").balance == 16  # 5 are taken, and nobody has them
    for _ in range(2):
        saga_run.catch_up(now=later)
    assert [names["accounts"].load(name).balance for name in ("a-1", "a-2")] == [21, 30]
    with pytest.raises(names["Refused"]):
        moves.change("t-2", transfer.end)
    exec(topic, names)
    exec(view, names)  # `tests/events/test_view.py` runs its SQL
    exec(flow, names)  # it runs in `tests/events/test_saga_flow.py`
    moves.change("t-3", transfer.ask, "a-1", "nobody", Decimal(1))
    saga_run.catch_up()
    for _ in range(2):  # what a flow does with a row, and with that of an epoch that is done again
        names["store"].change(names["partial"](names["give_back"], key="t-3"), by="overdue t-3")
    assert (moves.load("t-3").status, names["accounts"].load("a-1").balance) == ("ended", 21)
    check_versions(aggregate, versions)
    names["store"].close()
    assert {stream.name for stream in names["app"].graph().streams} == {
        "large_withdrawals",
        "steps",
        "overdue",
        "overlooked",
    }


@pytest.mark.server
def test_log(settings: Settings, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("log.md")
    (folder / "millrace.toml").write_text(
        f'prefix = "guide"\n[kafka]\nbootstrap = "{local.address(settings, "kafka")}"\n'
    )
    exec(block, {})
    assert "b'4711' {'card': '4711', 'amount': 12.5}" in capsys.readouterr().out


def test_capture() -> None:
    (block,) = blocks("capture.md")
    names: dict[str, Any] = {}
    exec(block, names)
    graph = names["app"].graph()
    assert {stream.name for stream in graph.streams} == {"large_orders", "moves"}
    assert [database.name for database in graph.databases] == ["shop"]
    assert "captures customers, orders" in graph.text()


@pytest.mark.spark
def test_sinks(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *_, memory, suite = every = blocks("sinks.md")
    assert "class Memory" in memory
    assert "class TestMemory" in suite
    names: dict[str, Any] = {}
    for block in every:
        exec(block, names)
    text = names["app"].graph().text()
    assert re.search(r"sink +postgres\.orders +shop\.orders -> postgres; exactly once", text)
    assert re.search(r"sink +redis\.customer +shop\.customers -> redis; exactly once per key", text)
    assert re.search(r"sink +redis\.best +points -> redis ranking; exactly once per key", text)
    assert re.search(r"sink +opensearch\.orders +shop\.orders -> opensearch; exactly once per key", text)
    assert re.search(r"sink +webhook\.billing +shop\.orders -> webhook; at least once with ids", text)
    assert re.search(r"sink +function\.announce +shop\.orders -> function; at least once", text)
    names["announce"](spark.range(3), Epoch("shop.orders", 41, "[]"))
    assert "epoch 41: 3 orders" in capsys.readouterr().out
    tests = names["TestMemory"]()
    tests.spark, tests.folder = spark, tmp_path
    tests.test_epochs_are_written_once_and_in_their_order()


@pytest.mark.server
@pytest.mark.spark
def test_queues(
    spark: Any,
    settings: Settings,
    bootstrap: str,
    rabbitmq: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    comparison, feeding, draining = blocks("queues.md")
    monkeypatch.setattr("millrace.config.load", lambda: settings)
    names: dict[str, Any] = {}
    exec(comparison, names)
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert len(told) == 11
    page = [line.strip() for line in (GUIDE / "queues.md").read_text(encoding="utf-8").splitlines()]
    assert "\n".join(told) in "\n".join(page)
    exec(feeding, names)
    exec(draining, names)
    assert re.search(
        r"sink +rabbitmq\.to_pack +parcels -> rabbitmq; at least once with ids", names["app"].graph().text()
    )

    # And the whole way: a topic feeds a queue, whose messages are drained into another topic.
    kafka, url = replace(settings.kafka, bootstrap=bootstrap), Secret("queues.rabbitmq.url", rabbitmq)
    own = replace(settings, folder=folder, prefix="guideq", kafka=kafka, queues={"rabbitmq": url})
    log = Log(own)
    log.topics.create("orders")
    with log.writer("orders") as writer:
        for number in range(1, 5):
            writer.write({"id": number, "item": "tea", "amount": number % 3})
    with Run(names["app"], own, only=["parcels"], once=True, spark=spark, traffic=False) as run:
        while not run.done:
            run.poll()
        run.stop()
    log.topics.create("packed")
    Drain(own, "to_pack", "packed", id="message").run(until_empty=True)
    packed = [record.json() for record in log.read("packed")]
    assert sorted(row["id"] for row in packed) == [1, 2, 4]
    assert len({row["message"] for row in packed}) == 3


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.turn(1, 2)
def test_views(spark: Any, settings: Settings, connect: str, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block, timed, live, asking, other = blocks("views.md")
    own = replace(settings, prefix="guidev")
    monkeypatch.setattr("millrace.config.load", lambda: own)
    names: dict[str, Any] = {}
    exec(block, names)
    assert [view.name for view in names["app"].graph().views] == ["revenue", "paid", "largest"]
    assert [(name, str(type_)) for name, type_ in names["largest"].plan.columns] == [
        ("customer", "bigint"),
        ("payments", "bigint"),
        ("amount", "numeric(22,2)"),
    ]
    exec(timed, names)
    exec(live, names)
    assert names["live"].epoch_ms == 60_000
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    with psycopg.connect(f"{postgres.rpartition('/')[0]}/shop", autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id integer PRIMARY KEY, region text)")
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount numeric(12, 2))")
        connection.execute("INSERT INTO customers VALUES (1, 'north'), (2, 'south')")
        connection.execute("INSERT INTO orders VALUES (1, 1, 5), (2, 1, 8), (3, 2, 1.25)")
    log = Log(own)
    log.topics.create("payments")
    for customer, amount in ((7, "1.50"), (8, "9"), (7, "2")):
        log.write("payments", {"id": "p", "customer": customer, "amount": amount, "at": "2026-01-01T00:00:00Z"})
    with Run(names["app"], own, once=True, spark=spark, traffic=False) as run:
        while not run.done:
            run.poll()
        run.stop()
    exec(asking, names)
    assert names["columns"] == ["region", "orders", "total", "mean"]
    assert sorted(row[:3] for row in names["rows"]) == [("north", 2, Decimal(13)), ("south", 1, Decimal("1.25"))]
    _, largest, _ = names["store"].rows("largest")
    assert sorted(row[:3] for row in largest) == [(7, 2, Decimal("3.50")), (8, 1, Decimal(9))]
    assert names["store"].rows("lately")[1] == []  # of last January
    names["store"].close()
    exec(other, names)
    assert names["revenue"].key == ("region",)
    Captures(own).remove("shop", topics=True)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE shop WITH (FORCE)")


@pytest.mark.server
@pytest.mark.usefixtures("bank")
def test_bank(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    begin, trail, past, faulty, mended = blocks("bank.md")
    monkeypatch.setattr("millrace.config.load", lambda: settings)
    names: dict[str, Any] = {}
    exec(begin, names)
    assert names["moves"].load("t-1").status == "ended"
    exec(trail, names)
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    page = [line.strip() for line in (GUIDE / "bank.md").read_text(encoding="utf-8").splitlines()]
    assert "\n".join(told) in "\n".join(page)
    assert len(told) == 3
    exec(past, names)
    assert (names["then"], names["now"], names["at_first"]) == (1500, 300, 0)
    exec(faulty, names)
    assert names["found"] == ["ann"]
    exec(mended, names)
    assert names["left"] == []
    assert [(row["amount"], row["balance"]) for row in names["entries"]] == [(1500, 1500), (-1200, 300)]
    rows = names["store"].projection(names["balances"]).query("SELECT * FROM balance", after=names["store"].head())
    assert {row["account"]: row["amount"] for row in rows} == {"ann": 300, "bob": 1200}
    names["store"].close()
