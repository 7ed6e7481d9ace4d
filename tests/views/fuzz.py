"""Random queries over random tables and transactions: a view holds what PostgreSQL answers to the same SQL.

    python -m tests.views.fuzz --seeds 1000        (make fuzz SEEDS=1000)

Prints how often each production met a null, an insert, an update and a delete in a table that it reads.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from millrace import config, local
from millrace.errors import ViewRefused
from millrace.model.signed import Bag, canonical
from millrace.views import Plan, planned
from millrace.views.numerics import NoAnswer, Unsure
from millrace.views.steps import CLOCK, Distinct
from millrace.views.twin import answer
from millrace.views.types import Type
from tests.views import queries
from tests.views.worlds import MORE, World, tables
from tests.views.writer import Query

EVENTS = ("null", "insert", "update", "delete")
QUERIES, TRANSACTIONS = 12, 6


@dataclass
class Report:
    queries: int = 0
    answers: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    met: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def missing(self, productions: Iterable[str]) -> list[str]:
        return [f"{name} × {event}" for name in productions for event in EVENTS if not self.met[name][event]]

    def table(self) -> str:
        lines = [f"{'production':44} {'queries':>8}" + "".join(f"{event:>8}" for event in EVENTS)]
        for name, met in sorted(self.met.items()):
            lines.append(f"{name:44} {met['queries']:>8}" + "".join(f"{met[event]:>8}" for event in EVENTS))
        return "\n".join(lines)

    def text(self) -> str:
        lines = [self.table()]
        refused = ", ".join(f"{reason} ({count})" for reason, count in self.refused.most_common(8))
        lines.append(
            f"{self.queries} queries, {self.answers} answers of {self.rows} rows; refused: {refused or 'none'}"
        )
        lines.append(f"where PostgreSQL has no answer: {dict(self.unknown)}")
        return "\n".join(lines)


def same(found: Bag, expected: Bag) -> bool:
    """Row for row; floating numbers may differ in their last digits."""
    ours, theirs = (found - expected).elements(), (expected - found).elements()
    left, right = sorted(ours, key=_key), sorted(theirs, key=_key)
    return len(left) == len(right) and all(_close(one, other) for one, other in zip(left, right, strict=True))


def plain(value: Any) -> Any:
    """As the model has it."""
    return tuple(canonical(each) for each in value) if isinstance(value, list) else canonical(value)


def _key(row: Sequence[Any]) -> str:
    return repr([f"{value:.6g}" if isinstance(value, float) else _plain(value) for value in row])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.normalize() if isinstance(value, Decimal) else value


def _close(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return all(
        math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
        if isinstance(one, float) and isinstance(other, float)
        else one == other and type(one) is type(other)
        for one, other in zip(left, right, strict=True)
    )


def misprinted(found: Iterable[Sequence[Any]], expected: Iterable[Sequence[Any]], plan: Plan) -> list[Sequence[Any]]:
    """Rows that PostgreSQL has, with other digits: 0 where it prints 0.00.

    For Python these are equal, and rows of both are one in a bag: a row is right if PostgreSQL prints one of those that
    are equal to it so. Not looked at is what PostgreSQL itself is free in: of rows of which it keeps one, which one.
    """
    places = _exact(plan)
    told: defaultdict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for row in expected:
        told[_key(row)].add(_printed(row, places))
    return [row for row in found if told[_key(row)] and _printed(row, places) not in told[_key(row)]]


def _exact(plan: Plan) -> list[int]:
    """Columns of which PostgreSQL alone knows how many digits a value has, if any, are left out."""
    kept = any(isinstance(step, Distinct) for step in plan.steps)

    def is_exact(type_: Type) -> bool:
        if type_.element is not None:
            return is_exact(type_.element)
        return type_.kind == "numeric" and not type_.mixed and not (kept and type_.is_wide)

    return [place for place, (_, type_) in enumerate(plan.columns) if is_exact(type_)]


def _printed(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(_text(row[place]) for place in places)


def _text(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_text, value))
    return f"{value:f}" if isinstance(value, Decimal) else value


def difference(found: Bag, expected: Bag, printed: Sequence[Sequence[Any]] = ()) -> str:
    """What people are told of it."""
    if printed:
        return f"the view prints {list(printed)[:3]}, as PostgreSQL does not"
    lack, more = list((expected - found).elements())[:3], list((found - expected).elements())[:3]
    return f"PostgreSQL also has {lack}, the view {more}"


def run(
    connection: psycopg.Connection[Any],
    seed: int,
    report: Report,
    *,
    count: int = QUERIES,
    wanted: Set[str] = frozenset(),
) -> None:
    """One world. With `wanted`, queries are looked for that have a production of which something was not met yet."""
    draw = random.Random(seed)
    world = World(connection, draw, tables(draw, MORE))
    world.create()
    plans = []
    for _ in range(count):
        unmet = {name for name in wanted if not all(report.met[name][event] for event in EVENTS)}
        unmet -= {name for query, _ in plans for name in query.used}
        if wanted and not unmet:
            break
        found = _planned(world, report, seed, unmet)
        plans += [] if found is None else [found]
    for _ in range(TRANSACTIONS):
        happened = world.transaction()
        world.advance()
        for query, plan in plans:
            _compare(world, query, plan, report, seed)
            for name in query.used:
                for relation in {each.relation for each in plan.inputs} - {CLOCK}:
                    report.met[name].update({event: happened[relation][event] for event in EVENTS})


def _planned(world: World, report: Report, seed: int, wanted: Set[str]) -> tuple[Query, Plan] | None:
    query = queries.query(world.draw, world.tables, wanted)
    try:
        plan = planned("fuzz", query.sql, [table.relation for table in world.tables])
    except ViewRefused as refused:
        report.refused[str(refused.facts["reason"])] += 1
        return None
    except Exception as error:
        report.faults.append(f"seed {seed}: {type(error).__name__} {error}\n  {query.sql}")
        return None
    report.queries += 1
    for name in query.used:
        report.met[name]["queries"] += 1
    return query, plan


def _compare(world: World, query: Query, plan: Plan, report: Report, seed: int) -> None:
    expected: Bag | str
    rows: list[tuple[Any, ...]] = []
    try:
        rows = world.connection.execute(world.at(query.sql), binary=True).fetchall()  # type: ignore[call-overload]
        rows = [tuple(map(plain, row)) for row in rows]
        expected = Bag(rows)
    except psycopg.Error as error:
        expected = str(error).splitlines()[0]
    world.connection.rollback()
    try:
        found: Bag | str = answer(plan, world.held())
    except Unsure as error:
        report.unknown[str(error)] += 1
        return
    except NoAnswer as error:
        found = str(error)
    except Exception as error:
        report.faults.append(f"seed {seed}: {type(error).__name__} {error}\n  {query.sql}\n{plan}")
        return
    report.answers += 1
    if isinstance(expected, str) or isinstance(found, str):
        both = [each if isinstance(each, str) else "answered" for each in (expected, found)]
        report.unknown[" / ".join(both)] += 1
        if isinstance(found, str) and not isinstance(expected, str):
            report.faults.append(f"seed {seed}: {found}, and PostgreSQL has an answer\n  {query.sql}\n{plan}")
        return
    report.rows += expected.total()
    printed = misprinted(found, rows, plan)
    if printed or not same(found, expected):
        told = difference(found, expected, printed)
        report.faults.append(f"seed {seed}, at {world.now}: {told}\n  {query.sql}\n{plan}")


def connected(url: str) -> psycopg.Connection[Any]:
    # Not UTC: what depends on the session's time zone has to show.
    # Not prepared: the same words mean other tables in the next world.
    options = "-c TimeZone=America/New_York -c client_min_messages=warning"
    connection = psycopg.connect(url, options=options, prepare_threshold=None)
    # As a chain has them: as PostgreSQL prints them.
    for name, loader in (("time", _Time), ("uuid", _Uuid), ("jsonb", _Json)):
        connection.adapters.register_loader(name, loader)
    return connection


class _Time(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        seconds, micros = divmod(int.from_bytes(bytes(data), "big"), 10**6)
        part = f".{micros:06}".rstrip("0") if micros else ""
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{part}"


class _Uuid(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return str(UUID(bytes=bytes(data)))


class _Json(Loader):
    """Behind the version of its form."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data)[1:].decode()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--url", default="")
    args = parser.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="millrace-fuzz-") as folder:
        settings = config.load(Path(folder))
        url = args.url or local.up(settings, ("postgres",))["postgres"]
        try:
            with connected(url) as connection:
                for seed in range(args.first, args.first + args.seeds):
                    run(connection, seed, report)
        finally:
            if not args.url:
                local.down(settings)
    print(report.text())
    for fault in report.faults[:5]:
        print(fault)
    missing = report.missing(queries.productions(MORE))
    print(f"{len(report.faults)} faults; never met: {', '.join(missing) or 'none'}")
    return 1 if report.faults or missing else 0


if __name__ == "__main__":
    sys.exit(main())
