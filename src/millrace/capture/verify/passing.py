"""Waiting until everything up to a moment has reached the topics."""

from __future__ import annotations

import base64
import time
import uuid

from millrace.capture import postgres
from millrace.capture.captures import Captures
from millrace.capture.connector import message_topic, notification_topic
from millrace.capture.database import Address
from millrace.capture.definition import Capture
from millrace.capture.verify.database import refusing
from millrace.errors import CaptureBehind, CaptureFailed
from millrace.log import Log

# A capture that does not move for so long will not come. One that moves may take as long as it takes.
STILL_S = 120.0
PREFIX = "millrace.verify"
_LOOK_S = 2.0
_AGAIN_S = 0.05
_DAY_MS = "86400000"


def await_passing(captures: Captures, capture: Capture, address: Address, topic: str) -> None:
    """Returns when every change that is committed by now can be read from the topic.

    A message of our own in the database's log marks the place: it comes through the connector in the order of all
    changes, within milliseconds, and needs no right to write to any table.
    """
    log, word = captures.log, uuid.uuid4().hex
    marks = message_topic(capture)
    log.topics.ensure(marks, partitions=1, config={"cleanup.policy": "delete", "retention.ms": _DAY_MS})
    begins = log.topics.offsets(marks)[0][1]
    with postgres.connect(capture.database, address) as connection, refusing(capture.database, "its log's position"):
        connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", (PREFIX, word))
        moved = time.monotonic()
        place = None
        while not _arrived(log, marks, begins, word):
            _refuse_rest(captures, capture)
            slot = postgres.slot(connection, capture.slot_name)
            now = slot and slot.confirmed_flush_lsn, log.topics.offsets(topic, committed=False)
            if now != place:
                place, moved = now, time.monotonic()
            elif time.monotonic() - moved > STILL_S:
                raise CaptureBehind(name=capture.name, seconds=round(STILL_S))
    # The mark is committed; the table's own partitions may hear of the same commit a moment later.
    await_commits(log, capture, topic)


def _refuse_rest(captures: Captures, capture: Capture) -> None:
    """A capture that does not run will not come to any place."""
    state, trace = captures.connect.state(captures.outside(capture))
    if state == "FAILED":
        raise captures.failure(capture, trace)
    if state in ("PAUSED", "STOPPED", "ABSENT"):
        remedy = f"`millrace capture resume {capture.name}`, then verify again"
        raise CaptureFailed(name=capture.name, reason=f"its connector is {state.lower()}", remedy=remedy)


def being_read(log: Log, capture: Capture, table: str) -> bool:
    """Whether an incremental snapshot of the table goes on, as far as the connector's notifications tell."""
    topic = notification_topic(capture)
    going_on: dict[str, bool] = {}
    for record in log.read(topic) if log.topics.exists(topic) else ():
        note = record.json() or {}
        if note.get("aggregate_type") == "Initial Snapshot":
            going_on.clear()
        elif note.get("type") == "STARTED":
            names = (note.get("additional_data") or {}).get("data_collections") or ""
            going_on[note["id"]] = table in names.split(",")
        elif note.get("type") in ("COMPLETED", "ABORTED", "STOPPED"):
            going_on.pop(note["id"], None)
    return any(going_on.values())


def await_commits(log: Log, capture: Capture, topic: str) -> None:
    """Returns when readers see everything that is in the topic by now: no transaction from before is open any more."""
    deadline = time.monotonic() + STILL_S
    ends = log.topics.offsets(topic, committed=False)
    while any(log.topics.offsets(topic)[number][1] < end for number, (_, end) in ends.items()):
        if time.monotonic() > deadline:
            raise CaptureBehind(name=capture.name, seconds=round(STILL_S))
        time.sleep(_AGAIN_S)


def _arrived(log: Log, topic: str, begins: int, word: str) -> bool:
    for record in log.read(topic, begins, follow=True, lasting_s=_LOOK_S):
        content = ((record.json() or {}).get("message") or {}).get("content") or ""
        if base64.b64decode(content) == word.encode():
            return True
    return False
