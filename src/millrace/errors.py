"""Every error that Millrace raises on purpose: a code, what happened, why, and what to do about it.

    MillraceError
    ├── UserError       exit code 1: the command, the code or the configuration has to change
    └── ServerError     exit code 2: a server, the network or the machine has to change

One class is one cause. Its text is a template whose fields are the facts given when it is raised:
`raise TopicUnknown(topic="payments")`. A test holds every raise to the fields of its class.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Where:
    """The line of the user's code that made something."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class MillraceError(Exception):
    """What every deliberate error has: `code`, the sentence (`text` with its facts), `fix`, and the user's line."""

    code: ClassVar[str] = "MR-ERROR"
    text: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1

    def __init__(self, *, where: Where | None = None, **facts: object) -> None:
        self.where = where
        self.facts = facts
        self.what = self.text.format(**facts)
        self.remedy = self.fix.format(**facts)
        super().__init__(self.sentence())

    def sentence(self) -> str:
        place = f" (at {self.where})" if self.where else ""
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.code} {self.what}{remedy}{place}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_again, (type(self), self.where, self.facts))


def _again(kind: type[MillraceError], where: Where | None, facts: dict[str, object]) -> MillraceError:
    return kind(where=where, **facts)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when one of the known names is close to `name`, otherwise nothing."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


class UserError(MillraceError):
    """The command, the code or the configuration has to change."""


class ServerError(MillraceError):
    """A server, the network or the machine has to change."""

    exit_code = 2


# --- configuration -----------------------------------------------------------------------------------------------


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


# --- the machine -------------------------------------------------------------------------------------------------


class JavaMissing(ServerError):
    code = "MR-JAVA-MISSING"
    text = "Java was not found ({looked}); Kafka and Spark need Java 17 or later"
    fix = "install it, for example `apt-get install openjdk-17-jre-headless`, or set JAVA_HOME"


class JavaTooOld(ServerError):
    code = "MR-JAVA-TOO-OLD"
    text = "{java} is Java {found}; Kafka and Spark need Java 17 or later"
    fix = "install a newer one, for example `apt-get install openjdk-17-jre-headless`, or point JAVA_HOME at it"


class DiskFull(ServerError):
    code = "MR-DISK-FULL"
    text = "no room left in {folder}: {needed} needed, {free} free"
    fix = "free some room there, or set MILLRACE_CACHE to a folder on a larger disk"


class Unexpected(ServerError):
    code = "MR-UNEXPECTED"
    text = "Millrace met something it did not foresee ({kind}: {reason})"
    fix = "the details are in {log}; please report them"


# --- jars --------------------------------------------------------------------------------------------------------


class CacheUnusable(ServerError):
    code = "MR-CACHE-UNUSABLE"
    text = "the cache folder {folder} cannot be used ({reason})"
    fix = "set MILLRACE_CACHE to a folder that you may write to"


class IvyMissing(ServerError):
    code = "MR-IVY-MISSING"
    text = "the Apache Ivy that PySpark brings along was not found ({looked}); jars are fetched by it"
    fix = "install Millrace again with all it needs: `pip install --force-reinstall millrace`"


class JarsUnreachable(ServerError):
    code = "MR-JARS-UNREACHABLE"
    text = "{count} of the jars of {group} could not be fetched: no connection to the registry ({reason})"
    fix = (
        "check the network and run the command again (behind a proxy with "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'); Ivy's own words are in {log}"
    )


class JarUnknown(ServerError):
    code = "MR-JAR-UNKNOWN"
    text = "the registry does not have {jar}"
    fix = "if a mirror stands between here and it, let it pass that jar; Ivy's own words are in {log}"


class JarRefused(ServerError):
    code = "MR-JAR-REFUSED"
    text = (
        "{jar} is not the file that jars.lock names: its {property} is {found} and should be {expected}; it was deleted"
    )
    fix = "run the command again; if it stays so, something between here and the registry changes downloads"


