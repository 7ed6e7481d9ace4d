"""`millrace run`, `millrace plan` and `millrace graph`: the commands over an app."""

from __future__ import annotations

import argparse
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from millrace.cli.arguments import app_argument, listen, moment
from millrace.cli.output import Commands, command, json_option, listing, say
from millrace.config import LOGS, Listen, Settings
from millrace.errors import MillraceError, ReplayInvalid, ServerDown

if TYPE_CHECKING:
    from millrace.cli.live import Display
    from millrace.cli.signals import Signals
    from millrace.engine import Run
    from millrace.engine.replay import Replay
    from millrace.flow import Graph

LOOK_S = 0.25
SERVER_LOOK_S = 2.0
_RUN = "millrace run"
FROM_LAKE = "lake"


def add(commands: Commands) -> None:
    run = command(commands, "run", run_app, "run an app: start the servers it needs, then its flows until Ctrl-C")
    run.epilog = (
        "Ctrl-C and SIGTERM let the epoch at hand end, so that the checkpoint is whole (exit code 0); "
        "a second one stops at once (130)."
    )
    app_argument(run)
    run.add_argument("--master", help="where Spark runs: local[4], spark://…, yarn, k8s://… (default: as configured)")
    run.add_argument("--no-traffic", action="store_true", help="leave out the made-up events of @app.traffic")
    run.add_argument(
        "--show",
        action="append",
        metavar="TOPIC",
        default=[],
        help="print the records of this topic as they come; may be repeated",
    )
    run.add_argument("--once", action="store_true", help="end when everything that is there now has been read")
    run.add_argument(
        "--from",
        dest="start",
        metavar="TIME",
        default="checkpoint",
        help="replay from `earliest`, a time, `2 hours ago`, or `lake`: the topics' archives in the lake and then the "
        "topics; into outputs of its own (default: from the checkpoint)",
    )
    run.add_argument("--until", metavar="TIME", help="replay only what arrived before this time, and end")
    run.add_argument(
        "--into",
        metavar="NAME",
        help="the replay's name: stream `counts` writes to topic `counts.NAME` "
        f"(default with `--from lake`: {FROM_LAKE})",
    )
    run.add_argument("--for", dest="duration", metavar="TIME", help="end after this time, for example 30s")
    run.add_argument(
        "--only", action="append", metavar="FLOW", default=[], help="run this flow and no other; may be repeated"
    )
    run.add_argument(
        "--fresh",
        action="append",
        metavar="FLOW",
        default=[],
        help="set this flow's checkpoint aside and start from the oldest records; may be repeated",
    )
    run.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve /metrics and /health over HTTP, on this machine only unless a host is said",
    )
    run.add_argument("--log", choices=LOGS, help="how the run speaks on standard error: text for people, json lines")
    plan = command(
        commands, "plan", print_plan, "say what the code as it is now means for the checkpoints that are there"
    )
    plan.epilog = "Exit code 0 if every flow can go on, 1 if one needs a new checkpoint or is refused."
    app_argument(plan)
    json_option(plan)
    graph = command(commands, "graph", print_graph, "draw an app's graph, without starting anything")
    app_argument(graph)
    graph.add_argument("--mermaid", action="store_true", help="as a Mermaid flowchart, for a page")


