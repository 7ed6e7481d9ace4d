"""`millrace rebuild`: a sink built again beside the one that people read, compared with it, and put in its place."""

from __future__ import annotations

import argparse
import json

from millrace.cli.output import Commands, command, json_option, say
from millrace.config import Settings


def add(commands: Commands) -> None:
    added = command(
        commands,
        "rebuild",
        rebuild,
        "build a sink again beside the old one, say what differs, and put it in its place; the flow must not run",
    )
    added.epilog = "Readers have an answer at every moment. Killed at any point, the same command ends it."
    added.add_argument("sink", metavar="SINK", help="as `millrace graph` calls it: postgres.orders")
    added.add_argument("--app", metavar="MODULE:APP", help="default: [run] app of millrace.toml")
    added.add_argument("--compare", action="store_true", help="build and compare, and switch nothing")
    added.add_argument(
        "--accept", action="store_true", help="rows that a replay of a stream or topic no longer gives may go"
    )
    added.add_argument("--master", help="where Spark runs (default: as configured)")
    json_option(added)


def rebuild(args: argparse.Namespace, settings: Settings) -> int:
    from millrace import local
    from millrace.cli.apps import log_to_file, servers_of
    from millrace.flow import load_app

    app = load_app(args.app, settings)
    graph = app.graph()
    log_to_file(settings)
    from millrace.engine.rebuild import Rebuild

    work = Rebuild(app, settings, args.sink, say, switch=not args.compare, accept=args.accept, master=args.master)
    with local.held(settings, servers_of(graph, settings), say=say):
        done = work.run()
    if args.json:
        told = [
            {
                "sink": each.sink,
                "epoch": each.epoch,
                "rows": each.differences.wanted,
                "missing": each.differences.missing,
                "surplus": each.differences.surplus,
                "different": each.differences.different,
                "refused": each.refused,
                "switched": each.switched,
            }
            for each in done
        ]
        print(json.dumps(told, indent=2))
    return 0
