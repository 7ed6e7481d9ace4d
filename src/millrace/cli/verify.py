"""`millrace verify`: whether a table is true to its database, in its topic and in its sinks; and mending it."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from millrace.cli.output import Commands, command, json_option, listing, say
from millrace.config import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from millrace.capture import Captures
    from millrace.capture.verify import Verified
    from millrace.engine.verifying import SinkVerified, VerifySinks
    from millrace.flow import App

_LIMIT = 100


def add(commands: Commands) -> None:
    added = command(
        commands,
        "verify",
        verify,
        "compare a captured table with its topic and its sinks, row by row, and say what differs",
    )
    added.add_argument("table", metavar="TABLE", help="orders, shop.orders (of capture shop) or shop.public.orders")
    added.add_argument("--app", metavar="MODULE:APP", help="whose sinks; default: [run] app of millrace.toml")
    added.add_argument("--no-sinks", action="store_true", help="compare the topic only")
    added.add_argument(
        "--repair",
        action="store_true",
        help="read differing rows again, remove those that are gone, and build again sinks that differ",
    )
    added.add_argument("--limit", type=int, default=_LIMIT, metavar="N", help=f"show so many keys; default {_LIMIT}")
    json_option(added)


def verify(args: argparse.Namespace, settings: Settings) -> int:
    from millrace.capture import Captures, tables
    from millrace.capture.repair import outcome, repair
    from millrace.capture.verify import Comparison

    captures = Captures(settings)
    comparison = Comparison(captures, *tables.find(captures.log, args.table))
    verified = comparison.run()
    if args.repair and verified.differences:
        _show(args, verified)
        say(outcome(verified))
        verified = repair(comparison, verified, say)
    sinks = _sinks(args, settings, captures, verified.topic)
    if args.json:
        print(json.dumps({**_plain(verified, args.limit), "sinks": _plain_sinks(sinks, args.limit)}, indent=2))
    elif verified.differences:
        _show(args, verified)
    for column, reason in verified.left_out.items():
        say(f"column {column} was not compared: {reason}")
    say(outcome(verified))
    _show_sinks(args, sinks)
    return 0 if verified.clean and all(each.clean for each in sinks) else 1


def _sinks(args: argparse.Namespace, settings: Settings, captures: Captures, topic: str) -> list[SinkVerified]:
    """What the app writes the table to, if there is an app."""
    if args.no_sinks or not (args.app or settings.run.app):
        return []
    from millrace.cli.apps import log_to_file
    from millrace.flow import load_app

    app = load_app(args.app, settings)
    graph = app.graph()
    if not graph.deliveries:
        return []
    log_to_file(settings)
    from millrace.engine.session import close, session
    from millrace.engine.verifying import VerifySinks

    looking = VerifySinks(graph, settings, captures.log, topic)
    if not looking.sinks:
        return []
    say(f"comparing {', '.join(looking.sinks)} with the topic")
    spark = session(settings, None, settings.named(graph.app))
    try:
        found = looking.run(spark)
        return _repaired(args, app, settings, looking, found, spark) if args.repair else found
    finally:
        close(spark)


def _repaired(
    args: argparse.Namespace,
    app: App,
    settings: Settings,
    looking: VerifySinks,
    found: list[SinkVerified],
    spark: SparkSession,
) -> list[SinkVerified]:
    from millrace.engine.rebuild import Rebuild

    differing = [each.sink for each in found if each.differences is not None and each.differences.count]
    if not differing:
        return found
    _show_sinks(args, found)
    for name in differing:
        Rebuild(app, settings, name, say, spark=spark, log=looking.log).run()
    return looking.run(spark)


def _show(args: argparse.Namespace, verified: Verified) -> None:
    if args.json:
        return
    rows = (
        {
            "row": each.kind,
            "key": ", ".join(f"{name}={value}" for name, value in each.key.items()),
            "columns": ", ".join(each.columns) or None,
        }
        for each in islice(verified.differences, args.limit)
    )
    listing(args, ("row", "key", "columns"), rows, "nothing differs")
    if len(verified.differences) > args.limit:
        say(f"and {len(verified.differences) - args.limit:,} more")


def _show_sinks(args: argparse.Namespace, sinks: Sequence[SinkVerified]) -> None:
    if not sinks:
        return
    from millrace.engine.verifying import shown

    rows = list(islice(shown(sinks), args.limit))
    if rows and not args.json:
        listing(args, ("sink", "row", "key"), rows, "nothing differs")
    for each in sinks:
        say(each.text())


def _plain(verified: Verified, limit: int) -> dict[str, Any]:
    """Values of columns are never part of it, keys are."""
    shown = verified.differences[:limit]
    return {
        "capture": verified.capture,
        "table": verified.table,
        "topic": verified.topic,
        "position": verified.position,
        "clean": verified.clean,
        "rows": verified.rows,
        "topic_rows": verified.topic_rows,
        "differing": len(verified.differences),
        "more": verified.more,
        "unsettled": verified.unsettled,
        "twofold": verified.twofold,
        "being_read": verified.being_read,
        "left_out": dict(verified.left_out),
        "differences": [{"row": each.kind, "key": dict(each.key), "columns": list(each.columns)} for each in shown],
    }


def _plain_sinks(sinks: Sequence[SinkVerified], limit: int) -> list[dict[str, Any]]:
    found = []
    for each in sinks:
        differences = each.differences
        keys = {} if differences is None else dict(islice(differences.keys.items(), limit))
        found.append(
            {
                "sink": each.sink,
                "clean": each.clean,
                "rows": each.rows,
                "missing": 0 if differences is None else differences.missing,
                "surplus": 0 if differences is None else differences.surplus,
                "different": 0 if differences is None else differences.different,
                "unsettled": each.unsettled,
                "left_out": each.left_out,
                "differences": [{"row": kind, "key": key} for key, kind in keys.items()],
            }
        )
    return found
