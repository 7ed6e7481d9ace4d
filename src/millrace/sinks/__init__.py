"""Where results go: the contract that ties a sink to a flow's epochs, the ledger rule, and one file a sink.

A sink of one's own is a `Sink` and its `Writer`; `millrace.testing.sinks.SinkSuite` holds it to the contract. Nothing
here knows an app or starts a query: `flow` says what goes where, `engine` gives each sink its epochs.
"""

from __future__ import annotations

from millrace.sinks.contract import DIFF, VERSION, Feed, Guarantee, Refuse, RefusedRow, Sink, Writer
from millrace.sinks.ledger import Entry, Epoch, due

__all__ = [
    "DIFF",
    "VERSION",
    "Entry",
    "Epoch",
    "Feed",
    "Guarantee",
    "Refuse",
    "RefusedRow",
    "Sink",
    "Writer",
    "due",
]
