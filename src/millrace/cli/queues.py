"""`millrace queue …`: queues of RabbitMQ."""

from __future__ import annotations

import argparse

from millrace.cli.output import Commands, command, noun, positive, say
from millrace.config import Settings
from millrace.errors import CountInvalid, UsageInvalid


def add(commands: Commands) -> None:
    queue = noun(commands, "queue", "queues of RabbitMQ: drain one into a topic")
    added = command(
        queue, "drain", drain, "write a queue's messages to a topic, each acknowledged when its record is safe"
    )
    added.add_argument("queue")
    added.add_argument("topic")
    added.add_argument("--server", metavar="NAME", help="[queues.NAME] in millrace.toml; default: this project's own")
    added.add_argument("--key", metavar="FIELD", help="the field of each message whose value is the record's key")
    added.add_argument(
        "--id", metavar="FIELD", help="put the message's id into this field; one without goes to dead letters"
    )
    added.add_argument("--raw", action="store_true", help="messages as they are, without looking whether they are JSON")
    added.add_argument(
        "--prefetch", type=positive, metavar="N", help="how many messages may be under way; default 1000"
    )
    added.add_argument("--until-empty", action="store_true", help="end when the queue is empty, not at Ctrl-C")


def drain(args: argparse.Namespace, settings: Settings) -> int:
    from millrace.cli.signals import Signals
    from millrace.queues.drain import MOST_PREFETCH, PREFETCH, Drain

    if args.raw and (args.key or args.id):
        raise UsageInvalid(reason="--raw reads no fields, as --key and --id do", command="millrace queue drain")
    prefetch = args.prefetch or PREFETCH
    if prefetch > MOST_PREFETCH:
        raise CountInvalid(option="--prefetch", given=prefetch, most=MOST_PREFETCH)
    options = {"server": args.server, "key": args.key, "id": args.id, "raw": args.raw, "prefetch": prefetch}
    draining = Drain(settings, args.queue, args.topic, **options)
    with Signals() as signals:
        signals.be_graceful()
        if not args.until_empty:
            say(f"draining queue {args.queue} into topic {args.topic}; Ctrl-C ends")
        draining.run(stop=signals.asked, until_empty=args.until_empty, say=say)
    found = draining.drained
    again = f", of which {found.redelivered:,} were delivered before" if found.redelivered else ""
    say(f"{found.written:,} messages written to {args.topic}{again}")
    if found.dead:
        say(f"{found.dead:,} could not be read: `millrace deadletter list {args.topic}`")
    return signals.exit_code
