"""A capture as the configuration of a Debezium connector. Says why wherever it differs from Debezium's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from millrace.capture.database import Address, CapturedTable
from millrace.capture.definition import Capture
from millrace.capture.postgres import own_tables, qualified
from millrace.config import Settings

POSTGRES = "millrace.capture.PostgresCapture"

# What stands for a large value that an update left alone, and that PostgreSQL therefore did not log.
UNAVAILABLE = "__debezium_unavailable_value"
# One row as JSON may be this large; topics, producer and readers agree on it.
LARGEST_RECORD_BYTES = 16 * 1024 * 1024
HEARTBEAT_MS = 5_000

# What makes values exact (docs/design/0008): our converter, and texts that do not depend on the server's settings. The
# driver's own objects for these types cannot hold all of their values.
_PRINTED = ("interval", "point", "line", "lseg", "box", "path", "polygon", "circle")
_EXACT = {
    "converters": "exact",
    "exact.type": "millrace.capture.Exact",
    "exact.placeholder": UNAVAILABLE,
    "driver.binaryTransfer": "false",
    "driver.options": "-c IntervalStyle=iso_8601 -c bytea_output=hex -c lc_monetary=C",
    **{f"driver.datatype.{name}": "org.postgresql.util.PGobject" for name in _PRINTED},
}

_SSL = {"sslmode": "database.sslmode", "sslrootcert": "database.sslrootcert"}


def heartbeat_topic(capture: Capture) -> str:
    return f"_millrace.heartbeat.{capture.name}"


def notification_topic(capture: Capture) -> str:
    return f"_millrace.notifications.{capture.name}"


def message_topic(capture: Capture) -> str:
    """Where the connector writes messages that somebody put into the replication log; `verify` marks places by them."""
    return f"{capture.name}.message"


def truncate_topic(capture: Capture) -> str:
    return f"{capture.name}.truncates"


def marks_topic(capture: Capture) -> str:
    """Where the connector says up to which commit everything is in the tables' topics (`Marks.java`)."""
    return f"_millrace.marks.{capture.name}"


def own_topics(capture: Capture) -> tuple[str, ...]:
    """What the connector writes besides the tables."""
    told = (heartbeat_topic(capture), notification_topic(capture), truncate_topic(capture), message_topic(capture))
    return (*told, marks_topic(capture), capture.topic(own_tables(capture)[0]))


def postgres(
    capture: Capture,
    tables: Sequence[CapturedTable],
    together: Mapping[str, Sequence[str]],
    hidden: Sequence[str],
    address: Address,
    password: str | None,
    settings: Settings,
) -> dict[str, str]:
    """`together` is that of `Source.config`, `hidden` the columns that are not in the log; `password` is a reference
    that the worker resolves. The classes are ours, which close holes of Debezium's own (docs/design/0006)."""
    signal, _ = own_tables(capture)
    keys = {table.name: table.key for table in tables}
    config = {
        **common(capture, settings),
        "connector.class": POSTGRES,
        "database.hostname": address.host,
        "database.port": str(address.port),
        "database.user": address.user,
        "database.dbname": address.database,
        "table.include.list": ",".join(map(pattern, keys)),
        # Of a table without a primary key Debezium would take whichever unique index it finds first.
        "message.key.columns": ";".join(f"{pattern(name)}:{','.join(columns)}" for name, columns in keys.items()),
        "plugin.name": "pgoutput",
        "publication.name": capture.publication_name,
        "publication.autocreate.mode": "disabled",  # ours or the DBA's: of just these tables
        "slot.name": capture.slot_name,
        "millrace.marks": settings.named(marks_topic(capture)),
        "millrace.slot.own": str(capture.slot is None).lower(),
        "slot.failover": str(capture.failover).lower(),
        "signal.data.collection": signal,
        "signal.enabled.channels": "source",
        "heartbeat.action.query": beat(capture),
        "hstore.handling.mode": "json",
        "interval.handling.mode": "string",
        "unavailable.value.placeholder": UNAVAILABLE,
        **_EXACT,
        "publish.via.partition.root": "true",
        "skipped.operations": "none",  # the default leaves out truncates
        # A large value that an update left alone is not logged. It is read from the database instead: a compacted topic
        # may keep just this record of the row, so it has to be whole.
        "post.processors": "reselect",
        "reselect.type": "millrace.capture.Unlogged",
        "reselect.reselect.unavailable.values": "true",
        "reselect.reselect.null.values": "false",
        "reselect.reselect.use.event.key": "true",
        "reselect.reselect.error.handling.mode": "fail",
    }
    if password is not None:
        config["database.password"] = password
    for option, name in _SSL.items():
        if option in address.options:
            config[name] = address.options[option]
    _columns(config, capture, hidden)
    _never_changed(config, capture, [table for table in tables if table.name in together], together, settings)
    return config


