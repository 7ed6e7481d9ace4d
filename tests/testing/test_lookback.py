"""Whole flows that look back: out of order, late, crashed and restarted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

import millrace as mr
from millrace.flow import Stream, Topic
from millrace.testing import Play

pytestmark = pytest.mark.spark

Begin = Callable[..., Play]


def limits(late: Any, **given: Any) -> tuple[mr.App, Topic, Stream]:
    app = mr.App("shop")
    payments = app.topic("payments", "card string, amount long, at timestamp", time="at", lateness="10 seconds")

    @app.stream(payments, key="card")
    def spent(p: DataFrame) -> DataFrame:
        return mr.lookback(
            p, by="card", late=late, n=mr.count(over="1 minute"), sum=mr.sum("amount", over="5 minutes"), **given
        )

    return app, payments, spent


def test_later_results_are_corrected_and_what_comes_too_late_goes_aside(play: Begin) -> None:
    app, payments, spent = limits(mr.late.side("too_late", allow="30 seconds"), correct=True)
    p = play(app)
    p.feed(
        payments,
        """
        | card | amount | at       |
        | ---- | ------ | -------- |
        | a    | 1      | 10:00:00 |
        | a    | 2      | 10:01:00 |
        | b    | 4      | 10:01:05 |
    """,
    )
    p.expect(
        spent,
        """
        | card | n | sum | corrected |
        | a    | 1 | 1   | false     |
        | a    | 1 | 3   | false     |
        | b    | 1 | 4   | false     |
    """,
    )
    p.feed(payments, [{"card": "a", "amount": 8, "at": "10:00:30"}], crash="after write")
    told = [
        {"card": "a", "at": "10:00:30", "n": 2, "sum": 9, "corrected": False},
        {"card": "a", "amount": 2, "at": "10:01:00", "n": 2, "sum": 11, "corrected": True},
    ]
    p.expect(spent, told)
    p.restart()
    p.expect(spent, told)  # the epoch comes again, the same
    p.feed(payments, [{"card": "a", "amount": 16, "at": "10:00:24"}])
    p.expect(spent)
    (refused,) = p.rows("too_late")
    assert (refused["row"]["amount"], refused["late_ms"]) == (16, 31_000)
    assert p.late(spent) == 2


def test_cuts_and_crashes_change_nothing_and_a_window_may_follow(play: Begin) -> None:
    app, payments, spent = limits(mr.late.drop())

    @app.stream(payments)
    def busy(p: DataFrame) -> DataFrame:
        recent = mr.lookback(p, by="card", late=mr.late.drop(), n=mr.count(over="10 seconds"))
        return mr.window(
            recent.where("n >= 5"), "1 minute", by="card", times=mr.count(), emit="final", late=mr.late.drop()
        )

    p = play(app, seed=1)
    p.feed(payments, [{"card": f"{n % 2}", "amount": n, "at": f"10:00:{n:02}"} for n in range(40)])
    p.feed(payments, [{"card": "0", "amount": 0, "at": "10:03:00"}])
    sums = [{"n": n // 2 + 1, "sum": sum(range(n % 2, n + 1, 2))} for n in range(40)]
    p.expect(spent, [*sums, {"n": 1, "sum": sum(range(0, 40, 2))}])
    p.expect(busy, [{"card": "0", "times": 16}, {"card": "1", "times": 16}])
