"""A look that fails leaves what was known, with the reason; the next one mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.capture.status import TableStatus
from millrace.console.captures import progress
from millrace.console.looking import Looking
from millrace.console.source_line import around
from millrace.errors import ServerDown, Where


def test_a_look_that_fails_keeps_the_last_answer(tmp_path: Path) -> None:
    answers: list[object] = [1, ServerDown(server="kafka"), KeyError("what\nnobody foresaw"), 2]

    def look() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    looking = Looking("test", look, 1.0, tmp_path / "log")
    assert looking.waiting
    seen = []
    for _ in range(4):
        looking.once()
        seen.append((looking.found, looking.trouble.code if looking.trouble else None))
    assert seen == [(1, None), (1, "MR-SERVER-DOWN"), (1, "MR-UNEXPECTED"), (2, None)]
    assert not looking.waiting


def test_it_looks_until_it_is_ended(tmp_path: Path) -> None:
    looking = Looking("test", lambda: looking.end(), 0.0, tmp_path / "log")
    looking.start()
    looking.join(10)
    assert not looking.is_alive()


@pytest.mark.parametrize(
    ("phase", "records", "estimated", "done"),
    [
        ("waiting", 0, 100, 0.0),
        ("snapshot", 25, 100, 0.25),
        ("snapshot", 250, 100, 1.0),
        ("snapshot", 25, None, None),
        ("snapshot", 25, -1, None),  # PostgreSQL before the table was ever analyzed
        ("streaming", 0, 0, 1.0),
    ],
)
def test_how_far_a_snapshot_is(phase: str, records: int, estimated: int | None, done: float | None) -> None:
    assert progress(TableStatus("t", "t", phase, records, estimated, 0.0, None, None)) == done


def test_the_lines_around_a_node(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("\n".join(f"line {number}" for number in range(1, 20)))
    shown = around(Where(str(file), 2)).splitlines()
    assert shown == ["     1  line 1", ">    2  line 2", "     3  line 3", "     4  line 4", "     5  line 5"]
    assert around(Where(str(tmp_path / "gone.py"), 2)) == ""