def beat(capture: Capture) -> str:
    """A commit that changes nothing of the tables: it is seen in the log, and marked."""
    _, heartbeat = own_tables(capture)
    # The connector takes a text, no parameters; the name was held to letters, digits and _ when it was defined.
    return (
        f"INSERT INTO {_quoted(heartbeat)} (capture, at) VALUES ('{capture.name}', now()) "  # noqa: S608
        f"ON CONFLICT (capture) DO UPDATE SET at = now()"
    )


def common(capture: Capture, settings: Settings) -> dict[str, str]:
    largest = str(LARGEST_RECORD_BYTES)
    return {
        "tasks.max": "1",
        "exactly.once.support": "required",
        "topic.prefix": capture.outside(settings),
        "snapshot.mode": "initial",
        "snapshot.fetch.size": "10240",
        "incremental.snapshot.chunk.size": "8192",
        "poll.interval.ms": "10",
        "retriable.restart.connector.wait.ms": "2000",  # a database that was away is back
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        "max.queue.size.in.bytes": str(4 * LARGEST_RECORD_BYTES),
        "heartbeat.interval.ms": str(HEARTBEAT_MS),
        "topic.heartbeat.name": settings.named(heartbeat_topic(capture)),
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": settings.named(notification_topic(capture)),
        "tombstones.on.delete": "true",
        "extended.headers.enabled": "false",
        "decimal.handling.mode": "string",
        # JSON has them in base64 anyway; in Debezium's mode of that name a large one that was not logged becomes null.
        "binary.handling.mode": "bytes",
        "time.precision.mode": "microseconds",
        "include.unknown.datatypes": "true",
        "event.converting.failure.handling.mode": "fail",  # the default lets the value become null
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "value.converter.replace.null.with.default": "false",  # a null in a column that has a default stays null
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "-1",
        "producer.override.compression.type": "lz4",
        "producer.override.batch.size": "262144",
        "producer.override.max.request.size": largest,
        "producer.override.buffer.memory": str(4 * LARGEST_RECORD_BYTES),
    }


def _columns(config: dict[str, str], capture: Capture, hidden: Sequence[str]) -> None:
    if absent := [*map(_column, capture.exclude), *hidden]:
        config["column.exclude.list"] = ",".join(map(pattern, absent))
    if capture.mask:
        # A keyed hash would need a secret in the configuration; a fixed text says just that something was there.
        config["column.mask.with.8.chars"] = ",".join(pattern(_column(name)) for name in capture.mask)


def _never_changed(
    config: dict[str, str],
    capture: Capture,
    tables: Sequence[CapturedTable],
    together: Mapping[str, Sequence[str]],
    settings: Settings,
) -> None:
    """Events in their order: an aggregate's in one partition (`Together.java`), and a snapshot's by position, since a
    table is not read as it was written once space that a rollback left was used again."""
    if not tables:
        return
    topics = [f"{settings.named(capture.topic(table.name))}:{','.join(together[table.name])}" for table in tables]
    config["millrace.together"] = ";".join(topics)
    config["millrace.partitions"] = str(capture.partitions)
    config["snapshot.select.statement.overrides"] = ",".join(table.name for table in tables)
    for table in tables:
        columns = ", ".join(_quoted(column.name) for column in table.columns)
        order = ", ".join(map(_quoted, table.key))
        statement = f"SELECT {columns} FROM {_quoted(table.name)} ORDER BY {order}"  # noqa: S608 -- names, quoted
        config[f"snapshot.select.statement.overrides.{table.name}"] = statement


def _column(name: str) -> str:
    table, _, column = name.rpartition(".")
    return f"{qualified(table)}.{column}"


def pattern(name: str) -> str:
    """Debezium takes regular expressions, separated by commas."""
    return re.escape(name).replace(",", r"\x2C").replace(r"\ ", " ").replace(r"\-", "-")


def _quoted(table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))
