"""`millrace table …`: captured tables, read from their topics."""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from millrace.cli.arguments import moment
from millrace.cli.output import Commands, command, json_option, listing, noun, positive
from millrace.config import Settings
from millrace.errors import TableChanged, UsageInvalid

if TYPE_CHECKING:
    from millrace.capture import CapturedTable
    from millrace.capture.memory import Remembered
    from millrace.log import Log


def add(commands: Commands) -> None:
    table = noun(commands, "table", "captured tables: list them, read their rows or their changes")
    added = command(table, "list", list_tables, "list the captured tables and their columns")
    json_option(added)
    added = command(table, "read", read, "print a table's rows as they are now, or were, one JSON object a line")
    added.add_argument("table", help="capture.table or capture.schema.table")
    added.add_argument("--at", metavar="TIME", help="as they were then: 2026-01-05 10:00 (UTC), or `2 hours ago`")
    added.add_argument("--changes", action="store_true", help="every change instead: op, before, after, place")
    added.add_argument("--follow", action="store_true", help="with --changes: wait for more until Ctrl-C")
    added.add_argument("--limit", type=positive, metavar="N", help="at most this many")


def list_tables(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.capture import memory
    from millrace.log import Log

    rows = [
        {"table": f"{name}.{table.name}", "column": column.name, "type": column.type, "shown_as": column.spark,
         "key": column.name in table.key}
        for name, found in memory.read(Log(settings)).items()
        for table in found.tables.values()
        for column in table.columns
    ]  # fmt: skip
    listing(args, ("table", "column", "type", "shown_as", "key"), rows, "no captures; `millrace capture add` makes one")


def read(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.capture import tables
    from millrace.log import Log

    if args.follow and not args.changes:
        raise UsageInvalid(reason="--follow is for --changes: rows are as they are now", command="millrace table read")
    if args.at is not None and args.changes:
        raise UsageInvalid(reason="--at is for rows, and --changes for changes", command="millrace table read")
    log = Log(settings)
    remembered, table = tables.find(log, args.table)
    if args.changes:
        found: Iterable[dict[str, Any]] = tables.changes(log, table, follow=args.follow)
    else:
        found = _rows(
            log, remembered, table, None if args.at is None else moment("--at", args.at, "millrace table read")
        )
    for row in islice(found, args.limit):
        print(json.dumps(row, default=_plain, ensure_ascii=False), flush=args.follow)


def _rows(log: Log, remembered: Remembered, table: CapturedTable, at: datetime | None) -> list[dict[str, Any]]:
    """The rows; of a table that somebody changed, after a look at the database's catalogue."""
    from millrace.capture import Captures, tables

    try:
        return list(tables.rows(log, table, at))
    except TableChanged as changed:
        seen = [tuple(json.loads(str(changed.facts["columns"])))]
        Captures(log.settings, log).refresh(remembered.capture.name, {table.name: seen})
        return list(tables.rows(log, tables.find(log, table.topic)[1], at))


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
