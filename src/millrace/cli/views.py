"""`millrace view …`: what the view store holds, and what changes in it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from millrace.cli.arguments import lsn
from millrace.cli.output import Commands, command, json_option, listing, noun, positive, say
from millrace.config import Settings
from millrace.errors import UsageInvalid, ViewUnknown, nearest

if TYPE_CHECKING:
    from millrace.serve.query import Answer, Queries
    from millrace.views.store import Store

WAIT_S = 60


def add(commands: Commands) -> None:
    view = noun(commands, "view", "views in the view store: list them, print their rows, query them, watch them change")
    added = command(view, "list", list_views, "list the views, and what each of them is true of")
    json_option(added)
    added = command(view, "read", read, "print a view's rows, one JSON object a line")
    _view(added)
    _wait_for(added, "it has")
    added.add_argument("--limit", type=positive, metavar="N", help="at most this many")
    added = command(view, "query", query, "run one SELECT over an app's views, and print its rows as JSON")
    added.add_argument("sql", help="in PostgreSQL's dialect; it can read views and nothing else")
    added.add_argument("--limit", type=positive, metavar="N", default=1_000, help="at most this many (default: 1000)")
    _wait_for(added, "all views that it reads have")
    _app(added)
    added = command(view, "url", print_url, "print a PostgreSQL URL that can read an app's views and nothing else")
    _app(added)
    added = command(view, "watch", watch, "print a view's rows, and then its changes as they come, until Ctrl-C")
    added.epilog = (
        'A line is {"lsn": …, "row": {…}} of a row that came or changed, {"lsn": …, "gone": {key}} of one that is gone.'
    )
    _view(added)
    added.add_argument("--limit", type=positive, metavar="N", help="end after this many lines")


def _view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("view")
    parser.add_argument("--app", help="whose view, if several apps have one of that name")


def _wait_for(parser: argparse.ArgumentParser, who_has: str) -> None:
    told = f"first wait until {who_has} what was committed by then (0/16E8F58)"
    parser.add_argument("--wait-for", metavar="LSN", help=told)


def _app(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", help="whose views, if several apps have some")


def list_views(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.views import store

    filled = {(app, each.view): each for app, views in store.everything(settings).items() for each in views}
    filling = _filling(settings)
    rows: list[dict[str, object]] = []
    for app, view in sorted({*filled, *filling}):
        held, (since, told) = filled.get((app, view)), filling.get((app, view), (None, None))
        facts = {"lsn": held.lsn, "at": held.at, "epoch": held.epoch} if held is not None else {}
        # One that is begun anew is read for the first time again, while the old one is still there.
        new = held is None or (since is not None and since > held.at)
        rows.append({"app": app, "view": view, **facts, "filling": told if new else None})
    columns = ("app", "view", "lsn", "at", "epoch", "filling")
    listing(
        args,
        columns,
        [dict.fromkeys(columns) | row for row in rows],
        "no views; an app that has some fills them when it runs",
    )


def _filling(settings: Settings) -> dict[tuple[str, str], tuple[datetime, str]]:
    """Of all that were ever begun: when, and what was read since."""
    if not settings.checkpoints.is_dir():
        return {}
    from millrace.engine.flows import filling

    found = {}
    for each in filling(settings):
        left = "" if each["left"] is None else f", {each['left']:,} to go"
        found[each["app"], each["view"]] = (each["since"], f"{each['read']:,} read{left}")
    return found


def query(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.serve.query import MOST_ROWS

    if args.wait_for is not None:
        lsn("--wait-for", args.wait_for, "millrace view query")

    async def ask(queries: Queries) -> Answer:
        return await queries.answer(args.sql, args.limit, args.wait_for, WAIT_S)

    answer = asyncio.run(_asked(args, settings, "query", ask))
    for text in answer.rows:
        print(text)
    if answer.more:
        say(f"there are more than {args.limit:,}; --limit N shows up to {MOST_ROWS:,}")


def print_url(args: argparse.Namespace, settings: Settings) -> None:
    from psycopg.conninfo import conninfo_to_dict

    from millrace.views.store import schema_of

    found = conninfo_to_dict(asyncio.run(_asked(args, settings, "url", lambda queries: queries.url())))
    user, host = quote(str(found.get("user") or ""), safe=""), f"{found.get('host') or ''}:{found.get('port') or 5432}"
    # In the words of the shell's clients; whoever named a URL with a password has it, and it is not printed.
    options = quote(f'-csearch_path="{schema_of(settings, _app_of(args, settings, "url"))}"', safe="")
    print(f"postgresql://{user}@{host}/{quote(str(found.get('dbname') or ''), safe='')}?options={options}")
    if found.get("password"):
        say("its password is that of [views] read_url")


async def _asked(
    args: argparse.Namespace, settings: Settings, verb: str, ask: Callable[[Queries], Awaitable[Any]]
) -> Any:
    from millrace.serve.query import MOST_ROWS, Queries
    from millrace.serve.reading import Reading
    from millrace.views import store

    if getattr(args, "limit", 0) > MOST_ROWS:
        raise UsageInvalid(reason=f"--limit is {MOST_ROWS:,} at most", command=f"millrace view {verb}")
    app = _app_of(args, settings, verb)
    reading = Reading(settings, app, [each.view for each in store.everything(settings)[app]])
    queries = Queries(settings, reading)
    try:
        return await ask(queries)
    finally:
        await queries.close()
        await reading.close()


def _app_of(args: argparse.Namespace, settings: Settings, verb: str) -> str:
    """The one app that has views, or the one that was said."""
    from millrace.views import store

    apps = store.apps(settings)
    if args.app is None and len(apps) == 1:
        return apps[0]
    if args.app not in apps:
        known = ", ".join(apps) or "none yet: one that has views fills them when it runs"
        reason = f"{args.app!r} has no views" if args.app else "it needs an app: say --app"
        raise UsageInvalid(reason=f"{reason} (there are {known})", command=f"millrace view {verb}")
    return str(args.app)


def read(args: argparse.Namespace, settings: Settings) -> None:
    if args.wait_for is not None:
        lsn("--wait-for", args.wait_for, "millrace view read")  # what is none is told before the store is asked
    with closing(_store(args, settings, "read")) as found:
        if args.wait_for is not None:
            found.wait(args.view, args.wait_for, WAIT_S)
        texts, _ = found.texts(args.view, args.limit)
    for text in texts:
        print(text)


def watch(args: argparse.Namespace, settings: Settings) -> None:
    for line in islice(_lines(args, settings), args.limit):
        print(line, flush=True)


def _lines(args: argparse.Namespace, settings: Settings) -> Iterator[str]:
    from millrace.log import Log
    from millrace.views.watching import watched

    for changes in watched(Log(settings), _store(args, settings, "watch"), args.view):
        lsn = "null" if changes.lsn is None else f'"{changes.lsn}"'
        yield from (f'{{"lsn": {lsn}, "row": {row}}}' for row in changes.rows)
        yield from (f'{{"lsn": {lsn}, "gone": {key}}}' for key in changes.gone)


def _store(args: argparse.Namespace, settings: Settings, verb: str) -> Store:
    """Of the one app that has a view of this name."""
    from millrace.views import store

    known = {app: [each.view for each in positions] for app, positions in store.everything(settings).items()}
    apps = [app for app, views in known.items() if args.view in views and args.app in (None, app)]
    if len(apps) > 1:
        reason = f"{', '.join(apps)} have a view {args.view!r}; say --app"
        raise UsageInvalid(reason=reason, command=f"millrace view {verb}")
    if not apps:
        hint = nearest(args.view, [view for views in known.values() for view in views])
        raise ViewUnknown(view=args.view, hint=hint)
    return store.Store(settings, apps[0])
