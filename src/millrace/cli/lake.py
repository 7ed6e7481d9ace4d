"""`millrace lake …`: the tables of the lakehouse, their history, and SQL over them."""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import json
import math
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace import durations
from millrace.cli.arguments import lsn, moment
from millrace.cli.output import Commands, command, grid, json_option, listing, noun, plain, say, shown
from millrace.config import Settings
from millrace.errors import UsageInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millrace.lakehouse import LakeTable, Version

FORMATS = ("table", "json", "csv", "parquet")
# A table on the terminal; whoever wants more asks for another format.
MOST_SHOWN = 1_000
_QUERY = "millrace lake query"


def add(commands: Commands) -> None:
    lake = noun(commands, "lake", "tables of the lakehouse: list and describe them, ask them, also as they were")
    json_option(command(lake, "list", list_tables, "list the tables"))

    added = command(lake, "describe", describe, "show a table's columns, files, and how far it holds its flow")
    added.add_argument("table")
    json_option(added)

    added = command(lake, "history", history, "list a table's versions, the newest first")
    added.add_argument("table")
    json_option(added)

    added = command(lake, "query", query, "run a query of DuckDB's SQL, in which tables are called by their names")
    added.add_argument("sql", help="SELECT …")
    added.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    added.add_argument("--out", type=Path, metavar="FILE", help="write there; Parquet needs it")
    when = added.add_mutually_exclusive_group()
    when.add_argument("--version", type=int, dest="number", metavar="N", help="the tables as that version has them")
    when.add_argument("--time", metavar="TIME", help='as they were then: 2026-01-31T12:00, or "10 minutes ago"')
    when.add_argument(
        "--offset",
        metavar="[[TOPIC:]PARTITION:]OFFSET",
        help="as of the first version that holds that record of the topic",
    )
    when.add_argument("--lsn", help="as of the first version that holds all that was committed by then (0/16E8F58)")

    added = command(lake, "compact", compact, "write small files together, and let old versions go if asked to")
    added.add_argument("table")
    added.add_argument(
        "--keep", metavar="DURATION", help='let go of versions that were replaced longer ago, like "30 days"'
    )
    json_option(added)

    added = command(lake, "archive", archive, "add what a topic holds to a table: bytes, headers, times and offsets")
    added.add_argument("topic")
    added.add_argument("--table", metavar="NAME", help="default: the topic's name, with _ for what a name cannot have")
    added.add_argument("--format", choices=("delta", "iceberg"), default="delta", help="of a table that is made")
    added.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    added.add_argument("--every", metavar="DURATION", default="1 minute", help="with --follow; default: 1 minute")
    added = command(lake, "restore", restore, "write an archive into another topic, and go on with the live one")
    added.add_argument("table")
    added.add_argument("--into", required=True, metavar="TOPIC", help="it is made if it is not there")


