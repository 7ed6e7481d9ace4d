"""TRUNCATE takes all rows of a table at once and names none of them. The capture keeps it apart, in a topic of its own;
here it becomes tombstones, by comparing the table with its topic."""

from __future__ import annotations

from dataclasses import replace

from millrace.capture import memory
from millrace.capture.captures import Captures
from millrace.capture.connector import truncate_topic
from millrace.capture.repair import outcome, repair
from millrace.capture.verify import Comparison
from millrace.errors import TruncateStays


def waiting(captures: Captures, name: str) -> tuple[str, ...]:
    """Tables that were truncated and whose rows are still in their topics."""
    found = captures.get(name)
    topic = truncate_topic(found.capture)
    if not captures.log.topics.exists(topic):
        return ()
    records = captures.log.read(topic, found.truncates_done)
    named = dict.fromkeys((record.key or b"").decode().strip('"') for record in records)
    return tuple(table for table in named if table in found.tables)


def mend(captures: Captures, name: str) -> list[str]:
    """Writes the tombstones of truncated tables; gives a line for each. Tables of MariaDB and MySQL cannot be compared
    yet, and so stay as they were."""
    found = captures.get(name)
    tables = waiting(captures, name)
    if not tables:
        return []
    if found.kind == "mysql":
        raise TruncateStays(name=name, tables=", ".join(tables))
    end = sum(last for _, last in captures.log.topics.offsets(truncate_topic(found.capture)).values())
    lines = []
    for table in tables:
        comparison = Comparison(captures, found, found.tables[table])
        verified = repair(comparison, comparison.run(), lambda _: None)
        lines.append(f"{table} was truncated: {outcome(verified)}")
    memory.write(captures.log, replace(captures.get(name), truncates_done=end))
    return lines
