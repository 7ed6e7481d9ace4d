"""The configuration, and what is written in it."""

from __future__ import annotations

from millrace.errors.base import UserError


class ConfigUnreadable(UserError):
    code = "MR-CONFIG-UNREADABLE"
    text = "{file} is not valid TOML: {reason}"
    fix = "mend that line"


class ConfigUnknown(UserError):
    code = "MR-CONFIG-UNKNOWN"
    text = "{file} sets {key!r}, which Millrace does not know{hint}"
    fix = "remove it or correct its name; known here are {known}"


class ConfigInvalid(UserError):
    code = "MR-CONFIG-INVALID"
    text = "{source} sets {key!r} to a value that does not fit: {reason}"
    fix = "{remedy}"


class SecretInFile(UserError):
    code = "MR-SECRET-IN-FILE"
    text = "{file} holds a password in {key!r}; secrets must not stand in files that are shared"
    fix = 'write {key} = "env:NAME" or "file:PATH" and put the value there'


class SecretMissing(UserError):
    code = "MR-SECRET-MISSING"
    text = "{key!r} refers to {reference}, which {reason}"
    fix = "set it, then run the command again"


class DatabaseUnknown(UserError):
    code = "MR-DATABASE-UNKNOWN"
    text = "there is no database named {name!r} in the configuration{hint}"
    fix = 'add [databases.{name}] with url = "env:NAME" to millrace.toml'


class SinkServerUnknown(UserError):
    code = "MR-SINK-SERVER-UNKNOWN"
    text = "there is no server for sinks named {name!r} in the configuration{hint}"
    fix = 'add [sinks.{name}] with url = "env:NAME" to millrace.toml'


class QueueServerUnknown(UserError):
    code = "MR-QUEUE-SERVER-UNKNOWN"
    text = "there is no RabbitMQ named {name!r} in the configuration{hint}"
    fix = 'add [queues.{name}] with url = "env:NAME" to millrace.toml'


class DurationInvalid(UserError):
    code = "MR-DURATION-INVALID"
    text = "{text!r} is not a duration"
    fix = 'write it like "10 seconds", "5 min" or "7 days"'


class SizeInvalid(UserError):
    code = "MR-SIZE-INVALID"
    text = "{text!r} is not a size"
    fix = 'write it in bytes, or like "500 MB" or "10 GB"'
