"""Interval texts, as PostgreSQL reads them: no part of one is left out in silence."""

from __future__ import annotations

import pytest

from millrace.errors import ViewRefused
from millrace.views import Relation, named, planned
from millrace.views.steps import Select
from millrace.views.terms import Call

TABLE = Relation("t", {"id": named("integer"), "at": named("timestamp")}, ("id",))
SECOND, HOUR = 10**6, 3_600 * 10**6

# Months, days and microseconds, as PostgreSQL's extract() tells them.
READ = {
    "'1 day 12:00'": (0, 1, 12 * HOUR),
    "'12:00 1 day'": (0, 1, 12 * HOUR),
    "'1 day -2 hours'": (0, 1, -2 * HOUR),
    "'-1 day +12:00'": (0, -1, 12 * HOUR),
    "'- 1 day'": (0, -1, 0),
    "'-1:30'": (0, 0, -3 * HOUR // 2),
    "'1:02:03.5'": (0, 0, HOUR + 123 * SECOND + SECOND // 2),
    "'1 year 2 mons 3 weeks 4d'": (14, 25, 0),
    "'2 MONTHS 3 days ago'": (-2, -3, 0),
    "'1.5 days'": (0, 1, 12 * HOUR),
    "'-1.5 weeks'": (0, -10, -12 * HOUR),
    "'1.25 hours 2 min'": (0, 0, HOUR + 17 * 60 * SECOND),
    "'3 ms 4 us'": (0, 0, 3_004),
    "'90'": (0, 0, 90 * SECOND),
    "'2' DAY": (0, 2, 0),
}
REFUSED = (
    "'P1DT2H'", "'1-2'", "'1 12:00'", "'@ 1 day'", "'1 day, 2 hours'", "'infinity'",
    "'1 day 12:00' HOUR", "'1.5' HOUR", "'1 2:03' DAY TO MINUTE", "(0) '1 second'", "'1 fortnight'",
    # and by PostgreSQL
    "''", "'ago'", "'1 day 1 day'", "'1 hour 12:00'", "'1.5 seconds 2 ms'", "'12:75'", "'1 day-2 hours'",
    "'999999999999 hours'", "1 DAY",
)  # fmt: skip


@pytest.mark.parametrize("written", READ)
def test_an_interval_is_read_as_postgresql_does(written: str) -> None:
    plan = planned("v", f"SELECT id, at + interval {written} AS later FROM t", [TABLE])
    (step,) = (each for each in plan.steps if isinstance(each, Select))
    (shift,) = (term for _, term in step.columns if isinstance(term, Call))
    assert (shift.name, shift.extra) == ("shift", READ[written])


@pytest.mark.parametrize("written", REFUSED)
def test_any_other_is_refused(written: str) -> None:
    with pytest.raises(ViewRefused):
        planned("v", f"SELECT id, at + interval {written} AS later FROM t", [TABLE])
