"""The oracles, each with what it is there for: a run without a fault, and one of each kind in it."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.failpoint import VARIABLE
from tests.crash.oracles import Event, Item, Seen, faults
from tests.crash.supervisor import Points, Supervised

EVENTS = [Event(n, f"k{n % 2}", n, "late" if n == 5 else "dead" if n == 6 else "event") for n in range(8)]


ITEMS = {1: Item("n1", 10), 2: Item("n2", 20)}


def window(event: Event) -> str:
    return f"2026-01-01T00:0{event.id // 4}:00"


def right() -> Seen:
    """What a mill writes of these events."""
    timed = [{"id": e.id, "key": e.key, "amount": e.amount} for e in EVENTS if e.kind != "dead"]
    ranked = [
        {"id": 0, "key": "k0", "amount": 0, "n": 1, "total": 0},
        {"id": 1, "key": "k1", "amount": 1, "n": 1, "total": 1},
        {"id": 2, "key": "k0", "amount": 2, "n": 2, "total": 2},
        {"id": 3, "key": "k1", "amount": 3, "n": 2, "total": 4},
        {"id": 4, "key": "k0", "amount": 4, "n": 3, "total": 6},
        {"id": 7, "key": "k1", "amount": 7, "n": 3, "total": 11},
    ]
    windows = [
        {"key": "k0", "window_start": "2026-01-01T00:00:00", "n": 1, "total": 0},
        {"key": "k0", "window_start": "2026-01-01T00:00:00", "n": 2, "total": 2},
        {"key": "k1", "window_start": "2026-01-01T00:00:00", "n": 2, "total": 4},
        {"key": "k0", "window_start": "2026-01-01T00:01:00", "n": 1, "total": 4},
        {"key": "k1", "window_start": "2026-01-01T00:01:00", "n": 1, "total": 7},
    ]
    last = [{"key": "k0", "n": "3", "total": "6"}, {"key": "k1", "n": "3", "total": "11"}]
    posts = [{"header": f"h{row['id']}", "status": 204, "row": row} for row in timed]
    return Seen(
        topics={"copied": timed, "ranked": ranked, "windowed": windows},
        rows={
            "pg_rows": list(reversed(timed)),
            "files": list(timed),
            "pg_keys": windows[1:],
            "delta_rows": list(timed),
            "iceberg_rows": list(reversed(timed)),
            "delta_keys": windows[1:],
            "iceberg_keys": list(reversed(windows[1:])),
            "cache": last,
            "ranking": [{"key": "k0", "total": 6.0}, {"key": "k1", "total": 11.0}],
            "search": list(last),
            "pg_table": [{"id": 2, "name": "n2", "amount": 20}, {"id": 1, "name": "n1", "amount": 10}],
        },
        posts=[*posts, dict(posts[0])],  # told again by the id that it had
        messages=[*({"id": f"m{row['id']}", "row": row} for row in timed), {"id": "m0", "row": timed[0]}],
        late={"windowed": [5], "ranked": [5]},
        dead=["no JSON 6"],
    )


def judged(change: Callable[[Seen], object]) -> list[str]:
    seen = copy.deepcopy(right())
    change(seen)
    return faults(EVENTS, seen, window, ITEMS)


def test_what_is_right_has_no_fault() -> None:
    assert judged(lambda _: None) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda seen: seen.topics["copied"].pop(), "topic copied: 1 lost"),
        (lambda seen: seen.topics["copied"].append(seen.topics["copied"][0]), "topic copied: 1 twice"),
        (lambda seen: seen.topics["copied"].reverse(), "topic copied: k1 is out of order"),
        (lambda seen: seen.topics["copied"].pop(), "copied: 8 in, but 6 out + 0 late + 1 dead"),
        (lambda seen: seen.rows["pg_rows"].append(seen.rows["pg_rows"][0]), "pg_rows: 1 twice"),
        (lambda seen: seen.rows["pg_rows"].pop(), "pg_rows: 1 lost"),
        (lambda seen: seen.rows["files"].pop(), "files: 1 lost"),
        (lambda seen: seen.rows["files"].reverse(), "files: k1 is out of order"),
        (lambda seen: seen.posts.pop(3), "webhook: 1 lost"),
        (lambda seen: seen.posts[2].update(header="another"), ""),
        (lambda seen: seen.posts[-1].update(header="another"), "webhook: 1 twice"),
        (lambda seen: seen.posts.insert(0, seen.posts[4]), "webhook: k0 is out of order"),
        (lambda seen: seen.messages.pop(3), "queue: 1 lost"),
        (lambda seen: seen.messages[-1].update(id="another"), "queue: 1 twice"),
        (lambda seen: seen.messages.insert(0, seen.messages[4]), "queue: k0 is out of order"),
        (lambda seen: seen.rows["ranking"][0].update(total=5.0), "ranking: 1 lost"),
        (lambda seen: seen.topics["ranked"][3].update(n=3), "topic ranked: 3 differ from the batch"),
        (lambda seen: seen.rows["cache"][0].update(total="7"), "cache: 1 lost"),
        (lambda seen: seen.rows["search"].pop(), "search: 1 lost"),
        (lambda seen: seen.topics["windowed"].insert(1, seen.topics["windowed"][0]), "is told twice or out of order"),
        (lambda seen: seen.topics["windowed"].pop(), "topic windowed: 1 lost"),
        (lambda seen: seen.rows["pg_keys"][0].update(n=1), "pg_keys: 1 lost"),
        (lambda seen: seen.rows["delta_rows"].append(seen.rows["delta_rows"][0]), "delta_rows: 1 twice"),
        (lambda seen: seen.rows["iceberg_rows"].pop(), "iceberg_rows: 1 lost"),
        (lambda seen: seen.rows["delta_keys"][0].update(n=1), "delta_keys: 1 lost"),
        (lambda seen: seen.rows["iceberg_keys"].append(seen.rows["iceberg_keys"][0]), "iceberg_keys: 1 twice"),
        (lambda seen: seen.rows["pg_table"].pop(), "pg_table: 1 lost"),
        (lambda seen: seen.rows["pg_table"][0].update(amount=19), "pg_table: 1 made up"),
        (lambda seen: seen.rows["pg_table"].append({"id": 3, "name": "n3", "amount": 1}), "pg_table: 1 made up"),
        (lambda seen: seen.late["windowed"].clear(), "windowed: 8 in, but 6 out + 0 late + 1 dead"),
        (lambda seen: seen.late["ranked"].append(5), "late rows of ranked: 1 twice"),
        (lambda seen: seen.dead.clear(), "dead letters: 1 lost"),
        (lambda seen: seen.dead.append("no JSON 9"), "dead letters: 1 made up"),
    ],
)
def test_each_fault_is_told(change: Callable[[Seen], object], says: str) -> None:
    told = judged(change)
    assert any(says in each for each in told) if says else told == []


def test_a_process_that_is_left_behind_is_found(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path, Points(tmp_path / "points"))
    assert supervised.left_behind(0.1) == []
    env = {**os.environ, VARIABLE: str(tmp_path / "points")}
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env)
    try:
        (told,) = supervised.left_behind(0.1)
        assert f"process {left.pid} is left behind" in told
    finally:
        left.kill()
        left.communicate()
