"""What a record changed, in plain values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.capture.connector import UNAVAILABLE
from millrace.console import words
from millrace.console.browsing import Browse, Field, change_of
from millrace.console.page_records import change_table
from millrace.errors import BrowseLimit, PositionInvalid
from millrace.log import Log, Record
from millrace.log.record import moment


def record(
    offset: int, value: Any, key: str | None = "k", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Record:
    data = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record("t", 0, offset, moment(1_000 * offset), None if key is None else key.encode(), data, headers)


def changed(*args: Any) -> tuple[str, str, list[tuple[str, str, str]]]:
    found = change_of(*args)
    assert found is not None
    return found.what, found.source, [(f.name, f.before, f.after) for f in found.fields if f.changed]


def test_a_change_as_the_database_told_it() -> None:
    envelope = {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}}
    assert changed(record(5, envelope), None) == ("updated", "as the database told it", [("name", "a", "b")])
    assert changed(record(5, {"schema": {}, "payload": envelope}), None)[2] == [("name", "a", "b")]
    deleted = {"op": "d", "before": {"id": 1}, "after": None}
    assert changed(record(6, deleted), None) == ("deleted", "as the database told it", [("id", "1", "")])


def test_what_the_database_did_not_tell_is_taken_from_the_record_before() -> None:
    before = record(4, {"op": "c", "before": None, "after": {"id": 1, "name": "a", "tags": [1]}})
    now = record(5, {"op": "u", "before": None, "after": {"id": 1, "name": "b", "tags": [1]}})
    assert changed(now, before) == ("updated", "offset 4", [("name", "a", "b")])
    assert changed(now, None)[:2] == ("updated", "nothing before it is known")
    assert (
        changed(before, record(3, {"op": "d", "before": {"id": 1}, "after": None}))[1] == "nothing before it is known"
    )


def test_a_large_value_that_was_left_alone_is_no_change() -> None:
    now = record(5, {"op": "u", "before": None, "after": {"id": 1, "text": UNAVAILABLE}})
    known = change_of(now, record(4, {"op": "c", "before": None, "after": {"id": 1, "text": "long"}}))
    assert known is not None
    assert known.fields[1] == Field("text", "long", "long", False)
    unknown = change_of(now, None)
    assert unknown is not None
    assert unknown.fields[1] == Field("text", "", "(not told)", False)


def test_records_of_a_key_are_compared_too() -> None:
    assert changed(record(5, {"n": 2}), record(4, {"n": 1})) == (
        "the next record of its key",
        "offset 4",
        [("n", "1", "2")],
    )
    assert changed(record(5, None), record(4, {"n": 1})) == ("deleted its key", "offset 4", [("n", "1", "")])
    assert change_of(record(5, {"n": 2}), None) is None
    assert change_of(record(5, b"\xff"), record(4, b"no json")) is None


def browse(*records: Record) -> Browse:
    made = Browse(Log(), "t", "newest", 10)
    made.records.extend(records)
    return made


def test_search_looks_at_key_value_and_headers_whatever_the_case() -> None:
    made = browse(
        record(1, {"a": "Berlin"}), record(2, {"a": "x"}, "BERLIN"), record(3, b"\xff", None, (("c", b"berlin"),))
    )
    assert made.found("berlin") == [2, 1, 0]
    assert made.found("") == [2, 1, 0]
    assert made.found("paris") == []


def test_keys_and_rows() -> None:
    made = browse(record(1, {"n": 1}, "a"), record(2, None, "a"), record(3, "x" * 500, None))
    keys = made.keys()
    assert (keys.distinct, keys.without, keys.top) == (1, 1, (("a", 2),))
    rows = made.rows(made.found(""))
    assert (rows[1].value, rows[1].key, rows[1].time) == ("null (deletes its key)", "a", "1970-01-01 00:00:02.000")
    assert len(rows[0].value) < 200
    assert made.change(1) is not None
    assert json.loads(made.whole(0))["value"] == {"n": 1}


def test_a_reading_is_bounded() -> None:
    for given in (0, 10_001):
        with pytest.raises(BrowseLimit, match="from 1 to 10000"):
            Browse(Log(), "t", "newest", given)
    with pytest.raises(PositionInvalid):
        Browse(Log(), "t", "yesterday-ish", 10)


def test_what_stands_in_records_is_no_markup() -> None:
    found = change_of(record(2, {"<b>": "<script>"}), record(1, {"<b>": "&"}))
    assert found is not None
    assert found.fields == (Field("<b>", "&", "<script>", True),)
    drawn = change_table(found)
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (words.count(9_876), "9,876"), (words.count(12_345), "12.3k"), (words.count(4_500_000), "4.5M"),
        (words.count(None), "–"), (words.rate(0.25), "0.2/s"), (words.rate(1_234), "1,234/s"),
        (words.seconds(0.4), "0.4 s"), (words.seconds(90), "90 s"), (words.seconds(300), "5.0 min"),
        (words.seconds(200_000), "2.3 d"), (words.size(1_536), "1.5 KiB"), (words.size(12), "12 B"),
        (words.counted(1, "record"), "1 record"), (words.share(0.004), "0.40%"), (words.share(0.5), "50%"),
    ],
)  # fmt: skip
def test_words(said: str, wanted: str) -> None:
    assert said == wanted
