"""`millrace events …`: event schemas held against what was registered."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import LiteralString

from millrace.cli.output import Commands, command, json_option, listing, noun, say
from millrace.config import Settings


def add(commands: Commands) -> None:
    events = noun(commands, "events", "event sourcing: check how events change")
    added = command(events, "check", check, "say whether events changed in a way that somebody could not read")
    added.epilog = "Exit code 1 if anything was found. For CI; the registry is a file that is committed with the code."
    added.add_argument("modules", nargs="+", metavar="MODULE", help="that define events, or aggregates")
    added.add_argument("--file", type=Path, help="the registry; default events.json in the project's folder")
    added.add_argument("--compatibility", choices=("backward", "forward", "full"), help="default: the registry's")
    added.add_argument("--write", action="store_true", help="register new events and versions, if nothing is wrong")
    json_option(added)
    added = command(events, "lag", lag, "show how far projections and sagas are behind their event store")
    added.add_argument("name", help="the database's name in millrace.toml")
    added.add_argument("--schema", default="events", help="of the store; default events")
    json_option(added)


def lag(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.events import Store

    _refuse_unknown(args.name, args.schema, settings)
    with Store.open(args.name, schema=args.schema, settings=settings) as store:
        rows = [
            {"reader": name, "position": each.position, "events_behind": each.events, "seconds_behind": each.seconds}
            for name, each in store.lags().items()
        ]
    columns = ("reader", "position", "events_behind", "seconds_behind")
    listing(args, columns, rows, "nothing follows this store yet")


def _refuse_unknown(name: str, schema: str, settings: Settings) -> None:
    """To open a store is to make it; whoever asks how far its readers are means one that is there."""
    from millrace import local
    from millrace.errors import StoreUnknown, nearest

    if settings.databases:
        settings.database(name)
        names = [name]
    else:
        local.up(settings, ("postgres",))
        names = _rows("postgres", "SELECT datname FROM pg_database WHERE NOT datistemplate", settings)
    holds = "SELECT schemaname FROM pg_tables WHERE tablename IN ('event', 'reader') GROUP BY 1 HAVING count(*) = 2"
    there = _rows(name, holds, settings) if name in names else []
    if schema in there:
        return
    others = [each for each in names if each != name and _rows(each, holds, settings)]
    hint = nearest(name, others) or (f"; there is one in {', '.join(sorted(others))}" if others else "")
    if there:
        hint = f"; there is one with --schema {', '.join(sorted(there))}"
    raise StoreUnknown(name=name, schema=schema, hint=hint)


def _rows(name: str, query: LiteralString, settings: Settings) -> list[str]:
    from millrace.capture import database, postgres

    with postgres.connect(name, database.address(settings, name)) as connection:
        return [row[0] for row in connection.execute(query)]


def check(args: argparse.Namespace, settings: Settings) -> int:
    from millrace.events import registry
    from millrace.events.kinds import kind_of
    from millrace.flow.loading import load_module

    path = args.file or settings.folder / registry.FILE
    known = registry.Registry.read(path)
    if args.compatibility:
        known = replace(known, compatibility=args.compatibility)
    modules = [load_module(name, settings) for name in args.modules]
    kinds = {name: kind_of(each) for module in modules for name, each in registry.events_in(module).items()}
    findings = registry.check(kinds, known)
    if args.write:
        findings = [each for each in findings if not each.new]
        if not findings:
            known.with_kinds(kinds.values()).write(path)
            say(f"{len(kinds)} events are registered in {path}")
    if args.json:
        print(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        for each in findings:
            print(f"{each.event} (version {each.version}): {each.what}\n        fix: {each.fix}")
        if not findings and not args.write:
            print(f"{len(kinds)} events, nothing found ({known.compatibility})")
    return 1 if findings else 0
