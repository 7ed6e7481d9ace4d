"""`millrace deadletter …`: records that could not be processed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from millrace.cli.output import Commands, command, json_option, listing, noun, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.log import DeadLetter, DeadLetters

_LIMIT = 100


def add(commands: Commands) -> None:
    letter = noun(commands, "deadletter", "records that could not be processed: list, show and replay them")
    added = command(letter, "list", list_letters, "list the dead letters of a topic, or the topics that have any")
    added.add_argument("topic", nargs="?")
    added.add_argument("--limit", type=int, default=_LIMIT, metavar="N", help=f"at most so many; default {_LIMIT}")
    added.add_argument("--pending", action="store_true", help="only those not replayed yet")
    json_option(added)

    added = command(letter, "show", show, "show a dead letter: its place, the reason and its bytes")
    added.add_argument("topic")
    added.add_argument("letter", help="its number in the list")
    added.add_argument("--raw", action="store_true", help="the bytes of its value and nothing else")
    json_option(added)

    added = command(letter, "replay", replay, "write dead letters back to their topic, each once")
    added.add_argument("topic")
    added.add_argument("letter", nargs="*", help="their numbers in the list")
    added.add_argument("--all", action="store_true", help="all that were not replayed yet")


def list_letters(args: argparse.Namespace, settings: Settings) -> None:
    dead = _dead(settings)
    if args.topic is None:
        rows: list[dict[str, Any]] = [
            {"topic": found.topic, "letters": found.letters, "replayed": found.replayed, "last": found.last}
            for found in dead.topics()
        ]
        listing(args, ("topic", "letters", "replayed", "last"), rows, "no dead letters")
        return
    letters: Iterator[DeadLetter] = dead.list(args.topic)
    if args.pending:
        letters = (letter for letter in letters if not letter.replayed)
    rows = [
        {
            "letter": found.id,
            "partition": found.record.partition,
            "offset": found.record.offset,
            "time": found.record.time,
            "died": found.died,
            "replayed": found.replayed,
            "reason": found.reason,
        }
        for found in islice(letters, args.limit)
    ]
    more = sum(1 for _ in letters)
    columns = ("letter", "partition", "offset", "time", "replayed", "reason")
    listing(args, columns, rows, f"no dead letters of topic {args.topic}")
    if more:
        say(f"{more:,} more: --limit N shows them")


def show(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.log.record import json_bytes
    from millrace.log.shown import described

    found = _dead(settings).show(args.topic, args.letter)
    if args.raw:
        sys.stdout.buffer.write(found.record.value or b"")
        sys.stdout.buffer.flush()
        return
    shown = {"letter": found.id, "reason": found.reason, "died": found.died, "replayed": found.replayed}
    shown |= described(found.record)
    # Through JSON once, so that times look the same in both.
    plain = json.loads(json_bytes(shown))
    if args.json:
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    headers = plain.pop("headers")
    for name, value in plain.items():
        print(f"{name:13} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    for header in headers:
        print(f"{'header':13} {json.dumps(header, ensure_ascii=False)}")


def replay(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.errors import ReplayUnsure

    if bool(args.letter) == args.all:
        raise ReplayUnsure(topic=args.topic)
    written = _dead(settings).replay(args.topic, None if args.all else args.letter)
    again = "" if args.all or written == len(set(args.letter)) else "; the others had been replayed before"
    say(f"{written:,} dead letter{'' if written == 1 else 's'} written back to {args.topic}{again}")


def _dead(settings: Settings) -> DeadLetters:
    from millrace.log import Log

    return Log(settings).dead
