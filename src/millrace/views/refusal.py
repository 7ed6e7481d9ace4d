"""How the planner says no: with the clause of the SQL, a sentence, and another way to write it where there is one."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

_LONGEST = 80
_WORDS = {"method": "NATURAL JOIN", "locks": "FOR UPDATE", "sample": "TABLESAMPLE", "windows": "WINDOW"}


class Refused(Exception):
    """`clause` is the SQL that is meant, `place` its line and column."""

    def __init__(
        self, reason: str, *, clause: str = "", place: tuple[int, int] | None = None, instead: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason, self.clause, self.place, self.instead = reason, clause, place, instead


def refuse(node: exp.Expression, reason: str, instead: str = "") -> NoReturn:
    raise Refused(reason, clause=shown(node), place=place(node), instead=instead)


def only(node: exp.Expression, *known: str) -> None:
    """Nothing but these parts: whatever else the parser found would otherwise be left out in silence."""
    for name, part in node.args.items():
        if part and name not in known:
            word = _WORDS.get(name, name.strip("_").replace("_", " ").upper())
            at = next(
                (each for each in (part if isinstance(part, list) else [part]) if isinstance(each, exp.Expression)),
                node,
            )
            refuse(at, f"{word} is not supported here")


def shown(node: exp.Expression) -> str:
    text = " ".join(node.sql(dialect="postgres").split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def place(node: exp.Expression) -> tuple[int, int] | None:
    """Where the clause begins: the first of its words that the parser remembers."""
    starts = [each.meta for each in node.walk() if "start" in each.meta]
    if not starts:
        return None
    first = min(starts, key=lambda meta: meta["start"])
    return first["line"], first["col"] - (first["end"] - first["start"])
