"""`millrace topic …`: topics and the records in them."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from millrace.cli.arguments import moment
from millrace.cli.output import Commands, command, json_option, listing, noun, positive, say
from millrace.config import Settings
from millrace.errors import StdinClosed, UsageInvalid

if TYPE_CHECKING:
    from millrace.log import Log
    from millrace.log.delays import Delays
    from millrace.log.lines import RefusedLine

FORMATS = ("json", "avro", "protobuf", "raw")
_WRITE = "millrace topic write"
_REPORTED = 5  # refused lines that are shown; all of them are kept


def add(commands: Commands) -> None:
    topic = noun(commands, "topic", "topics: make, list, change and delete them; write and read records")
    added = command(topic, "list", list_topics, "list the topics")
    added.add_argument("--all", action="store_true", help="other prefixes' and Kafka's own too, with outside names")
    json_option(added)

    added = command(topic, "create", create, "make a topic")
    added.add_argument("topic")
    added.add_argument("--partitions", type=int, default=1, metavar="N", help="default 1")
    added.add_argument("--replication", type=int, metavar="N", help="copies of each partition; default: the broker's")
    _config_options(added)

    added = command(topic, "describe", describe, "show a topic's partitions, offsets and configuration")
    added.add_argument("topic")
    json_option(added)

    added = command(topic, "alter", alter, "change a topic's configuration or add partitions")
    added.add_argument("topic")
    added.add_argument(
        "--partitions", type=int, metavar="N", help="how many it shall have; keys move, so it needs --yes"
    )
    added.add_argument("--yes", action="store_true", help="keys may move to other partitions")
    added.add_argument("--reset", action="append", default=[], metavar="NAME", help="back to the broker's default")
    _config_options(added)

    added = command(topic, "delete", delete, "delete a topic and all its records")
    added.add_argument("topic")
    added.add_argument("--yes", action="store_true", help="yes, delete it")

    _add_write(topic)
    _add_read(topic)
    _add_delays(topic)


def _config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--retention", metavar="DURATION", help='how long records are kept: "7 days", forever')
    parser.add_argument("--retention-bytes", metavar="SIZE", help='how much of a partition is kept: "10 GB", forever')
    parser.add_argument(
        "--compact", action=argparse.BooleanOptionalAction, default=None, help="keep the last record of every key"
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="any other option of Kafka's topics"
    )


def _add_write(topic: Commands) -> None:
    added = command(topic, "write", write, "write lines of standard input as records")
    added.add_argument("topic")
    added.add_argument("--key", metavar="FIELD", help="the field of each line whose value is the record's key")
    added.add_argument("--raw", action="store_true", help="lines as they are, without looking whether they are JSON")
    added.add_argument("--acks", choices=("all", "1", "0"), default="all", help="who must have a record; default all")
    added.add_argument("--format", choices=FORMATS[:3], default="json", help="what lines are written as; default json")
    added.add_argument("--schema", type=Path, metavar="FILE", help="the schema for avro (.avsc) or protobuf (.proto)")
    added.add_argument(
        "--complete",
        metavar="COLUMN=TIME",
        help="when all is written, say in every partition that nothing from before TIME is missing (`mr.marked`)",
    )
    added.add_argument("--rejects", type=Path, metavar="FILE", help="where lines that cannot be written are kept")


def _add_read(topic: Commands) -> None:
    added = command(topic, "read", read, "print records, to the end of the topic unless told otherwise")
    added.add_argument("topic")
    added.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="PLACE",
        help='earliest (default), latest, an offset, a time, "10 minutes ago"',
    )
    added.add_argument("--until", metavar="TIME", help="only records before that time")
    added.add_argument("--partition", type=int, metavar="N", help="only this partition")
    added.add_argument("--limit", type=int, metavar="N", help="at most so many records")
    added.add_argument("--follow", "-f", action="store_true", help="go on with new records until Ctrl-C")
    added.add_argument("--for", dest="duration", metavar="DURATION", help='stop after so long: "30s"')
    added.add_argument(
        "--format", choices=FORMATS, default="raw", help="what values are; default raw: bytes as they are"
    )
    added.add_argument("--json", action="store_true", help="one object a line, with key, headers, place and time")


def _add_delays(topic: Commands) -> None:
    added = command(topic, "delays", delays, "say how late events arrive, and what share each lag would lose")
    added.add_argument("topic")
    added.add_argument(
        "--time", required=True, metavar="COLUMN", help="the field that says when an event happened: ISO, or seconds"
    )
    added.add_argument(
        "--limit", type=positive, default=1_000_000, metavar="N", help="about the newest so many; default 1,000,000"
    )
    json_option(added)


def list_topics(args: argparse.Namespace, settings: Settings) -> None:
    rows = [
        {"topic": found.name, "partitions": found.partitions, "replication": found.replication}
        for found in _log(settings).topics.list(everything=args.all)
    ]
    empty = "no topics yet: `millrace topic create NAME` makes one"
    listing(args, ("topic", "partitions", "replication"), rows, empty)


def create(args: argparse.Namespace, settings: Settings) -> None:
    _log(settings).topics.create(
        args.topic,
        partitions=args.partitions,
        replication=args.replication,
        retention=args.retention,
        retention_bytes=args.retention_bytes,
        compact=args.compact,
        config=_pairs(args),
    )
    say(f"topic {args.topic} is there, with {_counted(args.partitions, 'partition')}")


def describe(args: argparse.Namespace, settings: Settings) -> None:
    found = _log(settings).topics.describe(args.topic)
    columns = ("partition", "leader", "replicas", "in_sync", "first", "last")
    rows: list[dict[str, Any]] = [
        {
            "partition": partition.number,
            "leader": partition.leader,
            "replicas": partition.replicas,
            "in_sync": partition.in_sync,
            "first": partition.first,
            "last": partition.last,
        }
        for partition in found.partitions
    ]
    if args.json:
        print(json.dumps({"topic": found.name, "partitions": rows, "config": dict(found.config)}, indent=2))
        return
    for row in rows:
        row["replicas"] = " ".join(map(str, row["replicas"]))
        row["in_sync"] = " ".join(map(str, row["in_sync"]))
    listing(args, columns, rows, "no partitions")
    config = [{"option": name, "value": value} for name, value in found.config.items()]
    listing(args, ("option", "value"), config, "configured as the broker's defaults say")


def alter(args: argparse.Namespace, settings: Settings) -> None:
    log = _log(settings)
    if args.partitions is not None:
        from millrace.capture import memory

        memory.refuse_partitions(log, args.topic)
    log.topics.alter(
        args.topic,
        partitions=args.partitions,
        keys_may_move=args.yes,
        retention=args.retention,
        retention_bytes=args.retention_bytes,
        compact=args.compact,
        config=_pairs(args),
        reset=args.reset,
    )
    if args.partitions is not None and args.yes:
        say("keys may now be in other partitions: new records of a key are not in order with its old ones")
    say(f"topic {args.topic} is changed")


def delete(args: argparse.Namespace, settings: Settings) -> None:
    from millrace.errors import DeleteUnsure

    log = _log(settings)
    log.topics.known(args.topic)
    if not args.yes:
        raise DeleteUnsure(topic=args.topic)
    log.topics.delete(args.topic)
    say(f"topic {args.topic} is deleted")


def write(args: argparse.Namespace, settings: Settings) -> int:
    """Lines that cannot be written are kept in a file with their number and reason, and make the exit code 1."""
    from millrace.log.lines import LineWriter, chunks

    complete = _complete(args)
    log = _log(settings)
    with log.writer(args.topic, acks=args.acks) as writer, _Rejects(args, settings) as rejects:
        encode = _encode(args, log)
        lines = LineWriter(writer, rejects.keep, key=args.key, raw=args.raw, encode=encode)
        if sys.stdin is None:
            raise StdinClosed(command="topic write")
        if sys.stdin.isatty():
            say(f"writing lines to topic {args.topic}; Ctrl-D ends")
        for chunk in chunks(sys.stdin.fileno()):
            lines.write(chunk)
        if complete and not lines.tally.refused:
            writer.complete(*complete)
    tally = lines.tally
    blank = f"; {_counted(tally.blank, 'blank line')} passed over" if tally.blank else ""
    say(f"{_counted(tally.written, 'record')} written to {args.topic}{blank}")
    if not tally.refused:
        return 0
    say(f"{_counted(tally.refused, 'line')} not written; kept with the reasons in {rejects.file}")
    if complete:
        say(f"so {args.topic} is not marked as complete")
    return 1


def _complete(args: argparse.Namespace) -> tuple[str, datetime] | None:
    """The column of the markers, and up to when all is there."""
    if args.complete is None:
        return None
    column, sign, time = args.complete.partition("=")
    fault = ""
    if not sign or not column:
        fault = f"--complete {args.complete} is not COLUMN=TIME"
    elif args.acks == "0":
        fault = "--complete is said when every record is acknowledged, which with --acks 0 none is"
    elif args.format != "json":
        fault = f"--complete writes markers as JSON, and records are to be {args.format}"
    if fault:
        raise UsageInvalid(reason=fault, command=_WRITE)
    return column, moment("--complete", time, _WRITE)


def read(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import durations
    from millrace.log import position
    from millrace.log.shown import object_lines, value_lines

    log = _log(settings)
    decode = None if args.format == "raw" else log.format(args.topic, args.format).decode
    reader = log.reader(
        args.topic,
        position(args.start),
        partition=args.partition,
        limit=args.limit,
        until=moment("--until", args.until, "millrace topic read") if args.until else None,
        follow=args.follow,
        lasting_s=durations.milliseconds(args.duration) / 1_000 if args.duration else None,
    )
    if reader.expired:
        say(f"{reader.expired:,} records from offset {args.start} on are gone: the topic's retention took them")
    blocks = object_lines(reader, decode) if args.json else value_lines(reader, decode)
    out = sys.stdout.buffer
    with contextlib.closing(blocks):
        for block in blocks:
            out.write(block)
            out.flush()


def delays(args: argparse.Namespace, settings: Settings) -> None:
    from millrace import durations
    from millrace.flow.time import AHEAD
    from millrace.log.delays import delays_of

    records = _log(settings).newest(args.topic, args.limit)
    found = delays_of(args.topic, args.time, records, ahead_ms=durations.milliseconds(AHEAD))
    if args.json:
        print(json.dumps(_delays_object(args, found), indent=2))
        return
    for line in _delays_lines(args, found, AHEAD):
        print(line)


class _Rejects:
    """The lines that were not written: the first are shown, all are kept, in a file made when there is one to keep."""

    def __init__(self, args: argparse.Namespace, settings: Settings) -> None:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.file: Path = args.rejects or settings.state_folder / "rejects" / f"{args.topic}-{now}.jsonl"
        self._open: TextIO | None = None
        self._shown = 0

    def keep(self, line: RefusedLine) -> None:
        from millrace.log.shown import text_or_base64

        if self._open is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._open = self.file.open("a", encoding="utf-8")
        kept = {"line": line.number, "reason": line.reason, **text_or_base64("text", line.content)}
        self._open.write(json.dumps(kept, ensure_ascii=False) + "\n")
        if self._shown < _REPORTED:
            self._shown += 1
            say(f"line {line.number}: {line.reason}")

    def __enter__(self) -> _Rejects:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()


def _encode(args: argparse.Namespace, log: Log) -> Callable[[Any], bytes] | None:
    from millrace.errors import RecordSchemaMissing, RecordSchemaUnused

    if args.format == "json" or args.raw:
        if args.schema:
            raise RecordSchemaUnused()
        return None
    if args.schema is None:
        raise RecordSchemaMissing(format=args.format, topic=args.topic)
    return log.format(args.topic, args.format, args.schema).encode


def _delays_object(args: argparse.Namespace, found: Delays) -> dict[str, Any]:
    from dataclasses import asdict

    shown = {"topic": args.topic, "time": args.time, **asdict(found)}
    return shown | {name: shown[name].isoformat() for name in ("first_arrival", "last_arrival")}


def _delays_lines(args: argparse.Namespace, found: Delays, bound: str) -> Iterator[str]:
    from millrace.durations import spoken

    first, last = (f"{time:%Y-%m-%d %H:%M:%S}" for time in (found.first_arrival, found.last_arrival))
    read = _counted(found.records, "record")
    yield f"{read} of {args.topic} read, which arrived from {first} to {last} (UTC)"
    if found.untimed:
        yield f"{found.untimed:,} of {read} {'has' if found.untimed == 1 else 'have'} no time in {args.time!r}"
    if found.ahead:
        yield f"ahead of their arrival: {_counted(found.ahead, 'event')}"
    if found.set_aside:
        yield f"by more than {bound}: {found.set_aside:,}; flows set these aside, and they do not count below"
    if not found.events:
        return
    told = (f"{name.replace('p', 'P')} {_roughly(length_ms)}" for name, length_ms in found.delays_ms.items())
    yield f"from happening to arriving: {', '.join(told)}"
    yield ""
    for cost in found.costs:
        yield f"{spoken(cost.lag_ms):>10} loses {_percent(cost.share)}"
    yield ""
    if found.suggested_ms is None:
        yield "each of these loses more than 0.1 %: look at how the events come about"
    else:
        yield f'suggested: lateness="{spoken(found.suggested_ms)}", the least of these that loses at most 0.1 %'


def _roughly(length_ms: int) -> str:
    """A measured length as one would say it: 83412 is "1.4 minutes"."""
    for unit, unit_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000)):
        if abs(length_ms) >= unit_ms:
            return f"{length_ms / unit_ms:,.1f} {unit}"
    return f"{length_ms} ms"


def _percent(share: float) -> str:
    if not share:
        return "nothing"
    return f"{share * 100:.2f} %" if share >= 0.0001 else "less than 0.01 %"


def _log(settings: Settings) -> Log:
    from millrace.log import Log

    return Log(settings)


def _pairs(args: argparse.Namespace) -> dict[str, str]:
    from millrace.errors import TopicConfigInvalid

    pairs = {}
    for text in args.config:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise TopicConfigInvalid(topic=args.topic, reason=f"{text!r} is not of the form NAME=VALUE")
        pairs[name] = value
    return pairs


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
