"""`millrace console`: an app's graph, flows, topics, views, lake and captures in a browser."""

from __future__ import annotations

import argparse
import signal

from millrace.cli.apps import log_to_file
from millrace.cli.arguments import app_argument, listen
from millrace.cli.output import Commands, command, say
from millrace.config import Settings

PORT = 9110


def add(commands: Commands) -> None:
    added = command(commands, "console", serve_console, "show an app in a browser: map, flows, topics, views, lake")
    app_argument(added)
    added.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        default=str(PORT),
        help=f"default {PORT}; this machine only unless a host is said, which needs tokens; 0: any free port",
    )


def serve_console(args: argparse.Namespace, settings: Settings) -> int:
    address = listen("--listen", args.listen, "millrace console")
    from millrace.flow import load_app

    app = load_app(args.app, settings)
    log_to_file(settings)
    from millrace.console import serve

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(app, settings, args.app or settings.run.app or "", address, say)
    except KeyboardInterrupt:
        say("ended")
    return 0
