"""`millrace demo`: applications of `millrace.demo`, some together or one alone."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from millrace.cli.output import Commands, command, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.cli.signals import Signals
    from millrace.cli.touring import Touring
    from millrace.demo.starting import Starting
    from millrace.demo.together import Together
    from millrace.flow import App

# The applications of millrace.demo; what is to be seen of each is in its `tour`, which takes Spark to import.
DEMOS = ("fraud", "pageviews", "leaderboard", "shop", "notifications", "trending", "attribution", "bank", "features")
LOOK_S = 0.25
# Flows that look for records less often than this are slower than alone, and it is said why.
NOTICED_S = 5.0


def add(commands: Commands) -> None:
    added = command(commands, "demo", demo, "run applications with made-up events, and show what comes of them")
    added.epilog = (
        "Without --only: fraud, pageviews, leaderboard and shop together, with a console each. Ctrl-C stops everything."
    )
    which = added.add_mutually_exclusive_group()
    which.add_argument("--only", choices=DEMOS, help=f"one alone, printing what it writes: {', '.join(DEMOS)}")
    which.add_argument("--all", action="store_true", help="every application, as far as there is memory for them")
    added.add_argument(
        "--show",
        action="append",
        metavar="TOPIC",
        default=[],
        help="print the records of this topic as they come; may be repeated (with --only: what it writes)",
    )
    added.add_argument("--no-console", action="store_true", help="no consoles")
    added.add_argument("--for", dest="duration", metavar="TIME", help="end after this time, for example 30s")


def demo(args: argparse.Namespace, settings: Settings) -> int:
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


def _together(
    args: argparse.Namespace, settings: Settings, signals: Signals, touring: Touring, limit_s: float | None
) -> None:
    """The applications are started in the order of the tour, and each is in it as soon as it runs."""
    with touring.step("loading what is to run"):
        from millrace.cli.apps import servers_of
        from millrace.demo.starting import Starting, start_java_quickly
        from millrace.demo.together import Together, application

        names = _names(args)
        apps = {name: application(name) for name in names}
        show = _shown(args, apps)
        servers = {name: servers_of(app.graph(), settings) for name, app in apps.items()}
    _fetch(settings, servers)
    with touring.step("the kernel, which the first run compiles"):
        _compile()
    start_java_quickly()
    together = Together(list(apps.values()), settings)
    if told := crowded(together.flows, together.trigger_s):
        say(told)
    starting = Starting(together, servers, touring.step, touring.say, show)
    touring.expect(list(names))
    with ExitStack() as held:
        held.callback(_close, starting, touring)
        held.enter_context(together)
        signals.be_graceful()
        with starting:
            _tour(args, together, starting, signals, touring, limit_s, held)
        touring.stopping(len(together.runs) + 2)
        together.stop(touring.step)


def _close(starting: Starting, touring: Touring) -> None:
    with touring.step("stopping servers and what is beside them"):
        starting.close()


def crowded(flows: int, trigger_s: float, cores: int | None = None) -> str:
    """What many flows on few cores mean; empty where it is hardly to be noticed."""
    if trigger_s < NOTICED_S:
        return ""
    cores = cores or os.cpu_count() or 1
    has = "core has" if cores == 1 else "cores have"
    return (
        f"{cores} {has} {flows} flows to run: each looks for new records every {trigger_s:.0f} s; those in real time "
        "take them at once"
    )


def _shown(args: argparse.Namespace, apps: Mapping[str, App]) -> Sequence[str]:
    """The topics whose records are printed."""
    from millrace.demo.tour import STOPS
    from millrace.errors import FlowUnknown, nearest

    known = [topic.name for app in apps.values() for topic in app.graph().topics]
    for topic in args.show:
        if topic not in known:
            names = ", ".join(known)
            raise FlowUnknown(app="demo", kind="topic", name=topic, hint=nearest(topic, known), known=names)
    return args.show or (STOPS[args.only].topics if args.only else ())


def _fetch(settings: Settings, servers: Mapping[str, Sequence[str]]) -> None:
    """What has to be downloaded, before anything else draws bars."""
    from millrace.local import jars
    from millrace.local.servers import catalogue

    known = catalogue(settings)
    for name in dict.fromkeys(name for each in servers.values() for name in each):
        known[name].fetch()
    jars.paths("spark")


def _compile() -> None:
    from millrace import kernel

    kernel.jar()


def _names(args: argparse.Namespace) -> tuple[str, ...]:
    """Those that are wanted, as far as they fit; of the others it is said. A single one is tried anyway."""
    from millrace.demo.together import fitting, free_mb
    from millrace.demo.tour import STOPS, USUAL

    if args.only:
        return (args.only,)
    wanted = {name: STOPS[name].memory_mb for name in (STOPS if args.all else USUAL)}
    free = free_mb()
    names = fitting(wanted, free)
    if left_out := [name for name in wanted if name not in names]:
        say(f"{free:,} MB of memory are free, which is too little for all: without {', '.join(left_out)}")
    return names


def _tour(
    args: argparse.Namespace,
    together: Together,
    starting: Starting,
    signals: Signals,
    touring: Touring,
    limit_s: float | None,
    held: ExitStack,
) -> None:
    from millrace.demo.consoles import FIRST_PORT, Console, free_port

    consoles: list[Console] = []
    started = time.monotonic()
    while not signals.asked.wait(LOOK_S):
        starting.check()
        together.poll()
        seen = starting.seen.copy()
        touring.print_records(seen)
        touring.show(seen, consoles, together.settings)
        # Their start keeps a core busy for seconds: one after the other, the first one when there are numbers to look
        # at, the others when all applications run.
        shown = [] if args.no_console or not any(each.rows_in() for each in seen.values()) else list(seen)
        waiting = (shown if starting.done else shown[:1])[len(consoles) :]
        if waiting and (not consoles or consoles[-1].settled):
            port = free_port(FIRST_PORT + len(consoles))
            consoles.append(Console(waiting[0], together.settings.folder, port))
            held.callback(consoles[-1].end)
        if not starting.done:
            started = time.monotonic()
        elif limit_s is not None and time.monotonic() - started > limit_s:
            break
