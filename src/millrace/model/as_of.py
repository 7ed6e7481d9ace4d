"""Events with the row that a table had at their times, epoch by epoch.

- A version of a row counts from its time on until that of the next version of its key. Of two at the same time the one
  with the greater tie counts. A version without a row says that there is none from then on.

      versions          |--- A ---|--- B ---|  gone ...
      events          .  .        .         .       .
                     none A       B        none    none

- What was before the first version is known if that one begins the row: then there was none. Of a key without versions
  it is known if the table is whole. Before `since` nothing is known.
- Of a logged table, whose log may have gaps, it is also not known what was between a version without a row and a next
  one that does not begin the row.
- All changes of an epoch count before any of its events.
- "updates": an event is told in the epoch in which it comes. "final": in the first one whose watermark is past its
  time. In both it is kept until the watermark is the grace past it, and told again, with what it was told before, each
  time that its row is another one. While its row is not known it is not told, and at the end it is refused.
- An event is late when it is before the watermark, and is refused when that is more than the grace ahead of it. A
  change that is so late still counts for all events that are not over; for the others it came too late: it is counted.
- An event with a null in its key has no row, and is told when it comes.

Nothing is ever forgotten here: what the kernel cuts off must not be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Event(NamedTuple):
    key: tuple[Any, ...]
    time: int
    value: Any = None


class Change(NamedTuple):
    """From this time on the row of the key is this one; None: it has none."""

    key: tuple[Any, ...]
    time: int
    row: Any
    tie: int = 0
    begins: bool = True


class Answer(NamedTuple):
    row: Any = None


class Result(NamedTuple):
    """`replaces` is what was told of the event before; None the first time."""

    event: Event
    row: Any
    replaces: Answer | None = None


class Refused(NamedTuple):
    """`late` is None where its row is not known."""

    event: Event
    late: int | None


@dataclass
class Kept:
    event: Event
    told: Answer | None = None


@dataclass
class Epoch:
    results: list[Result] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    changes_refused: int = 0
    late_allowed: int = 0


@dataclass
class AsOf:
    final: bool
    grace: int
    inner: bool = False
    whole: bool = True
    since: int | None = None
    logged: bool = False
    versions: dict[tuple[Any, ...], dict[int, Change]] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)

    def epoch(self, changes: Iterable[Change], events: Iterable[Event], watermark: int) -> Epoch:
        out = Epoch()
        for change in changes:
            self._put(change)
            late = change.time < watermark
            over = change.time + self.grace < watermark
            out.changes_refused += over
            out.late_allowed += late and not over
        self._correct(out, watermark)
        for event in events:
            self._take(out, event, watermark)
        for each in self.kept:
            self._tell(out, each, watermark)
        self._let_go(out, watermark)
        return out

    def answer(self, event: Event) -> Answer | None:
        """None where it is not known."""
        versions = self.versions.get(event.key, {})
        reached = [time for time in versions if time <= event.time]
        if reached:
            row = versions[max(reached)].row
            later = [time for time in versions if time > event.time]
            gap = self.logged and row is None and bool(later) and not versions[min(later)].begins
            return None if gap else Answer(row)
        known = versions[min(versions)].begins if versions else self.whole
        return Answer() if known else None

    def _put(self, change: Change) -> None:
        versions = self.versions.setdefault(change.key, {})
        there = versions.get(change.time)
        if there is None:
            versions[change.time] = change
        elif change.tie > there.tie:
            versions[change.time] = change._replace(begins=there.begins)

    def _correct(self, out: Epoch, watermark: int) -> None:
        for each in self.kept:
            answer = self.answer(each.event)
            if each.told is None or answer in (None, each.told) or each.event.time + self.grace < watermark:
                continue
            out.results.append(Result(each.event, answer.row, each.told))
            each.told = answer

    def _take(self, out: Epoch, event: Event, watermark: int) -> None:
        if None in event.key and self.inner:
            return
        if None not in event.key and self.since is not None and event.time < self.since:
            out.refused.append(Refused(event, None))
        elif event.time + self.grace < watermark:
            out.refused.append(Refused(event, watermark - event.time))
        else:
            out.late_allowed += event.time < watermark
            if None in event.key:
                out.results.append(Result(event, None))
            else:
                self.kept.append(Kept(event))

    def _tell(self, out: Epoch, each: Kept, watermark: int) -> None:
        answer = self.answer(each.event)
        if each.told is not None or answer is None or (self.final and each.event.time >= watermark):
            return
        each.told = answer
        if not self.inner or answer.row is not None:
            out.results.append(Result(each.event, answer.row))

    def _let_go(self, out: Epoch, watermark: int) -> None:
        over = [each for each in self.kept if each.event.time + self.grace < watermark]
        out.refused += [Refused(each.event, None) for each in over if self.answer(each.event) is None]
        self.kept = [each for each in self.kept if each.event.time + self.grace >= watermark]
