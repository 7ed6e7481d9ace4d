"""Lines to records: every line is written, blank or refused with its number and reason, wherever the input is cut."""

from __future__ import annotations

import json
import os
import threading
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import LineTooLong
from millrace.log import lines as lines_module
from millrace.log.lines import LineWriter, RefusedLine, chunks
from millrace.log.writer import Writer


class Paper:
    """Takes what a writer is given."""

    limit_bytes = 400

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []

    def write_batch(self, values: list[bytes], keys: list[bytes | None] | None = None) -> None:
        self.records += zip(values, keys or [None] * len(values), strict=True)


def written(
    content: bytes, cuts: list[int] | None = None, **options: Any
) -> tuple[Paper, list[RefusedLine], LineWriter]:
    """The records of an input that arrives in pieces cut at these places."""
    paper, refused = Paper(), list[RefusedLine]()
    lines = LineWriter(cast(Writer, paper), refused.append, **options)
    places = sorted({min(cut, len(content)) for cut in cuts or ()} | {0, len(content)})
    reading, writing = os.pipe()

    def feed() -> None:
        for start, end in pairwise(places):
            os.write(writing, content[start:end])
        os.close(writing)

    thread = threading.Thread(target=feed)
    thread.start()
    for chunk in chunks(reading):
        lines.write(chunk)
    thread.join()
    os.close(reading)
    return paper, refused, lines


def is_json(line: bytes) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(line.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


good = st.sampled_from([b'{"k":"a"}', b'{"k": 1, "x": [1, 2]}', b" [1] ", b'"\xc3\xbc"', b"1", b"null", b'{"k":null}'])
bad = st.sampled_from(
    [b"{", b"nope", b'{"k":1} x', b"\xff", b"NaN", b'{"a":Infinity}', b"[1,", b"1,2", b"'a'", b"\x00"]
)
blank = st.sampled_from([b"", b"  ", b"\r"])
inputs = st.lists(good | good | good | bad | blank, max_size=12)


@given(inputs, st.booleans(), st.lists(st.integers(0, 200), max_size=5))
def test_each_line_has_its_fate(given_lines: list[bytes], newline: bool, cuts: list[int]) -> None:
    content = b"\n".join(given_lines) + (b"\n" if newline and given_lines else b"")
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()  # what follows the last line end is no line
    paper, refused, lines = written(content, cuts)
    there = [(number, line) for number, line in enumerate(expected, 1) if line.strip()]
    assert [value for value, _ in paper.records] == [line for _, line in there if is_json(line)]
    assert [(line.number, line.content) for line in refused] == [(n, line) for n, line in there if not is_json(line)]
    assert all(line.reason for line in refused)
    assert lines.tally.written == len(paper.records)
    assert lines.tally.refused == len(refused)
    assert lines.tally.written + lines.tally.refused + lines.tally.blank == len(expected)


@given(inputs, st.lists(st.integers(0, 200), max_size=5))
def test_the_key_is_a_field(given_lines: list[bytes], cuts: list[int]) -> None:
    paper, refused, _ = written(b"\n".join(given_lines), cuts, key="k")
    keys = {b'{"k":"a"}': b"a", b'{"k": 1, "x": [1, 2]}': b"1"}
    assert paper.records == [(line, keys[line]) for line in given_lines if line in keys]
    assert len(refused) == sum(1 for line in given_lines if line.strip() and line not in keys)


def test_raw_lines_are_not_looked_at() -> None:
    paper, refused, lines = written(b"{\n\n\xff\nlast", raw=True)
    assert [value for value, _ in paper.records] == [b"{", b"", b"\xff", b"last"]
    assert not refused
    assert lines.tally.written == 4


def test_reasons_say_what_and_where() -> None:
    content = b'{"a":1,}\n\xff\n{}\n' + b'"' + b"x" * 500 + b'"\n' + b"[" * 200_000
    _, refused, _ = written(content, key=None)
    reasons = {line.number: line.reason for line in refused}
    assert reasons[1].startswith("not JSON: ")
    assert "column 8" in reasons[1]
    assert reasons[2].startswith("not UTF-8")
    assert "the topic takes 400" in reasons[4]
    assert "nested too deeply" in reasons[5]
    _, refused, _ = written(b'{"a":1}\n{"k":null}\n[1]', key="k")
    assert [line.reason for line in refused] == [
        "it has no field 'k', which was to be the key",
        "the field that was to be the key is null",
        "it has no field 'k', which was to be the key",
    ]


def test_windows_line_ends_are_no_part_of_a_value() -> None:
    paper, _, _ = written(b'{"a":1}\r\n[2]\r\n')
    assert [value for value, _ in paper.records] == [b'{"a":1}', b"[2]"]


def test_an_input_without_line_ends_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LONGEST_LINE_BYTES", 1_000)
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 100)
    with pytest.raises(LineTooLong, match="line 3 of the input"):
        written(b"1\n2\n" + b"x" * 3_000)
