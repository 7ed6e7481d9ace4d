"""From what Spark throws to one error for the person: the cause's first line and, where it can be known, their line.

The rest, stack traces of the JVM included, stands in Spark's log file, which the error names.
"""

from __future__ import annotations

import re
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    UnsupportedOperationException,
)

from millrace import durations
from millrace.capture.reading import CHANGED, UNREADABLE
from millrace.engine.plan import Flow
from millrace.errors import (
    BodyFailed,
    CheckpointOlder,
    CheckpointsUnshared,
    EpochTorn,
    FlowFailed,
    FlowRefused,
    FlowTakenOver,
    MatchCrowded,
    MillraceError,
    RecordsGone,
    RecordTooLarge,
    RowUnreadable,
    SpeculationRefused,
    StateChanged,
    StateNewer,
    TableChanged,
    TransactionTimeout,
    ViewKeyRepeated,
    Where,
)
from millrace.flow import Stream
from millrace.flow.loading import is_users, user_line
from millrace.flow.nodes import shown

_PYTHON_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_CALL_SITE = re.compile(r"was called from\n\s*(\S.*?):(\d+)")
_NOISE = re.compile(r"^\[STREAM_FAILED\] Query \[id = [^\]]*\] terminated with exception: |\s*SQLSTATE: \w+\s*$")
_LONGEST = 300
# How Spark calls `foreachBatch`: pyspark/sql/utils.py.
_EPOCH_CALL = re.compile(r'sql/utils\.py", line \d+, in call\b')
# What py4j says first of an error in a call of ours, for which PySpark has no class: which call it was, not why.
_JAVA_CALL = "An error occurred while calling "
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*([\w$]+(?:: .*)?)$", re.MULTILINE)
# The classes of SQL's states that say: the data did not suit the expression (22), and `raise_error` (P0001).
_USERS_STATE = re.compile(r"SQLSTATE: (22|P0001)")
_REFUSALS = (AnalysisException, IllegalArgumentException, UnsupportedOperationException)
# What tables raise inside Spark (`capture/reading.py`): of a row whose columns nobody knows, of one without meaning.
_CHANGED = re.compile(rf"{CHANGED} (\S+) (\[.*?\])")
# Spark's text of an error may have the plan in it, and there the words without a place.
_UNREADABLE = re.compile(rf"{UNREADABLE} ([^\s,]\S*) ([^\s,]\S*) (.*)")
# What the kernel says of state in a form that it does not know (`Stored.java`).
_NEWER = re.compile(rf"{StateNewer.code} (\d+) (\d+)")
# … of a view two of whose rows have the same key (`SignedOnly.java`)
_REPEATED = re.compile(rf"{ViewKeyRepeated.code} (.*)")
# … of an epoch that it may not, or cannot, deliver exactly once (`Refused.java`)
_DELIVERY = re.compile(r"(MR-[A-Z-]+)((?: -?\d+)*)")
_FENCED = ("ProducerFencedException", "InvalidProducerEpochException")
# … of a record that its topic does not take and may not lack (`Outsized.java`)
_OUTSIZED = re.compile(rf"{RecordTooLarge.code} (\d+) (\d+) (\S+)")
# … and of a key with too many partial matches (`Partials.java`).
_CROWDED = re.compile(rf"{MatchCrowded.code} (\d+)")
# What an executor says that does not mount the checkpoints (`CheckpointFiles.java`).
_UNSHARED = re.compile(rf"{CheckpointsUnshared.code} (\S+) \[(.+?)\]")


def newer(flow: str, error: Exception) -> StateNewer | None:
    """If that is why state cannot be read."""
    found = _NEWER.search(str(error))
    return StateNewer(flow=flow, found=found[1], known=found[2]) if found else None


def body_failed(stream: Stream, error: Exception, log: Path) -> MillraceError:
    """The user's function raised while it was called to build the flow."""
    where = user_line(error) or stream.where
    return BodyFailed(flow=stream.name, kind=type(error).__name__, reason=first_line(str(error)), log=log, where=where)


def start_failed(stream: Stream | Flow, error: Exception, log: Path) -> MillraceError:
    """Spark refused the query: an operation that streams do not have. What else went wrong may pass."""
    if isinstance(error, PySparkException | Py4JError) and not isinstance(error, _REFUSALS):
        return run_failed(stream, error, log)
    return FlowRefused(flow=stream.name, reason=first_line(str(error)), log=log, where=stream.where)


