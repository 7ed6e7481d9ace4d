"""Every death of the matrix, many times: chains of cells on one mill, each chain judged at its end.

    python -m tests.crash.matrix --seeds 20        (make crash SEEDS=20)

A result is written as soon as it is there (`--results`); what is there already is not done again, so a run that was
interrupted goes on. Ctrl-C takes away the chain at hand, which nobody judged, and ends with the table so far. Cells of
a chain that failed are tried again one by one. Ends with a table. The keyed operators of the kernel against their
models (`tests.kernel.crash`) are a line of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from millrace import config, local
from millrace.config import Settings
from millrace.errors import MillraceError
from tests.crash.cells import CELLS, NotReached
from tests.crash.mill import FLOWS, Mill, servers_of
from tests.crash.oracles import faults
from tests.kernel.crash import crash as kill_operators
from tests.kernel.specimens import SPECIMENS

FREEZE_S = 30.0
CHAIN = 16
OPERATORS = "operators"
_BAR = 30


@dataclass(frozen=True)
class Result:
    """Of one cell with one seed. `missed`: nobody came to its place, or nobody judged what it left, so it says nothing
    and is to be run again. `trace` is that of an error which nobody foresaw."""

    cell: str
    seed: int
    faults: tuple[str, ...] = ()
    missed: bool = False
    seconds: float = 0.0
    trace: str = ""

    @property
    def ok(self) -> bool:
        return not self.faults and not self.missed


def chain(mill: Mill, names: Sequence[str], seed: int, *, freeze_s: float = FREEZE_S) -> list[Result]:
    """Does one cell after the other to a mill, then lets it end its work, and judges. What is wrong at the end may be
    any cell's: all of them have that fault. Where one cell finds a fault by itself, nobody judges those before it."""
    results: list[Result] = []
    mill.feed()
    for name in names:
        began, draw, missed, trace = time.monotonic(), random.Random(f"{name} {seed}"), False, ""
        try:
            found = CELLS[name].act(mill, draw, freeze_s)
        except NotReached as error:
            found, missed = [], True
            print(f"{name}: {error}", file=sys.stderr)
        except Exception as error:
            found, trace = [told(error)], traceback.format_exc()
        seconds = round(time.monotonic() - began, 1)
        if found:
            return [
                *(replace(each, missed=True) for each in results),
                Result(name, seed, (*found,), missed, seconds, trace),
            ]
        results.append(Result(name, seed, (), missed, seconds))
    trace = ""
    try:
        found = judged(mill)
    except Exception as error:
        found, trace = [told(error)], traceback.format_exc()
    return [replace(each, faults=tuple(found), trace=trace) for each in results] if found else results


def told(error: Exception) -> str:
    """An assertion's own words, or a sentence of ours; of anything else what it is as well."""
    known = isinstance(error, AssertionError | MillraceError) and str(error)
    return str(error) if known else f"{type(error).__name__}: {error}"


def judged(mill: Mill) -> list[str]:
    """Whether the mill comes to an end by itself, with everything right and nothing left behind."""
    mill.start()
    for _ in range(2):  # the second time there are rows that come late, whatever was killed when
        mill.feed()
        if found := mill.recovers():
            return found
    if found := mill.stop():
        return found
    return [*faults(mill.events, mill.seen(), mill.window, mill.items), *mill.left_behind()]


def flows_of(names: Sequence[str]) -> tuple[str, ...]:
    """Those that cells need: one flow starts several times quicker than three."""
    needed = {CELLS[name].flow for name in names}
    return tuple(needed) if len(needed) == 1 and needed <= set(FLOWS) else FLOWS


def chains(
    wanted: Iterable[tuple[str, int]], again: set[tuple[str, int]], length: int
) -> Iterator[tuple[int, list[str]]]:
    """Seed by seed, cells of one flow in an order of chance; those that failed before alone."""
    groups: dict[tuple[int, str], list[str]] = {}
    for name, seed in wanted:
        group = name if (name, seed) in again or name not in CELLS else CELLS[name].flow
        groups.setdefault((seed, group), []).append(name)
    for (seed, _), names in sorted(groups.items(), key=lambda each: each[0][0]):
        random.Random(seed).shuffle(names)
        for first in range(0, len(names), length):
            yield seed, names[first : first + length]


