"""Patterns of events as text, `small{3,} large`, read and checked.

    a b | c       a and then b; otherwise c
    a* a+ a? a{2,5}    as many as possible; a*? and so on as few as possible
    (a b)+        a group
    !a, !(a | b)  any number of rows, none of which is one of these; at the end: none comes until the time is up

What comes first in the text, or takes more (fewer, if reluctant), is preferred, as in SQL's MATCH_RECOGNIZE.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from millrace.errors import PatternInvalid, Where

_WORD = re.compile(
    r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<times>\{\s*(\d*)\s*(,?)\s*(\d*)\s*\})|(?P<sign>[()|!*+?])|(?P<end>$))"
)


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Absence:
    """No row that is one of these. `at` is where it stands in the text, from 1."""

    names: tuple[str, ...]
    at: int


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    body: Node
    least: int
    most: int | None
    greedy: bool


Node: TypeAlias = Variable | Absence | Sequence | Choice | Repeat


def fewest(node: Node) -> int:
    """The rows that it takes at least."""
    match node:
        case Variable():
            return 1
        case Absence():
            return 0
        case Sequence():
            return sum(map(fewest, node.parts))
        case Choice():
            return min(map(fewest, node.parts))
        case Repeat():
            return node.least * fewest(node.body)


def names(node: Node) -> list[str]:
    """The variables in the order in which the text first names them."""
    match node:
        case Variable():
            return [node.name]
        case Absence():
            return list(node.names)
        case Repeat():
            return names(node.body)
        case Sequence() | Choice():
            return list(dict.fromkeys(name for part in node.parts for name in names(part)))


def read(text: str, where: Where) -> Node:
    """What the text says. Errors name the character, from 1."""
    node = _Reader(text, where).all()

    if fewest(node) == 0:
        reason, remedy = "it may be met by no row at all", "a match has at least one row: use + instead of *, say"
        raise PatternInvalid(pattern=text, at=1, reason=reason, remedy=remedy, where=where)
    for absence in _leading(node):
        reason, remedy = "a match would begin with an absence", "begin with a row since when it is absent"
        raise PatternInvalid(pattern=text, at=absence.at, reason=reason, remedy=remedy, where=where)
    return node


def _leading(node: Node) -> list[Absence]:
    """The absences that a match may begin with."""
    match node:
        case Absence():
            return [node]
        case Repeat():
            return _leading(node.body)
        case Choice():
            return [found for part in node.parts for found in _leading(part)]
        case Sequence():
            found: list[Absence] = []
            for part in node.parts:
                found += _leading(part)
                if fewest(part) > 0:
                    break
            return found
        case Variable():
            return []


class _Reader:
    """A text from left to right; `at` is where the word at hand begins, counted from 0."""

    def __init__(self, text: str, where: Where) -> None:
        self.text, self.where = text, where
        self.at = self.end = 0
        self.kind, self.word = "", ""
        self.bounds: tuple[str, str, str] = ("", "", "")
        self._next()

    def all(self) -> Node:
        node = self._choice()
        if self.kind != "end":
            self._refuse("there is nothing that this closes", "take it out, or open a group before it")
        return node

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self.word == "|":
            self._next()
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.kind == "name" or self.word in ("(", "!"):
            if parts and isinstance(parts[-1], Absence) and self.word == "!":
                self._refuse("two absences follow each other", "write them as one: !(a | b)")
            parts.append(self._quantified())
        if not parts:
            if self.kind == "times" or self.word in ("*", "+", "?"):
                self._refuse("there is nothing to repeat", "write it behind a name or a group")
            self._refuse("a name is missing", 'a pattern is, for example, "small{3,} large"')
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quantified(self) -> Node:
        begin, node = self.at, self._atom()
        if self.kind != "times" and self.word not in ("*", "+", "?"):
            return node
        if isinstance(node, Absence):
            self._refuse("an absence is any number of rows already", "leave this out")
        least, most = self._times()
        self._next()
        greedy = self.word != "?"
        if not greedy:
            self._next()
        if self.kind == "times" or self.word in ("*", "+", "?"):
            self._refuse("this is repeated already", "put a group around it, or leave this out")
        if most != 1 and fewest(node) == 0:
            self.at = begin
            self._refuse("what is repeated may be met by no row at all", "repeat what is inside of it instead")
        return Repeat(node, least, most, greedy)

    def _times(self) -> tuple[int, int | None]:
        if self.word in ("*", "+", "?"):
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.word]
        least, comma, most = self.bounds
        if not (least or most) or (most and int(most) < max(int(least or 0), 1)) or not (comma or int(least)):
            self._refuse("this says no number of times", "write {3}, {3,}, {,5} or {3,5}")
        if not comma:
            return int(least), int(least)
        return int(least or 0), int(most) if most else None

    def _atom(self) -> Node:
        at = self.at
        if self.word == "!":
            self._next()
            return Absence(self._absent(), at + 1)
        if self.word == "(":
            self._next()
            node = self._choice()
            self._close(at)
            return node
        return Variable(self._name())

    def _absent(self) -> tuple[str, ...]:
        if self.word != "(":
            return (self._name(),)
        at = self.at
        self._next()
        found = [self._name()]
        while self.word == "|":
            self._next()
            found.append(self._name())
        self._close(at)
        return tuple(dict.fromkeys(found))

    def _name(self) -> str:
        if self.kind != "name":
            self._refuse("a name is missing", "what is absent is a name, or several: !(a | b)")
        name = self.word
        self._next()
        return name

    def _close(self, opened: int) -> None:
        if self.word != ")":
            if self.kind == "end":
                self.at = opened
                self._refuse("this group has no end", "close it with )")
            self._refuse("this does not belong here", "close the group with ) first")
        self._next()

    def _next(self) -> None:
        found = _WORD.match(self.text, self.end)
        if found is None:
            self.at = self.end + len(self.text[self.end :]) - len(self.text[self.end :].lstrip())
            self._refuse(f"{self.text[self.at]!r} means nothing", "names, ( ) | ! and * + ? {n} {n,} {n,m} do")
        kind = found.lastgroup
        assert kind is not None
        self.kind = kind
        self.word, self.at, self.end = found[kind], found.start(kind), found.end()
        self.bounds = (found[3] or "", found[4] or "", found[5] or "")

    def _refuse(self, reason: str, remedy: str) -> NoReturn:
        raise PatternInvalid(pattern=self.text, at=self.at + 1, reason=reason, remedy=remedy, where=self.where)
