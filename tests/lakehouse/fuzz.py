"""Random epochs into a lake table, of a table's changes by key or of rows that are added, with repeats, failures,
compactions and columns that come and grow in between; then every version is compared with what the table was at that
place.

    python -m tests.lakehouse.fuzz --seeds 20 --epochs 12        (make fuzz-lake SEEDS=20)
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace import config, local
from millrace.config import Settings
from millrace.lakehouse import Catalog, LakeTable
from millrace.lakehouse.asking import connected, words
from millrace.lakehouse.compacting import compact
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Writer, lake_here, lake_merging
from millrace.sinks import lake_writer as writing
from millrace.sinks.lake import Lake, lake
from tests.lakehouse.buckets import in_bucket

KEYS = 60
MOST_CHANGES = 25
FLOW = "fuzz.items"


class Broken(Exception):
    """A write that was cut off."""


@dataclass
class Fuzz:
    """`state` is what the table is: by key its columns and its place in the log; where rows are added, by their number.
    `versions` is what it was. An epoch that is written twice shows only where rows are added: keys hide it."""

    spark: SparkSession
    settings: Settings
    folder: Path
    kind: Any
    seed: int
    keyed: bool = True
    state: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    number: int = 0
    offset: int = 0
    feed: Feed | None = None
    writer: Writer | None = None

    def __post_init__(self) -> None:
        self.draw = random.Random(f"{self.kind} {self.seed}" + ("" if self.keyed else " rows"))
        self.sink: Lake = lake(
            f"fuzz_{self.kind}_{self.seed}" + ("" if self.keyed else "_rows"),
            format=self.kind,
            key="id" if self.keyed else None,
            partition_by=self.draw.choice(["", "region"]) or (),
        )
        self.columns = {"id": "int", "region": "string", "amount": "decimal(6,2)"}

    def run(self, epochs: int) -> list[str]:
        """Sentences about what is wrong."""
        steps: list[Callable[[], None]] = [self.compacted, self.grown, self.cut_off, self.widened]
        for _ in range(epochs):
            self.epoch()
            if self.draw.random() < 0.4:
                self.draw.choice(steps)()
        return self.faults()

    def epoch(self) -> None:
        changes = self.changes()
        rows = self.frame(changes)
        self.write(rows)
        self.note(changes)
        if self.draw.random() < 0.3:
            self.number -= 1
            self.write(rows)  # as after a crash before the flow knew

    def changes(self) -> dict[int, dict[str, Any] | None]:
        """By key the row that it now has, or None; or rows that are added, alike ones too."""
        found: dict[int, dict[str, Any] | None] = {}
        if not self.keyed:
            first = self.offset + 1
            return {first + n: self.row(self.draw.randrange(KEYS)) for n in range(self.draw.randint(0, MOST_CHANGES))}
        # Mostly what is new, sometimes anything.
        newest = self.draw.random() < 0.5
        for _ in range(self.draw.randint(0, MOST_CHANGES)):
            low = max(self.state, default=0) if newest else 0
            key = low + self.draw.randrange(10 if newest else KEYS)
            there = key in self.state and found.get(key, 1) is not None
            found[key] = None if there and self.draw.random() < 0.4 else self.row(key)
        return found

    def row(self, key: int) -> dict[str, Any]:
        made: dict[str, Any] = {"id": key}
        for name, kind in self.columns.items():
            if name != "id":
                made[name] = None if self.draw.random() < 0.1 else self.value(kind)
        return made

    def value(self, kind: str) -> Any:
        if kind == "string":
            return self.draw.choice(["north", "south", "a/b", "ä=ö", "x" * 40])
        if kind.startswith("decimal"):
            return Decimal(self.draw.randrange(-999_999, 1_000_000)).scaleb(-2)
        return self.draw.randrange(-1000, 1000)

    def frame(self, changes: dict[int, dict[str, Any] | None]) -> DataFrame:
        rows = []
        for key, row in changes.items():
            self.offset += 1
            given = row if row is not None else self.state.get(key, {"id": key})
            if row is not None and self.keyed:
                row[VERSION] = self.offset
            rows.append((*(given.get(name) for name in self.columns), 1 if row is not None else -1, self.offset))
        words = [f"{name} {kind}" for name, kind in self.columns.items()]
        return self.spark.createDataFrame(rows, ", ".join([*words, f"{DIFF} int", f"{VERSION} long"]))

    def write(self, rows: DataFrame) -> None:
        """By one writer until the columns change, with another measure of what is small and what is much."""
        ranges = f'[{{"items":{{"0":[{self.number},{self.number + 1}]}}}}]'
        feed = self._feed(rows)
        if self.writer is None or feed != self.feed:
            self.shut()
            self.feed, self.writer = feed, self.sink.open(self.settings, FLOW, feed, self.folder / self.sink.name)
        with _measured(self.draw):
            self.writer.write(Epoch(FLOW, self.number, ranges), rows, _refuse)
        self.number += 1

    def shut(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def note(self, changes: dict[int, dict[str, Any] | None]) -> None:
        for key, row in changes.items():
            if row is None:
                self.state.pop(key, None)
            else:
                self.state[key] = row
        with Catalog(self.settings).opened(self.sink.table) as table:
            self.versions[table.version] = {key: dict(row) for key, row in self.state.items()}

    # Between epochs

    def compacted(self) -> None:
        with Catalog(self.settings).opened(self.sink.table) as table:
            compact(table)

    def grown(self) -> None:
        self.columns[f"more{len(self.columns)}"] = self.draw.choice(["string", "int"])

    def widened(self) -> None:
        wider = {"int": "long", "decimal(6,2)": "decimal(12,2)"}
        self.columns = {name: wider.get(kind, kind) for name, kind in self.columns.items()}

    def cut_off(self) -> None:
        """The files are there, the commit never comes; the epoch comes again with what it then is."""
        committed = writing.LakeWriter._commit
        self.shut()  # a writer that is open knows its own

        def broken(_: Any, __: Any) -> None:
            raise Broken

        writing.LakeWriter._commit = broken  # type: ignore[method-assign]
        try:
            with contextlib.suppress(Broken):
                self.write(self.frame(self.changes()))
        finally:
            self.shut()
            writing.LakeWriter._commit = committed  # type: ignore[method-assign]

    # The judge

    def faults(self) -> list[str]:
        self.shut()
        found = []
        with Catalog(self.settings).opened(self.sink.table) as table, connected(place=table.place) as connection:
            for version in table.versions():
                known = [number for number in self.versions if number <= version.number]
                wanted = self.versions[max(known)] if known else {}
                for scan in {table.scan(version), words(table, version)}:
                    rows = connection.sql(f"SELECT * FROM {scan}").to_arrow_table().to_pylist()
                    held = [_plain(row) for row in rows]
                    if sorted(held) != sorted(map(_plain, wanted.values())):
                        told = f"version {version.number} differs in {scan[:12]}: {_some(held, wanted)}"
                        found.append(f"{self.kind} {self.seed}: {told}")
            found += self.orphans(table)
        return found

    def orphans(self, table: LakeTable) -> list[str]:
        with contextlib.closing(
            self.sink.open(self.settings, FLOW, self._feed(self.frame({})), self.folder / self.sink.name)
        ):
            pass  # which removes what was left
        known = {each.note.folder for each in table.versions() if each.note is not None}
        folders = {f"{FLOW}/{name}" for name in table.place.names(f"data/{FLOW}")}
        return [f"{self.kind} {self.seed}: {each} is in no version" for each in folders - known]

    def _feed(self, rows: DataFrame) -> Feed:
        return Feed(rows.drop(DIFF, VERSION).schema, self.sink.key, self.keyed)


@contextlib.contextmanager
def _measured(draw: random.Random) -> Iterator[None]:
    """What is small, too much or too deep, drawn so that rows of a few kilobytes take every way."""
    drawn = {"SMALL_BYTES": (0, 2_500, 4_000_000), "ROWS_A_CORE": (4, 50_000), "BYTES_A_FILE": (2_000, 32_000_000)}
    drawn |= {"MOST_SMALL": (2, 8), "MOST_DEEP": (1, 5), "BROADCAST_KEYS": (0, 500_000)}
    before = {name: getattr(lake_merging, name) for name in drawn}
    here = lake_here.KEYS_HERE
    try:
        for name, values in drawn.items():
            setattr(lake_merging, name, draw.choice(values))
        lake_here.KEYS_HERE = draw.choice((0, here))  # by Spark, or by the driver
        yield
    finally:
        lake_here.KEYS_HERE = here
        for name, value in before.items():
            setattr(lake_merging, name, value)


def _plain(row: dict[str, Any]) -> str:
    """Without what is null: columns came later."""
    return str(sorted((name, str(value)) for name, value in row.items() if value is not None))


def _some(held: list[str], wanted: dict[int, dict[str, Any]]) -> str:
    right = set(map(_plain, wanted.values()))
    return f"lacks {sorted(right - set(held))[:3]}, has {sorted(set(held) - right)[:3]}, {len(held)} for {len(right)}"


def _refuse(rows: Any) -> None:
    raise AssertionError(rows)


def main() -> None:
    from millrace.engine.session import close, session

    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--s3", action="store_true", help="in a bucket of the local S3")
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="millrace-fuzz-") as name:
        settings = config.load(Path(name))
        with local.held(settings, ("postgres", "s3proxy") if args.s3 else ("postgres",)):
            settings = in_bucket(settings, "mill/fuzz") if args.s3 else settings
            spark = session(settings, "local[2]", "fuzz")
            for seed in range(args.first, args.first + args.seeds):
                for kind, keyed in itertools.product(("delta", "iceberg"), (True, False)):
                    fuzz = Fuzz(spark, settings, Path(name) / "own", kind, seed, keyed)
                    wrong += (found := fuzz.run(args.epochs))
                    sort = "keys" if keyed else "rows"
                    print(f"{kind} {seed}, {sort}: {len(fuzz.versions)} epochs, {found or 'right'}", flush=True)
            close(spark)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
