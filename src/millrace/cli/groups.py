"""`millrace group …`: consumer groups, their lag and their place."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from millrace.cli.output import Commands, command, json_option, listing, noun, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.log import Groups


def add(commands: Commands) -> None:
    group = noun(commands, "group", "consumer groups: list them, see their lag, move their place")
    added = command(group, "list", list_groups, "list the consumer groups")
    added.add_argument("--all", action="store_true", help="other prefixes' too, with outside names")
    json_option(added)

    added = command(group, "describe", describe, "show a group's members and which partitions each has")
    added.add_argument("group")
    json_option(added)

    added = command(group, "lag", lag, "show how far a group is behind, in records and in seconds")
    added.add_argument("group")
    json_option(added)

    added = command(group, "seek", seek, "move a group that nobody reads with to another place")
    added.add_argument("group")
    added.add_argument(
        "--to", required=True, metavar="PLACE", help='earliest, latest, an offset, a time, "10 minutes ago"'
    )
    added.add_argument("--topic", help="only in this topic, which may be new to the group; default: all of its topics")
    added.add_argument("--partition", type=int, metavar="N", help="only in this partition")
    json_option(added)


def list_groups(args: argparse.Namespace, settings: Settings) -> None:
    rows = [
        {"group": found.name, "state": found.state, "protocol": found.protocol}
        for found in _groups(settings).list(everything=args.all)
    ]
    listing(args, ("group", "state", "protocol"), rows, "no consumer groups")


def describe(args: argparse.Namespace, settings: Settings) -> None:
    found = _groups(settings).describe(args.group)
    if args.json:
        print(json.dumps(asdict(found), indent=2))
        return
    assignor = f", shared out by {found.assignor}" if found.assignor else ""
    say(f"group {found.name}: {found.state}, {found.protocol} protocol{assignor}")
    rows = [
        {
            "member": member.name or member.id,
            "static": "yes" if member.name else "no",
            "client": member.client,
            "host": member.host,
            "partitions": ", ".join(f"{topic}/{number}" for topic, number in member.partitions),
        }
        for member in found.members
    ]
    listing(args, ("member", "static", "client", "host", "partitions"), rows, "nobody reads with it at the moment")


def lag(args: argparse.Namespace, settings: Settings) -> None:
    rows = [asdict(found) for found in _groups(settings).lag(args.group)]
    columns = ["topic", "partition", "committed", "end", "records", "seconds"]
    if any(row["expired"] for row in rows):
        columns.append("expired")  # what retention took before the group had read it
    listing(args, columns, rows, "it has not read any topic that is still there")


def seek(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.log import position

    moves = _groups(settings).seek(args.group, position(args.to), topic=args.topic, partition=args.partition)
    listing(args, ("topic", "partition", "before", "after"), [asdict(move) for move in moves], "nothing to move")


def _groups(settings: Settings) -> Groups:
    from millrace.log import Log

    return Log(settings).groups
