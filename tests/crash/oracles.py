"""What must hold of what flows wrote, whatever was killed when. Plain data in, sentences about faults out.

every input's effect is in every topic and sink       lost
none of them twice                                    twice
those of a key in their order                         order
the final state is that of a batch over the input     state
in = out + late + dead                                account
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SHOWN = 5


@dataclass(frozen=True)
class Event:
    """One record of the input: `kind` is "event", "late" or "dead"."""

    id: int
    key: str
    amount: int
    kind: str


@dataclass(frozen=True)
class Item:
    """One row of the captured table, without its key."""

    name: str
    amount: int


@dataclass
class Seen:
    """Records of topics in their order, rows of sinks, posts and messages, ids of late rows and texts of dead
    letters."""

    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    posts: list[dict[str, Any]] | None = None
    messages: list[dict[str, Any]] | None = None
    late: dict[str, list[int]] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)


def faults(
    events: Sequence[Event], seen: Seen, window: Callable[[Event], str], items: Mapping[int, Item] | None = None
) -> list[str]:
    """`window` gives the start of the window that an event belongs to; `items` is the captured table as it is."""
    on_time = [each for each in events if each.kind == "event"]
    timed = [each for each in events if each.kind != "dead"]  # a stateless flow knows nothing of late
    late = [each.id for each in events if each.kind == "late"]
    found: list[str] = []
    for name in ("copied", "ranked"):
        if name in seen.topics:
            found += _each_once(f"topic {name}", timed if name == "copied" else on_time, seen.topics[name])
            found += _in_order(f"topic {name}", seen.topics[name])
    for name in ("pg_rows", "files", "delta_rows", "iceberg_rows"):
        if name in seen.rows:
            found += _each_once(name, timed, seen.rows[name])
    if "files" in seen.rows:
        found += _in_order("files", seen.rows["files"])
    if seen.posts is not None:
        taken = [(post["header"], post["row"]) for post in seen.posts if post["status"] == 204]
        found += _by_id("webhook", timed, taken)
    if seen.messages is not None:
        found += _by_id("queue", timed, [(each["id"], each["row"]) for each in seen.messages])
    if "ranked" in seen.topics:
        found += _ranks(on_time, seen)
    if "windowed" in seen.topics:
        found += _windows(on_time, seen, window)
    if "pg_table" in seen.rows:
        held = [(key, each.name, each.amount) for key, each in (items or {}).items()]
        found += compared("pg_table", held, [(row["id"], row["name"], row["amount"]) for row in seen.rows["pg_table"]])
    for name, told in seen.late.items():
        found += compared(f"late rows of {name}", late, told)
    found += compared("dead letters", [f"no JSON {each.id}" for each in events if each.kind == "dead"], seen.dead)
    return found + _account(events, seen)


def compared(what: str, wanted: Iterable[Any], given: Iterable[Any]) -> list[str]:
    """Two bags that must be the same."""
    expected, found = Counter(wanted), Counter(given)
    lost, more = expected - found, found - expected
    twice = {each: count for each, count in more.items() if each in expected}
    strange = {each: count for each, count in more.items() if each not in expected}
    return [
        f"{what}: {sum(group.values())} {word}: {_some(group)}"
        for word, group in (("lost", lost), ("twice", twice), ("made up", strange))
        if group
    ]


def _some(group: Mapping[Any, int]) -> str:
    first = ", ".join(str(each) for each in sorted(group, key=str)[:_SHOWN])
    return first + (", …" if len(group) > _SHOWN else "")


def _each_once(what: str, events: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    wanted = [(each.id, each.key, each.amount) for each in events]
    return compared(what, wanted, [(row["id"], row["key"], row["amount"]) for row in rows])


def _in_order(what: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    last: dict[str, int] = {}
    for row in rows:
        if row["id"] < last.get(row["key"], -1):
            return [f"{what}: {row['key']} is out of order: {row['id']} comes after {last[row['key']]}"]
        last[row["key"]] = row["id"]
    return []


def _by_id(what: str, events: Sequence[Event], told: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A webhook or a queue may tell a row again, by the id that it had: who minds ids has each once, in order."""
    taken: dict[str, Mapping[str, Any]] = {}
    for identity, row in told:
        taken.setdefault(identity, row)
    rows = list(taken.values())
    return _each_once(what, events, rows) + _in_order(what, rows)


def _ranks(events: Sequence[Event], seen: Seen) -> list[str]:
    """Each event of a key counts itself and all before it."""
    wanted, last = {}, {}
    for key, own in _by_key(events).items():
        total = 0
        for place, event in enumerate(own, 1):
            total += event.amount
            wanted[event.id] = last[key] = (place, total)
    told = {row["id"]: (row["n"], row["total"]) for row in seen.topics["ranked"]}
    wrong = {each: told[each] for each in told if each in wanted and told[each] != wanted[each]}
    found = [f"topic ranked: {_some(dict.fromkeys(wrong, 1))} differ from the batch"] if wrong else []
    for name in ("cache", "search"):
        if name in seen.rows:
            rows = [(row["key"], int(row["n"]), int(row["total"])) for row in seen.rows[name]]
            found += compared(name, [(key, *values) for key, values in last.items()], rows)
    if "ranking" in seen.rows:
        scores = [(row["key"], int(row["total"])) for row in seen.rows["ranking"]]
        found += compared("ranking", [(key, total) for key, (_, total) in last.items()], scores)
    return found


def _windows(events: Sequence[Event], seen: Seen, window: Callable[[Event], str]) -> list[str]:
    wanted: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for event in events:
        sums = wanted[event.key, window(event)]
        sums[0] += 1
        sums[1] += event.amount
    told: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in seen.topics["windowed"]:
        told[row["key"], row["window_start"][:19]].append((row["n"], row["total"]))
    # Each telling has more events than the one before: else it was told twice, or in another order.
    found = [
        f"topic windowed: {place} is told twice or out of order: {[n for n, _ in rows]}"
        for place, rows in told.items()
        if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(rows))
    ]
    batch = [(*place, *sums) for place, sums in wanted.items()]
    found += compared("topic windowed", batch, [(*place, *rows[-1]) for place, rows in told.items()])
    for name in ("pg_keys", "delta_keys", "iceberg_keys"):
        if name in seen.rows:
            rows = [(row["key"], row["window_start"], int(row["n"]), int(row["total"])) for row in seen.rows[name]]
            found += compared(name, batch, rows)
    return found


def _account(events: Sequence[Event], seen: Seen) -> list[str]:
    """in = out + late + dead, for each flow."""
    out: dict[str, int] = {name: len(seen.topics[name]) for name in ("copied", "ranked") if name in seen.topics}
    if "windowed" in seen.topics:
        last = {(row["key"], row["window_start"]): row["n"] for row in seen.topics["windowed"]}
        out["windowed"] = sum(last.values())
    told = []
    for name, count in out.items():
        late = len(seen.late.get(name, []))
        if len(events) != count + late + len(seen.dead):
            told.append(f"{name}: {len(events)} in, but {count} out + {late} late + {len(seen.dead)} dead")
    return told


def _by_key(events: Sequence[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.key].append(event)
    return found
