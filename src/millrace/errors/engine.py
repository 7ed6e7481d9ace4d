"""Running flows on Spark."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class SessionElsewhere(UserError):
    code = "MR-SESSION-ELSEWHERE"
    text = "a Spark session on {running} already runs in this process, and one on {wanted} was asked for"
    fix = "stop that one first, or leave the master out"


class SessionFailed(ServerError):
    code = "MR-SESSION-FAILED"
    text = "Spark did not start on {master} ({reason})"
    fix = "see {log}"


class SessionGone(ServerError):
    code = "MR-SESSION-GONE"
    text = "Spark's process ended: it was killed, perhaps because the machine ran out of memory"
    fix = "run the same command again, it goes on where it was; {log} may say more"


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
    fix = (
        "put the function back, or start the flow again from its oldest records with `millrace run --fresh {flow}`; "
        "a view is built beside the old one by `millrace deploy`"
    )


class StateNewer(UserError):
    code = "MR-STATE-NEWER"
    text = "a newer Millrace ran flow {flow!r} before: its state has form {found}, and this one knows up to {known}"
    fix = "run it with that version, or start it again from its oldest records with `millrace run --fresh {flow}`"


class CheckpointsUnshared(UserError):
    code = "MR-CHECKPOINTS-UNSHARED"
    text = "the executor on {host} does not see the checkpoint of flow {flow!r}, in {folder}"
    fix = "mount one folder at the same path on the driver and every executor, and name it as `checkpoints` in [spark]"


class CheckpointUnknown(UserError):
    code = "MR-CHECKPOINT-UNKNOWN"
    text = "there is no checkpoint of a flow {flow!r} here{hint}"
    fix = "run it first (`millrace run`), or choose from those that were: {known}"


class CheckpointTwice(UserError):
    code = "MR-CHECKPOINT-TWICE"
    text = "several apps have a flow {flow!r} here: {apps}"
    fix = "say which one is meant with --app"


class CheckpointEmpty(UserError):
    code = "MR-CHECKPOINT-EMPTY"
    text = "flow {flow!r} has not finished an epoch yet, so there is nothing that it keeps"
    fix = "run it, and ask again after its first epoch"


class StateUnnamed(UserError):
    code = "MR-STATE-UNNAMED"
    text = "flow {flow!r} was last run by a Millrace that did not write down what its state means"
    fix = "run it once with this one; without --key and --keys its sizes can be seen as it is"


class StateKeyUnfit(UserError):
    code = "MR-STATE-KEY-UNFIT"
    text = "flow {flow!r} can have no key {given}: {reason}"
    fix = "give one value for each column of the key, in their order: --key a --key 5"


class StateKeyAbsent(UserError):
    code = "MR-STATE-KEY-ABSENT"
    text = "flow {flow!r} keeps nothing for the key {given}, as of epoch {epoch}"
    fix = "`millrace state {flow} --keys` shows keys that it has"


class MatchCrowded(UserError):
    code = "MR-MATCH-CROWDED"
    text = "flow {flow!r} stopped: a pattern has more than {most} partial matches for one key"
    fix = "let a match span less (within=), begin it with a rarer row, or divide the rows by more columns (by=)"


class RealTimeRefused(UserError):
    code = "MR-REAL-TIME-REFUSED"
    text = "stream {flow!r} cannot run in real time because of {operation}, which Spark does only epoch by epoch"
    fix = "leave `mode` out, or move that part to a stream of its own that reads this one's topic"


class SlotsTooFew(UserError):
    code = "MR-SLOTS-TOO-FEW"
    text = "flow {flow!r} needs {needed} slots to run in real time, {taken} are taken, and Spark has {there}"
    fix = (
        "run on `--master 'local[*]'`, which has enough for four operators with a key in each flow, or on at least "
        "{whole}, for example "
        "`--master local[{whole}]` (slots are threads, not cores)"
    )


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


class EpochTorn(UserError):
    code = "MR-EPOCH-TORN"
    text = (
        "flow {flow!r} cannot go on: of epoch {epoch} a part ({committed} transactions) is in its topic, and another "
        "({lost}) expired before the flow came back"
    )
    fix = "rebuild what it feeds: delete its topic, and start it from its oldest records with `millrace run --fresh`"


class CheckpointDamaged(UserError):
    code = "MR-CHECKPOINT-DAMAGED"
    text = "the checkpoint of flow {flow!r} is damaged: {file} is not whole ({reason})"
    fix = (
        "put that file back from a copy; without one, begin the flow anew with `millrace run --fresh {flow}`, and "
        "rebuild what it feeds"
    )


class CheckpointOlder(UserError):
    code = "MR-CHECKPOINT-OLDER"
    text = "the checkpoint of flow {flow!r} is an older copy: its topic holds epoch {held}, and it is at {found}"
    fix = (
        "put the newest one back; without it, rebuild what the flow feeds: delete its topic, and start it from its "
        "oldest records with `millrace run --fresh`"
    )


class FlowTakenOver(UserError):
    code = "MR-FLOW-TAKEN-OVER"
    text = (
        "flow {flow!r} stopped: its transactions were ended by somebody else, another run of it with the same name, or "
        "by Kafka because they took longer than transaction.timeout.ms"
    )
    fix = "let only one run it, then start it again; nothing of that epoch was seen by readers of committed records"


class SpeculationRefused(UserError):
    code = "MR-SPECULATION-REFUSED"
    text = "flow {flow!r} delivers exactly once, and Spark is told to run slow tasks twice (spark.speculation)"
    fix = "set spark.speculation to false, or let the flow deliver at least once"


class TransactionTimeout(UserError):
    code = "MR-TRANSACTION-TIMEOUT"
    text = "flow {flow!r} asks for transactions of up to {wanted}, and this Kafka allows {most}"
    fix = "lower transaction.timeout.ms in [kafka.options], or raise the broker's transaction.max.timeout.ms"


class FlowRefused(UserError):
    code = "MR-FLOW-REFUSED"
    text = "Spark cannot run flow {flow!r} as a stream: {reason}"
    fix = "change its function; details are in {log}"


class FlowFailed(ServerError):
    code = "MR-FLOW-FAILED"
    text = "flow {flow!r} stopped: {reason}"
    fix = "see {log}; its checkpoint is whole, and running it again goes on from there"


class DeadLettersOwed(ServerError):
    code = "MR-DEAD-LETTERS-OWED"
    text = "records of {topic!r} that do not fit are not among its dead letters yet ({reason})"
    fix = "none is lost: they are tried again, and by the next run; details are in {log}"


class TrafficFailed(UserError):
    code = "MR-TRAFFIC-FAILED"
    text = "the function of traffic {name!r} failed ({kind}: {reason})"
    fix = "mend that line, or leave made-up events out with --no-traffic"


class RecordsGone(ServerError):
    code = "MR-RECORDS-GONE"
    text = (
        "flow {flow!r} stopped: records it had not yet read expired, or the topic was deleted and made anew ({reason})"
    )
    fix = "start it from what is there with `millrace run --fresh {flow}`; if they expired, raise the topic's retention"


class TableReaderKeepsState(UserError):
    code = "MR-TABLE-READER-KEEPS-STATE"
    text = "stream {flow!r} reads a table and does more than look at each row by itself ({operation})"
    fix = (
        'say when its results go out, emit="updates" or "final", and it gets a flow of its own; or leave that step out'
    )


class ReplayInvalid(UserError):
    code = "MR-REPLAY-INVALID"
    text = "that is no replay: {reason}"
    fix = (
        'say from where and into what, for example `--from "2026-01-01 10:00" --until "2026-01-01 12:00" --into fixed`'
    )


class TableStale(UserError):
    code = "MR-TABLE-STALE"
    text = "flow {flow!r} was away for {away}, and {table} keeps the traces of deleted rows for {stay} only"
    fix = (
        "run it with `--fresh`, so that it begins with the table as it is now, then build its sinks again with "
        "`millrace rebuild`, and what else it feeds by hand"
    )


class TableBroken(UserError):
    code = "MR-TABLE-BROKEN"
    text = "flow {flow!r} cannot go on: table {table!r} was changed, and {reason}"
    fix = "rebuild the capture (`capture remove --topics`, then `add`) and what it feeds, or change the table back"


class EmissionTwice(UserError):
    code = "MR-EMISSION-TWICE"
    text = "{flow!r} says emit={given!r}, and its window says when results go out"
    fix = "leave it out of @app.stream: there it is for Spark's own aggregations"


class LateSideTwice(UserError):
    code = "MR-LATE-SIDE-TWICE"
    text = "{flow!r} has two operators that send late rows aside"
    fix = "make it two streams, the second of which reads the first"


class LateSideTaken(UserError):
    code = "MR-LATE-SIDE-TAKEN"
    text = "{flow!r} sends late rows to {topic!r}, which it also reads or writes"
    fix = "name a topic of their own for them"


class LateSideKeepsState(UserError):
    code = "MR-LATE-SIDE-KEEPS-STATE"
    text = "{flow!r} sends late rows aside and keeps state after that ({operation}), which sees one epoch at a time"
    fix = "do that in a second stream that reads this one"
