"""What a topic must hold, given every committed change of its table: the oracle of the torture test.

For each key, after the row that the snapshot found, exactly the changes that followed it: none missing, none twice,
none in another order; a tombstone after each delete.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from millrace.log import Record

Change = tuple[
    str, int
]  # op (c, u, d) and the row's version, which no two changes share; of a delete it is the row's last


def of_topic(records: Iterable[Record]) -> dict[int, list[Change | None]]:
    found: dict[int, list[Change | None]] = defaultdict(list)
    for record in records:
        assert record.key is not None
        key = json.loads(record.key)["id"]
        if record.value is None:
            found[key].append(None)
            continue
        envelope = json.loads(record.value)
        row = envelope["after"] or {}
        found[key].append((envelope["op"], row.get("v", 0)))
    return found


def snapshots(records: Iterable[Record]) -> set[int]:
    """The time of each beginning of the initial snapshot; several if it was cut off and begun again."""
    envelopes = (json.loads(record.value) for record in records if record.value is not None)
    initial = (e["source"] for e in envelopes if e["op"] == "r" and e["source"]["snapshot"] != "incremental")
    return {source["ts_us"] for source in initial}


def faults(
    truth: dict[int, list[Change]], topic: dict[int, list[Change | None]], snapshot_v: int, cut: bool = False
) -> list[str]:
    """Everything that is wrong, one line each. Changes before the snapshot (`snapshot_v` was the version counter when
    it ended) need not be there one by one. `cut`: the snapshot, of this table or another, was begun more than once."""
    found = []
    for key in sorted(truth.keys() | topic.keys()):
        if fault := _fault(truth.get(key, []), topic.get(key, []), snapshot_v, cut):
            found.append(f"key {key}: {fault}")
    return found


def _fault(truth: list[Change], records: list[Change | None], snapshot_v: int, cut: bool) -> str | None:
    changes: list[Change] = []
    for place, record in enumerate(records):
        if record is None:
            if place == 0 or records[place - 1] is None or records[place - 1][0] != "d":  # type: ignore[index]
                return "a tombstone that follows no delete"
        else:
            changes.append(record)
            if record[0] == "d" and (place + 1 == len(records) or records[place + 1] is not None):
                return "a delete without its tombstone"
    if not changes:
        silent = not truth or (truth[-1][0] == "d" and truth[-1][1] <= snapshot_v)
        return None if silent else f"nothing of {len(truth)} changes is in the topic, the last {truth[-1]}"
    read = 0
    while read < len(changes) and changes[read][0] == "r":
        read += 1
    if cut and "r" not in [change[0] for change in changes[read:]]:
        return _told_again(truth, changes[:read], changes[read:])
    return _followed(truth, changes[:read], changes[read:])


def _told_again(truth: list[Change], snapshot: list[Change], changes: list[Change]) -> str | None:
    """After a snapshot that was cut off, everything since its first beginning is told again: the topic ends with the
    last of the changes, without a gap between them and what the snapshot read."""
    begins = len(truth) - len(changes)
    if begins < 0 or [_known(change) for change in truth[begins:]] != [_known(change) for change in changes]:
        return f"the topic ends with {changes[-3:]}, the database with {truth[-3:]}"
    places = [_place(truth, record) for record in snapshot]
    if None in places:
        return f"the snapshot has {snapshot}, which is not what the database says: {truth[:5]}"
    if places and begins > (places[-1] or 0) + 1:
        return f"changes between {snapshot[-1]} and {changes[:1]} are missing"
    return None


def _known(change: Change) -> Change:
    return ("d", 0) if change[0] == "d" else change


def _followed(truth: list[Change], snapshot: list[Change], changes: list[Change]) -> str | None:
    """After what the snapshot read, the changes that came then. A snapshot that was cut off is read again from its
    beginning (several records of one key), and changes made meanwhile are told again after it."""
    at = 0
    for record in snapshot:
        place = _place(truth, record)
        if place is None or place + 1 < at:
            return f"the snapshot has {record}, which is not what the database says: {truth[:5]}"
        at = place + 1
    if not snapshot and changes:
        begun = _begun(truth, changes[0])
        if begun is None:
            return f"the topic begins with {changes[0]}, which follows nothing that the database says: {truth[:5]}"
        at = begun
    elif len(snapshot) > 1 and changes and (told := _place(truth, changes[0])) is not None and told < at:
        at = told
    for change in changes:
        if change[0] == "r":  # read again while changes go on: the row must be as it stood
            if at == 0 or change[1] != truth[at - 1][1]:
                return f"read again as {change} where the row was {truth[max(0, at - 1)]}"
            continue
        if at == len(truth):
            return f"{change} is in the topic and was never committed, or came twice"
        expected = truth[at]
        if change[0] != expected[0] or (change[0] != "d" and change[1] != expected[1]):
            return f"after {truth[:at][-2:]} the topic has {change}, the database {expected}"
        at += 1
    if at < len(truth):
        return f"{len(truth) - at} changes are missing, the first {truth[at]}"
    return None


def _place(truth: list[Change], record: Change) -> int | None:
    """Which change made the row that a record holds."""
    return next((at for at, change in enumerate(truth) if change[0] != "d" and change[1] == record[1]), None)


def _begun(truth: list[Change], first: Change) -> int | None:
    """Of a key that the snapshot did not find: the insert that the topic begins with."""
    fitting = (at for at, change in enumerate(truth) if change == first and first[0] == "c")
    return next((at for at in fitting if at == 0 or truth[at - 1][0] == "d"), None)
