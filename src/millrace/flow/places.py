"""A pattern as places at which a partial match waits for its next row, and which come after which: what runs.

There is nothing else in it: no step without a row. A partial match is one start and the places at which it waits, the
preferred one first; conditions look at one row alone, so of two ways to the same place the preferred one is enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from millrace.errors import PatternInvalid, Where
from millrace.flow.patterns import Absence, Choice, Node, Repeat, Sequence, Variable, fewest, names, read

# {2,400} is 400 places. Each partial match may wait at any of them.
MOST_PLACES = 400

PlaceKind: TypeAlias = Literal["row", "gap", "guard"]

# Instead of a place, in what may follow one: here the pattern is met.
MET = -1


@dataclass(frozen=True)
class Place:
    """Where a partial match can wait. "row": for a row of this variable; "gap": for one that is none of the absent;
    "guard": until the time is up, and it fails if a row comes that is one of the absent."""

    kind: PlaceKind
    variable: str | None = None
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """`first`: the places that a match begins at, the preferred one first; `follow`: those that come after each, or
    MET, behind which nothing is preferred."""

    variables: tuple[str, ...]
    places: tuple[Place, ...]
    first: tuple[int, ...]
    follow: tuple[tuple[int, ...], ...]

    def told(self) -> dict[str, Any]:
        """As the kernel and the model take it: each place is its kind, a mask of the flags that it looks at, and the
        number of its variable."""
        bit = {name: number for number, name in enumerate(self.variables)}
        return {
            "places": [
                [
                    ("row", "gap", "guard").index(place.kind),
                    sum(1 << bit[name] for name in ((place.variable,) if place.variable else place.absent)),
                    bit[place.variable] if place.variable else -1,
                ]
                for place in self.places
            ],
            "first": list(self.first),
            "follow": [list(each) for each in self.follow],
        }


@dataclass
class _Targets:
    """What may come next, in order. It may be filled after others refer to it: what follows a loop is, among others,
    its beginning."""

    parts: list[int | _Targets] = field(default_factory=list)

    def flat(self) -> tuple[int, ...]:
        found: dict[int, None] = {}
        self._into(found)
        order = list(found)
        return tuple(order[: order.index(MET) + 1] if MET in found else order)

    def _into(self, found: dict[int, None]) -> None:
        for part in self.parts:
            if isinstance(part, _Targets):
                part._into(found)
            else:
                found.setdefault(part)


@dataclass(frozen=True)
class _After:
    """What comes behind a part of a pattern: where to, how many rows it takes at least, and whether it is the end."""

    targets: _Targets
    least: int
    ends: bool


def compiled(text: str, where: Where) -> Program:
    node = read(text, where)
    maker = _Maker(text, where)
    first = maker.made(node, _After(_Targets([MET]), 0, True))
    follow = tuple(targets.flat() for targets in maker.follow)
    return Program(tuple(names(node)), tuple(maker.places), first.flat(), follow)


class _Maker:
    """Each variable of the text becomes a place, a repeated one several; nothing is copied for * and +."""

    def __init__(self, text: str, where: Where) -> None:
        self.text, self.where = text, where
        self.places: list[Place] = []
        self.follow: list[_Targets] = []

    def made(self, node: Node, after: _After) -> _Targets:
        """Where one goes in order to meet this and then what comes after it."""
        match node:
            case Variable():
                return _Targets([self._place(Place("row", variable=node.name), after.targets)])
            case Absence():
                return self._absence(node, after)
            case Choice():
                return _Targets([self.made(part, after) for part in node.parts])
            case Sequence():
                for part in reversed(node.parts):
                    after = _After(self.made(part, after), after.least + fewest(part), False)
                return after.targets
            case Repeat():
                return self._repeat(node, after)

    def _absence(self, node: Absence, after: _After) -> _Targets:
        if after.ends:
            return _Targets([self._place(Place("guard", absent=node.names), _Targets([MET]))])
        if after.least == 0:
            reason = "what comes after this absence may be no row at all"
            remedy = "let a row follow that ends it, or nothing, so that it lasts until the time is up"
            raise PatternInvalid(pattern=self.text, at=node.at, reason=reason, remedy=remedy, where=self.where)
        loop = _Targets([after.targets])
        loop.parts.append(self._place(Place("gap", absent=node.names), loop))
        return loop

    def _repeat(self, node: Repeat, after: _After) -> _Targets:
        if node.most is None:
            after, copies, optional = self._loop(node, after), max(node.least - 1, 0), 0
        else:
            copies, optional = node.least, node.most - node.least
        behind = after.targets
        for _ in range(optional):
            body = self.made(node.body, after)
            after = _After(_Targets([body, behind] if node.greedy else [behind, body]), after.least, False)
        for _ in range(copies):
            after = _After(self.made(node.body, after), after.least + fewest(node.body), False)
        return after.targets

    def _loop(self, node: Repeat, after: _After) -> _After:
        """At least once, or any number of times if the least is 0."""
        again = _Targets()
        least = min(fewest(node.body), after.least)
        body = self.made(node.body, _After(again, least, False))
        again.parts = [body, after.targets] if node.greedy else [after.targets, body]
        if node.least == 0:
            return _After(again, after.least, False)
        return _After(body, after.least + fewest(node.body), False)

    def _place(self, place: Place, follow: _Targets) -> int:
        if len(self.places) == MOST_PLACES:
            reason = f"it has more than {MOST_PLACES} places"
            remedy = "repeat fewer times, {3,} instead of {3,5000} say"
            raise PatternInvalid(pattern=self.text, at=1, reason=reason, remedy=remedy, where=self.where)
        self.places.append(place)
        self.follow.append(follow)
        return len(self.places) - 1
