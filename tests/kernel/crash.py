"""Operators whose process is killed in the middle of their commits, and at any other moment, end as their models.

    python -m tests.kernel.crash --seeds 3        (a line of the crash matrix: make crash CELLS=operators)

A process with queries of operators (`specimens`) is killed with its JVM, kill -9, and started again: first a few at a
time, each when it stands at a named place of its commit (`FailPoint.java`), then all at random moments. In the end
every epoch's rows are compared with the model. Prints one line a seed, and where the queries were hit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millrace.failpoint import VARIABLE
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import environ, until
from tests.crash.supervisor import Points
from tests.kernel.parts import Part, made, write
from tests.kernel.specimens import OUT, SPECIMENS

JVM, DONE, FAIL_POINTS = "jvm", "done", "points"
LIMIT_S = 300
# Places in the commit of an epoch, and what is there of it when one stands there.
_STATE = ("begun, no state", "some state", "all state, not told")
POINTS: dict[str, tuple[str, ...]] = {
    "STATE_BEFORE": _STATE,
    "STATE_WRITTEN": _STATE,
    "STATE_AFTER": _STATE,
    "COMMITS_BEFORE": ("told, not committed",),
    "COMMITS_WRITTEN": ("told, not committed",),
    "COMMITS_LINKED": ("between epochs",),
    "COMMITS_AFTER": ("between epochs",),
}
# Others that pass there before: files of state, or commits.
MOST_BEFORE = 3
# From the file that was waited for to the kill, so that it comes at any time of an epoch.
LONGEST_S = 0.3


@dataclass
class Result:
    seed: int
    kills: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    # Of operators that were killed in their commit the place.
    inside: dict[str, str] = field(default_factory=dict)
    epochs: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        hit = ", ".join(f"{where} {count}" for where, count in sorted(self.hit.items())) or "none"
        hit += f"; in their commits {len(self.inside)} operators"
        verdict = "ok" if not self.faults else f"{len(self.faults)} FAULTS, first: {self.faults[0]}"
        return f"seed {self.seed}: {self.kills} kills, {self.epochs} epochs, {self.seconds:.0f} s; hit {hit}: {verdict}"


def crash(folder: Path, names: Sequence[str], seed: int, *, kills: int, count: int) -> Result:
    """The named specimens, each in its part of the folder, killed in their commits and so many times more, over so many
    epochs."""
    draw, began, result = random.Random(seed), time.monotonic(), Result(seed)
    parts = made(draw, count)
    for name in names:
        (folder / name).mkdir(parents=True)
        for number, part in enumerate(parts):
            write(folder / name, number, part)
    for several in _several(draw.sample(names, len(names)), len(POINTS)):
        _kill_inside(folder, dict(zip(several, draw.sample(list(POINTS), len(several)), strict=True)), draw, result)
    for number in range(kills if not result.faults else 0):
        # An epoch is begun, writes the state of two partitions, and is committed. The first of these may be of one that
        # is done again.
        there = _files(folder, names)
        left = max(4 * len(parts) * len(names) - there, 1)
        reached = there + draw.randint(1, max(left // (kills - number + 1), 1))
        # In another order each time: whoever is started first has come furthest when it is hit.
        child = _started(folder, draw.sample(names, len(names)))
        try:
            _reach(folder, names, reached, child)
            time.sleep(draw.uniform(0, LONGEST_S))
        finally:
            ended = child.poll() is not None
            _kill(folder, child)
        if ended:
            break
        result.kills += 1
        result.hit += Counter(_where(folder / name) for name in names)
    child = _started(folder, names)
    try:
        until(lambda: child.poll() is not None, "the rest of the epochs", LIMIT_S)
    finally:
        _kill(folder, child)
    if not (folder / DONE).exists():
        result.faults.append(f"the last run ended with {child.returncode}: {_words(folder)}")
    result.epochs = sum(len(list((folder / name / OUT).glob("*.json"))) for name in names)
    result.faults += _faults(folder, names, parts) if not result.faults else []
    result.seconds = time.monotonic() - began
    return result


def _several(names: list[str], most: int) -> list[list[str]]:
    return [names[first : first + most] for first in range(0, len(names), most)]


def _kill_inside(folder: Path, places: Mapping[str, str], draw: random.Random, result: Result) -> None:
    """Kills them when each stands at its place, where it waits for the others."""
    points = Points(folder / FAIL_POINTS)
    points.clear()
    for name, point in places.items():
        (points.folder / point).write_text(f"/{name}/checkpoint/\n{draw.randint(0, MOST_BEFORE)}\n")

    def there() -> bool:
        return all(points.reached(point) is not None for point in places.values())

    child = _started(folder, list(places))
    try:
        until(lambda: there() or child.poll() is not None, f"{places}", LIMIT_S)
        ended = child.poll() is not None
    finally:
        _kill(folder, child)
    away = [f"{name} never came to {point}" for name, point in places.items() if points.reached(point) is None]
    points.clear()
    result.faults += [f"{words}: {_words(folder)}" for words in away]
    if ended or away:
        return
    result.kills += 1
    result.inside |= places
    for name, point in places.items():
        result.hit[point] += 1
        if (where := _where(folder / name)) not in POINTS[point]:
            result.faults.append(f"{name} stood at {point}, and was {where}")


def _faults(folder: Path, names: Sequence[str], parts: list[Part]) -> list[str]:
    return [f"{name}: {fault}" for name in names for fault in SPECIMENS[name].faults(folder / name, parts)]


def _started(folder: Path, names: Sequence[str]) -> subprocess.Popen[bytes]:
    (folder / JVM).unlink(missing_ok=True)
    with (folder / "console").open("ab") as console:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.kernel.crash", "--run", str(folder), *names],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env=environ({VARIABLE: str(folder / FAIL_POINTS)}),
            start_new_session=True,
        )


def _kill(folder: Path, child: subprocess.Popen[bytes]) -> None:
    """The JVM first: it is what writes. It would otherwise notice that Python is gone, and end in its own time."""
    jvm = folder / JVM
    pids = [int(jvm.read_text()), child.pid] if jvm.exists() else [child.pid]
    for pid in pids if child.poll() is None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()


def _files(folder: Path, names: Sequence[str]) -> int:
    """How many files the checkpoints have of epochs begun, state written, and epochs committed."""
    kinds = ("offsets/[0-9]*", "commits/[0-9]*", "state/*/*/[0-9]*")
    return sum(len(list((folder / name / "checkpoint").glob(kind))) for name in names for kind in kinds)


def _reach(folder: Path, names: Sequence[str], files: int, child: subprocess.Popen[bytes]) -> None:
    until(lambda: _files(folder, names) >= files or child.poll() is not None, "more epochs", LIMIT_S)


def _where(folder: Path) -> str:
    """How far the epoch at hand had come, by what it left."""
    checkpoint = folder / "checkpoint"
    begun, done = (max(_numbers(checkpoint / log), default=-1) for log in ("offsets", "commits"))
    if begun == done:
        return "between epochs"
    if (folder / OUT / f"{begun}.json").exists():
        return "told, not committed"
    # The state of epoch n has version n + 1. With an id in its name, what is there is not yet what counts.
    written = {path.parent.name for path in (checkpoint / "state").glob(f"*/*/{begun + 1}_*")}
    partitions = {path.name for path in (checkpoint / "state").glob("*/*") if path.name.isdigit()}
    if not written:
        return "begun, no state"
    return "some state" if written < partitions else "all state, not told"


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []


def _words(folder: Path) -> str:
    return (folder / "console").read_text(errors="replace")[-500:]


def run(folder: Path, names: Sequence[str]) -> None:
    """The process that is killed: a query of each, all at once."""
    from dataclasses import replace

    from pyspark import SparkContext

    from millrace import config
    from millrace.engine.session import close, session

    settings = config.load(folder)
    options = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.sql.shuffle.partitions": "2"}
    spark = session(replace(settings, spark=replace(settings.spark, options=options)), "local[4]", "crash")
    assert SparkContext._gateway is not None
    (folder / f"{JVM}.new").write_text(str(SparkContext._gateway.proc.pid))  # type: ignore[attr-defined]
    (folder / f"{JVM}.new").replace(folder / JVM)
    queries = [SPECIMENS[name].start(spark, folder / name) for name in names]
    for query in queries:
        query.awaitTermination()
    (folder / DONE).touch()
    close(spark)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--run", metavar="FOLDER", help="be the process that is killed")
    parser.add_argument("names", nargs="*", default=list(SPECIMENS), help=f"which of {', '.join(SPECIMENS)}")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--kills", type=int, default=5, help="of each seed, beside those in commits")
    parser.add_argument("--epochs", type=int, default=14, help="that each query has")
    args = parser.parse_args()
    if args.run:
        run(Path(args.run), args.names)
        return 0
    failed, totals = 0, Counter[str]()
    for seed in range(args.first, args.first + args.seeds):
        folder = Path(tempfile.mkdtemp(prefix="millrace-crash-"))
        result = crash(folder, args.names, seed, kills=args.kills, count=args.epochs)
        print(result.line(), flush=True)
        for fault in result.faults[1:]:
            print(f"  {fault}")
        failed += bool(result.faults)
        totals += result.hit + Counter({"kills": result.kills, "in commits": len(result.inside)})
        if not result.faults:
            shutil.rmtree(folder)
    print(json.dumps({"crash": "kernel", "seeds": args.seeds, "failed": failed, **totals}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