class JarsSlow(ServerError):
    code = "MR-JARS-SLOW"
    text = "{what} took more than {minutes} minutes and was given up"
    fix = "run the command again: jars that have arrived are kept"


class JarsFailed(ServerError):
    code = "MR-JARS-FAILED"
    text = "{count} of the jars of {group} could not be fetched ({reason})"
    fix = "run the command again; Ivy's own words are in {log}"


# --- local servers -----------------------------------------------------------------------------------------------


class ServerUnknown(UserError):
    code = "MR-SERVER-UNKNOWN"
    text = "there is no local server named {name!r}{hint}"
    fix = "choose from {known}"


class ServerDown(ServerError):
    code = "MR-SERVER-DOWN"
    text = "{server} is not running"
    fix = "start it with `millrace up {server}`, or name your own in millrace.toml"


class ServerFailed(ServerError):
    code = "MR-SERVER-FAILED"
    text = "{server} ended while it was starting; it last said: {reason}"
    fix = "see {log}"


class ServerNotReady(ServerError):
    code = "MR-SERVER-NOT-READY"
    text = "{server} did not answer within {limit_s} s ({reason})"
    fix = "see {log}; on a slow machine run the same command again, it goes on where it was"


class ServerForeign(ServerError):
    code = "MR-SERVER-FOREIGN"
    text = "{server} of this project belongs to user {owner} (process {pid})"
    fix = "end it as that user"


class PortLost(ServerError):
    code = "MR-PORT-LOST"
    text = "the server that answers on port {port} is not the {server} of this project"
    fix = "run the same command again: another port will be chosen"


class ServersBusy(ServerError):
    code = "MR-SERVERS-BUSY"
    text = "another command has been changing the servers of {folder} for more than {limit_s} s"
    fix = "wait for it, or end it"


class ServerNotInstalled(ServerError):
    code = "MR-SERVER-NOT-INSTALLED"
    text = "{server} is not on this machine ({looked} was not found)"
    fix = "install it: `{install}`"


class BrokersFixed(UserError):
    code = "MR-BROKERS-FIXED"
    text = "the Kafka of this project was made with {found} broker(s), and {wanted} were asked for"
    fix = "leave --brokers out, or delete its data with `millrace reset kafka --yes` first"


class NeedsOrdinaryUser(ServerError):
    code = "MR-NEEDS-ORDINARY-USER"
    text = "{server} refuses to run as root, and `setpriv`, which lowers that, is not on this machine"
    fix = "run Millrace as an ordinary user, or install util-linux"


# --- the log -----------------------------------------------------------------------------------------------------


class DurationInvalid(UserError):
    code = "MR-DURATION-INVALID"
    text = "{text!r} is not a duration"
    fix = 'write it like "10 seconds", "5 min" or "7 days"'


class SizeInvalid(UserError):
    code = "MR-SIZE-INVALID"
    text = "{text!r} is not a size"
    fix = 'write it in bytes, or like "500 MB" or "10 GB"'


class PositionInvalid(UserError):
    code = "MR-POSITION-INVALID"
    text = "{text!r} is not a place in a topic"
    fix = 'write earliest, latest, an offset, a time like 2026-11-15T09:30:00Z (UTC), or "10 minutes ago"'


class KafkaUnreachable(ServerError):
    code = "MR-KAFKA-UNREACHABLE"
    text = "Kafka at {address} does not answer ({reason})"
    fix = "see that it runs (`millrace status`) and that its address and options are right"


class KafkaRefused(ServerError):
    code = "MR-KAFKA-REFUSED"
    text = "Kafka at {address} could not {action} ({reason})"
    fix = "see its log (`millrace logs kafka`), or ask who runs it"


class KafkaOptionInvalid(UserError):
    code = "MR-KAFKA-OPTION-INVALID"
    text = "an option of [kafka.options] is not accepted ({reason})"
    fix = "correct it; the names are librdkafka's (its CONFIGURATION.md lists them)"


