"""`millrace demo`: applications of `millrace.demo`, some together or one alone."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from millrace.cli.output import Commands, command, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.cli.signals import Signals
    from millrace.cli.touring import Touring
    from millrace.demo.together import Together

# The applications of millrace.demo; what is to be seen of each is in its `tour`, which takes Spark to import.
DEMOS = ("fraud", "pageviews", "leaderboard", "shop", "notifications", "trending", "attribution", "bank", "features")
LOOK_S = 0.25


def add(commands: Commands) -> None:
    added = command(commands, "demo", demo, "run applications with made-up events, and show what comes of them")
    added.epilog = (
        "Without --only: fraud, pageviews, leaderboard and shop together, with their consoles. Ctrl-C stops everything."
    )
    which = added.add_mutually_exclusive_group()
    which.add_argument("--only", choices=DEMOS, help=f"one alone, printing what it writes: {', '.join(DEMOS)}")
    which.add_argument("--all", action="store_true", help="every application, as far as there is memory for them")
    added.add_argument("--no-console", action="store_true", help="no consoles")
    added.add_argument("--for", dest="duration", metavar="TIME", help="end after this time, for example 30s")


def demo(args: argparse.Namespace, settings: Settings) -> int:
    if args.only:
        return _alone(args)
    from millrace import durations
    from millrace.cli.apps import heard, log_to_file
    from millrace.cli.signals import Signals
    from millrace.cli.touring import Touring

    limit_s = durations.milliseconds(args.duration) / 1000 if args.duration else None
    log_to_file(settings)
    touring = Touring()
    signals = Signals(lambda: touring.say("stopping after this epoch; Ctrl-C again stops at once"))
    with signals, touring, heard():
        try:
            _together(args, settings, signals, touring, limit_s)
        except KeyboardInterrupt:
            return signals.exit_code
    return signals.exit_code


def _alone(args: argparse.Namespace) -> int:
    from millrace.cli import main
    from millrace.demo.together import beside
    from millrace.demo.tour import STOPS

    shown = [word for topic in STOPS[args.only].topics for word in ("--show", topic)]
    limit = ["--for", args.duration] if args.duration else []
    with beside(args.only) as found:
        os.environ.update(found)
        return main(["run", f"millrace.demo.{args.only}:app", *shown, *limit])


def _together(
    args: argparse.Namespace, settings: Settings, signals: Signals, touring: Touring, limit_s: float | None
) -> None:
    """Servers, what the applications need beside them, Spark, the applications one after the other; then the tour."""
    from millrace import config, local
    from millrace.cli.apps import servers_of
    from millrace.demo.together import Together, application, beside

    names = _names(args)
    apps = [application(name) for name in names]
    servers = dict.fromkeys(server for app in apps for server in servers_of(app.graph(), settings))
    touring.expect(3 + len(names))
    with ExitStack() as held:
        with touring.step(f"servers: {', '.join(servers)}"):
            held.enter_context(local.held(settings, tuple(servers), say=touring.say))
        with touring.step("schemas, data and traffic"):
            for name in names:
                os.environ.update(held.enter_context(beside(name)))
        settings = config.load()
        together = held.enter_context(Together(apps, settings))
        with touring.step(f"topics, captures and Spark for {together.flows} flows"):
            together.begin()
        for name in names:
            with touring.step(name):
                together.start(name)
                together.poll()
        signals.be_graceful()
        _tour(args, together, signals, touring, limit_s, held)
        together.stop()


def _names(args: argparse.Namespace) -> tuple[str, ...]:
    """Those that are wanted, as far as they fit; of the others it is said."""
    from millrace.demo.together import fitting, free_mb
    from millrace.demo.tour import STOPS, USUAL

    wanted = {name: STOPS[name].memory_mb for name in (STOPS if args.all else USUAL)}
    free = free_mb()
    names = fitting(wanted, free)
    if left_out := [name for name in wanted if name not in names]:
        say(f"{free:,} MB of memory are free, which is too little for all: without {', '.join(left_out)}")
    return names


def _tour(
    args: argparse.Namespace,
    together: Together,
    signals: Signals,
    touring: Touring,
    limit_s: float | None,
    held: ExitStack,
) -> None:
    from millrace.demo.consoles import FIRST_PORT, Console, free_port
    from millrace.demo.tour import STOPS, Seen

    seen = {name: held.enter_context(Seen(run, STOPS[name].topics)) for name, run in together.runs.items()}
    consoles: list[Console] = []
    waiting = [] if args.no_console else list(seen)
    started = time.monotonic()
    while not signals.asked.wait(LOOK_S):
        together.poll()
        touring.show(seen, consoles, together.settings)
        # Their start keeps a core busy for seconds: one after the other, and after the first numbers.
        if waiting and (not consoles or consoles[-1].settled) and any(each.rows_in() for each in seen.values()):
            port = free_port(FIRST_PORT + len(consoles))
            consoles.append(Console(waiting.pop(0), together.settings.folder, port))
            held.callback(consoles[-1].end)
        if limit_s is not None and time.monotonic() - started > limit_s:
            break
