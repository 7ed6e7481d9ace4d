"""A view and the one that is to take its place, compared before it does: at one position, if both tell one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from millrace.engine.changelogs import KINDS, Content, Difference, Kind, differences
from millrace.engine.view_epochs import marks
from millrace.log import Log
from millrace.views.changelog import Mark, lsn_text, row_text

# Differences that are shown of each kind; all are counted.
SHOWN = 5
# Among so many marks of each, one is looked for that both have.
_MARKS = 2_000


@dataclass(frozen=True)
class Shown:
    """A key whose row is another in the new one; each row as JSON, None where there is none."""

    kind: Kind
    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Compared:
    """How many rows differ, and some of them. `at` says of which position both were, `apart` whether they were of two
    different ones, so that what happened in between is among the differences."""

    counts: Mapping[Kind, int]
    shown: tuple[Shown, ...]
    at: str
    apart: bool


def compare(log: Log, old: str, new: str) -> Compared:
    """By the names of their changelogs; each has a whole epoch."""
    one, other = chosen(_marks(log, old), _marks(log, new))
    apart = one is None or (one.database, one.lsn) != (other.database, other.lsn) or one.database is None
    at = f"{_at(one)} of the old and {_at(other)} of the new" if apart else _at(other)
    was, will = Content(log, old, {} if one is None else one.ends), Content(log, new, other.ends)
    counts: Counter[Kind] = Counter()
    some: list[Difference] = []
    for each in differences(was, will):
        counts[each.kind] += 1
        if counts[each.kind] <= SHOWN:
            some.append(each)
    before = was.rows({each.key for each in some if each.kind != "added"})
    shown = (
        Shown(each.kind, each.key.decode(), before.get(each.key), None if each.value is None else row_text(each.value))
        for each in some
    )
    return Compared({kind: counts[kind] for kind in KINDS}, tuple(shown), at, apart)


def chosen(old: list[Mark], new: list[Mark]) -> tuple[Mark | None, Mark]:
    """The last marks of the same position of the same database; if there are none, the last ones. An old one that was
    never whole has none."""
    by_position: dict[tuple[str | None, int], Mark] = {
        (mark.database, mark.lsn): mark for mark in old if mark.database is not None
    }
    for mark in reversed(new):
        if (found := by_position.get((mark.database, mark.lsn))) is not None:
            return found, mark
    return (old[-1] if old else None), new[-1]


def _marks(log: Log, view: str) -> list[Mark]:
    return [mark for mark in marks(log, view, _MARKS) if mark.whole]


def _at(mark: Mark | None) -> str:
    if mark is None:
        return "no position"
    return f"epoch {mark.epoch}" if mark.database is None else f"position {lsn_text(mark.lsn)}"