class KafkaOptionUntranslated(UserError):
    code = "MR-KAFKA-OPTION-UNTRANSLATED"
    text = "[kafka.options] sets {option!r}, which cannot be said to the Java client that Spark uses ({reason})"
    fix = "{remedy}"


class TopicNameInvalid(UserError):
    code = "MR-TOPIC-NAME-INVALID"
    text = "{topic!r} cannot be the name of a topic ({reason})"
    fix = "use letters, digits, '.', '_' and '-', 249 characters at most with the prefix"


class TopicUnknown(UserError):
    code = "MR-TOPIC-UNKNOWN"
    text = "there is no topic {topic!r}{hint}"
    fix = "`millrace topic list` shows them, `millrace topic create {topic}` makes one"


class TopicExists(UserError):
    code = "MR-TOPIC-EXISTS"
    text = "there is a topic {topic!r} already"
    fix = "choose another name, or change that one with `millrace topic alter {topic}`"


class TopicConfigInvalid(UserError):
    code = "MR-TOPIC-CONFIG-INVALID"
    text = "topic {topic!r} cannot be made or changed like that ({reason})"
    fix = "correct the option and run the command again"


class PartitionUnknown(UserError):
    code = "MR-PARTITION-UNKNOWN"
    text = "topic {topic!r} has no partition {partition}; it has {count}, numbered from 0"
    fix = "choose one of these"


class PartitionsFewer(UserError):
    code = "MR-PARTITIONS-FEWER"
    text = "topic {topic!r} has {found} partitions and cannot be given {wanted}: Kafka only adds"
    fix = "make a new topic with fewer and copy the records over"


class PartitionsMoveKeys(UserError):
    code = "MR-PARTITIONS-MOVE-KEYS"
    text = (
        "with {wanted} instead of {found} partitions in topic {topic!r} most keys move to another one: "
        "new records of a key are then no longer in order with its old ones"
    )
    fix = "if nothing that reads it depends on that, say so: --yes, or keys_may_move=True"


class DeleteUnsure(UserError):
    code = "MR-DELETE-UNSURE"
    text = "this deletes topic {topic!r} with all its records, and cannot be undone"
    fix = "add --yes if you mean it"


class ValueUnwritable(UserError):
    code = "MR-VALUE-UNWRITABLE"
    text = "a value cannot be written to topic {topic!r} as {format} ({reason})"
    fix = "give bytes, a text, or what the format can say"


class AcksInvalid(UserError):
    code = "MR-ACKS-INVALID"
    text = "acks={acks!r} is not a way of acknowledging"
    fix = "choose all (nothing acknowledged is lost), 1 (the leader alone) or 0 (none)"


class RecordTooLarge(UserError):
    code = "MR-RECORD-TOO-LARGE"
    text = "a record of {size_bytes} bytes does not fit topic {topic!r}, which takes {limit_bytes} with all around it"
    fix = "make the record smaller, or raise the limit: `millrace topic alter {topic} --config max.message.bytes=N`"


class RecordsUndelivered(ServerError):
    code = "MR-RECORDS-UNDELIVERED"
    text = "{failed} of {written} records were not acknowledged by topic {topic!r}; the first because: {reason}"
    fix = "when Kafka is well again, write them again (some may have arrived all the same)"


class RecordsExpired(ServerError):
    code = "MR-RECORDS-EXPIRED"
    text = "records of topic {topic!r}, partition {partition}, were deleted by its retention before they were read"
    fix = "read again from earliest, or raise the topic's retention"


class LineTooLong(UserError):
    code = "MR-LINE-TOO-LONG"
    text = "line {line} of the input is longer than {limit_bytes} bytes"
    fix = "records are one line each: see that the input has line ends"


class GroupUnknown(UserError):
    code = "MR-GROUP-UNKNOWN"
    text = "there is no consumer group {group!r}{hint}"
    fix = "`millrace group list` shows them"


