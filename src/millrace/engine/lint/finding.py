"""What lint tells: a mistake, what comes of it, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.errors import Where


@dataclass(frozen=True)
class Finding:
    """`node` is the name of the stream or topic; `where` the line that made it or, if known, the mistake's own."""

    rule: str
    node: str
    where: Where
    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class Report:
    """`left_out`: streams whose functions, and views whose SQL, were not looked at, each with the reason."""

    findings: tuple[Finding, ...]
    left_out: Mapping[str, str]
