"""The torture test's oracle can fail: whatever is wrong with a topic, it is said."""

from __future__ import annotations

import random

from tests.capture.history import Change, faults

# A key that the snapshot finds, one that comes later and goes, one that went before.
TRUTH: dict[int, list[Change]] = {
    1: [("c", 1), ("u", 2), ("u", 5), ("u", 6), ("d", 6)],
    2: [("c", 7), ("u", 8), ("d", 8), ("c", 9)],
    3: [("c", 3), ("d", 3)],
}
TOPIC: dict[int, list[Change | None]] = {
    1: [("r", 2), ("u", 5), ("u", 6), ("d", 0), None],
    2: [("c", 7), ("u", 8), ("d", 0), None, ("c", 9)],
}
SNAPSHOT_V = 4


def test_what_is_right_has_no_faults() -> None:
    assert faults(TRUTH, TOPIC, SNAPSHOT_V) == []
    # A snapshot that was cut off is read again, and changes made meanwhile are told again after it.
    again = [("r", 1), ("r", 2), ("u", 2), ("u", 5), ("u", 6), ("d", 0), None]
    assert faults(TRUTH, {**TOPIC, 1: again}, SNAPSHOT_V, cut=True) == []
    assert faults(TRUTH, {**TOPIC, 1: again[1:]}, SNAPSHOT_V, cut=True) == []
    assert faults(TRUTH, {**TOPIC, 1: again[1:]}, SNAPSHOT_V) != []
    # A table that is read again later shows rows as they stood.
    read = [("c", 7), ("r", 7), ("u", 8), ("d", 0), None, ("c", 9), ("r", 9)]
    assert faults(TRUTH, {**TOPIC, 2: read}, SNAPSHOT_V) == []


def test_a_record_left_out_is_noticed() -> None:
    for key, records in TOPIC.items():
        for place in range(len(records)):
            if (key, place) == (1, 0):
                continue  # without the snapshot's row nothing is left that it could follow; that is the next case
            left = records[:place] + records[place + 1 :]
            assert faults(TRUTH, {**TOPIC, key: left}, SNAPSHOT_V), (key, place)
        assert faults(TRUTH, {other: rows for other, rows in TOPIC.items() if other != key}, SNAPSHOT_V)
    assert faults(TRUTH, {**TOPIC, 1: TOPIC[1][1:]}, SNAPSHOT_V)


def test_a_record_that_comes_twice_or_too_early_is_noticed() -> None:
    for key, records in TOPIC.items():
        for place in range(len(records)):
            twice = records[: place + 1] + records[place:]
            if records[place] != ("r", 2):
                assert faults(TRUTH, {**TOPIC, key: twice}, SNAPSHOT_V), (key, place)
        for place in range(len(records) - 1):
            swapped = [*records[:place], records[place + 1], records[place], *records[place + 2 :]]
            assert faults(TRUTH, {**TOPIC, key: swapped}, SNAPSHOT_V), (key, place)


def test_a_row_that_was_never_committed_is_noticed() -> None:
    assert faults(TRUTH, {**TOPIC, 4: [("c", 99)]}, SNAPSHOT_V)
    assert faults(TRUTH, {**TOPIC, 3: [("c", 98), ("d", 0), None]}, SNAPSHOT_V)


def test_random_histories_with_one_random_fault() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        truth: list[Change] = []
        alive = False
        for version in range(1, chance.randrange(4, 12)):
            op = chance.choice(("u", "u", "d")) if alive else "c"
            truth.append((op, truth[-1][1] if op == "d" else version))
            alive = op != "d"
        topic: list[Change | None] = []
        for op, version in truth:
            topic += [("d", 0), None] if op == "d" else [(op, version)]
        assert faults({1: truth}, {1: topic}, 0) == []
        place = chance.randrange(len(topic))
        broken = topic[:place] + topic[place + 1 :]
        assert faults({1: truth}, {1: broken}, 0), (seed, truth, broken)