class GroupActive(UserError):
    code = "MR-GROUP-ACTIVE"
    text = "group {group!r} is being read by {members}, so its place cannot be moved"
    fix = "stop them first (one that died is forgotten after its session timeout, by default 45 s)"


class SeekOutside(UserError):
    code = "MR-SEEK-OUTSIDE"
    text = "offset {offset} is not in topic {topic!r}, partition {partition}, which holds {first} to {last}"
    fix = "choose one within, or earliest or latest"


class SeekNothing(UserError):
    code = "MR-SEEK-NOTHING"
    text = "group {group!r} has no place in any topic yet"
    fix = "name the topic: `millrace group seek {group} --topic TOPIC --to …`"


class MemberReplaced(UserError):
    code = "MR-MEMBER-REPLACED"
    text = "member {member!r} of group {group!r} was taken over by another process of the same name"
    fix = "give every process of the group a name of its own"


class MemberSlow(UserError):
    code = "MR-MEMBER-SLOW"
    text = "group {group!r} gave this reader's partitions away: it took more than {limit_s} s over {batch} records"
    fix = "process faster, or read with a smaller batch; what was not committed comes again"


class DeadLetterUnknown(UserError):
    code = "MR-DEAD-LETTER-UNKNOWN"
    text = "topic {topic!r} has no dead letter {letter!r}"
    fix = "`millrace deadletter list {topic}` shows them"


class ReplayUnsure(UserError):
    code = "MR-REPLAY-UNSURE"
    text = "it was not said which dead letters of topic {topic!r} to replay"
    fix = "name their numbers (`millrace deadletter list {topic}` shows them), or say --all, but not both"


class ReplayOvertaken(UserError):
    code = "MR-REPLAY-OVERTAKEN"
    text = "another replay of the dead letters of topic {topic!r} began meanwhile and took over"
    fix = "nothing was replayed twice; wait for the other one"


class ExtraMissing(UserError):
    code = "MR-EXTRA-MISSING"
    text = "{what} needs a part of Millrace that is not installed ({reason})"
    fix = "install it: `pip install 'millrace[{extra}]'`"


class FormatUnknown(UserError):
    code = "MR-FORMAT-UNKNOWN"
    text = "there is no format {format!r}{hint}"
    fix = "choose from {known}"


class RecordSchemaMissing(UserError):
    code = "MR-RECORD-SCHEMA-MISSING"
    text = "writing {format} to topic {topic!r} needs a schema"
    fix = "name its file: --schema FILE"


class RecordSchemaUnused(UserError):
    code = "MR-RECORD-SCHEMA-UNUSED"
    text = "a schema was given, but lines are to be written as they are"
    fix = "add --format avro or --format protobuf, or leave --schema out"


class RecordSchemaInvalid(UserError):
    code = "MR-RECORD-SCHEMA-INVALID"
    text = "{source} is not a schema that can be used ({reason})"
    fix = "{remedy}"


class RegistryUnreachable(ServerError):
    code = "MR-REGISTRY-UNREACHABLE"
    text = "the schema registry at {address} could not be used ({reason})"
    fix = "see that it runs (`millrace up apicurio`) and that [registry] url is right"


class RecordUnreadable(UserError):
    code = "MR-RECORD-UNREADABLE"
    text = "the record at offset {offset} of topic {topic!r}, partition {partition}, is not {format} ({reason})"
    fix = "read it with --format raw to see its bytes"


# --- flow: definitions -------------------------------------------------------------------------------------------


class NameBad(UserError):
    code = "MR-NAME-BAD"
    text = "{kind} cannot be named {name!r}"
    fix = "begin with a letter, then letters, digits, '.', '-' and '_', {longest} characters at most"


class NameTaken(UserError):
    code = "MR-NAME-TAKEN"
    text = "{name!r} is already the name of a {kind}, made at {first}"
    fix = "give one of them another name, or `to=` to write to a topic that exists"


class InputMissing(UserError):
    code = "MR-INPUT-MISSING"
    text = "{name!r} has no input"
    fix = "name the topics or streams that it reads: @app.stream(pageviews)"


