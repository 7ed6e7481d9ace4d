"""How the planner says no: with the clause of the SQL, a sentence, and another way to write it where there is one."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from millrace.views.clauses import place, written

_LONGEST = 80
_WORDS = {"method": "NATURAL JOIN", "locks": "FOR UPDATE", "sample": "TABLESAMPLE", "windows": "WINDOW"}


class Refused(Exception):
    """`clause` is the SQL that is meant, `place` its line and column; or `node` is it."""

    def __init__(
        self,
        reason: str,
        *,
        clause: str = "",
        place: tuple[int, int] | None = None,
        instead: str = "",
        node: exp.Expression | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.clause, self.place, self.instead, self.node = reason, clause, place, instead, node

    def found_in(self, sql: str) -> tuple[str, tuple[int, int]]:
        """The clause as it was written, and its line and column; all of the SQL, if nothing less is known."""
        clause, at = self.clause, self.place
        if self.node is not None:
            found = written(sql, self.node)
            clause = shortened(sql[slice(*found)]) if found is not None else shown(self.node)
            at = place(sql, found[0]) if found is not None else begins(self.node)
        return clause or shortened(sql), at or place(sql, len(sql) - len(sql.lstrip()))


def refuse(node: exp.Expression, reason: str, instead: str = "") -> NoReturn:
    raise Refused(reason, instead=instead, node=node)


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
    return shortened(node.sql(dialect="postgres"))


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def begins(node: exp.Expression) -> tuple[int, int] | None:
    """Where the clause begins: the first of its words that the parser remembers."""
    starts = [each.meta for each in node.walk() if "start" in each.meta]
    if not starts:
        return None
    first = min(starts, key=lambda meta: meta["start"])
    return first["line"], first["col"] - (first["end"] - first["start"])
