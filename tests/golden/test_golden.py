"""A query of each operator goes on from the checkpoint that a version of Millrace left, as if nothing had been: its
rows before and after are those of the model over all events. And what the checkpoint keeps can be shown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from millrace.engine import definition
from millrace.engine.operators import kept
from millrace.engine.state import Shown, State
from millrace.errors import StateNewer
from millrace.model import lookback as lookbacks
from millrace.model import sketches
from tests.golden.make import ARCHIVES, BEFORE, HERE, unpack
from tests.kernel import nearly
from tests.kernel.beside import AROUND_S
from tests.kernel.chains import CHAINS, bases
from tests.kernel.parts import Event, Part, read, us, write
from tests.kernel.specimens import HELD, MINUTE, SECOND, SPECIMENS, held_of, played
from tests.rotation import todays

pytestmark = pytest.mark.spark

VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "in").is_dir())
# An older version may not have had an operator. That each has one is a test below.
CASES = [
    (version, archive) for version in VERSIONS for archive in ARCHIVES if (HERE / version / f"{archive}.zip").exists()
]
# With keys that have a timer together.
SHARED = ("join_shared", "seen")
KEY = "hot"
# Another one for patterns: of the hot key every match is decided.
OPEN = "c"


def test_each_operator_has_an_archive() -> None:
    """`python -m tests.golden.make` makes those that are not there."""
    assert {archive for _, archive in CASES} == set(ARCHIVES)
    assert {path.stem for version in VERSIONS for path in (HERE / version).glob("*.zip")} == set(ARCHIVES)


@pytest.mark.parametrize(("version", "archive"), todays(CASES, 3))
def test_what_a_version_left_is_shown_and_goes_on(
    spark: SparkSession, tmp_path: Path, version: str, archive: str
) -> None:
    name, parts = ARCHIVES[archive], read(HERE / version)
    specimen = SPECIMENS[name]
    unpack(HERE / version / f"{archive}.zip", tmp_path)
    for number, part in enumerate(parts[:BEFORE]):
        write(tmp_path, number, part)
    shown_as_the_model_has_it(spark, tmp_path, name, parts[:BEFORE])
    if archive in SHARED:
        state = State(spark, tmp_path, name)
        assert state._read(state.operators[0], stateVarName="followers").count() > 0

    for number, part in enumerate(parts):
        write(tmp_path, number, part)
    specimen.start(spark, tmp_path).awaitTermination()
    assert specimen.faults(tmp_path, parts) == []


def shown_as_the_model_has_it(spark: SparkSession, folder: Path, name: str, parts: list[Part]) -> None:
    told = kept(SPECIMENS[name].frame(spark, folder))
    definition.remember(folder, definition.Definition((), (), 2, kept=told))
    twin, watermark = SPECIMENS[name].twin(), 0
    for _, watermark, part in played(folder, parts):
        twin.epoch(part, watermark)
    state = State(spark, folder, name)
    sizes = [size for size in state.sizes() if size.operator != "consolidate"]
    assert len(sizes) == {"signed": 3, "ranks": 2, "pairs": 3, "spans": 3}.get(name, 1)
    for size in sizes:
        assert size.rows >= size.keys > 0
        assert size.bytes > 10 * size.rows
        assert (size.next_timer is not None) == (name not in ("latest", "lookup", "table", *CHAINS))
    if name in CHAINS:
        {"signed": signed, "ranks": ranks, "pairs": pairs, "spans": spans}[name](state, twin.model, parts)
        return
    if name not in CHECKS:
        found, _ = state.shown([], 1_000)
        assert any(each.entries for each in found)
        return
    given = ["a"] if name in ("lookup", "table", "as_of", "join") else [OPEN] if name == "match" else [KEY]
    found, more = state.shown(given, 1_000)
    assert not more
    assert all(list(each.key.values()) == given or name == "top" for each in found)
    CHECKS[name](found, twin.model, watermark, [event for part in parts for event in part.events if event.key == KEY])


def windows(found: list[Shown], model: Any, _: int, __: list[Event]) -> None:
    expected = {(each.start, each.end): (*held_of(each.rows), each.changed) for each in model.held[KEY]}
    assert expected
    told = {}
    for entry in (entry for each in found for entry in each.entries):
        values = [Decimal(entry[name]) if name == "price" and entry[name] else entry[name] for name in HELD]
        told[at(entry["window_start"]), at(entry["window_end"])] = (*values, entry["untold"])
    assert told == expected


def slices(found: list[Shown], model: Any, _: int, __: list[Event]) -> None:
    """A row is in one slice, and in the windows that are held."""
    events = {row.value.id for each in model.held[KEY] for row in each.rows}
    (shown,) = found
    assert sum(entry["n"] for entry in shown.entries) == len(events) > 0
    assert shown.facts == {"windows_of": "60 s"}


def estimates(found: list[Shown], model: Any, _: int, __: list[Event]) -> None:
    """Of the slices with most values no sketch is exact any more: there are registers, levels, and counts that fell."""
    held = {row.value.id: row.value for each in model.held[KEY] for row in each.rows}
    (shown,) = found
    slices_us, sketched = 20 * SECOND, 0
    for entry in shown.entries:
        start = at(entry["slice_start"])
        values = [
            pair for event in held.values() if 0 <= event.time - start < slices_us for pair in nearly.valued(event)
        ]
        assert entry["n"] == len(values)
        words = Counter(word for _, word in values)
        often = entry["often"]
        assert all(count <= words[word] for word, count in often)
        ranks = [sketches.quantile([value for value, _ in values], rank) for rank in nearly.RANKS]
        fell = all(count < words[word] for word, count in often)
        sketched += len(values) != entry["values"] and entry["ranks"] != ranks and fell
    assert sketched > 0


def travels(found: list[Shown], _: Any, watermark: int, events: list[Event]) -> None:
    (shown,) = found
    assert len(shown.entries) > 100
    own = {event.time: event for event in events}
    for entry in shown.entries:
        event = own[at(entry["time"])]
        assert any(
            value == nearly.reals([lookbacks.Event(event.key, event.time, event)])[0] for value in entry.values()
        )


def lookback(found: list[Shown], _: Any, watermark: int, events: list[Event]) -> None:
    """At least what is still asked for: events that share a part with such stay for a while."""
    (shown,) = found
    told = {(at(entry["time"]), entry["amount"], entry["item"]) for entry in shown.entries}
    assert told <= {(event.time, event.amount, event.item) for event in events}
    asked = {event.time for event in events if event.time > watermark - 20 * SECOND - MINUTE}
    assert len(asked) > 100  # more than one part
    # Those that were refused are not there.
    assert {time for time, _, _ in told} >= {time for time in asked if time >= watermark}


def match(found: list[Shown], model: Any, watermark: int, _: list[Event]) -> None:
    held = model.held[OPEN]
    starts = range(held.begin, len(held.taken))
    open_ = [held.taken[start].time for start in starts if not model.preferred(held.taken[start:], watermark)[0]]
    (shown,) = found
    assert [at(entry["start"]) for entry in shown.entries] == open_ != []
    assert shown.facts["partial_matches"] == len(open_)
    assert {entry["waits_for"] for entry in shown.entries} <= {"small", "small or large", "large", "large or small"}
    assert [at(row["time"]) for row in shown.facts["rows"]][-1] == held.taken[-1].time
    assert sorted(map(at, shown.facts["waiting"])) == sorted(row.time for row in held.waiting)


def top(found: list[Shown], model: Any, _: int, __: list[Event]) -> None:
    first = {key: [row.value for row in model.first(key)] for key in model.held if KEY in (key, *(key or ()))}
    told = [[entry["id"] for entry in each.entries if entry["rank"]] for each in found]
    assert sorted(told) == sorted(rows for rows in first.values() if rows) != []


def dedup(found: list[Shown], model: Any, watermark: int, _: list[Event]) -> None:
    remembered = [time for time in model.given[KEY] if time + 60 * SECOND >= watermark]
    (shown,) = found
    assert sorted(at(entry["time"]) for entry in shown.entries) == sorted(remembered) != []


def arrivals(found: list[Shown], model: Any, _: int, __: list[Event]) -> None:
    (shown,) = found
    assert [at(entry["time"]) for entry in shown.entries] == [model.given[KEY] * 1_000]


def table(found: list[Shown], model: Any, _: int, __: list[Event]) -> None:
    state = model.latest.state if hasattr(model, "latest") else model.state
    rows = [held.row for key, held in state.items() if '"a"' in key[1]]
    assert [entry for each in found for entry in each.entries] == [json.loads(row) for row in rows] != []


def as_of(found: list[Shown], model: Any, watermark: int, _: list[Event]) -> None:
    """From the version that the first event has which may still be corrected."""
    (shown,) = found
    events = {each.event.value: each.event.time for each in model.kept if each.event.key == ("a",)}
    assert {each["id"]: at(each["time"]) for each in shown.facts["events"]} == events != {}
    versions = {time: each.row for time, each in model.versions[("a",)].items()}
    first = max((time for time in versions if time <= min(watermark - 20 * SECOND, *events.values())), default=0)
    told = {at(each["since"]): None if each["gone"] else each["name"] for each in shown.entries}
    # What is before it may stay until somebody comes to the key again.
    assert {time: row for time, row in versions.items() if time >= min(first, *told)} == told
    assert len(told) > 1
    assert [each["until"] for each in shown.entries] == [*(each["since"] for each in shown.entries[1:]), None]


def signed(state: State, held: Any, parts: list[Part]) -> None:
    """Each step by a key of its own: both sides of a join, a group's measures, how often a row is there."""
    tables = bases(max(event.id for part in parts for event in part.events))
    (joined,) = (each for each in state.shown(["2"], 1_000)[0] if each.operator == "join")
    assert joined.key == {"ak": 2}
    for side, name, columns in (("left", "a", ("ak", "ag", "ax", "af")), ("right", "b", ("bk", "bx"))):
        rows = {
            tuple(each[column] for column in columns): each["times"] for each in joined.entries if each["side"] == side
        }
        assert rows == {row: count for row, count in tables[name].rows.items() if row[0] == 2} != {}
        assert joined.facts[f"{side}_rows"] == len(rows)
    (group,) = (each for each in state.shown(["g1"], 1_000)[0] if each.operator == "aggregate")
    assert [("g1", *each.values()) for each in group.entries] == [row for row in held["groups"] if row[0] == "g1"] != []
    found, _ = state.shown(["null", "g2"], 1_000)
    (once,) = found
    assert (once.operator, once.key) == ("distinct", {"ak": None, "ag": "g2"})
    assert once.facts == {"rows": held["few"][None, "g2"]}