class InputUnknown(UserError):
    code = "MR-INPUT-UNKNOWN"
    text = "{name!r} is given {given}, which is not a topic or a stream{hint}"
    fix = "give the object that `app.topic(…)` or `@app.stream(…)` made, without quotes"


class InputForeign(UserError):
    code = "MR-INPUT-FOREIGN"
    text = "{name!r} of app {app!r} is given {given!r}, which belongs to another app"
    fix = "declare the topic in this app too: app.topic({given!r}, …)"


class SchemaMissing(UserError):
    code = "MR-SCHEMA-MISSING"
    text = "{name!r} is read but has no schema"
    fix = "add its columns where it is defined, for example {example}"


class SchemaBad(UserError):
    code = "MR-SCHEMA-BAD"
    text = "the schema of {name!r} does not read as columns: {reason}"
    fix = 'write it as "url string, user long, at timestamp"'


class LatenessMissing(UserError):
    code = "MR-LATENESS-MISSING"
    text = "{name!r} has an event time but does not say how late an event may come"
    fix = 'add lateness="10 seconds": how far the clock of its events stays behind the newest one'


class TimeMissing(UserError):
    code = "MR-TIME-MISSING"
    text = "{name!r} has a lateness but does not say which column is its event time"
    fix = 'add time="at", the name of a timestamp column'


class TimeBad(UserError):
    code = "MR-TIME-BAD"
    text = "the event time of {name!r} is {column!r}, which {reason}{hint}"
    fix = "name a column of its schema that is a timestamp"


class CycleFound(UserError):
    code = "MR-CYCLE-FOUND"
    text = "{name!r} feeds itself: {path}"
    fix = "write to another topic"


class ParametersWrong(UserError):
    code = "MR-PARAMETERS-WRONG"
    text = "{name!r} {takes}, but {gives}"
    fix = "{remedy}"


class OptionBad(UserError):
    code = "MR-OPTION-BAD"
    text = "{name!r} has {option}={given!r}"
    fix = "{remedy}"


class AppUnset(UserError):
    code = "MR-APP-UNSET"
    text = "no app was named, and {file} names none"
    fix = 'give it as `module:app`, or write [run] app = "module:app" there'


class AppReference(UserError):
    code = "MR-APP-REFERENCE"
    text = "{reference!r} does not name an app"
    fix = "write it as `module:name`, for example `shop:app` for `app` in shop.py"


class ModuleMissing(UserError):
    code = "MR-MODULE-MISSING"
    text = "there is no module {module!r} in {folder}{hint}"
    fix = "name the Python file that defines the app, without .py"


class ModuleFailed(UserError):
    code = "MR-MODULE-FAILED"
    text = "{module!r} fails while it is imported ({kind}: {reason})"
    fix = "mend that line"


class AppMissing(UserError):
    code = "MR-APP-MISSING"
    text = "{module!r} has no {attribute!r}{hint}"
    fix = "{remedy}"


class NotAnApp(UserError):
    code = "MR-NOT-AN-APP"
    text = "{reference!r} is a {kind}, not an App"
    fix = 'name the variable that holds mr.App("…")'


class FlowUnknown(UserError):
    code = "MR-FLOW-UNKNOWN"
    text = "app {app!r} has no {kind} named {name!r}{hint}"
    fix = "choose from {known}"


# --- engine: running ---------------------------------------------------------------------------------------------


class SessionElsewhere(UserError):
    code = "MR-SESSION-ELSEWHERE"
    text = "a Spark session on {running} already runs in this process, and one on {wanted} was asked for"
    fix = "stop that one first, or leave the master out"


class SessionFailed(ServerError):
    code = "MR-SESSION-FAILED"
    text = "Spark did not start on {master} ({reason})"
    fix = "see {log}"


class FlowLocked(UserError):
    code = "MR-FLOW-LOCKED"
    text = "flow {flow!r} is already being run by process {pid} on {host}, since {since}"
    fix = "stop that one first; two at once would write its checkpoint over each other"


