"""How far back a table's past is known: as far as its topic keeps it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

# In the metadata of a topic's time column: the topic, so that whoever takes the rows for a table can ask about it.
TOPIC = "millrace.topic"


@dataclass(frozen=True)
class Kept:
    """Before `since_us` nothing is known of the table (None: its past has no beginning). `whole`: a key of which the
    topic has no row has none; otherwise its row may be one that is no longer kept."""

    since_us: int | None = None
    whole: bool = True


EVERYTHING = Kept()

# While a flow is planned: what is kept of a topic.
kept: ContextVar[Callable[[str], Kept] | None] = ContextVar("kept", default=None)


def kept_of(topic: str | None) -> Kept:
    """Of a frame that is no topic's, all that it has is all that there is."""
    ask = kept.get()
    return EVERYTHING if ask is None or topic is None else ask(topic)