def ranks(state: State, held: Any, _: list[Part]) -> None:
    (group,) = (each for each in state.shown(["g1"], 1_000)[0] if each.operator == "aggregate")
    (told,) = (row for row in held["lists"] if row[0] == "g1")
    assert group.entries == [{"lately": list(told[1])}]
    assert len(told[1]) == group.facts["rows"] > 50
    (first,) = (each for each in state.shown(["2"], 1_000)[0] if each.operator == "first")
    rows = sorted((row for row in held["first"] if row[0] == 2), key=lambda row: row[-1])
    assert [tuple(each.values()) for each in first.entries] == [row[:-1] for row in rows] != []
    assert first.facts["rows"] > len(rows) == 3


def pairs(state: State, held: Any, parts: list[Part]) -> None:
    """Of a right side semi and anti keep how many there are."""
    tables = bases(max(event.id for part in parts for event in part.events), "pairs")
    ours, theirs = (
        next(key for (key, *_), count in Counter(tables["a"].rows).items() if key is not None and with_partner(key))
        for with_partner in (
            lambda key: any(row[0] == key for row in tables["b"].rows),
            lambda key: all(row[0] != key for row in tables["b"].rows),
        )
    )
    for key in (ours, theirs):
        partners = sum(row[0] == key for row in tables["b"].rows)
        left = sum(row[0] == key for row in tables["a"].rows)
        found, _ = state.shown([str(key)], 1_000)
        assert [(each.operator, each.key) for each in found] == [("join", {"ak": key})] * 3
        for each in found:
            assert (each.facts["left_rows"], each.facts["right_rows"]) == (left, partners)
            assert sum(entry["side"] == "left" for entry in each.entries) == left > 0


