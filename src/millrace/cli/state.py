"""`millrace state`: what the operators of a flow keep, and what they keep for a key."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.cli.output import Commands, command, json_option, listing, plain, positive, say
from millrace.config import Settings
from millrace.errors import CheckpointTwice, CheckpointUnknown, nearest

if TYPE_CHECKING:
    from millrace.engine.state import Shown, State

LIMIT = 20
_SIZES = ("operator", "where", "key", "keys", "rows", "bytes", "timers", "next_timer", "last_timer")


def add(commands: Commands) -> None:
    state = command(commands, "state", show, "show what a flow keeps as state, as of its last epoch")
    state.epilog = "The flow may run or not: its checkpoint is read, and nothing is changed."
    state.add_argument("flow", metavar="FLOW", help="its name, as `millrace status` shows it")
    state.add_argument("--app", help="the flow's app, if several have one of that name")
    state.add_argument(
        "--key",
        action="append",
        metavar="VALUE",
        default=[],
        help="show what is kept for this key; repeated, the columns of the key in their order",
    )
    state.add_argument("--keys", action="store_true", help="show what is kept for the first keys there are")
    state.add_argument(
        "--limit",
        type=positive,
        default=LIMIT,
        metavar="N",
        help=f"show at most so many keys, and of each as many entries (default: {LIMIT})",
    )
    json_option(state)


def show(args: argparse.Namespace, settings: Settings) -> int:
    app, folder = _folder(args, settings)
    from millrace.cli.apps import log_to_file

    log_to_file(settings)
    from millrace.engine.session import close, session
    from millrace.engine.state import State

    spark = session(settings, "local[2]", settings.named(app))
    try:
        state = State(spark, folder, args.flow)
        if args.key or args.keys:
            found, more = state.shown(args.key, args.limit)
            _print_keys(args, state, found, more)
        else:
            _print_sizes(args, state)
    finally:
        close(spark)
    return 0


def _print_sizes(args: argparse.Namespace, state: State) -> None:
    found = [asdict(each) for each in state.sizes()]
    if not args.json and found:
        say(f"{state.flow} as of epoch {state.epoch}")
    listing(args, _SIZES, found, f"flow {state.flow!r} keeps no state: it looks at each row by itself")


def _print_keys(args: argparse.Namespace, state: State, found: list[Shown], more: bool) -> None:
    if args.json:
        print(json.dumps([asdict(each) for each in found], default=plain, indent=2))
        return
    for each in found:
        key = ", ".join(f"{name}={value}" for name, value in each.key.items()) or "all rows"
        print(f"{each.operator}{f' at {each.where}' if each.where else ''}, {key}")
        for name, value in each.facts.items():
            print(f"  {name}: {_fact(value)}")
        listing(
            args, dict.fromkeys(name for entry in each.entries for name in entry), each.entries, f"  no {each.what}"
        )
        if each.left_out:
            print(f"  and {each.left_out:,} more {each.what}; --limit shows them")
    if not found:
        print(f"flow {state.flow!r} keeps nothing as of epoch {state.epoch}")
    if more:
        say(f"there are more keys than these; --limit shows more than {args.limit}")


def _fact(value: Any) -> str:
    return json.dumps(value, default=plain) if isinstance(value, list) else str(value)


def _folder(args: argparse.Namespace, settings: Settings) -> tuple[str, Path]:
    """The app and the folder of the flow that is meant; of a view, that of the generation that counts."""
    from millrace.engine import definition
    from millrace.engine.flows import flows

    known = flows(settings)
    apps = [each["app"] for each in known if each["flow"] == args.flow and args.app in (None, each["app"])]
    if not apps:
        names = sorted({each["flow"] for each in known})
        hint = nearest(args.flow, names)
        raise CheckpointUnknown(flow=args.flow, hint=hint, known=", ".join(names) or "none")
    if len(apps) > 1:
        raise CheckpointTwice(flow=args.flow, apps=", ".join(apps))
    return apps[0], definition.folder_of(settings, apps[0], args.flow)
