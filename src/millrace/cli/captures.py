"""`millrace capture …`: databases as topics, and how they stand."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from millrace.cli.output import Commands, command, json_option, listing, noun, say
from millrace.config import Settings
from millrace.errors import UsageInvalid

if TYPE_CHECKING:
    from millrace.capture import Capture, Captures

_TABLE_HELP = "table, or schema.table"


def add(commands: Commands) -> None:
    capture = noun(commands, "capture", "databases as topics: check, add, watch and end captures")
    added = command(capture, "check", check, "say what a database lacks to be captured, with the SQL that mends it")
    _definition(added)
    json_option(added)

    added = command(capture, "add", add_capture, "capture tables of a database, or change what is captured")
    _definition(added)
    added.add_argument("--no-wait", action="store_true", help="return before the connector runs")

    added = command(capture, "list", list_captures, "list the captures and their tables")
    json_option(added)

    added = command(capture, "status", status, "show how captures stand: phase, position, lag, rate, last error")
    added.add_argument("name", nargs="?", help="only this one")
    shape = added.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON instead of a table")
    shape.add_argument("--metrics", action="store_true", help="print the figures as Prometheus reads them")

    added = command(capture, "pause", pause, "stop reading changes for a while")
    added.add_argument("name")
    added = command(capture, "resume", resume, "go on after a pause or a failure")
    added.add_argument("name")

    added = command(capture, "snapshot", snapshot, "read tables again while changes go on")
    added.add_argument("name")
    added.add_argument("tables", nargs="*", metavar="TABLE", help=f"{_TABLE_HELP}; default: all")
    added.add_argument("--repair", action="store_true", help="after a lost slot: begin anew, and remove missed deletes")

    added = command(capture, "remove", remove, "end a capture: connector, slot and publication")
    added.add_argument("name")
    added.add_argument("--topics", action="store_true", help="delete its topics too, with everything captured")
    added.add_argument("--force", action="store_true", help="even if its database does not answer")


def _definition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the database's name in millrace.toml, and the capture's")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=_TABLE_HELP)
    parser.add_argument("--database", help="the database's name where it differs from the capture's")
    parser.add_argument("--history", help='how long every change is kept; default "7 days"')
    parser.add_argument("--partitions", type=int, metavar="N", help="of each topic, default 2; cannot grow later")
    parser.add_argument("--exclude", action="append", metavar="TABLE.COLUMN", help="leave a column out")
    parser.add_argument("--mask", action="append", metavar="TABLE.COLUMN", help="show a text as ********")
    parser.add_argument("--publication", help="one that somebody made already")
    parser.add_argument("--slot", help="one that somebody made already")
    parser.add_argument(
        "--failover", action="store_true", default=None, help="a slot that standbys keep too (PostgreSQL 17 on)"
    )
    parser.add_argument("--schema", help="of the signal and heartbeat tables; default millrace_capture")


def check(args: argparse.Namespace, settings: Settings) -> int:
    captures = _captures(settings)
    findings = captures.check(_defined(args, captures))
    rows = [asdict(finding) for finding in findings]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        for finding in findings:
            print(f"{finding.level:<8}{finding.subject}: {finding.what}")
            if finding.level != "ok":
                print(f"        {finding.why}")
            for line in (finding.sql or "").splitlines():
                print(f"        {line}")
    return 1 if any(finding.level == "error" for finding in findings) else 0


def add_capture(args: argparse.Namespace, settings: Settings) -> None:
    captures = _captures(settings)
    made = captures.add(_defined(args, captures), wait=not args.no_wait)
    for table in made.tables.values():
        print(f"{table.name} -> topic {table.topic}")


def list_captures(args: argparse.Namespace, settings: Settings) -> None:
    rows = [
        {"capture": name, "database": found.capture.database, "table": table.name, "topic": table.topic,
         "key": ", ".join(table.key)}
        for name, found in _captures(settings).all().items()
        for table in found.tables.values()
    ]  # fmt: skip
    listing(
        args, ("capture", "database", "table", "topic", "key"), rows, "no captures; `millrace capture add` makes one"
    )


def status(args: argparse.Namespace, settings: Settings) -> int:
    from millrace.capture.status import status as status_of

    captures = _captures(settings)
    names = [args.name] if args.name else list(captures.all())
    found = [status_of(captures, name) for name in names]
    if args.metrics:
        from millrace.capture.metrics import exposition

        print(exposition(found), end="")
    elif args.json:
        print(json.dumps([asdict(each) for each in found], default=str, indent=2))
    elif not found:
        print("no captures; `millrace capture add` makes one")
    for each in found if not (args.json or args.metrics) else ():
        say(
            f"{each.capture}: {each.state}"
            + (f" at {each.position}" if each.position else "")
            + (f", {each.behind_bytes:,} bytes behind" if each.behind_bytes is not None else "")
            + (f", the database keeps {each.kept_bytes:,} bytes for it" if each.kept_bytes is not None else "")
        )
        rows = [asdict(table) for table in each.tables]
        sys.stdout.flush()
        listing(args, ("table", "phase", "records", "estimated", "events_per_s", "lag_s", "last"), rows, "no tables")
        if each.error:
            say(f"error: {each.error}: {each.fix}")
    return 2 if any(each.error for each in found) else 0


def pause(args: argparse.Namespace, settings: Settings) -> None:
    _captures(settings).pause(args.name)
    print(f"capture {args.name} is paused; `millrace capture resume {args.name}` goes on from there")


def resume(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.capture import truncates

    captures = _captures(settings)
    captures.resume(args.name)
    print(f"capture {args.name} goes on")
    for line in truncates.mend(captures, args.name):
        print(line)


def snapshot(args: argparse.Namespace, settings: Settings) -> None:
    captures = _captures(settings)
    if args.repair:
        if args.tables:
            reason = "--repair reads all tables again: leave out the tables"
            raise UsageInvalid(reason=reason, command="millrace capture snapshot")
        from millrace.capture.repair import repair_gap

        for line in repair_gap(captures, args.name):
            print(line)
        return
    names = captures.snapshot(args.name, args.tables)
    print(f"reading {', '.join(names)} again; `millrace capture status {args.name}` shows how far it is")


def remove(args: argparse.Namespace, settings: Settings) -> None:
    for statement in _captures(settings).remove(args.name, topics=args.topics, force=args.force):
        say(statement)
    print(f"capture {args.name} is removed" + ("" if args.topics else "; its topics stay"))


def _captures(settings: Settings) -> Captures:
    from millrace.capture import Captures

    return Captures(settings)


def _defined(args: argparse.Namespace, captures: Captures) -> Capture:
    """The definition on the command line. What it leaves out is as it was, where the capture is there already."""
    from millrace.capture import capture

    old = _remembered(args.name, captures)
    given = {
        **{name: getattr(args, name) for name in ("database", "history", "partitions", "exclude", "mask")},
        **{name: getattr(args, name) for name in ("publication", "slot", "failover")},
        "own_schema": args.schema,
    }
    said = {name: value for name, value in given.items() if value is not None}
    if old is None:
        return capture(args.name, args.tables, **said)
    kept = old.as_json()
    base = {name: kept[name] for name in given if name in kept}
    base["history"] = timedelta(milliseconds=old.history_ms)
    return capture(args.name, args.tables or old.tables, **{**base, **said})


def _remembered(name: str, captures: Captures) -> Capture | None:
    """None as well where Kafka does not run yet: a database can be checked before."""
    from millrace.errors import KafkaUnreachable, ServerDown

    try:
        found = captures.all().get(name)
    except (KafkaUnreachable, ServerDown):
        return None
    return found.capture if found is not None else None
