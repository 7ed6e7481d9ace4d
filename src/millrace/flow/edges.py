"""Where windows begin and end: half open, so that an event on an edge belongs to the window that begins there."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import available_timezones

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace import durations
from millrace.errors import OptionInvalid, Where, nearest
from millrace.flow.time import Duration, duration_ms

_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Edges:
    """Windows `size_us` long that begin every `every_us`, counted from 1970 plus an offset. With a zone, days are those
    of its calendar: an hour shorter or longer when the clocks change."""

    size_us: int
    every_us: int
    offset_us: int = 0
    zone: str | None = None

    def __str__(self) -> str:
        parts = [durations.spoken(self.size_us // 1_000)]
        parts += [f"every {durations.spoken(self.every_us // 1_000)}"] if self.every_us != self.size_us else []
        parts += [f"from {durations.spoken(self.offset_us // 1_000)}"] if self.offset_us else []
        return " ".join([*parts, *([f"in {self.zone}"] if self.zone else [])])

    def of(self, time: Column) -> Column:
        """The windows of an event, an array of (start, end) in µs, those that end first in front."""
        if self.zone is not None:
            starts = self._starts(F.unix_micros(F.from_utc_timestamp(time, self.zone)))
            return F.transform(
                starts,
                lambda start: F.struct(
                    self._instant(start).alias("start"), self._instant(start + self.size_us).alias("end")
                ),
            )
        starts = self._starts(F.unix_micros(time))
        return F.transform(starts, lambda start: F.struct(start.alias("start"), (start + self.size_us).alias("end")))

    def step(self, time: Column) -> Column | None:
        """The latest begin (µs) of a window of the event, if that alone says which ones they are."""
        return None if self.zone is not None or self._uneven else self._last(F.unix_micros(time))

    @property
    def slices(self) -> tuple[int, int]:
        """Size and distance of the windows, if each is made of whole ones as long as that distance; zeros otherwise."""
        return (0, 0) if self.zone is not None or self._uneven else (self.size_us, self.every_us)

    @property
    def _uneven(self) -> bool:
        """Whether an event may be in one window more than another."""
        return self.size_us % self.every_us != 0

    def _last(self, time_us: Column) -> Column:
        return time_us - F.pmod(time_us - F.lit(self.offset_us), F.lit(self.every_us))

    def _starts(self, time_us: Column) -> Column:
        last, most = self._last(time_us), -(-self.size_us // self.every_us)
        starts = F.array(*(last - F.lit(back * self.every_us) for back in reversed(range(most))))
        return F.filter(starts, lambda start: start + self.size_us > time_us) if self._uneven else starts

    def _instant(self, local_us: Column) -> Column:
        """When a day of the zone's calendar begins."""
        return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(local_us), F.lit(self.zone)))


def edges(size: Duration, every: Duration | None, offset: Duration, zone: str | None, where: Where) -> Edges:
    size_us = duration_ms("window", "size", size, where) * 1_000
    every_us = size_us if every is None else duration_ms("window", "every", every, where) * 1_000
    offset_us = duration_ms("window", "offset", offset, where) * 1_000
    if size_us <= 0:
        raise OptionInvalid(name="window", option="size", given=size, remedy="longer than nothing", where=where)
    if not 0 < every_us <= size_us:
        remedy = "at most the window's size: rows between two windows would belong to none"
        raise OptionInvalid(name="window", option="every", given=every, remedy=remedy, where=where)
    if size_us // every_us > MOST_WINDOWS:
        remedy = f"at most {MOST_WINDOWS} windows for each row"
        raise OptionInvalid(name="window", option="every", given=every, remedy=remedy, where=where)
    if zone is not None:
        if zone not in available_timezones():
            remedy = f"a name such as 'Europe/Berlin'{nearest(str(zone), sorted(available_timezones()))}"
            raise OptionInvalid(name="window", option="zone", given=zone, remedy=remedy, where=where)
        if size_us % _DAY_US or every_us % _DAY_US or offset_us % _DAY_US:
            remedy = "only with whole days: shorter windows are the same in every zone; shift them with `offset`"
            raise OptionInvalid(name="window", option="zone", given=zone, remedy=remedy, where=where)
    return Edges(size_us, every_us, offset_us, zone)


# Each row counts in so many windows: it goes over the network as often.
MOST_WINDOWS = 1_000
