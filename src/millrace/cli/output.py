"""How commands speak: tables for people, JSON for programs, errors as one sentence on standard error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO, TypeAlias

from millrace.config import Settings
from millrace.errors import MillraceError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run: TypeAlias = Callable[[argparse.Namespace, Settings], int | None]


def command(commands: Commands, name: str, run: Run, help: str) -> argparse.ArgumentParser:
    """Registers one command and what it runs."""
    added = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    added.set_defaults(run=run)
    return added


def noun(commands: Commands, name: str, help: str) -> Commands:
    """Registers a noun whose verbs are commands of their own; alone it prints its help."""
    added = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")

    def lacks_verb(_: argparse.Namespace, __: Settings) -> int:
        added.print_help()
        return 1

    added.set_defaults(run=lacks_verb)
    return added.add_subparsers(title="commands", metavar="COMMAND")


def positive(text: str) -> int:
    """For argparse: a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def listing(args: argparse.Namespace, columns: Iterable[str], rows: Iterable[Mapping[str, Any]], empty: str) -> None:
    """Prints rows as a table, or with --json as an array of objects. `empty` is for people when there are none."""
    found = [dict(row) for row in rows]
    if args.json:
        print(json.dumps(found, default=plain, indent=2))
        return
    if not found:
        print(empty)
        return
    names = list(columns)
    grid(names, [[row.get(name) for name in names] for row in found])


def say(text: str) -> None:
    """A remark for the person, beside the output proper."""
    print(text, file=sys.stderr, flush=True)


def fail(error: MillraceError) -> int:
    say(f"error: {error.sentence()}")
    return error.exit_code


def shown(value: Any) -> str:
    """In a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    from rich.markup import escape

    return escape(str(value))


def grid(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    text: Callable[[Any], str] = shown,
    file: TextIO | None = None,
) -> None:
    """Prints rows as a table; columns may have the same name."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        numbers = all(isinstance(row[place], int | float | None) for row in rows)
        table.add_column(escape(column.replace("_", " ")), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(text, row))
    # A pipe has no width: rich would assume 80 columns and fold what `grep` and `awk` want on one line.
    console = Console(width=None if (file or sys.stdout).isatty() else 10_000, highlight=False, file=file)
    console.print(table)


def plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)