def run_failed(stream: Stream | Flow, error: BaseException, log: Path) -> MillraceError:
    """The running query ended by itself. Python code of the user leaves a traceback in the text, and a column that
    failed leaves the line that made it."""
    text = _whole(error)
    if found := _CHANGED.search(text):
        return TableChanged(table=found[1], columns=found[2], where=stream.where)
    if found := _REPEATED.search(text):
        key = ", ".join(getattr(getattr(stream, "view", None), "key", ()))
        return ViewKeyRepeated(view=stream.name, key=key, row=found[1][:_LONGEST], where=stream.where)
    if found := _UNREADABLE.search(text):
        return RowUnreadable(table=found[1], place=found[2], reason=first_line(found[3]), where=stream.where)
    if found := _NEWER.search(text):
        return StateNewer(flow=stream.name, found=found[1], known=found[2], where=stream.where)
    if found := _CROWDED.search(text):
        return MatchCrowded(flow=stream.name, most=found[1], where=stream.where)
    if found := _UNSHARED.search(text):
        return CheckpointsUnshared(flow=stream.name, host=found[1], folder=found[2], where=stream.where)
    if found := _OUTSIZED.search(text):
        size, limit = int(found[1]), int(found[2])
        return RecordTooLarge(topic=found[3], size_bytes=size, limit_bytes=limit, where=stream.where)
    if undelivered := _undelivered(stream, text):
        return undelivered
    ours = _ours(text)
    if "Traceback (most recent call last)" in text and _PYTHON_LINE.search(text) and not ours:
        where = _last_user_line(text) or stream.where
        kind, reason = _python_error(text)
        return BodyFailed(flow=stream.name, kind=kind, reason=first_line(reason), log=log, where=where)
    reason = first_line(_java_cause(text) if ours or text.startswith(_JAVA_CALL) else _root(error))
    if "STATE_STORE" in text and "SCHEMA" in text and "COMPATIBLE" in text:
        return StateChanged(flow=stream.name, reason=reason, where=stream.where)
    if "UnknownTopicOrPartitionException" in text:
        return RecordsGone(flow=stream.name, reason="a topic that it reads is gone", where=stream.where)
    if "failOnDataLoss" in text or "OffsetOutOfRange" in text:
        return RecordsGone(flow=stream.name, reason=reason, where=stream.where)
    if site := _CALL_SITE.search(text):
        where = Where(shown(site[1]), int(site[2]))
        return BodyFailed(flow=stream.name, kind="Spark", reason=reason, log=log, where=where)
    if _USERS_STATE.search(text):
        return BodyFailed(flow=stream.name, kind="Spark", reason=reason, log=log, where=stream.where)
    return FlowFailed(flow=stream.name, reason=reason, log=log)


def _undelivered(stream: Stream | Flow, text: str) -> MillraceError | None:
    """If it was about delivering exactly once."""
    flow, where = stream.name, stream.where
    for code, told in _DELIVERY.findall(text):
        facts = [int(fact) for fact in told.split()]
        match code, facts:
            case EpochTorn.code, [epoch, committed, lost]:
                return EpochTorn(flow=flow, epoch=epoch, committed=committed, lost=lost, where=where)
            case CheckpointOlder.code, [held, found]:
                return CheckpointOlder(flow=flow, held=held, found=found, where=where)
            case SpeculationRefused.code, []:
                return SpeculationRefused(flow=flow, where=where)
            case TransactionTimeout.code, [wanted_ms, most_ms]:
                wanted, most = durations.spoken(wanted_ms), durations.spoken(most_ms)
                return TransactionTimeout(flow=flow, wanted=wanted, most=most, where=where)
            case FlowTakenOver.code, _:
                return FlowTakenOver(flow=flow, where=where)
    return FlowTakenOver(flow=flow, where=where) if any(name in text for name in _FENCED) else None


def reason_of(error: BaseException) -> str:
    """Why something that we asked Spark for did not come about. What PySpark has no class for comes as the JVM's own
    text, whose first line says which call it was and nothing else."""
    if isinstance(error, Py4JJavaError):
        return first_line(_java_cause(str(error)))
    return first_line(_root(error) or type(error).__name__)


def _ours(text: str) -> bool:
    """Whether it was our own code on the driver that failed, called with an epoch's rows: a broker was away when they
    were to be written, and no line of the user's had a part in it."""
    return bool(_EPOCH_CALL.search(text)) and _last_user_line(text) is None


def _java_cause(text: str) -> str:
    """What happened in the JVM while our code called it, by its innermost cause; otherwise what Python says."""
    if causes := _JAVA_CAUSE.findall(text):
        return str(causes[-1])
    kind, reason = _python_error(text)
    return f"{kind}: {reason}"


def _whole(error: BaseException) -> str:
    texts, cause = [str(error)], getattr(error, "cause", None)
    while cause is not None:
        texts.append(str(cause))
        cause = getattr(cause, "cause", None)
    return "\n".join(texts)


def _root(error: BaseException) -> str:
    """The text of the innermost cause that has one."""
    text, cause = str(error), getattr(error, "cause", None)
    while cause is not None:
        text = str(cause).strip() or text
        cause = getattr(cause, "cause", None)
    return text


def _python_error(text: str) -> tuple[str, str]:
    """Kind and message: the first line after the traceback's last file that is not indented as its source is."""
    *_, last = _PYTHON_LINE.finditer(text)
    for line in text[last.end() :].splitlines()[1:]:
        if line and not line[0].isspace():
            kind, _, reason = line.partition(": ")
            return kind.rpartition(".")[2], reason
    return "Exception", text


def _last_user_line(text: str) -> Where | None:
    lines = [Where(shown(file), int(line)) for file, line in _PYTHON_LINE.findall(text) if is_users(file)]
    return lines[-1] if lines else None


def first_line(text: str) -> str:
    first = next((line for line in _NOISE.sub("", text.strip()).splitlines() if line.strip()), "no message")
    return _NOISE.sub("", first.strip())[:_LONGEST]
