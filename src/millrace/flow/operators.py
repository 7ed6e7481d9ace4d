"""What a flow's operators keep state for, in words: a checkpoint remembers them, and other words are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.errors import Where

# What Spark makes up anew each time: ids of columns, of watermarked ones, of nodes and objects, of variables in
# lambdas, and of the DataFrame that observes something.
MADE_UP = re.compile(
    r"#\d+L?|-T\d+ms|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|@[0-9a-f]+|millrace\.(?:late|lookup|combined|partial)\.\d+"
    r"|(?<=lambda )\w+_\d+|(?<=, true, )\d+(?=\))|(?<=\], )\d+$",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"\b[A-Za-z]\w*_\d+\b")


@dataclass(frozen=True)
class Operator:
    """`state` is what the kept state means: with other words it would be misread. `manner` may change at any start."""

    state: str
    manner: str = ""


_noted: ContextVar[list[Operator] | None] = ContextVar("noted", default=None)
_lines: ContextVar[list[tuple[DataFrame, Where]] | None] = ContextVar("lines", default=None)


def note(state: str, manner: str) -> None:
    """Told by each operator of ours where a flow is planned."""
    noted = _noted.get()
    if noted is not None:
        # Columns that are not resolved yet name the variables of lambdas without saying that they are such.
        words = _VARIABLE.sub("", state) if "lambda" in state else state
        noted.append(Operator(MADE_UP.sub("", words), manner))


def note_line(made: DataFrame, where: Where) -> None:
    """That of a step of Spark's own which we made: its columns are not the user's, so Spark does not know it."""
    lines = _lines.get()
    if lines is not None:
        lines.append((made, where))


def noted_lines() -> tuple[tuple[DataFrame, Where], ...]:
    return tuple(_lines.get() or ())


@contextmanager
def noting() -> Iterator[list[Operator]]:
    noted: list[Operator] = []
    token, lines = _noted.set(noted), _lines.set([])
    try:
        yield noted
    finally:
        _noted.reset(token)
        _lines.reset(lines)
