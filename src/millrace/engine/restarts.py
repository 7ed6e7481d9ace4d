"""When a flow that failed is started again: which failures may pass by themselves, and how long to wait.

Time and chance are passed in; nothing here starts anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from millrace.errors import (
    CaptureBehind,
    CaptureFailed,
    ConnectRefused,
    ConnectUnreachable,
    DatabaseRefused,
    DatabaseUnreachable,
    DeadLettersOwed,
    EpochsOwed,
    FlowFailed,
    KafkaRefused,
    KafkaUnreachable,
    MillraceError,
    RecordsExpired,
    RecordsGone,
    RecordsUndelivered,
    RegistryUnreachable,
    RowUnreadable,
    ServerError,
    SessionFailed,
    SessionGone,
    SinkFailed,
    SinkUnreachable,
    SlotLost,
    TableChanged,
)

# The wait doubles from the first to the most. Flows that failed together (a broker was away) come back apart.
FIRST_S, MOST_S = 1.0, 60.0
JITTER = 0.2

# After so many epochs, over so long a time, a flow counts as well again: one epoch may be all that it can do.
CALM_EPOCHS, CALM_S = 3, 60.0

# A run that reads what is there and ends does not wait for ever: about a minute in all.
MOST_TRIES_ONCE = 6

# The rule: what the user has to mend (every UserError: BodyFailed, StateChanged, SchemaChanged, InputsChanged,
# TableBroken, TableStale, FlowReplaced, FlowLocked, FlowRefused, TopicUnknown, …) stays until somebody mends it. What a
# server did may pass, except for these. A test holds that every ServerError of `errors/engine`, `capture` and `log` is
# in one of the two lists.
LASTING: Mapping[type[MillraceError], str] = MappingProxyType(
    {
        RecordsGone: "records that expired do not come back, and to begin anew is the user's decision",
        RecordsExpired: "the same, of a reader",
        RowUnreadable: "the record stays where it is in the log, and a table without it would be untrue",
        TableChanged: "the run has asked the catalogue already, and it knows no such columns",
        SlotLost: "changes are missing until somebody repairs the capture",
        CaptureFailed: "the run tends its captures by itself; what it could not mend needs a person",
        SessionGone: "without Spark's process no flow can run; the next run goes on",
        SessionFailed: "the same: there is nothing to start a flow on",
    }
)
PASSING: Mapping[type[MillraceError], str] = MappingProxyType(
    {
        FlowFailed: "a broker away, a task or an executor lost, a time-out, or what nobody foresaw",
        DeadLettersOwed: "they are tried again while the flow goes on",
        EpochsOwed: "they are tried again while the flow goes on",
        SinkFailed: "a lock, a time-out, a task lost",
        SinkUnreachable: "a server that is away comes back",
        KafkaUnreachable: "a broker that is away comes back",
        KafkaRefused: "a leader that moves, a time-out",
        RecordsUndelivered: "not acknowledged in time",
        RegistryUnreachable: "a server that is away comes back",
        DatabaseUnreachable: "a server that is away comes back",
        DatabaseRefused: "a lock, or too many connections; where it is a right that is lacking, waiting does no harm",
        ConnectUnreachable: "a server that is away comes back",
        ConnectRefused: "a worker that is just being rebalanced refuses everything",
        CaptureBehind: "it catches up",
    }
)

_MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|0x[0-9a-f]+|\d+")


def passes(error: MillraceError) -> bool:
    """Whether a failure may be gone the next time."""
    return isinstance(error, ServerError) and type(error) not in LASTING


@dataclass
class Restarts:
    """The failures of one flow. `in_a_row` counts those since it was last well, `total` those of the run."""

    in_a_row: int = 0
    total: int = 0
    _due: float = 0.0
    _sentence: str = ""
    _started: float = 0.0
    _epochs: int = 0

    def failed(self, now: float, sentence: str, chance: float) -> tuple[float, bool]:
        """For how long to wait, and whether the sentence is news. `chance` is from 0 to 1."""
        self.in_a_row += 1
        self.total += 1
        # Beyond the most, doubling on would only make large numbers.
        wait_s = min(FIRST_S * 2.0 ** min(self.in_a_row - 1, 30), MOST_S) * (1 - JITTER * chance)
        self._due = now + wait_s
        plain = _MADE_UP.sub("#", sentence)
        news, self._sentence = plain != self._sentence, plain
        return wait_s, news

    def due(self, now: float) -> bool:
        return now >= self._due

    def started(self, now: float) -> None:
        self._started, self._epochs = now, 0

    def committed(self, now: float) -> None:
        """An epoch was. After some, over a while, the next failure is a first one again."""
        self._epochs += 1
        if self._epochs >= CALM_EPOCHS and now - self._started >= CALM_S:
            self.in_a_row, self._sentence = 0, ""
