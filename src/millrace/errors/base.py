"""What every error has: a code, what happened and why, what to do about it, and the line of the user's code."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Where:
    """The line of the user's code that made something."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def caller(depth: int = 2) -> Where:
    """The line of the user's code that called the function that calls this one."""
    frame = sys._getframe(depth)
    return Where(shown(frame.f_code.co_filename), frame.f_lineno)


def shown(file: str) -> str:
    """A file's path as people type it: from the current folder where it is below that."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


class MillraceError(Exception):
    """What every deliberate error has: `code`, the sentence (`text` with its facts), `fix`, and the user's line."""

    code: ClassVar[str] = "MR-ERROR"
    text: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1

    def __init__(self, *, where: Where | None = None, **facts: object) -> None:
        self.where = where
        self.facts = facts
        self.what = self.text.format(**facts)
        self.remedy = self.fix.format(**facts)
        super().__init__(self.sentence())

    def sentence(self) -> str:
        place = f" (at {self.where})" if self.where else ""
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.code} {self.what}{remedy}{place}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_again, (type(self), self.where, self.facts))


def _again(kind: type[MillraceError], where: Where | None, facts: dict[str, object]) -> MillraceError:
    return kind(where=where, **facts)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when one of the known names is close to `name`, otherwise nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


class UserError(MillraceError):
    """The command, the code or the configuration has to change."""


class ServerError(MillraceError):
    """A server, the network or the machine has to change."""

    exit_code = 2