def print_graph(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.flow import load_app

    graph = load_app(args.app, settings).graph()
    print(graph.mermaid() if args.mermaid else graph.text())


def print_plan(args: argparse.Namespace, settings: Settings) -> int:
    from millrace import local
    from millrace.flow import load_app

    graph = load_app(args.app, settings).graph()
    log_to_file(settings)
    with local.held(settings, ("kafka",), say=say):
        from millrace.engine import changes
        from millrace.engine.session import close, session

        spark = session(settings, "local[1]", settings.named(graph.app))
        try:
            found = changes.answers(graph, settings, spark)
        finally:
            close(spark)
    listing(args, ("flow", "verdict", "reason"), [asdict(answer) for answer in found], "the app has no flows")
    return 0 if all(answer.goes_on for answer in found) else 1


def run_app(args: argparse.Namespace, settings: Settings) -> int:
    if (args.log or settings.run.log) == "text":
        return _run_app(args, settings, say, as_json=False)
    from millrace.cli import jsonlog

    try:
        code = _run_app(args, settings, lambda text: jsonlog.line("notice", text), as_json=True)
    except MillraceError as error:
        return jsonlog.failure(error)
    jsonlog.line("stop", "stopped", code=code)
    return code


def _run_app(args: argparse.Namespace, settings: Settings, say: Callable[[str], None], *, as_json: bool) -> int:
    from millrace import durations, local
    from millrace.cli.live import shown_topics
    from millrace.cli.signals import Signals
    from millrace.flow import load_app

    app = load_app(args.app, settings)
    limit_s = durations.milliseconds(args.duration) / 1000 if args.duration else None
    app.graph()  # what is wrong with it is told before Spark is loaded
    address = _address(args, settings)
    log_to_file(settings)
    from millrace.engine import Run

    run = Run(
        app,
        settings,
        master=args.master,
        only=args.only,
        fresh=args.fresh,
        once=args.once,
        traffic=not args.no_traffic,
        replay=_replay(args),
    )
    if run.replay is not None and run.replay.lake and not args.once:
        say("from the lake: it ends when all that is there now has been read; run it again for what comes later")
    # What is shown by default are the live topics.
    show = shown_topics(run.graph, args.show or (settings.run.show if run.replay is None else ()))
    signals = Signals(lambda: say("stopping after this epoch; Ctrl-C again stops at once"))
    with (
        signals,
        heard(as_json),
        _served(run, address, say),
        local.held(settings, servers_of(run.graph, settings), say=say),
    ):
        run.prepare()
        with _display(run, show, as_json) as display:
            try:
                _run(run, display, signals, limit_s)
            except KeyboardInterrupt:
                if signals.asked.is_set():
                    say("stopped at once; the next run does the interrupted epoch again")
                return signals.exit_code
            display.finish()
    return signals.exit_code


def _replay(args: argparse.Namespace) -> Replay | None:
    from millrace.engine.replay import Replay

    start = None if args.start in ("earliest", "checkpoint", FROM_LAKE) else moment("--from", args.start, _RUN)
    until = None if args.until is None else moment("--until", args.until, _RUN)
    if args.start == FROM_LAKE and until is not None:
        raise ReplayInvalid(reason="from the lake, all is read that there is: leave `--until` out")
    if (into := _into(args)) is not None:
        return Replay(into, start, until, lake=args.start == FROM_LAKE)
    if args.start != "checkpoint" or args.until is not None:
        raise ReplayInvalid(reason="it would write its results among those that are there")
    return None


def _into(args: argparse.Namespace) -> str | None:
    """The name of a replay; None if it is none, or has yet to say."""
    given: str | None = args.into
    return FROM_LAKE if given is None and args.start == FROM_LAKE else given


def _display(run: Run, show: tuple[str, ...], as_json: bool) -> Display:
    if as_json:
        from millrace.cli.jsonlog import JsonDisplay

        return JsonDisplay(run, show)
    from millrace.cli.live import Display

    return Display(run, show)


def _address(args: argparse.Namespace, settings: Settings) -> Listen | None:
    if args.metrics is None:  # a replay runs beside the live one, which has the configured port
        return settings.run.metrics if _into(args) is None else None
    return listen("--metrics", args.metrics, _RUN)


@contextlib.contextmanager
def _served(run: Run, address: Listen | None, say: Callable[[str], None]) -> Iterator[None]:
    if address is None:
        yield
        return
    from millrace.serve.http import MetricsServer

    with MetricsServer(address, run.graph.app, lambda: run.standings) as server:
        say(f"metrics on {server.address}/metrics, health on {server.address}/health")
        yield


@contextlib.contextmanager
def heard(as_json: bool = False) -> Iterator[None]:
    """What the run says by its logger goes to the terminal too: that a flow failed, that a server is waited for."""
    from millrace.cli.jsonlog import JsonHandler

    handler = JsonHandler() if as_json else _Said()
    handler.setLevel(logging.INFO if as_json else logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("millrace.engine", "millrace.demo")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        if as_json:
            logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def servers_of(graph: Graph, settings: Settings) -> tuple[str, ...]:
    """Kafka; for captures Connect too and, where millrace.toml names no database, a PostgreSQL of the project's own;
    the view store, what sinks write to and the catalog of lake tables, where it names no other."""
    from millrace.flow import LakeInput
    from millrace.lakehouse import Catalog

    wanted = ["kafka"]
    if graph.databases:
        wanted += ["connect"] if settings.databases else ["connect", "postgres"]
    if graph.views and settings.views.url is None:
        wanted.append("postgres")
    wanted += [server for delivery in graph.deliveries for server in delivery.sink.servers(settings)]
    read = [each.table for each in graph.nodes if isinstance(each, LakeInput)]
    read += [each.lake for each in graph.lake_topics if each.lake is not None]
    formats = [Catalog(settings).format(table) for table in read]
    if "iceberg" in formats and settings.lake.catalog is None:
        wanted.append("postgres")
    return tuple(dict.fromkeys(wanted))


def _run(run: Run, display: Display, signals: Signals, limit_s: float | None) -> None:
    flows = len(run.planned)
    display.say(f"starting Spark for {flows} flow{'' if flows == 1 else 's'} of {run.graph.app}")
    with run:
        for flow, aside in run.aside.items():
            display.say(f"{flow} starts afresh; its old checkpoint is {aside}")
        signals.be_graceful()
        started = time.monotonic()
        looked = started
        try:
            while not signals.asked.wait(LOOK_S) and not run.done:
                run.poll()
                display.update(run.standings)
                if time.monotonic() - looked > SERVER_LOOK_S:
                    _refuse_dead_kafka(run)
                    looked = time.monotonic()
                if limit_s is not None and time.monotonic() - started > limit_s:
                    break
            run.stop()
        finally:
            display.take(run.standings)


def _refuse_dead_kafka(run: Run) -> None:
    """Spark would try to reach a dead broker for minutes, without a word."""
    from millrace import local

    try:
        local.address(run.settings, "kafka")
    except ServerDown:
        run.kill()
        raise


def log_to_file(settings: Settings) -> None:
    """What libraries log or warn of goes to a file: the terminal is for the app."""
    folder = settings.state_folder / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=folder / "millrace.log",
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.captureWarnings(True)