class Book:
    """The results so far, in a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.results = path, {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            raw = json.loads(line)
            self._keep(Result(**{**raw, "faults": tuple(raw["faults"])}))

    def _keep(self, result: Result) -> None:
        self.results[result.cell, result.seed] = result

    results: dict[tuple[str, int], Result]

    def write(self, results: Iterable[Result]) -> None:
        with self.path.open("a") as file:
            for result in results:
                self._keep(result)
                file.write(json.dumps(asdict(result)) + "\n")

    def table(self) -> str:
        """In Markdown: a line for each room."""
        rooms: dict[str, list[Result]] = {}
        for result in self.results.values():
            rooms.setdefault(CELLS[result.cell].room if result.cell in CELLS else result.cell, []).append(result)
        lines = ["| room | cells | runs | seeds | to do again | faults |", "| --- | --- | --- | --- | --- | --- |"]
        for room, found in rooms.items():
            seeds = sorted({each.seed for each in found})
            words = [
                room,
                f"{len({each.cell for each in found})} of {max(1, sum(cell.room == room for cell in CELLS.values()))}",
                sum(not each.missed for each in found),
                f"{seeds[0]} to {seeds[-1]}",
                sum(each.missed for each in found),
                sum(bool(each.faults) for each in found),
            ]
            lines.append(f"| {' | '.join(map(str, words))} |")
        return "\n".join(lines)


def operators(seed: int, folder: Path) -> Result:
    began, trace = time.monotonic(), ""
    try:
        found = kill_operators(folder, list(SPECIMENS), seed, kills=5, count=14).faults
    except Exception as error:
        found, trace = [told(error)], traceback.format_exc()
    return Result(OPERATORS, seed, tuple(found), seconds=round(time.monotonic() - began, 1), trace=trace)


@contextlib.contextmanager
def milled(settings: Settings, folder: Path, seed: int, only: tuple[str, ...]) -> Iterator[Mill]:
    servers = servers_of(only)
    local.up(settings, servers)
    mill = Mill(settings, folder, f"c{seed}-{os.getpid()}-{time.monotonic_ns() % 1_000_000}", seed, only=only)
    try:
        yield mill
    finally:
        try:
            local.up(settings, servers)
        finally:
            mill.close()


def run(
    settings: Settings, folder: Path, seed: int, names: Sequence[str], *, freeze_s: float = FREEZE_S
) -> list[Result]:
    """One chain, on a mill of its own. What a chain with faults wrote is kept. Whatever goes wrong, the next one can
    follow: a server that the last one left down is started first, and is again for what the mill has to take away."""
    if list(names) == [OPERATORS]:
        results = [operators(seed, folder)]
    else:
        results = []
        try:
            with milled(settings, folder, seed, flows_of(names)) as mill:
                results = chain(mill, names, seed, freeze_s=freeze_s)
        except Exception as error:  # before the first cell, or after the last
            trace = traceback.format_exc()
            print(trace, file=sys.stderr)
            results = results or [Result(name, seed, (told(error),), missed=True, trace=trace) for name in names]
    if all(each.ok for each in results):
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _bar(done: int, total: int, began: float) -> str:
    filled = _BAR * done // max(total, 1)
    left_s = (time.monotonic() - began) / max(done, 1) * (total - done)
    return f"[{'█' * filled}{'·' * (_BAR - filled)}] {done}/{total}, about {left_s / 60:.0f} min left"


def _work(args: argparse.Namespace, book: Book, say: Callable[[str], None]) -> None:
    names = [name for name in (*CELLS, OPERATORS) if not args.cells or any(part in name for part in args.cells)]
    pairs = [(name, seed) for seed in range(args.first, args.first + args.seeds) for name in names]
    wanted = [pair for pair in pairs if pair not in book.results or not book.results[pair].ok]
    again = {pair for pair in wanted if pair in book.results and book.results[pair].faults}
    settings = config.load(Path(tempfile.mkdtemp(prefix="millrace-crash-")))
    began, done, deadline = time.monotonic(), 0, time.monotonic() + 60 * args.minutes
    flows = {flow for name, _ in wanted if name in CELLS for flow in flows_of([name])}
    with local.held(settings, servers_of(flows), say=say):
        for seed, cells in chains(wanted, again, args.chain):
            if time.monotonic() > deadline:
                break
            place = Path(tempfile.mkdtemp(prefix=f"millrace-crash-{seed}-"))
            results = run(settings, place / "mill", seed, cells, freeze_s=args.freeze)
            book.write(results)
            done += len(cells)
            say(_bar(done, len(wanted), began))
            for each in results:
                if not each.ok:
                    say(f"{each.cell}, seed {seed}: {'; '.join(each.faults) or 'not reached'} (see {place})")
        local.down(settings)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C, or being asked to end, counts once: what follows it is taking away, and not to be cut off as well."""

    def interrupted(*_: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: None)  # not SIG_IGN, which servers that are started again would have too
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupted) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("cells", nargs="*", help="only those whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--chain", type=int, default=CHAIN, help="cells that one mill suffers before it is judged")
    parser.add_argument("--freeze", type=float, default=FREEZE_S, help="seconds for which a server stands still")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no chain after these")
    parser.add_argument("--results", type=Path, default=Path("build/crash.jsonl"), help="what is there goes on from it")
    args = parser.parse_args()
    # As `tests/conftest.py` does, and for the same reason: no JVM here lives long enough for the second compiler.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    book, interrupted = Book(args.results), False
    try:
        with _interruptible():
            _work(args, book, lambda text: print(text, flush=True))
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: the same command goes on where it was", flush=True)
    print(book.table())
    bad = [each for each in book.results.values() if not each.ok]
    print(json.dumps({"crash": "matrix", "runs": len(book.results), "failed": len(bad)}))
    return 128 + signal.SIGINT if interrupted else 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
