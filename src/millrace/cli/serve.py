"""`millrace serve` and `millrace token …`: views, queries and events over HTTP, and who may use them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime

from millrace.cli.arguments import app_argument, listen
from millrace.cli.output import Commands, command, json_option, listing, noun, say
from millrace.config import Settings


def add(commands: Commands) -> None:
    added = command(commands, "serve", serve, "serve an app's views and topics over HTTP and WebSocket, until Ctrl-C")
    app_argument(added)
    added.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        help="where to answer: on this machine only unless a host is said (default: [serve] listen, 8642)",
    )
    token = noun(commands, "token", "tokens for `millrace serve` and the console: make them, list them, revoke them")
    added = command(token, "create", create, "make a token, and print it once")
    added.add_argument("name", help="whose it is")
    added.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        default=[],
        help="view:NAME, send:TOPIC, tail:TOPIC (* for all), query, status or console; may be repeated",
    )
    added.add_argument("--expires", metavar="TIME", help="after this time, for example 30d (default: never)")
    added = command(token, "list", list_tokens, "list the tokens, by name")
    json_option(added)
    added = command(token, "revoke", revoke, "end a token; WebSockets that it opened are closed")
    added.add_argument("name")


def serve(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import local
    from millrace.cli.apps import log_to_file
    from millrace.flow import load_app

    graph = load_app(args.app, settings).graph()
    address = settings.serve.listen if args.listen is None else listen("--listen", args.listen, "millrace serve")
    log_to_file(settings)
    from millrace.serve.server import Server

    server = Server(settings, graph, address)  # its address is taken, and refusals said, before servers start
    wanted = ("kafka", "postgres") if settings.views.url is None else ("kafka",)
    with local.held(settings, wanted, say=say):
        say(f"{graph.app} on {server.address}; what there is: {server.address}/openapi.json")
        server.run()


def create(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import durations
    from millrace.serve.tokens import Tokens

    expires = datetime.now(UTC) + durations.parse(args.expires) if args.expires else None
    secret = Tokens(settings.tokens).create(args.name, args.scope, expires)
    say("this is the only time that it is shown:")
    print(secret)


def list_tokens(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.serve.tokens import Tokens

    tokens = Tokens(settings.tokens)
    rows = [
        {**{name: value for name, value in asdict(each).items() if name != "hash"}, "scopes": ", ".join(each.scopes)}
        for each in tokens.all()
    ]
    empty = "no tokens: whoever is on this machine is served"
    if tokens.file.exists():
        empty = (
            "no tokens are left: nobody is served; `millrace token create` makes one, "
            f"without the file {tokens.file} whoever is on this machine is"
        )
    listing(args, ("name", "scopes", "created", "expires"), rows, empty)


def revoke(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.serve.tokens import Tokens

    Tokens(settings.tokens).revoke(args.name)
    say(f"{args.name} is revoked")