def archive(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse import Catalog
    from millrace.lakehouse.archive import follow, named
    from millrace.lakehouse.catalog import NAME
    from millrace.log import Log

    name = named(args.topic) if args.table is None else args.table
    if not NAME.fullmatch(name):
        reason = f"--table {name} is no name of a table: take letters, digits and _, and begin with a letter or _"
        raise UsageInvalid(reason=reason, command="millrace lake archive")
    catalog, pause_s = Catalog(settings), durations.milliseconds(args.every) / 1000

    def wait() -> bool:
        time.sleep(pause_s)
        return True

    with contextlib.closing(catalog.table(name, catalog.format(name) or args.format)) as table:
        for added in follow(Log(settings), args.topic, table, wait if args.follow else None):
            if added or not args.follow:
                print(f"{name}: {added:,} records of {args.topic} added", flush=True)


def restore(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse import Catalog
    from millrace.lakehouse.archive import restore as restored
    from millrace.log import Log

    with Catalog(settings).opened(args.table) as table:
        print(f"{args.into}: {restored(Log(settings), table, args.into):,} records written")


def list_tables(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse.catalog import Catalog, Unseen

    rows: list[dict[str, Any]] = []
    for found in Catalog(settings).looked(_summary):
        if isinstance(found, Unseen):
            found = {"table": found.name, "format": found.format, "error": found.reason}
        rows.append(found)
    columns: tuple[str, ...] = ("table", "format", "version", "at", "rows", "files", "bytes", "epoch")
    if any("error" in row for row in rows):
        columns += ("error",)
    listing(args, columns, rows, "no tables; a flow with a sink mr.lake(…) makes them when it runs")


def _summary(table: LakeTable) -> dict[str, Any]:
    files, note, versions = table.files(), table.note(), table.versions()
    return {
        "table": table.name,
        "format": table.format,
        "version": table.version,
        "at": versions[-1].at if versions else None,
        "rows": sum(each.rows for each in files),
        "files": len(files),
        "bytes": sum(each.size_bytes for each in files),
        "epoch": None if note is None else note.epoch,
    }


def describe(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse import Catalog
    from millrace.lakehouse.compacting import debt, small_bytes
    from millrace.lakehouse.moments import topics_of
    from millrace.lakehouse.positions import freshness_s
    from millrace.lakehouse.retention import size_bytes
    from millrace.log import Log

    with Catalog(settings).opened(args.table) as table:
        note, files = table.note(), table.files()
        columns = {each.name: each.dataType.simpleString() for each in table.columns.fields}
        facts: dict[str, Any] = {
            **_summary(table),
            "folder": table.place.url,
            "partition_by": list(table.partition_by),
            "history_bytes": size_bytes(table) - sum(each.size_bytes for each in files),
            "small_files": sum(each.size_bytes < small_bytes(table) for each in files),
            "compaction_debt_files": debt(table, files),
            "flow": None if note is None else note.flow,
            "freshness_s": freshness_s(Log(settings), table),
            "holds": {} if note is None else topics_of(note),
        }
    if args.json:
        print(json.dumps({**facts, "columns": columns}, default=plain, indent=2))
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):21} {_shown(value)}")
    listing(args, ("column", "type"), [{"column": name, "type": kind} for name, kind in columns.items()], "")


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return ", ".join(_places(topic, parts) for topic, parts in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return "-" if value is None else f"{value:,}" if isinstance(value, int | float) else str(value)


def _places(topic: str, parts: dict[int, int]) -> str:
    return f"{topic} up to " + " ".join(f"{number}:{end}" for number, end in sorted(parts.items()))


def history(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse import Catalog
    from millrace.lakehouse.moments import topics_of

    with Catalog(settings).opened(args.table) as table:
        versions = table.versions()
    rows = [
        {
            "version": each.number,
            "at": each.at,
            "operation": each.operation,
            "epoch": None if each.note is None else each.note.epoch,
            "holds": None if each.note is None else topics_of(each.note),
        }
        for each in reversed(versions)
    ]
    if not args.json:
        rows = [{**row, "holds": row["holds"] and _shown(row["holds"])} for row in rows]
    listing(args, ("version", "at", "operation", "epoch", "holds"), rows, f"{args.table} has no versions yet")


def query(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse.asking import asked

    if args.format == "parquet" and args.out is None:
        raise UsageInvalid(reason="Parquet is written to a file; name it with --out", command=_QUERY)
    if args.out is not None and (args.out.is_dir() or not args.out.parent.is_dir()):
        reason = f"--out {args.out} cannot be written: name a file in a folder that is there"
        raise UsageInvalid(reason=reason, command=_QUERY)

    chosen = []

    def choose(table: LakeTable) -> Version | None:
        version = _chosen(args, settings, table)
        if version is not None:
            chosen.append(table.name)
            at = version.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
            say(f"{table.name}: version {version.number} of {at} UTC")
        return version

    with asked(settings, args.sql, choose) as found:
        if not chosen and any((args.number is not None, args.time, args.offset, args.lsn)):
            raise UsageInvalid(reason="the query reads no table of the lake, which alone has versions", command=_QUERY)
        _refuse_alike(found.columns, args.format)
        if args.format == "parquet":
            found.write_parquet(str(args.out))
        elif args.out is not None:
            with args.out.open("w", encoding="utf-8", newline="") as file:
                _print(found, args.format, file)
        else:
            _print(found, args.format, sys.stdout)


def _refuse_alike(columns: Sequence[str], format: str) -> None:
    """An object of JSON has one value of a name; of Parquet's columns that are called alike DuckDB renames some."""
    names = [name.lower() if format == "parquet" else name for name in columns]
    alike = [name for place, name in enumerate(columns) if names[place] in names[:place]]
    if alike and format in ("json", "parquet"):
        reason = f"{alike[0]!r} is the name of two columns, and {format} needs a name for each: say AS in the query"
        raise UsageInvalid(reason=reason, command=_QUERY)


def _chosen(args: argparse.Namespace, settings: Settings, table: LakeTable) -> Version | None:
    from millrace.lakehouse import moments

    if args.number is not None:
        return moments.numbered(table, args.number)
    if args.time is not None:
        return moments.of_time(table, moment("--time", args.time, _QUERY))
    if args.offset is not None:
        return _at_offset(args.offset, settings, table)
    return None if args.lsn is None else _at_lsn(args.lsn, settings, table)


def _at_offset(text: str, settings: Settings, table: LakeTable) -> Version:
    from millrace.lakehouse import moments

    place, _, offset = text.rpartition(":")
    topic, _, number = place.rpartition(":")
    if not (number or "0").isdecimal() or not offset.isdecimal():
        raise UsageInvalid(reason=f"--offset {text} is no offset like 4711 or 0:4711", command=_QUERY)
    note = table.note()
    topics = list({} if note is None else moments.topics_of(note))
    meant = [each for each in topics if topic in ("", each, settings.unnamed(each))]
    if topics and len(meant) != 1:
        known = " and ".join(sorted(topics))
        reason = f"{table.name} holds records of {known}: say of which with --offset TOPIC:{number or 0}:{offset}"
        raise UsageInvalid(reason=reason, command=_QUERY)
    ends = {int(number or 0): int(offset) + 1}
    return moments.that_holds(table, meant[0] if meant else None, ends, f"offset {text}")


def _at_lsn(text: str, settings: Settings, table: LakeTable) -> Version:
    from millrace.capture.tables import marked
    from millrace.lakehouse import moments
    from millrace.lakehouse.positions import ends_at
    from millrace.log import Log

    of_change = text.isdecimal()  # as changes have it: a place, which the version is to have
    position = int(text) if of_change else lsn("--lsn", text, _QUERY)
    note = table.note()
    topics = {} if note is None else moments.topics_of(note)
    if len(topics) != 1:
        reason = f"{table.name} does not hold the changes of one captured table, and so has no LSN: ask by --time"
        raise UsageInvalid(reason=reason, command=_QUERY)
    (outside,) = topics
    log, topic = Log(settings), settings.unnamed(outside) or outside
    ends = ends_at(log, topic, position, marked(log, topic), itself=of_change)
    return moments.that_holds(table, outside, ends, f"LSN {text}")


def _print(found: Any, format: str, file: Any) -> None:
    if format == "json":
        names = list(found.columns)
        for row in _rows(found):
            told = {name: _finite(value) for name, value in zip(names, row, strict=True)}
            print(json.dumps(told, default=_plain, ensure_ascii=False, allow_nan=False), file=file)
    elif format == "csv":
        writer = csv.writer(file)
        writer.writerow(found.columns)
        writer.writerows(map(_cell, row) for row in _rows(found))
    else:
        from millrace.lakehouse.answers import readable

        rows = [[_cell(readable(value)) for value in row] for row in _rows(found.limit(MOST_SHOWN + 1))]
        if rows:
            grid(found.columns, rows[:MOST_SHOWN], _exact, file)
        else:
            print("no rows", file=file)
        if len(rows) > MOST_SHOWN:
            say(f"these are the first {MOST_SHOWN:,}; --format json, csv or parquet has all")


def _rows(found: Any) -> Iterator[tuple[Any, ...]]:
    """By place, not by name: columns may be called alike."""
    from millrace.lakehouse.answers import values

    # What DuckDB makes of a sum of whole numbers is one, and to Arrow a decimal.
    whole = [str(kind) == "HUGEINT" for kind in found.types]
    for batch in found.to_arrow_reader():
        columns = [values(column) for column in batch.columns]
        for place in (place for place, is_whole in enumerate(whole) if is_whole):
            columns[place] = [None if value is None else int(value) for value in columns[place]]
        yield from zip(*columns, strict=True)


def _finite(value: Any) -> Any:
    """What JSON has no number for is a text, as in the topics of captured tables."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value  # a map is of tuples


def _exact(value: Any) -> str:
    return repr(value) if isinstance(value, float) else shown(value)


def _cell(value: Any) -> Any:
    """Numbers as they are; times as ISO 8601; what has parts as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return value if value is None or isinstance(value, int | float | str) else _plain(value)


def _plain(value: Any) -> Any:
    """For JSON: times without a zone stay so, and bytes are as topics and `millrace table read` have them."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else plain(value)


def compact(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.lakehouse import Catalog
    from millrace.lakehouse.compacting import compact as compacted
    from millrace.lakehouse.retention import forget
    from millrace.sinks.lake import LEAST_KEPT

    keep = None if args.keep is None else durations.parse(args.keep)
    if keep is not None and keep < LEAST_KEPT:
        reason = f"--keep {args.keep} is less than an hour, and may take files from a flow that is writing"
        raise UsageInvalid(reason=reason, command="millrace lake compact")
    with Catalog(settings).opened(args.table) as table:
        done = compacted(table)
        gone = None if keep is None else forget(table, datetime.now(UTC) - keep)
        facts = {"table": table.name, "files": done.files, "into": done.into, "version": table.version, "gone": gone}
    if args.json:
        print(json.dumps(facts))
        return
    said = f"{done.files:,} small files are now {done.into:,}" if done.files else "no files to write together"
    print(f"{args.table}: {said}" + ("" if gone is None else f"; {gone:,} files of older versions went"))
