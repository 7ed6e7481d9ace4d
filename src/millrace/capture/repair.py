"""Mending a topic that is not true to its table: rows are read again by Debezium itself, missed deletes get tombstones.

Nothing that has a value is ever written beside Debezium: it alone knows the order of changes. A tombstone is written
only for a key that the table does not hold, to the partition where the key's records are, and is guarded from both
sides: not if a record of the key came after the comparison; and if one came between that check and the tombstone (the
row was inserted again), the row is read again. A process that dies in between leaves a missing row, which the next
`verify` finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from millrace.capture import connector, memory
from millrace.capture.captures import Captures
from millrace.capture.verify import REPAIRED, Comparison, Difference, Verified
from millrace.errors import CaptureFailed, TableUnverifiable

# Keys in one signal: the condition becomes part of the connector's offset while it is worked on.
KEYS_AT_ONCE = 1_000
# With more rows than this to read again, the whole table is.
WHOLE_TABLE_KEYS = 20_000
ROUNDS = 10
# A snapshot that tells nothing new for so long is stuck.
SILENCE_S = 600.0
_LOOK_S = 2.0
_FAILED = ("ABORTED", "STOPPED", "SQL_EXCEPTION", "UNKNOWN_SCHEMA", "NO_PRIMARY_KEY", "SKIPPED")


def repair(comparison: Comparison, verified: Verified, say: Callable[[str], None]) -> Verified:
    """Mends what was found to differ, compares again, and so on until all is true or nothing gets better."""
    for _ in range(ROUNDS):
        if not verified.differences:
            break
        _mend(comparison, verified, say)
        before = {(each.kind, each.digest) for each in verified.differences}
        verified = comparison.run()
        if {(each.kind, each.digest) for each in verified.differences} == before:
            break
    return verified


def repair_gap(captures: Captures, name: str) -> Iterator[str]:
    """After a lost slot: reads every table from the beginning, and removes rows that were deleted meanwhile."""
    found = captures.get(name)
    topic = connector.notification_topic(found.capture)
    begins = _end(captures, topic)
    memory.write(captures.log, replace(found, repairing=True))
    captures.start_over(name)
    yield f"capture {name} begins anew: reading {', '.join(found.tables)}"
    yield from _await_initial(captures, name, topic, begins)
    for table in found.tables.values():
        lines: list[str] = []
        try:
            comparison = Comparison(captures, captures.get(name), table)
            verified = repair(comparison, comparison.run(), lines.append)
        except TableUnverifiable as error:
            yield f"{table.name}: rows deleted during the gap may be left ({error.what})"
            continue
        yield from (f"{table.name}: {line}" for line in lines)
        yield f"{table.name}: {outcome(verified)}"
    memory.write(captures.log, replace(captures.get(name), repairing=False))


def outcome(verified: Verified) -> str:
    if verified.clean:
        return f"true at {verified.position}: {verified.rows:,} rows, all as in the database"
    faults = [
        (len(verified.differences), "keys differ" + (", and there are more" if verified.more else "")),
        (verified.unsettled, "keys changed each time that they were looked at"),
        (verified.twofold, "keys are written in two ways in the topic"),
    ]
    told = "; ".join(f"{count:,} {words}" for count, words in faults if count)
    again = "; the table is being read by a snapshot, so verify again when that is done" if verified.being_read else ""
    return f"not true at {verified.position}: {told} ({verified.rows:,} rows in the database){again}"


def _mend(comparison: Comparison, verified: Verified, say: Callable[[str], None]) -> None:
    again = [each for each in verified.differences if each.kind != "surplus"]
    surplus = [each for each in verified.differences if each.kind == "surplus"]
    if again:
        say(f"reading {len(again):,} rows again")
        _read_again(comparison, [tuple(each.key.values()) for each in again])
    if surplus:
        say(f"removing {len(surplus):,} rows that the table does not hold")
        _bury(comparison, verified, surplus, say)


def _read_again(comparison: Comparison, keys: Sequence[tuple[str, ...]]) -> None:
    """By incremental snapshots, which Debezium keeps in order with the changes that go on."""
    if len(keys) > WHOLE_TABLE_KEYS:
        _snapshot(comparison, None)
        return
    columns = [column.name for column in comparison.layout.key]
    for first in range(0, len(keys), KEYS_AT_ONCE):
        _snapshot(comparison, condition(columns, keys[first : first + KEYS_AT_ONCE]))


def condition(columns: Sequence[str], keys: Sequence[tuple[str, ...]]) -> str:
    """Values stand as texts without a type: PostgreSQL reads each as what its column is."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    rows = sql.SQL(", ").join(sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key))) for key in keys)
    return sql.SQL("({}) IN ({})").format(names, rows).as_string(None)


