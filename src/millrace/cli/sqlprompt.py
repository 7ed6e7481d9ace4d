"""A plain SQL prompt for machines without psql: statements in, tables out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from millrace.cli.output import listing, say

ROWS_SHOWN = 1000


def prompt(address: str, arguments: list[str]) -> int:
    """Runs `-c SQL`, or the statements on standard input, each as one transaction. 1 if any of them failed."""
    import psycopg

    parser = argparse.ArgumentParser(prog="millrace psql", description="psql is not installed; this understands -c.")
    parser.add_argument("-c", action="append", dest="statements", metavar="SQL")
    args = parser.parse_args(arguments)
    interactive = args.statements is None and sys.stdin.isatty()
    if interactive:
        say("psql is not installed; this is a plain prompt. A statement ends with ; and Ctrl-D ends the prompt.")
    failed = 0
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in args.statements or _statements(_lines(interactive)):
            try:
                cursor = connection.execute(statement)
            except psycopg.Error as error:
                say(f"error: {str(error).strip()}")
                failed = 1
                continue
            if cursor.description is None:
                print(cursor.statusmessage)
                continue
            columns = [column.name for column in cursor.description]
            rows = [dict(zip(columns, map(_shown, row), strict=True)) for row in cursor.fetchmany(ROWS_SHOWN)]
            listing(argparse.Namespace(json=False), columns, rows, "(no rows)")
            if cursor.rowcount > ROWS_SHOWN:
                say(f"(the first {ROWS_SHOWN:,} of {cursor.rowcount:,} rows)")
    return failed


def _shown(value: object) -> object:
    return value if value is None else str(value)


def _lines(interactive: bool) -> Iterator[str]:
    while True:
        try:
            yield input("sql> " if interactive else "")
        except EOFError:
            return


def _statements(lines: Iterable[str]) -> Iterator[str]:
    gathered: list[str] = []
    for line in lines:
        gathered.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(gathered)
            gathered = []
    if "".join(gathered).strip():
        yield "\n".join(gathered)
