"""How long to wait for events that come late: what `lateness` of a topic can be.

The event time of a stream has come as far as the slowest of its topic's partitions, less a lag. The lag is fixed, or
none, or follows the delays seen lately; or the source itself says what is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from millrace import durations
from millrace.errors import DurationInvalid, OptionInvalid, Where
from millrace.flow.nodes import caller

Duration: TypeAlias = str | timedelta

# A partition that is read to its end and silent for so long is not waited for.
IDLE = "30 seconds"
# An event further ahead of its own arrival is a wrong clock's.
AHEAD = "1 hour"


@dataclass(frozen=True)
class Fixed:
    """Events come at most so long after the newest one of their partition."""

    lag_ms: int

    def __str__(self) -> str:
        return f"up to {durations.spoken(self.lag_ms)} late" if self.lag_ms else "in order"


@dataclass(frozen=True)
class Adaptive:
    """The lag is what this part of the events took lately from happening to arriving, and a margin, within bounds."""

    quantile: float
    least_ms: int
    most_ms: int
    margin_ms: int

    def __str__(self) -> str:
        return f"as late as {self.quantile:.4%} of the events lately, at most {durations.spoken(self.most_ms)}"


@dataclass(frozen=True)
class Marked:
    """The source says it: a record with a time in this column is no event, and says that all before that time has been
    written to its partition."""

    column: str

    def __str__(self) -> str:
        return f"complete up to what {self.column!r} says"


Lateness: TypeAlias = Fixed | Adaptive | Marked


def monotonic() -> Fixed:
    """Events of a partition come in the order of their times: nothing is waited for."""
    return Fixed(0)


def adaptive(
    quantile: float = 0.99,
    *,
    max: Duration,  # noqa: A002
    min: Duration = "0 seconds",  # noqa: A002
    margin: Duration = "1 second",
) -> Adaptive:
    """The lag that would lately have been enough for this part of the events (0.99: all but one in a hundred), and a
    margin; never less than `min`, never more than `max`."""
    where = caller()
    if isinstance(quantile, bool) or not isinstance(quantile, int | float) or not 0 < quantile <= 1:
        remedy = "a number above 0, at most 1; 0.99 is all but one in a hundred"
        raise OptionInvalid(name="adaptive", option="quantile", given=quantile, remedy=remedy, where=where)
    least, most = (duration_ms("adaptive", *each, where) for each in (("min", min), ("max", max)))
    if least > most:
        raise OptionInvalid(name="adaptive", option="min", given=min, remedy="at most `max`", where=where)
    return Adaptive(float(quantile), least, most, duration_ms("adaptive", "margin", margin, where))


def marked(column: str) -> Marked:
    """The source marks how far it is complete: a record with a time in `column` is a marker, not an event."""
    return Marked(column)


def duration_ms(name: str, option: str, given: Duration, where: Where) -> int:
    try:
        return durations.milliseconds(given)
    except (DurationInvalid, AttributeError):
        remedy = 'write a number and a unit, for example "10 seconds" or "2 minutes"'
        raise OptionInvalid(name=name, option=option, given=given, remedy=remedy, where=where) from None