def spans(state: State, held: Any, parts: list[Part]) -> None:
    """The rows that each group has, as the last step and the one before know it."""
    found, _ = state.shown([], 1_000)
    waiting = [each for each in found if each.operator == "span"]
    now = max(moment for (moment,) in bases(max(e.id for part in parts for e in part.events), "spans")["b"].rows)
    assert {at(each.facts["now"]) for each in waiting} == {us(now)}
    assert sum(each.facts["rows"] for each in waiting) > 20
    assert {next(iter(entry)) for each in waiting for entry in each.entries} == {"comes", "goes"}
    only = [tuple(each.entries[0].values()) for each in found if each.operator == "only"]
    groups = [(*each.key.values(), *each.entries[0].values()) for each in found if each.operator == "aggregate"]
    assert sorted(only) == sorted(groups) == sorted(held["groups"]) != []


def join(found: list[Shown], model: Any, watermark: int, _: list[Event]) -> None:
    """Whatever a row may still come for; what is over before may stay until somebody comes to the key again."""
    (shown,) = found
    first, last = (each * SECOND for each in AROUND_S)
    for number, rows, name, more in ((1, model.left, "id", last), (2, model.right, "change", -first)):
        own = [each for each in shown.entries if each["stream"] == number]
        times = {int(row.name): row.time for row in rows if row.key == "a"}
        assert {each[name]: at(each["time"]) for each in own}.items() <= times.items()
        assert {each[name] for each in own} >= {id_ for id_, time in times.items() if time + more >= watermark} != set()
        assert all(at(each["until"]) == at(each["time"]) + more for each in own)
        assert shown.facts[f"stream_{number}_rows"] == len(own)


