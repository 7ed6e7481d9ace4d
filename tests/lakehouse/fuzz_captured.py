"""Random SQL on a captured database, whose tables a run keeps in the lake; then every version of each table is compared
with what PostgreSQL's own was, as noted by LSN after each transaction.

    python -m tests.lakehouse.fuzz_captured --seeds 20 --transactions 24        (make fuzz-lake SEEDS=20)

Of a version that ends within a transaction, each row is what it was after the last transaction that the version has
whole for it. What a record says is not believed, only which key it is of, and its LSN.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

import millrace as mr
from millrace import config, local
from millrace.capture import capture
from millrace.engine.session import close, session
from millrace.flow import App
from millrace.lakehouse import Catalog, LakeTable, Version, moments
from millrace.lakehouse.asking import connected
from millrace.lakehouse.compacting import compact
from millrace.testing.checkpoints import forget_commit
from millrace.testing.plugin import JAVA_OPTIONS, MASTER, TWO
from tests.command import until
from tests.engine.items import once
from tests.shop import Shop, opened

KEYS, MOST_ROWS = 40, 6
# After these transactions both tables have a version more, whatever is drawn.
SURE = (1, 4, 7)
# By name: the columns, and which of them are the key.
TABLES: Mapping[str, tuple[str, int]] = {
    "items": ("id int, region text, amount numeric(8, 2), note text", 1),
    "lines": ("item int, line text, amount bigint, at timestamptz", 2),
}
Rows = dict[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class Change:
    """A record of a topic: of which key, and which transaction made it; 0 is the snapshot."""

    partition: int
    offset: int
    key: tuple[Any, ...]
    number: int


@dataclass
class Captured:
    """`states` are the tables after each transaction, `ends` the LSNs at which they were that."""

    spark: SparkSession
    shop: Shop
    seed: int
    states: list[dict[str, Rows]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    marks: int = 0
    compared: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(f"captured {self.seed}")
        formats = self.draw.sample(["delta", "iceberg"], 2)
        self.formats = dict(zip(TABLES, formats, strict=True))
        self.divided = {"items": self.draw.choice(["", "region"]), "lines": self.draw.choice(["", "item"])}

    def run(self, transactions: int) -> list[str]:
        """Sentences about what is wrong."""
        for name, (columns, key) in TABLES.items():
            names = ", ".join(each.split()[0] for each in columns.replace("(8, 2)", "").split(",")[:key])
            self.shop.run(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({names}))")
        self.shop.run("CREATE TABLE marks (id int PRIMARY KEY)")
        self.transaction()
        self.states, self.ends = self.states[-1:], self.ends[-1:]
        self.shop.captures.add(capture(self.shop.name, [*TABLES, "marks"]))
        self.shop.captures.wait(self.shop.captures.get(self.shop.name).capture)
        for number in range(transactions):
            self.transaction()
            if number in SURE:
                self.both(number)
            if number in SURE or self.draw.random() < 0.3:
                if number in SURE or self.draw.random() < 0.5:
                    self.settle()  # otherwise it ends wherever the capture is
                self.once()
        self.settle()
        self.once()
        return self.faults()

    # What is done to the database

    def transaction(self) -> None:
        with psycopg.connect(self.shop.url) as connection:
            for _ in range(self.draw.randint(1, 4)):
                # A key that is there already: that statement does nothing.
                with suppress(psycopg.errors.UniqueViolation), connection.transaction():
                    connection.execute(self.statement())  # type: ignore[call-overload]
        self.note()

    def both(self, number: int) -> None:
        """A row that nothing else comes to, in each of the tables."""
        key = 1_000_000 + number
        with psycopg.connect(self.shop.url) as connection:
            connection.execute("INSERT INTO items VALUES (%s, 'north', 0, NULL)", (key,))
            connection.execute("INSERT INTO lines VALUES (%s, '', 0, NULL)", (key,))
        self.note()

    def statement(self) -> str:
        draw, name = self.draw, self.draw.choice(list(TABLES))
        first = "id" if name == "items" else "item"
        low = draw.randrange(KEYS)
        some = f"{first} BETWEEN {low} AND {low + draw.randrange(MOST_ROWS)}"
        if name == "items":
            # Too long to be kept beside the row: a change of other columns does not bring it.
            long = "(SELECT string_agg(md5(n || random()::text), '') FROM generate_series(1, 200) n)"
            note = draw.choice(["NULL", "'short'", "'ä''=\\'", long])
            values = f"{self.word()}, {draw.randrange(-99_999, 100_000)} / 100.0, {note}"
            insert = (
                f"INSERT INTO items SELECT n, {values} FROM generate_series({low}, {low + draw.randrange(MOST_ROWS)}) n"
            )
            insert += " ON CONFLICT (id) DO UPDATE SET region = EXCLUDED.region"
            update = (
                f"UPDATE items SET {draw.choice([f'region = {self.word()}', 'amount = amount + 1', 'note = NULL'])}"
            )
        else:
            values = f"{self.word(null=False)}, {draw.randrange(1 << 40)}, now() + n * interval '1 microsecond'"
            insert = (
                f"INSERT INTO lines SELECT n, {values} FROM generate_series({low}, {low + draw.randrange(MOST_ROWS)}) n"
            )
            insert += " ON CONFLICT (item, line) DO UPDATE SET amount = EXCLUDED.amount"
            update = f"UPDATE lines SET {draw.choice(['amount = amount + 1', 'at = NULL'])}"
        moved = f"UPDATE {name} SET {first} = {first} + {draw.choice([1, 100, -100])}"
        ways = [insert, insert, f"{update} WHERE {some}", f"{moved} WHERE {some}", f"DELETE FROM {name} WHERE {some}"]
        return draw.choice(ways)

    def word(self, *, null: bool = True) -> str:
        return self.draw.choice(["'north'", "'a/b=c'", "''", *(["NULL"] if null else [])])

    def note(self) -> None:
        state = {}
        for name, (_, key) in TABLES.items():
            rows = self.shop.run(f"SELECT * FROM {name}")
            if self.formats[name] == "delta" and self.divided[name] == "region":
                rows = [(row[0], row[1] or None, *row[2:]) for row in rows]  # it knows no empty text there
            state[name] = {row[:key]: row[key:] for row in rows}
        self.states.append(state)
        self.ends.append(int(self.shop.run("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0]))

    def settle(self) -> None:
        """Waits until the topics have everything: a capture keeps the order of commits, over all tables."""
        self.marks += 1
        self.shop.run(f"INSERT INTO marks VALUES ({self.marks})")
        topic = f"{self.shop.name}.public.marks"
        wanted = {"id": self.marks}
        log = self.shop.captures.log
        until(lambda: any(json.loads(each.key or b"{}") == wanted for each in log.read(topic)), "the capture")

    # What the lake makes of it

    def once(self) -> None:
        app = App(self.shop.name)
        # All that is captured: what a run leaves out is captured no longer.
        db = app.capture(self.shop.name, tables=[*TABLES, "marks"])
        for name in TABLES:
            sink = mr.lake(self.table(name), format=self.formats[name], partition_by=self.divided[name] or ())  # type: ignore[arg-type]
            getattr(db, name).to(sink)
        once(self.spark, self.shop.settings, app)
        if self.draw.random() < 0.4:
            settings = self.shop.settings
            for folder in (settings.checkpoints / settings.named(self.shop.name)).rglob("commits"):
                forget_commit(folder.parent)  # it is written again, with what it had read
        if self.draw.random() < 0.3:
            with Catalog(self.shop.settings).opened(self.table(self.draw.choice(list(TABLES)))) as table:
                compact(table)

    def table(self, name: str) -> str:
        return f"{self.shop.name}_{name}_{self.seed}"

    # The judge

    def faults(self) -> list[str]:
        return [fault for name in TABLES for fault in self._faults(name)]

    def _faults(self, name: str) -> Iterator[str]:
        changes = list(self._changes(name))
        with Catalog(self.shop.settings).opened(self.table(name)) as table, connected() as connection:
            for version in table.versions():
                if version.note is None:
                    continue
                held = self._held(name, table, version, connection)
                wanted, unsure, upto = self._wanted(name, changes, moments.read_by(version.note))
                shown = {key: row for key, row in held.items() if key not in unsure}
                self.compared += 1
                place = f"{self.formats[name]} {self.seed}: version {version.number} of {name}"
                if shown != wanted:
                    lacks = {key: row for key, row in wanted.items() if shown.get(key) != row}
                    has = {key: row for key, row in shown.items() if wanted.get(key) != row}
                    yield f"{place} differs: lacks {str(lacks)[:400]}, has {str(has)[:400]}"
                elif upto is not None and held != self.states[upto][name]:
                    yield f"{place} differs from the table after transaction {upto} of {len(self.states) - 1}"
            if upto != len(self.states) - 1:
                yield f"{place} is the last, and ends with transaction {upto} of {len(self.states) - 1}"

    def _held(self, name: str, table: LakeTable, version: Version, connection: Any) -> Rows:
        columns, key = TABLES[name]
        # By their names in quotes: AT is a word of DuckDB's.
        names = ", ".join(f'"{each.split()[0]}"' for each in columns.replace("(8, 2)", "").split(","))
        found = connection.sql(f"SELECT {names} FROM {table.scan(version)}").to_arrow_table().to_pylist()
        rows = [tuple(row.values()) for row in found]
        assert len({row[:key] for row in rows}) == len(rows), "a key is there twice"
        return {row[:key]: row[key:] for row in rows}

    def _changes(self, name: str) -> Iterator[Change]:
        for record in self.shop.captures.log.read(f"{self.shop.name}.public.{name}"):
            value = record.json()
            if value is not None:  # what follows on a delete, for compaction, has no LSN
                key, source = tuple(json.loads(record.key or b"{}").values()), value["source"]
                # An LSN that was noted is where the next record begins.
                number = 0 if value["op"] == "r" else bisect_right(self.ends, source["lsn"])
                yield Change(record.partition, record.offset, key, number)

    def _wanted(
        self, name: str, changes: list[Change], ends: Mapping[int, int]
    ) -> tuple[Rows, set[tuple[Any, ...]], int | None]:
        """The rows of a version that read so far, the keys of which it has a transaction in part, and which transaction
        is its last if it has all of it, and nothing that came later."""
        held = [each for each in changes if each.offset < ends.get(each.partition, 0)]
        later = [each for each in changes if each.offset >= ends.get(each.partition, 0)]
        last: dict[tuple[Any, ...], int] = {}
        for each in held:
            last[each.key] = max(last.get(each.key, 0), each.number)
        torn = {(each.key, each.number) for each in later}
        unsure = {key for key, number in last.items() if (key, number) in torn}
        wanted = {}
        for key, number in last.items():
            if key not in unsure and (row := self.states[number][name].get(key)) is not None:
                wanted[key] = row
        newest, next_ = max((each.number for each in held), default=0), min((each.number for each in later), default=0)
        whole = not later or newest < next_
        return wanted, unsure, (next_ - 1 if later else len(self.states) - 1) if whole else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--transactions", type=int, default=24)
    args = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="millrace-fuzz-") as folder:
        settings = config.load(Path(folder))
        options = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, **TWO}
        settings = replace(settings, spark=replace(settings.spark, options=options))
        with local.held(settings, ("kafka", "connect", "postgres")):
            spark = session(settings, MASTER, "fuzz")
            try:
                for seed in range(args.first, args.first + args.seeds):
                    with opened(settings) as shop:
                        captured = Captured(spark, shop, seed)
                        wrong += (found := captured.run(args.transactions))
                    told = f"{len(captured.states)} states, {captured.compared} versions, {found or 'right'}"
                    print(f"captured {seed}: {told}", flush=True)
            finally:
                close(spark)
                local.down(settings)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
