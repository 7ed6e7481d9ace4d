"""Where a place in a database's log is in the topics of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.log import Log


def ends_at(log: Log, topic: str, lsn: int) -> dict[int, int]:
    """By partition, the next offset after all that was committed up to there. The whole topic is read.

    A change stands in the log before its transaction's commit, and in the topic behind it. So nothing that was
    committed by then comes after the last change from before. Where the topic was compacted, that one may be gone; the
    record that follows on what is left is then taken, which is never too early.
    """
    ends = {number: end for number, (_, end) in log.topics.offsets(topic).items()}
    found = dict.fromkeys(ends, 0)
    after: set[int] = set()
    for record in log.read(topic):
        if record.partition in after:
            found[record.partition] = record.offset
            after.remove(record.partition)
        place = _lsn(record.json())
        if place is not None and place <= lsn:
            after.add(record.partition)
    return found | {number: ends[number] for number in after}


def _lsn(value: Any) -> int | None:
    """Of a record of a capture; with schemas on, the envelope is inside."""
    if not isinstance(value, dict):
        return None
    envelope = value.get("payload") if "payload" in value else value
    source = envelope.get("source") if isinstance(envelope, dict) else None
    place = source.get("lsn") if isinstance(source, dict) else None
    return place if isinstance(place, int) else None