def at(text: str) -> int:
    return us(datetime.fromisoformat(text))


CHECKS: dict[str, Callable[[list[Shown], Any, int, list[Event]], None]] = {
    "window": windows,
    "session": windows,
    "slices": slices,
    "lookback": lookback,
    "estimates": estimates,
    "travels": travels,
    "match": match,
    "top": top,
    "players": top,
    "latest": top,
    "dedup": dedup,
    "arrivals": arrivals,
    "lookup": table,
    "table": table,
    "as_of": as_of,
    "join": join,
}


def test_entries_are_plain_values(spark: SparkSession, tmp_path: Path) -> None:
    """For --json."""
    unpack(HERE / VERSIONS[-1] / "match.zip", tmp_path)
    (tmp_path / "in").mkdir()
    definition.remember(
        tmp_path, definition.Definition((), (), 2, kept=kept(SPECIMENS["match"].frame(spark, tmp_path)))
    )
    found, more = State(spark, tmp_path, "match").shown([], 2)
    assert more
    assert len(found) == 2
    assert all(len(each.entries) <= 2 for each in found)
    json.dumps([asdict(each) for each in found])


def test_a_form_of_a_newer_version_is_named(spark: SparkSession, tmp_path: Path) -> None:
    unpack(HERE / VERSIONS[-1] / "dedup.zip", tmp_path)
    (told,) = kept(SPECIMENS["dedup"].frame(spark, tmp_path))
    definition.remember(tmp_path, definition.Definition((), (), 2, kept=(told,)))
    state = State(spark, tmp_path, "dedup")
    (row, *_) = state._read(state.operators[0], stateVarName="given").collect()
    newer = Row(known=b"", parts=row.key, key=row.key, value=Row(value=bytearray([99, *row.value.value[1:]])))
    with pytest.raises(StateNewer, match="its state has form 99, and this one knows up to 1"):
        list(state._of_keys(state.operators[0], "given", [newer], 20))
