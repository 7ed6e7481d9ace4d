"""`millrace view …`: what the view store holds."""

from __future__ import annotations

import argparse
import json

from millrace.cli.output import Commands, command, json_option, listing, noun, plain, positive
from millrace.config import Settings
from millrace.errors import UsageInvalid, ViewUnknown, nearest

WAIT_S = 60


def add(commands: Commands) -> None:
    view = noun(commands, "view", "views in the view store: list them, print their rows")
    added = command(view, "list", list_views, "list the views, and what each of them is true of")
    json_option(added)
    added = command(view, "query", query, "print a view's rows, one JSON object a line")
    added.add_argument("view")
    added.add_argument("--app", help="whose view, if several apps have one of that name")
    added.add_argument("--wait", metavar="LSN", help="first wait until it has what was committed before (0/16E8F58)")
    added.add_argument("--limit", type=positive, metavar="N", help="at most this many")


def list_views(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.views import store

    rows = [
        {"app": app, "view": each.view, "lsn": each.lsn, "at": each.at, "epoch": each.epoch}
        for app in store.apps(settings)
        for each in store.Store(settings, app).positions()
    ]
    listing(args, ("app", "view", "lsn", "at", "epoch"), rows, "no views; an app that has some fills them when it runs")


def query(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.views import store
    from millrace.views.changelog import lsn_number

    known = {app: [each.view for each in store.Store(settings, app).positions()] for app in store.apps(settings)}
    apps = [app for app, views in known.items() if args.view in views and args.app in (None, app)]
    if len(apps) > 1:
        reason = f"{', '.join(apps)} have a view {args.view!r}; say --app"
        raise UsageInvalid(reason=reason, command="millrace view query")
    if not apps:
        hint = nearest(args.view, [view for views in known.values() for view in views])
        raise ViewUnknown(view=args.view, hint=hint)
    found = store.Store(settings, apps[0])
    if args.wait is not None:
        try:
            lsn_number(args.wait)
        except ValueError:
            reason = f"--wait {args.wait} is no LSN, as `SELECT pg_current_wal_lsn()` writes it"
            raise UsageInvalid(reason=reason, command="millrace view query") from None
        found.wait(args.view, args.wait, WAIT_S)
    columns, rows, _ = found.rows(args.view)
    for row in rows[: args.limit]:
        print(json.dumps(dict(zip(columns, row, strict=True)), default=plain, ensure_ascii=False))
