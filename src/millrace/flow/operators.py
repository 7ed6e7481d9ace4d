"""What a flow's operators keep state for, in words: a checkpoint remembers them, and other words are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """`state` is what the kept state means: with other words it would be misread. `manner` may change at any start."""

    state: str
    manner: str = ""


_noted: ContextVar[list[Operator] | None] = ContextVar("noted", default=None)


def note(state: str, manner: str) -> None:
    """Told by each operator of ours where a flow is planned."""
    noted = _noted.get()
    if noted is not None:
        noted.append(Operator(state, manner))


@contextmanager
def noting() -> Iterator[list[Operator]]:
    noted: list[Operator] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
