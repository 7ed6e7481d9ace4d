"""`millrace up`, `down`, `status`, `logs`, `url`, `psql`, `reset`: the local servers of a project and how it stands."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millrace.cli.output import Commands, command, json_option, listing, plain, say
from millrace.config import Settings, masked
from millrace.errors import LogAbsent, ResetUnsure

USUAL = ("kafka", "connect", "postgres")
FOLLOW_POLL_S = 0.2
WATCH_S = 1.0
CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def add(commands: Commands) -> None:
    added = command(commands, "up", up, "start local servers (Kafka, Connect and PostgreSQL unless named)")
    added.add_argument("server", nargs="*", help="which ones; `millrace status` lists them all")
    added.add_argument("--detach", action="store_true", help="let them run on when this command ends")
    added.add_argument("--brokers", type=int, choices=(1, 3), help="how many Kafka brokers a new project gets")

    added = command(commands, "down", down, "end local servers (all of this project unless named)")
    added.add_argument("server", nargs="*")

    added = command(commands, "status", status, "show the local servers and the flows of this project")
    json_option(added)
    added.add_argument("--watch", action="store_true", help="go on showing, until Ctrl-C")

    added = command(commands, "logs", logs, "print the log of a local server")
    added.add_argument("server")
    added.add_argument("-f", "--follow", action="store_true", help="print what is added, until Ctrl-C")
    added.add_argument("-n", "--lines", type=int, default=100, metavar="N", help="how many lines (100)")

    added = command(commands, "url", url, "print the address of a server")
    added.add_argument("server")

    added = command(commands, "psql", psql, "open a SQL prompt on the local PostgreSQL")
    added.set_defaults(passed_on=[])
    added.epilog = "Everything else is passed on to psql, for example -c 'select 1'."

    added = command(commands, "reset", reset, "end local servers and delete their data")
    added.add_argument("server", nargs="*", help="which ones; otherwise everything that this project keeps")
    added.add_argument("--yes", action="store_true", help="really delete")


def up(args: argparse.Namespace, settings: Settings) -> int:
    from millrace import local

    names = tuple(args.server) or USUAL
    if args.detach:
        addresses = local.up(settings, names, detach=True, brokers=args.brokers, say=say)
        _print_addresses(addresses)
        return 0
    with local.held(settings, names, brokers=args.brokers, say=say) as addresses:
        _print_addresses(addresses)
        say("running until Ctrl-C (`--detach` lets them run on)")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            say("ending")
    return 0


def _print_addresses(addresses: dict[str, str]) -> None:
    for name, address in addresses.items():
        print(f"{name:<12} {address}", flush=True)


def down(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import local

    ended = local.down(settings, args.server)
    say(f"ended {', '.join(ended)}" if ended else "nothing was running")


def status(args: argparse.Namespace, settings: Settings) -> None:
    if not args.watch:
        return _status(args, settings)
    try:
        while True:
            if sys.stdout.isatty():
                print(CLEAR, end="")
            _status(args, settings)
            sys.stdout.flush()
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return None


def _status(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import local

    servers = [asdict(server) for server in local.status(settings)]
    found = _flows(settings)
    if args.json:
        # Watched, each look is a line: whoever reads it needs to know where one ends.
        print(json.dumps({"servers": servers, "flows": found}, default=plain, indent=None if args.watch else 2))
        return
    columns = ("server", "state", "address", "pid", "memory_mb", "since", "ends", "about")
    listing(args, columns, servers, "no servers")
    if found:
        from millrace.engine.flows import COLUMNS

        listing(args, COLUMNS, found, "")
    for flow in found:
        if flow["error"] and flow["state"] in ("failed", "restarting"):
            print(f"{flow['flow']}: {flow['error']}")
        if flow["trouble"]:
            print(f"{flow['flow']}: {flow['trouble']}")


def _flows(settings: Settings) -> list[dict[str, Any]]:
    if not settings.checkpoints.is_dir():
        return []  # Spark, which is imported with them, takes a second
    from millrace.engine.flows import flows

    return flows(settings)


def logs(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import local

    path = local.site_of(settings, args.server).log
    if not path.exists():
        raise LogAbsent(server=args.server, log=path)
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=max(args.lines, 0)):
            print(line, end="")
        sys.stdout.flush()
        while args.follow:
            if line := file.readline():
                print(line, end="", flush=True)
            elif _was_replaced(path, file.fileno()):
                return logs(args, settings)
            else:
                time.sleep(FOLLOW_POLL_S)
    return None


def _was_replaced(path: Path, descriptor: int) -> bool:
    """A log that grew too large was set aside and a new one begun under its name."""
    try:
        return path.stat().st_ino != os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def url(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import local

    print(masked(local.address(settings, args.server)))


def psql(args: argparse.Namespace, settings: Settings) -> int:
    from millrace import local

    address = local.address(settings, "postgres")
    program = shutil.which("psql")
    if program is not None:
        sys.stdout.flush()
        os.execv(program, [program, address, *args.passed_on])  # noqa: S606 - the user asked for this program
    from millrace.cli.sqlprompt import prompt

    return prompt(address, args.passed_on)


def reset(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import local

    what = ", ".join(args.server) if args.server else str(settings.state_folder)
    if not args.yes:
        raise ResetUnsure(what=what)
    deleted = local.reset(settings, args.server)
    say("deleted " + ", ".join(map(str, deleted)) if deleted else "there was nothing to delete")
