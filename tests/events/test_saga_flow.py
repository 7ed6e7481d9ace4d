"""A saga as a keyed flow: who was not answered in time is found by a pattern over the topic of the events, and what
follows is a command with an id of its own, which a repeated epoch gives again and nobody carries out twice. Nothing
happens in the store while the deadlines pass, but for its ticks."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from millrace.errors import FunctionFailed
from millrace.events import Aggregate, Refused, Store, Ticked, Work, apply, command, event
from millrace.flow import App
from tests.command import until
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.turn(0, 2)]

WITHIN, PRICE, RICH = timedelta(seconds=2), 3, 10


@event
class Asked:
    purse: str
    price: int


@event
class Answered:
    pass


@event
class GivenUp:
    pass


@event
class Moved:
    amount: int


class Purse(Aggregate):
    money: int = 0

    @command
    def move(self, amount: int) -> None:
        if self.money + amount < 0:
            raise Refused("there is not so much in it")
        self.emit(Moved(amount))

    @apply
    def moved(self, event: Moved) -> None:
        self.money += event.amount


class Offer(Aggregate):
    state: str = ""
    purse: str = ""
    price: int = 0

    @command
    def ask(self, purse: str, price: int) -> None:
        self.emit(Asked(purse, price))

    @command
    def answer(self) -> None:
        self.end(Answered())

    @command
    def give_up(self) -> None:
        self.end(GivenUp())

    def end(self, event: object) -> None:
        if self.state != "asked":
            raise Refused("it is over")
        self.emit(event)

    @apply
    def asked(self, event: Asked) -> None:
        self.state, self.purse, self.price = "asked", event.purse, event.price

    @apply
    def ended(self, event: Answered | GivenUp) -> None:
        self.state = type(event).__name__


def ask(work: Work, name: str) -> None:
    """The price is taken when it is asked, and goes back if nobody answers."""
    work.load(Purse, f"purse of {name}").move(-PRICE)
    work.load(Offer, name).ask(f"purse of {name}", PRICE)


def give_back(work: Work, name: str) -> None:
    offer = work.load(Offer, name)
    try:
        offer.give_up()
    except Refused:
        return  # it was answered after all
    work.load(Purse, offer.purse).move(offer.price)


class Broken(Exception):
    pass


def app_of(shop: Shop, store: Store, calls: list[str], break_after: int) -> App:
    app = App(f"app-{shop.name}")
    log = app.capture(shop.name, ["events.event"], partitions=1)
    offers = app.topic(
        f"{shop.name}-offers", "id string, type string, at timestamp", key="id", time="at", lateness="1 second",
        partitions=1,
    )  # fmt: skip

    @app.stream(log["events.event"].changes, to=offers, name=f"{shop.name}-steps")
    def steps(changes: DataFrame) -> DataFrame:
        found = changes.select("after.id", "after.type", "after.at")
        return found.where("type IN ('Asked', 'Answered', 'millrace.ticked')")

    @app.stream(offers, key="id", name=f"{shop.name}-overdue")
    def overdue(offers: DataFrame) -> DataFrame:
        is_a = {"asked": "type = 'Asked'", "answered": "type = 'Answered'"}
        late = mr.late.drop()
        return mr.match(offers, by="id", pattern="asked !answered", define=is_a, within="2 seconds", late=late)

    def give_up(rows: DataFrame, _: Any) -> None:
        for row in rows.select("id").collect():
            if len(calls) == break_after:
                calls.append("broken")
                raise Broken
            calls.append(row.id)
            store.change(partial(give_back, name=row.id), by=f"overdue {row.id}")

    overdue.to(mr.function(give_up))
    return app


def polled(run: Run) -> bool:
    run.poll()
    return True


def given_up(store: Store) -> Counter[str]:
    return Counter(each.id for each in store.read(0, events=[GivenUp]))


def test_who_is_not_answered_in_time_is_given_up_once_and_has_the_money_back(shop: Shop, spark: SparkSession) -> None:
    calls: list[str] = []
    names = [f"o{number}" for number in range(12)]
    with Store.open(shop.name, settings=shop.settings) as store:
        offers, purses = store.repository(Offer), store.repository(Purse)
        for name in names:
            purses.change(f"purse of {name}", Purse.move, RICH)
            store.change(partial(ask, name=name))
        for name in names[::3]:
            offers.change(name, Offer.answer)
        over = datetime.now(UTC) + WITHIN
        until(lambda: datetime.now(UTC) > over, "the deadline")
        offers.change("o1", Offer.answer)  # too late: the flow gives it up, and finds that it is over
        app = app_of(shop, store, calls, break_after=3)
        shop.captures.ensure(next(iter(app.graph().databases)).capture)
        last = store.head()

        waiting = set(names) - set(names[::3]) - {"o1"}
        with store.ticking("500 ms"):
            with contextlib.suppress(FunctionFailed), Run(app, shop.settings, spark=spark, traffic=False) as run:
                until(lambda: polled(run) and "broken" in calls, "a fault in the middle of an epoch", 120)
            with Run(app, shop.settings, spark=spark, traffic=False) as run:
                until(lambda: polled(run) and given_up(store).keys() >= waiting, "all that was not answered", 120)
        assert given_up(store) == Counter(waiting)  # each once, though some were asked for twice
        assert max(Counter(calls).values()) > 1
        assert offers.load("o1").state == "Answered"
        assert {name: purses.load(f"purse of {name}").money for name in names} == {
            name: RICH if name in waiting else RICH - PRICE for name in names
        }
        assert {each.type for each in store.read(last)} == {"millrace.ticked", "GivenUp", "Moved"}


def test_the_store_ticks_while_it_is_quiet(shop: Shop) -> None:
    with Store.open(shop.name, settings=shop.settings) as store:
        assert store.tick("1 hour")  # nothing was ever written
        assert not store.tick("1 hour")
        store.repository(Purse).change("p", Purse.move, 1)
        assert not store.tick("1 hour")
        with store.ticking("100 ms"):
            until(lambda: len(store.read(0, events=[Ticked])) >= 3, "ticks")
        ticks = store.read(0, events=[Ticked])
        apart = [later.at - one.at for one, later in itertools.pairwise(ticks[1:])]
        assert min(apart) >= timedelta(milliseconds=100)
        assert [each.version for each in ticks] == list(range(1, len(ticks) + 1))
