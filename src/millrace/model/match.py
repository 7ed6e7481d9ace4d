"""Patterns over the rows of a key, in the order of their times, epoch by epoch.

- A row is late when its time is before the watermark: it is refused. The others wait until the watermark has passed
  their time, and are then taken in order; those of the same time in the order of the pattern's variables (one that is
  the first of them before one that is not, and so on), then by what the measures look at, nulls first.
- In order of arrival a row is taken at once, those of an epoch by their times; late is then also a row that is older
  than the newest that its key has shown.
- From each row at most one match begins: the preferred one of all ways to meet the pattern by the rows that follow
  each other from there, the last one less than `within` after the first.
- It is decided when no row to come can make another way preferred: when none is left that is preferred and still
  waits for rows, or the time is up (a row that is `within` after the first has been taken, or the watermark has come
  so far).
- An absence at the pattern's end takes no rows. It is met when the time is up, if none of the absent has come.
- "past last row", "first x", "last x": a match is told when all that begin before it are decided; the next begins
  after its last row, or with the first or last row that was x in it. Where that is its own first row, or there is no
  such row, it begins with the row after. "next row": every match is told, as soon as it is decided.

A pattern comes as places (`flow/places.py`): [kind, mask of flags, number of the variable], which are first, and which
follow each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ROW, GAP, GUARD = range(3)
MET = -1


class Row(NamedTuple):
    """`flags` says of each variable, the first one's bit being 1, whether the row is one."""

    key: Any
    time: int
    flags: int
    values: tuple[Any, ...] = ()


class Match(NamedTuple):
    """Each row with the number of its variable; -1 for those that an absence lies over."""

    key: Any
    rows: tuple[tuple[Row, int], ...]

    @property
    def start(self) -> int:
        return self.rows[0][0].time

    @property
    def end(self) -> int:
        return self.rows[-1][0].time


class Refused(NamedTuple):
    row: Row
    late: int


@dataclass
class Epoch:
    matches: list[Match] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


@dataclass
class Held:
    """Of one key: rows that wait for their time, rows that were taken, from which of them on matches may begin (by
    their place in it), and the starts behind that which were told."""

    waiting: list[Row] = field(default_factory=list)
    taken: list[Row] = field(default_factory=list)
    begin: int = 0
    told: set[int] = field(default_factory=set)


class Way(NamedTuple):
    """A partial match: where it waits, and its rows so far."""

    place: int
    rows: tuple[tuple[Row, int], ...]


@dataclass
class Matching:
    """`after` is "past last row", "next row", or ("first" or "last", the number of a variable)."""

    program: dict[str, Any]
    within: int
    after: str | tuple[str, int] = "past last row"
    arrival: bool = False
    held: dict[Any, Held] = field(default_factory=dict)

    def epoch(self, rows: Iterable[Row], watermark: int) -> Epoch:
        out = Epoch()
        for row in sorted(rows, key=order):
            held = self.held.setdefault(row.key, Held())
            known = max([watermark, *(each.time for each in held.taken[-1:])]) if self.arrival else watermark
            if row.time < known:
                out.refused.append(Refused(row, known - row.time))
            elif self.arrival:
                held.taken.append(row)
            else:
                held.waiting.append(row)
        for key, held in self.held.items():
            held.taken += sorted((row for row in held.waiting if row.time < watermark), key=order)
            held.waiting = [row for row in held.waiting if row.time >= watermark]
            out.matches += [Match(key, rows) for rows in self._found(held, watermark)]
        return out

    def _found(self, held: Held, watermark: int) -> list[tuple[tuple[Row, int], ...]]:
        found, start = [], held.begin
        while start < len(held.taken):
            decided, rows = self.preferred(held.taken[start:], watermark)
            if not decided and self.after != "next row":
                break
            if decided and rows and start not in held.told:
                found.append(rows)
                held.told.add(start)
            start += self._skipped(rows) if decided and rows else 1
        held.begin = 0 if self.after == "next row" else start
        return found

    def _skipped(self, rows: tuple[tuple[Row, int], ...]) -> int:
        """From the first row of a match to where the next may begin."""
        if self.after == "past last row":
            return len(rows)
        if self.after == "next row":
            return 1
        assert not isinstance(self.after, str)
        which, variable = self.after
        places = [place for place, (_, number) in enumerate(rows) if number == variable]
        return max(places[0 if which == "first" else -1], 1) if places else 1

    def preferred(self, rows: list[Row], watermark: int) -> tuple[bool, tuple[tuple[Row, int], ...]]:
        """Whether it is decided which match begins with the first of these rows, and that match, or ()."""
        best: tuple[tuple[Row, int], ...] = ()
        ways = [Way(place, ()) for place in self.program["first"]]
        until = rows[0].time + self.within
        for row in rows:
            if row.time >= until:
                break
            ways, met = self._stepped(ways, row)
            best = met or best
            if not ways:
                return True, best
        else:
            if watermark < until:
                return False, ()
        guards = [way.rows for way in ways if self.program["places"][way.place][0] == GUARD]
        return True, guards[0] if guards else best

    def _stepped(self, ways: list[Way], row: Row) -> tuple[list[Way], tuple[tuple[Row, int], ...]]:
        """The ways that go on after this row, and the one that met the pattern with it, before which they are
        preferred."""
        after: dict[int, Way] = {}
        for way in ways:
            kind, mask, variable = self.program["places"][way.place]
            if not (row.flags & mask if kind == ROW else not row.flags & mask):
                continue
            if kind == GUARD:
                after.setdefault(way.place, way)
                continue
            rows = (*way.rows, (row, variable))
            for place in self.program["follow"][way.place]:
                if place == MET:
                    return list(after.values()), rows
                after.setdefault(place, Way(place, rows))
        return list(after.values()), ()


def order(row: Row) -> tuple[Any, ...]:
    """In which rows are taken. Bits are compared from the first variable's on, set ones first."""
    flags = tuple(row.flags >> bit & 1 == 0 for bit in range(64))
    return row.time, flags, tuple((value is not None, value) for value in row.values)
