"""The command line: one file a noun. Nothing here does work of its own; Spark and Kafka are imported only when used."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from typing import NoReturn

from millrace import config
from millrace.cli.output import fail
from millrace.errors import MillraceError, StateFolderUnusable, Unexpected, UsageInvalid

INTERRUPTED = 130  # what shells expect of a command ended by Ctrl-C


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command in one sentence, with the exit code of the user's errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageInvalid(reason=message, command=self.prog)


def parser() -> argparse.ArgumentParser:
    from millrace.cli import (
        apps,
        captures,
        console,
        deadletters,
        demo,
        deploy,
        events,
        groups,
        lake,
        lint,
        project,
        queues,
        rebuild,
        serve,
        servers,
        state,
        tables,
        topics,
        verify,
        views,
    )

    root = Parser(
        prog="millrace",
        description="Stream processing on Spark, from Python.",
        epilog="Exit codes: 0 fine, 1 something to mend in the command, code or configuration, 2 a server's.",
    )
    root.add_argument("--version", action="store_true", help="versions of Millrace, Spark, Kafka and Java")
    commands = root.add_subparsers(title="commands", metavar="COMMAND")
    captured = (captures, tables, views, deploy, verify, rebuild)
    logs = (topics, groups, deadletters, queues)
    for noun in (project, demo, apps, console, state, lint, servers, *captured, *logs, lake, events, serve):
        noun.add(commands)
    return root


def main(argv: list[str] | None = None) -> int:
    """Runs one command; every failure ends as one sentence on standard error and an exit code."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except MillraceError as error:
        return fail(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return fail(_unexpected(error))


def _run(argv: list[str]) -> int:
    root = parser()
    args, rest = root.parse_known_args(argv)
    if rest and not hasattr(args, "passed_on"):
        root.parse_args(argv)  # complains of them
    args.passed_on = rest
    if args.version:
        from millrace.cli.project import print_versions

        print_versions()
        return 0
    if not hasattr(args, "run"):
        root.print_help()
        return 1
    return int(args.run(args, config.load()) or 0)


def _unexpected(error: Exception) -> MillraceError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
        return StateFolderUnusable(folder=error.filename or "the disk", reason=error.strerror)
    first = str(error).strip().partition("\n")[0]
    try:
        log = config.find_folder() / config.STATE_FOLDER / "logs" / "millrace.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)))
        place = str(log)
    except OSError as unwritable:
        place = f"no file, because none could be written ({unwritable.strerror})"
    return Unexpected(kind=type(error).__name__, reason=first[:300], log=place)
