"""Today's part of the crash matrix: a chain of deaths of one flow, every day others; `make crash` takes all of them.

A mill is fed all the time, dies at each of the places, is started again, and in the end everything is there once.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import psycopg
import pytest

import millrace
from millrace.config import Settings
from tests.crash.cells import CELLS, Cell
from tests.crash.matrix import OPERATORS, Book, Result, chain, chains, main, run
from tests.crash.mill import FLOWS, Mill, servers_of
from tests.rotation import today

FREEZE_S = 3.0
# Of those that end the process, and need a start of Spark each; and of those that it lives through.
KILLS, SURVIVED = 4, 1
_ROOMS = ("jvm", "sinks")


def _of_day(day: int) -> tuple[str, list[str]]:
    """The flow whose turn it is, and so many of its cells; the next ones come at its next turn."""
    turn, number = divmod(day, len(FLOWS))
    flow = FLOWS[number]
    return flow, [*_turn(_cells(flow, kills=True), turn, KILLS), *_turn(_cells(flow, kills=False), turn, SURVIVED)]


def _turn(names: list[str], turn: int, count: int) -> list[str]:
    return [names[(turn * count + number) % len(names)] for number in range(count)]


def _cells(flow: str, *, kills: bool) -> list[str]:
    of = (flow,) if kills else (flow, "all")
    return _spread([name for name, cell in CELLS.items() if cell.flow in of and (cell.room in _ROOMS) == kills])


def _spread(names: list[str]) -> list[str]:
    """Those that follow each other are far apart in the table, so that a day has a bit of everything."""
    step = next(step for step in (5, 7, 11) if len(names) % step or len(names) < step)
    return [names[number * step % len(names)] for number in range(len(names))]


def test_a_cycle_of_days_takes_every_cell() -> None:
    first, days = today(), len(FLOWS) * len(CELLS)
    assert {name for day in range(first, first + days) for name in _of_day(day)[1]} == set(CELLS)


def test_every_place_of_a_cell_is_one_that_somebody_passes() -> None:
    """A place that nobody comes to costs minutes, and says nothing: a name that was changed is seen here."""
    own = Path(millrace.__file__).parent
    files = [path for path in (*own.rglob("*.py"), *own.rglob("*.java")) if path.parent != own / "testing"]
    source = "".join(path.read_text() for path in files)
    passed = set(re.findall(r"FailPoint\.([A-Z_]+)\b", source))
    named = {word for name in CELLS for word in name.split() if re.fullmatch("[A-Z]+(_[A-Z]+)+", word)}
    assert len(named) > 30
    assert named <= passed


def test_chains_take_everything_once_and_what_failed_alone() -> None:
    wanted = [(name, seed) for seed in (1, 2) for name in "abcde"]
    made = list(chains(wanted, {("b", 2)}, 3))
    assert sorted((name, seed) for seed, names in made for name in names) == sorted(wanted)
    assert (2, ["b"]) in made
    assert all(len(names) <= 3 for _, names in made)


def fine(*_: Any) -> list[str]:
    return []


def breaks(*_: Any) -> list[str]:
    raise psycopg.OperationalError("the server closed the connection")


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> dict[str, Cell]:
    """Cells that do nothing to anybody, in the place of the real ones."""
    made = {name: Cell(name, "sinks", "copied", act) for name, act in (("a", fine), ("b", breaks), ("c", fine))}
    monkeypatch.setattr("tests.crash.matrix.CELLS", made)
    return made


MILL: Any = SimpleNamespace(feed=lambda: None)


@pytest.mark.usefixtures("cells")
def test_cells_before_one_that_found_a_fault_are_done_again_as_nobody_judged_them(tmp_path: Path) -> None:
    results = chain(MILL, ["a", "b", "c"], 1)
    assert [(each.cell, each.ok, each.missed) for each in results] == [("a", False, True), ("b", False, False)]
    book = Book(tmp_path / "book.jsonl")
    book.write(results)
    kept = Book(tmp_path / "book.jsonl").results
    assert kept == book.results
    assert not kept["a", 1].ok


@pytest.mark.usefixtures("cells")
def test_an_error_that_nobody_foresaw_is_a_fault_and_its_trace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = chain(MILL, ["b"], 1)
    assert result.faults == ("OperationalError: the server closed the connection",)
    assert "in breaks" in result.trace

    def judged(_: Any) -> list[str]:
        raise psutil.NoSuchProcess(17)

    monkeypatch.setattr("tests.crash.matrix.judged", judged)
    (result,) = chain(MILL, ["a"], 1)
    assert "NoSuchProcess" in result.faults[0]
    assert "in judged" in result.trace


@pytest.mark.usefixtures("cells")
def test_ctrl_c_ends_with_the_table_so_far_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def run(_: Any, __: Any, seed: int, names: list[str], **___: Any) -> list[Result]:
        ran.append(names)
        if len(ran) == 2:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)  # again, while it takes away
                ran.append(["taken away"])
        return [Result(name, seed) for name in names]

    monkeypatch.setattr("tests.crash.matrix.run", run)
    monkeypatch.setattr("tests.crash.matrix.local", SimpleNamespace(held=nullheld, down=lambda _: None))
    book = tmp_path / "book.jsonl"
    words = ["matrix", "--seeds", "1", "--chain", "1", "--results", str(book)]
    monkeypatch.setattr("sys.argv", words)
    before = signal.getsignal(signal.SIGINT)
    assert main() == 130
    assert ran[-1] == ["taken away"]
    assert "| sinks | 1 of 3 | 1 |" in capsys.readouterr().out
    assert main() == 0
    assert ran[3:].count(ran[0]) == 0
    assert ran[3:].count(ran[1]) == 1
    assert set(Book(book).results) == {(name, 1) for name in ("a", "b", "c", OPERATORS)}
    assert signal.getsignal(signal.SIGINT) == before


@contextlib.contextmanager
def nullheld(*_: Any, **__: Any) -> Iterator[None]:
    yield


@pytest.mark.server
def test_a_mill_that_cannot_be_made_says_nothing_of_its_cells(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mill(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("no server")

    monkeypatch.setattr("tests.crash.matrix.Mill", no_mill)
    monkeypatch.setattr("tests.crash.matrix.servers_of", lambda _: ("kafka",))
    (result,) = run(settings, tmp_path / "mill", 1, ["sink SINK_AFTER pg_rows"])
    assert result.missed
    assert result.faults == ("OperationalError: no server",)


@pytest.mark.spark
@pytest.mark.server
def test_todays_deaths(settings: Settings, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = today() % 1000
    flow, names = _of_day(today())
    for server in servers_of([flow])[1:]:
        request.getfixturevalue(server)
    mill = Mill(settings, tmp_path / "mill", "crash", seed, only=(flow,))
    try:
        results = chain(mill, names, seed, freeze_s=FREEZE_S)
    finally:
        mill.close()
    assert [(each.cell, each.faults) for each in results if each.faults] == []
    assert [each.cell for each in results if each.missed] == []
    assert len(results) == len(names)
