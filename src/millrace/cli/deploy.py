"""`millrace deploy`: views whose SQL changed, built beside the old ones, compared with them, and put in their place."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from millrace.cli.arguments import app_argument
from millrace.cli.output import Commands, command, json_option, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.engine.comparing import Compared
    from millrace.engine.deploying import Deployed


def add(commands: Commands) -> None:
    added = command(
        commands,
        "deploy",
        deploy,
        "build views whose SQL changed beside the old ones, which go on running, and put them in their place",
    )
    added.epilog = (
        "The run of the old code may go on: it lets a view go at its switch, and has to be started again with the new "
        "code then. Killed at any point, the same command goes on. Exit code 1 if a view waits for --yes."
    )
    app_argument(added)
    added.add_argument(
        "--view", action="append", metavar="NAME", default=[], help="this view and no other; may be repeated"
    )
    added.add_argument(
        "--diff", action="store_true", help="count the rows that differ before the switch, and show some"
    )
    added.add_argument("--yes", action="store_true", help="switch without being asked")
    added.add_argument("--master", help="where Spark runs (default: as configured)")
    json_option(added)


def deploy(args: argparse.Namespace, settings: Settings) -> int:
    from millrace import local
    from millrace.cli.apps import heard, log_to_file, servers_of
    from millrace.flow import load_app

    app = load_app(args.app, settings)
    graph = app.graph()
    log_to_file(settings)
    from millrace.engine.deploying import Deploy

    def agree(view: str, compared: Compared | None) -> bool:
        if compared is not None:
            _show(view, compared)
        return bool(args.yes) or _asked(view)

    work = Deploy(app, settings, say, agree, views=args.view, diff=args.diff, master=args.master)
    with heard(), local.held(settings, servers_of(graph, settings), say=say):
        done = work.run()
    for each in done:
        say(f"{each.view}: {_outcome(each)}")
    if any(each.outcome == "switched" for each in done):
        say("start the run again with the new code: it goes on from here, and nothing is filled again")
    if args.json:
        print(json.dumps([_facts(each) for each in done], indent=2))
    return 1 if any(each.outcome == "left as it was" for each in done) else 0


def _asked(view: str) -> bool:
    if not sys.stdin.isatty():
        return False
    say(f"{view}: put the new one in the place of the old? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _outcome(done: Deployed) -> str:
    return {
        "new": "filled",
        "unchanged": "as it is: its SQL did not change",
        "left as it was": "the new one is filled, and waits beside the old: `--yes` puts it in its place",
        "switched": "the new one is the view now",
    }[done.outcome]


def _show(view: str, compared: Compared) -> None:
    counted = ", ".join(f"{count:,} {kind}" for kind, count in compared.counts.items())
    say(f"{view}: {counted}, at {compared.at}")
    if compared.apart:
        say(f"{view}: there is no position that both tell: what changed in between is among them")
    for each in compared.shown:
        told = " -> ".join(row for row in (each.old, each.new) if row is not None)
        say(f"  {each.kind} {told}")


def _facts(done: Deployed) -> dict[str, Any]:
    found: dict[str, Any] = {"view": done.view, "outcome": done.outcome}
    if done.compared is not None:
        shown = [{**vars(each), "key": json.loads(each.key)} for each in done.compared.shown]
        found |= {str(kind): count for kind, count in done.compared.counts.items()}
        found |= {"at": done.compared.at, "apart": done.compared.apart, "rows": shown}
    return found
