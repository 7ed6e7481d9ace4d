"""Kafka: topics, records, groups, dead letters."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


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


class CountInvalid(UserError):
    code = "MR-COUNT-INVALID"
    text = "{option} cannot be {given}"
    fix = "give a whole number from 1 to {most}"


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


class TimeAbsent(UserError):
    code = "MR-TIME-ABSENT"
    text = "no record of topic {topic!r} has a time in {column!r} ({seen}){hint}"
    fix = "name a field that holds a time like 2026-11-15T09:30:00Z or the seconds since 1970: --time COLUMN"
