"""`millrace verify`: whether a captured table is true to its database, and mending it."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from millrace.cli.output import Commands, command, json_option, listing, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.capture.verify import Verified

_LIMIT = 100


def add(commands: Commands) -> None:
    added = command(
        commands, "verify", verify, "compare a captured table with its topic, row by row, and say what differs"
    )
    added.add_argument("table", metavar="TABLE", help="orders, shop.orders (of capture shop) or shop.public.orders")
    added.add_argument(
        "--repair", action="store_true", help="read differing rows again, and remove those that are gone"
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
    if args.json:
        print(json.dumps(_plain(verified, args.limit), indent=2))
    elif verified.differences:
        _show(args, verified)
    for column, reason in verified.left_out.items():
        say(f"column {column} was not compared: {reason}")
    say(outcome(verified))
    return 0 if verified.clean else 1


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
