"""Sinks: where results go, and the epochs that they hold."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class EpochOther(UserError):
    code = "MR-EPOCH-OTHER"
    text = (
        "sink {sink!r} holds epoch {epoch} of {flow} with other records than are to be written now: an older copy of "
        "the checkpoint was put back, or the flow was begun anew (it holds {before}, and was given {read})"
    )
    fix = (
        "put the newest checkpoint back, or build the sink again with `millrace rebuild {sink}`; one that cannot be "
        "rebuilt is begun anew with its flow by `millrace run --fresh`"
    )


class EpochOlder(UserError):
    code = "MR-EPOCH-OLDER"
    text = (
        "sink {sink!r} holds {flow} up to epoch {held} and was given epoch {epoch}: an older copy of the checkpoint "
        "was put back, or the flow was begun anew"
    )
    fix = (
        "put the newest checkpoint back, or build the sink again with `millrace rebuild {sink}`; one that cannot be "
        "rebuilt is begun anew with its flow by `millrace run --fresh`"
    )


class EpochMissing(UserError):
    code = "MR-EPOCH-MISSING"
    text = (
        "sink {sink!r} holds {flow} up to epoch {held} and was given epoch {epoch}: those in between are missing in it"
    )
    fix = "an older copy of the target was put back, or the sink was left out for a while: `millrace rebuild {sink}`"


class GuaranteeMissing(UserError):
    code = "MR-GUARANTEE-MISSING"
    text = "sink {sink!r} writes {own}, and {asked} was demanded of it"
    fix = "demand less with delivery=, or write to a sink that can"


class SinkRealTime(UserError):
    code = "MR-SINK-REAL-TIME"
    text = "stream {flow!r} answers in real time, where there is no moment to write an epoch to sink {sink!r}"
    fix = "let another stream read its topic, and give that one the sink; or leave `mode` out"


class SinkKeyMissing(UserError):
    code = "MR-SINK-KEY-MISSING"
    text = "sink {sink!r} does not say which columns are its key, and {kind} holds one row of each key"
    fix = 'name them: key="id", or key=["region", "day"]'


class SinkKeyUnknown(UserError):
    code = "MR-SINK-KEY-UNKNOWN"
    text = "the key of sink {sink!r} is {key!r}, which is not a column of its rows{hint}"
    fix = "choose from {known}"


class SinkColumnUnfit(UserError):
    code = "MR-SINK-COLUMN-UNFIT"
    text = "sink {sink!r} cannot take the column {column!r}: {reason}"
    fix = "{remedy}"


class SinkRefusesMost(UserError):
    code = "MR-SINK-REFUSES-MOST"
    text = "sink {sink!r} refused more than {most} rows of one epoch, the first because {reason}"
    fix = "mend the target or what is written to it; nothing of that epoch is lost, and it is written again"


class SinkUnreachable(ServerError):
    code = "MR-SINK-UNREACHABLE"
    text = "the server of sink {sink!r} does not answer ({reason})"
    fix = "start it, or mend its address in millrace.toml; what is to be written is kept, and written then"


class SinkFailed(ServerError):
    code = "MR-SINK-FAILED"
    text = "sink {sink!r} could not write an epoch ({reason})"
    fix = "nothing of it is lost: it is tried again"


class FilesTaken(UserError):
    code = "MR-FILES-TAKEN"
    text = "sink {sink!r} is to write to {path}, where {flow} writes"
    fix = "name another folder, or move that one away"


class FilesForeign(UserError):
    code = "MR-FILES-FOREIGN"
    text = "sink {sink!r} cannot tell which epoch it wrote last: {path} has no {ledger} that can be read"
    fix = "move it away if it is not of this sink; otherwise put it back as a whole, from a copy"


class SinkTableUnfit(UserError):
    code = "MR-SINK-TABLE-UNFIT"
    text = "sink {sink!r} cannot write to the table {table!r}: {reason}"
    fix = "add what is missing, or let the sink make a table of its own where it may"


class SinkTableGone(UserError):
    code = "MR-SINK-TABLE-GONE"
    text = "the table {table!r} of sink {sink!r} is gone, and the ledger says that it holds {flow} up to epoch {epoch}"
    fix = "put it back, or build it again with `millrace rebuild {sink}`"


class EpochsOwed(ServerError):
    code = "MR-EPOCHS-OWED"
    text = "sink {sink!r} does not hold {epochs} epochs yet ({reason})"
    fix = "none is lost: they are kept on disk, tried again, and written by the next run"


class FunctionFailed(UserError):
    code = "MR-FUNCTION-FAILED"
    text = "the function of sink {sink!r} failed ({kind}: {reason})"
    fix = "mend it; the epoch is kept, and the function is called with it again when the flow is started"


class SinkKeyOther(UserError):
    code = "MR-SINK-KEY-OTHER"
    text = (
        "the key of sink {sink!r} is {key}, and rows of the table are known by {table}: changes of one key would come "
        "from several of them, in no order"
    )
    fix = "leave `key` out, or name a key that has {table} in it"


class SinkTargetUnfit(UserError):
    code = "MR-SINK-TARGET-UNFIT"
    text = "sink {sink!r} cannot write to {target!r}: {reason}"
    fix = "{remedy}"


class SinkTargetGone(UserError):
    code = "MR-SINK-TARGET-GONE"
    text = "what sink {sink!r} had written is gone: it should hold {flow} up to epoch {epoch}, and somebody emptied it"
    fix = "put it back, or build it again with `millrace rebuild {sink}`"


class SinkUnknown(UserError):
    code = "MR-SINK-UNKNOWN"
    text = "app {app!r} has no sink {sink!r}{hint}"
    fix = "choose from {known}"


class SinksMissing(UserError):
    code = "MR-SINKS-MISSING"
    text = "app {app!r} writes to no sink, so there is none that could be built again"
    fix = 'give one to a table, a stream or a topic: db.orders.to(mr.postgres("orders"))'


class SinkNotRebuilt(UserError):
    code = "MR-SINK-NOT-REBUILT"
    text = "{sink!r} cannot be built again beside the old one: {reason}"
    fix = "{remedy}"


class RebuildEmpty(UserError):
    code = "MR-REBUILD-EMPTY"
    text = "flow {flow!r} has not finished an epoch, and sink {sink!r} holds nothing of it"
    fix = "run it: `millrace run` fills the sink"


class RebuildLoses(UserError):
    code = "MR-REBUILD-LOSES"
    text = (
        "the replay does not give {rows} rows that sink {sink!r} holds (the first: {keys}): their records expired, or "
        "it decided otherwise about late ones; nothing was switched"
    )
    fix = "if they may go, `millrace rebuild {sink} --accept`"


class RebuildUnfinished(UserError):
    code = "MR-REBUILD-UNFINISHED"
    text = "a rebuild of sink {sink!r} was cut off while it put the new one in the place of the old"
    fix = "run `millrace rebuild {sink}` again, which goes on with that"