class FlowReplaced(UserError):
    code = "MR-FLOW-REPLACED"
    text = "flow {flow!r} no longer holds its lock in {folder}: the folder was deleted or moved while it ran"
    fix = "leave that folder alone while the flow runs; start it again"


class StateChanged(UserError):
    code = "MR-STATE-CHANGED"
    text = "the function of flow {flow!r} now keeps other state than its checkpoint holds ({reason})"
    fix = "put the function back, or start the flow again from its oldest records with `millrace run --fresh {flow}`"


class SchemaChanged(UserError):
    code = "MR-SCHEMA-CHANGED"
    text = "{name!r} was `{old}` when the state of flow {flow!r} was made, and is now `{new}`"
    fix = "put the schema back, or start the flow again from its oldest records with `millrace run --fresh {flow}`"


class InputsChanged(UserError):
    code = "MR-INPUTS-CHANGED"
    text = "flow {flow!r} read {old} when its checkpoint was made, and now reads {new}"
    fix = "put the inputs back, or start the flow again from its oldest records with `millrace run --fresh {flow}`"


class BodyFailed(UserError):
    code = "MR-BODY-FAILED"
    text = "the function of flow {flow!r} failed ({kind}: {reason})"
    fix = "mend that line; details are in {log}"


class BodyResult(UserError):
    code = "MR-BODY-RESULT"
    text = "the function of flow {flow!r} gave {given}, not a DataFrame made from its inputs"
    fix = "return the DataFrame that it made"


class KeyUnknown(UserError):
    code = "MR-KEY-UNKNOWN"
    text = "the key of flow {flow!r} is {key!r}, which is not a column of its result{hint}"
    fix = "choose from {known}"


class EmissionUnset(UserError):
    code = "MR-EMISSION-UNSET"
    text = "flow {flow!r} aggregates but does not say when its results go out"
    fix = 'add emit="updates" (each time they change) or emit="final" (once, when no more can come)'


class FlowRefused(UserError):
    code = "MR-FLOW-REFUSED"
    text = "Spark cannot run flow {flow!r} as a stream: {reason}"
    fix = "change its function; details are in {log}"


class FlowFailed(ServerError):
    code = "MR-FLOW-FAILED"
    text = "flow {flow!r} stopped: {reason}"
    fix = "see {log}; its checkpoint is whole, and running it again goes on from there"


class TrafficFailed(UserError):
    code = "MR-TRAFFIC-FAILED"
    text = "the function of traffic {name!r} failed ({kind}: {reason})"
    fix = "mend that line, or leave made-up events out with --no-traffic"


class RecordsGone(ServerError):
    code = "MR-RECORDS-GONE"
    text = "flow {flow!r} stopped because records it had not yet read are no longer in the topic ({reason})"
    fix = "raise the topic's retention, then start the flow again with `millrace run --fresh {flow}`"


class LogAbsent(UserError):
    code = "MR-LOG-ABSENT"
    text = "{server} has no log yet ({log}): it was never started in this project"
    fix = "start it with `millrace up {server}`"


class ResetUnsure(UserError):
    code = "MR-RESET-UNSURE"
    text = "reset deletes the data of {what}, and cannot be undone"
    fix = "add --yes if you mean it"


# --- the command line --------------------------------------------------------------------------------------------


class ProjectNameInvalid(UserError):
    code = "MR-PROJECT-NAME-INVALID"
    text = "{name!r} cannot be the name of a project, because it becomes the name of a Python module"
    fix = "choose one of lower-case letters, digits and _, that begins with a letter, like `shop`"


class FolderTaken(UserError):
    code = "MR-FOLDER-TAKEN"
    text = "the folder {folder} exists and is not empty"
    fix = "choose another name, or empty it first"


class UsageWrong(UserError):
    code = "MR-USAGE-WRONG"
    text = "{reason}"
    fix = "see `{command} --help`"
