"""Event sourcing: events as the record, everything else derived from them. In process; Spark is not needed here.

Aggregates emit events (`aggregate`, `event`), the store keeps them in one order (`store`), projections and sagas follow
them (`projection`, `saga`). What flows make of the captured events belongs to `flow` and `engine`; `typed` gives them
the fields.
"""

from millrace.events.aggregate import Aggregate, Refused, apply, command
from millrace.events.kinds import Recorded, event, unchanged
from millrace.events.projection import LiveProjection, Projection
from millrace.events.repository import Repository
from millrace.events.saga import LiveSaga, Saga, Work
from millrace.events.sealing import personal, subject
from millrace.events.snapshots import every
from millrace.events.store import Forgotten, Lag, Saved, Store, Ticked
from millrace.events.typed import typed

__all__ = [
    "Aggregate",
    "Forgotten",
    "Lag",
    "LiveProjection",
    "LiveSaga",
    "Projection",
    "Recorded",
    "Refused",
    "Repository",
    "Saga",
    "Saved",
    "Store",
    "Ticked",
    "Work",
    "apply",
    "command",
    "event",
    "every",
    "personal",
    "subject",
    "typed",
    "unchanged",
]
