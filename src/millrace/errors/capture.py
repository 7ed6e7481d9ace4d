"""Capturing databases, and reading captured tables."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class CaptureInvalid(UserError):
    code = "MR-CAPTURE-INVALID"
    text = "capture {name!r} cannot have {option} = {given!r}"
    fix = "{remedy}"


class CaptureUnknown(UserError):
    code = "MR-CAPTURE-UNKNOWN"
    text = "there is no capture {name!r}{hint}"
    fix = "`millrace capture list` shows those that there are, `millrace capture add` makes one"


class DatabaseUrlInvalid(UserError):
    code = "MR-DATABASE-URL-INVALID"
    text = "the URL of database {name!r} is not one that Millrace can use"
    fix = "write it as postgresql://user:password@host:port/database (or mysql://…) with all of its parts"


class DatabaseUnreachable(ServerError):
    code = "MR-DATABASE-UNREACHABLE"
    text = "database {name!r} ({address}) cannot be used ({reason})"
    fix = "check that the server runs, that the URL is right and that the user may log in from here"


class ConnectUnreachable(ServerError):
    code = "MR-CONNECT-UNREACHABLE"
    text = "Kafka Connect at {address} does not answer ({reason})"
    fix = "start it with `millrace up connect`, or check [connect] url"


class ConnectRefused(ServerError):
    code = "MR-CONNECT-REFUSED"
    text = "Kafka Connect at {address} refused {action} ({reason})"
    fix = "see the log of the Connect worker; the local one's is .millrace/logs/connect.log"


class DatabaseRefused(ServerError):
    code = "MR-DATABASE-REFUSED"
    text = "database {name!r} refused {statement} ({reason})"
    fix = "`millrace capture check` says what is lacking and the SQL that mends it"


class TableUnknown(UserError):
    code = "MR-TABLE-UNKNOWN"
    text = "there is no table {table!r} in {database!r}{hint}"
    fix = "check the spelling and the schema; `millrace capture list` shows what is captured"


class CaptureRefused(UserError):
    code = "MR-CAPTURE-REFUSED"
    text = "capture {name!r} cannot start: {what} ({why})"
    fix = "`millrace capture check {name} TABLE…` shows everything, with the SQL that mends it"


class CaptureFailed(ServerError):
    code = "MR-CAPTURE-FAILED"
    text = "capture {name!r} stopped ({reason})"
    fix = "{remedy}"


class CaptureChanged(UserError):
    code = "MR-CAPTURE-CHANGED"
    text = "capture {name!r} exists with {option} = {old!r} and cannot have {new!r} now"
    fix = "{remedy}"


class SlotLost(ServerError):
    code = "MR-SLOT-LOST"
    text = "capture {name!r} cannot go on: {reason}. Changes since then are missing, nothing was skipped"
    fix = "`millrace capture snapshot {name} --repair` reads the tables again and removes rows deleted meanwhile"


class SecretNeedsReference(UserError):
    code = "MR-SECRET-NEEDS-REFERENCE"
    text = "the password of database {name!r} would have to be given to a Kafka Connect that is not this project's own"
    fix = (
        "write [databases.{name}] connect_password, the reference under which that worker finds it: ${{file:/path:key}}"
    )


class RowUnreadable(ServerError):
    code = "MR-ROW-UNREADABLE"
    text = "table {table!r} cannot be shown truly: the record at {place} cannot be understood ({reason})"
    fix = "`millrace verify` finds what differs from the database, and with --repair reads it again"


class TableAmbiguous(UserError):
    code = "MR-TABLE-AMBIGUOUS"
    text = "{table!r} is the name of several captured tables"
    fix = "say which: {names}"


class TablePastGone(UserError):
    code = "MR-TABLE-PAST-GONE"
    text = "the topic of table {table!r} tells how it was from {since} on, and {at} is before that"
    fix = "name a later time; `millrace capture add --history` keeps every change longer from now on"


class TableUnverifiable(UserError):
    code = "MR-TABLE-UNVERIFIABLE"
    text = "table {table!r} cannot be verified: {reason}"
    fix = "{remedy}"


class TruncateStays(UserError):
    code = "MR-TRUNCATE-STAYS"
    text = "{tables} was truncated, and its old rows are still in the topic: for MariaDB and MySQL they stay there"
    fix = "`millrace capture remove {name} --topics`, then `millrace capture add` reads it anew"


class CaptureBehind(ServerError):
    code = "MR-CAPTURE-BEHIND"
    text = "capture {name!r} is behind its database and has not moved for {seconds} s"
    fix = "`millrace capture status {name}` shows how far behind it is; try again when it has caught up"


class TableChanged(ServerError):
    code = "MR-TABLE-CHANGED"
    text = "table {table!r} has rows with the columns {columns}, which nobody knew of"
    fix = "`millrace capture add` with the capture's name alone looks at the database's catalogue again"


class PluginMissing(UserError):
    code = "MR-PLUGIN-MISSING"
    text = "capture {name!r} cannot start: the Connect worker lacks {plugin}, without which changes could be lost"
    fix = "put millrace-capture.jar, which the package of Millrace holds, beside Debezium's jars on that worker"


class PartitionsFixed(UserError):
    code = "MR-PARTITIONS-FIXED"
    text = (
        "topic {topic!r} is captured by {capture!r}: more partitions would move its keys and break the order of changes"
    )
    fix = "`millrace capture remove {capture} --topics`, then `millrace capture add {capture} … --partitions N`"