def _snapshot(comparison: Comparison, where: str | None) -> None:
    captures, capture, table = comparison.captures, comparison.capture, comparison.table
    topic = connector.notification_topic(capture)
    begins = _end(captures, topic)
    captures.wait(capture)
    conditions = {} if where is None else {table.name: where}
    signal = captures.source(capture).snapshot(capture, [table.name], conditions)
    for note in _notes(captures, capture.name, topic, begins):
        if note.get("id") != signal:
            continue
        if note["type"] == "COMPLETED":
            return
        if note["type"] in _FAILED or (note.get("additional_data") or {}).get("status") in _FAILED:
            reason = f"it did not read rows of {table.name} again: {note['type'].lower()}"
            raise CaptureFailed(
                name=capture.name, reason=reason, remedy="see the log of Kafka Connect, then verify again"
            )


def _await_initial(captures: Captures, name: str, topic: str, begins: int) -> Iterator[str]:
    for note in _notes(captures, name, topic, begins):
        if note.get("aggregate_type") != "Initial Snapshot":
            continue
        data = note.get("additional_data") or {}
        if note["type"] == "TABLE_SCAN_COMPLETED":
            yield f"{data.get('scanned_collection')}: {int(data.get('total_rows_scanned') or 0):,} rows read"
        if note["type"] == "COMPLETED":
            return


def _notes(captures: Captures, name: str, topic: str, begins: int) -> Iterator[dict[str, Any]]:
    """What the connector tells of its snapshots from a place on, as long as it runs."""
    capture = captures.get(name).capture
    heard = time.monotonic()
    while time.monotonic() - heard < SILENCE_S:
        for record in captures.log.read(topic, begins, follow=True, lasting_s=_LOOK_S):
            begins, heard = record.offset + 1, time.monotonic()
            yield record.json()
        captures.wait(capture)
    reason = f"its snapshot told nothing for {SILENCE_S:.0f} s"
    raise CaptureFailed(name=name, reason=reason, remedy="see the log of Kafka Connect, then verify again")


def _bury(
    comparison: Comparison, verified: Verified, surplus: Collection[Difference], say: Callable[[str], None]
) -> None:
    keys = {each.place.key: each for each in surplus if each.place is not None}
    changed = {key for key, _ in comparison.records_after(verified.ends) if key in keys}
    if changed:
        say(f"{len(changed):,} of them have changed meanwhile")
    with comparison.captures.log.writer(verified.topic) as writer:
        for key, each in keys.items():
            if key not in changed and each.place is not None:
                writer.write(None, key=key, partition=each.place.partition, headers={REPAIRED: ""})
    buried = keys.keys() - changed
    if raced := overtaken(buried, comparison.records_after(verified.ends)):
        say(f"{len(raced):,} of them were inserted again at that moment: reading them again")
        if shown := comparison.keys_of([keys[key].digest for key in raced]):
            _read_again(comparison, shown)


def overtaken(buried: Collection[bytes], records: Iterator[tuple[bytes, bool]]) -> set[bytes]:
    """Keys of which somebody else's record came before our tombstone. `records`: keys, and whether it is ours."""
    waiting, found = set(buried), set()
    for key, ours in records:
        if key in waiting:
            if ours:
                waiting.discard(key)
            else:
                found.add(key)
    return found


def _end(captures: Captures, topic: str) -> int:
    return max((end for _, end in captures.log.topics.offsets(topic).values()), default=0)
