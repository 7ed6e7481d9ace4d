"""What a flow was when its checkpoint was made, kept beside it, so that a restart with something else is noticed.

checkpoints/<app>/<flow>/
    checkpoint/     Spark's own
    flow.json       this record
    progress.json   how it stands, for whoever looks
    begun.jsonl     when it began, and after what; the same
    lock, holder.json, seen
    filling.json    of a view: up to where its tables are read for the first time; see also `generations`
    sinks/<sink>/   what a sink owes, and the ledger of one whose target has no place for it
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from millrace.config import Settings
from millrace.disk import write_whole
from millrace.engine import generations
from millrace.engine.plan import Flow
from millrace.engine.sources import Source
from millrace.engine.stopping import epochs
from millrace.engine.tables import TableSource
from millrace.engine.viewed import ViewedSource
from millrace.errors import InputsChanged, RecordsGone, SchemaChanged, StateChanged
from millrace.flow.histories import Kept
from millrace.flow.operators import Operator
from millrace.log import Log

_WORDS_SHOWN = 80

CHECKPOINT, RECORD, SINKS = "checkpoint", "flow.json", "sinks"
# Up to which position the first reading of a view goes, before which it is not whole.
FILLING = "filling.json"

AnySource: TypeAlias = Source | TableSource | ViewedSource


@dataclass(frozen=True)
class Input:
    """`identity` tells the topic from another of its name that was made later."""

    topic: str
    schema: str
    identity: str = ""


@dataclass(frozen=True)
class Definition:
    """`streams` have their part in all that was read so far. `operators` are what state is kept for, `manner` what else
    a flow was told that may change, `fingerprint` its plan as a whole, `kept` what each stateful step of the plan was
    told, in Spark's order; empty in records of before there were such. `histories` are the topics whose past it asks
    for, each with what was kept of it at the first start. `sinks` hold all that was read so far, or owe it."""

    inputs: tuple[Input, ...]
    streams: tuple[str, ...]
    partitions: int
    operators: tuple[Operator, ...] = ()
    manner: tuple[str, ...] = ()
    fingerprint: str = ""
    histories: tuple[tuple[str, Kept], ...] = ()
    kept: tuple[dict[str, Any], ...] = ()
    sinks: tuple[str, ...] = ()

    @classmethod
    def of(cls, flow: Flow, sources: tuple[AnySource, ...], partitions: int, log: Log) -> Definition:
        inputs = tuple(Input(source.outside, source.recorded, log.topics.identity(source.name)) for source in sources)
        manner = tuple(
            f"{source.name} {source.topic.lateness}"
            for source in sources
            if isinstance(source, Source) and source.topic.time
        )
        streams, sinks = (tuple(each.name for each in parts) for parts in (flow.streams, flow.sinks))
        return cls(inputs, streams, partitions, manner=manner, sinks=sinks)


def folder_of(settings: Settings, app: str, flow: str) -> Path:
    """Of a view: that of the generation which counts."""
    return generations.current(folders_of(settings, app) / flow)


def folders_of(settings: Settings, app: str) -> Path:
    """The folder around those of an app's flows. How a flow stands is shown in the one of its name, whichever
    generation of a view counts."""
    return settings.checkpoints / settings.named(app)


def remembered(folder: Path) -> Definition | None:
    """The record of an earlier run; none when there is no checkpoint for it to belong to."""
    if not (folder / CHECKPOINT).exists():
        return None
    try:
        raw = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Definition(
        tuple(Input(**each) for each in raw["inputs"]),
        tuple(raw.get("streams", ())),
        raw["partitions"],
        tuple(Operator(**each) for each in raw.get("operators", ())),
        tuple(raw.get("manner", ())),
        raw.get("fingerprint", ""),
        tuple((topic, Kept(**kept)) for topic, kept in raw.get("histories", ())),
        tuple(raw.get("kept", ())),
        tuple(raw.get("sinks", ())),
    )


def remember(folder: Path, definition: Definition) -> None:
    write_whole(folder / RECORD, json.dumps(asdict(definition), indent=2))


def check(flow: Flow, sources: tuple[AnySource, ...], folder: Path, old: Definition, new: Definition) -> None:
    """Refuses what the checkpoint cannot go on with. A flow without state may gain columns; nothing else may change."""
    if [each.topic for each in old.inputs] != [each.topic for each in new.inputs]:
        before, after = (", ".join(each.topic for each in definition.inputs) for definition in (old, new))
        raise InputsChanged(flow=flow.name, old=before, new=after, where=flow.where)
    for before_topic, after_topic in zip(old.inputs, new.inputs, strict=True):
        if before_topic.identity not in ("", after_topic.identity):
            reason = f"{after_topic.topic} is not the topic that the checkpoint was made with"
            raise RecordsGone(flow=flow.name, reason=reason, where=flow.where)
    stateful = has_state(folder)
    for source, before_input, after_input in zip(sources, old.inputs, new.inputs, strict=True):
        before_schema, after_schema = before_input.schema, after_input.schema
        if before_schema != after_schema and (stateful or not _only_more(before_schema, after_schema)):
            raise SchemaChanged(
                name=source.name,
                old=before_schema,
                new=after_schema,
                flow=flow.name,
                where=source.readable.where,
            )


def check_operators(flow: Flow, folder: Path, old: Definition, new: Definition) -> None:
    """Refuses to read state that was kept for something else."""
    before, after = ([each.state for each in definition.operators] for definition in (old, new))
    # One that kept nothing has no state of the epochs before, which Spark would look for.
    begun = bool(epochs(folder / CHECKPOINT / "commits"))
    if old.fingerprint and before != after and (has_state(folder) or (begun and after)):
        one, two = _shortened("; ".join(before) or "nothing", "; ".join(after) or "nothing")
        raise StateChanged(flow=flow.name, reason=f"it held {one}, and would hold {two}", where=flow.where)


def _shortened(one: str, two: str) -> tuple[str, str]:
    """Both from a little before where they differ: Spark's own words for a window are long."""
    same = next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    begin = 0 if same < _WORDS_SHOWN else same - _WORDS_SHOWN // 2

    def shown(text: str) -> str:
        end = begin + 2 * _WORDS_SHOWN
        return f"{'…' if begin else ''}{text[begin:end]}{'…' if len(text) > end else ''}"

    return shown(one), shown(two)


def has_state(folder: Path) -> bool:
    state = folder / CHECKPOINT / "state"
    return state.is_dir() and any(state.iterdir())


def set_aside(folder: Path) -> Path | None:
    """Moves the old checkpoint away, to be looked at or put back; says where it is now. What is known of its epochs in
    other files goes with it: the next ones have the same numbers."""
    old, known = folder / CHECKPOINT, [folder / name for name in (RECORD, SINKS, FILLING)]
    known = [each for each in known if each.exists()]
    if not old.exists() and not known:
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = folder / f"{CHECKPOINT}.{stamp}"
    if old.exists():
        old.rename(aside)
    else:  # somebody has removed it
        aside.mkdir()
    for each in known:
        each.rename(aside / each.name)
    return aside


def _only_more(old: str, new: str) -> bool:
    from millrace.errors import Where
    from millrace.flow.schema import columns

    nowhere = Where("", 0)
    before, after = columns("", old, nowhere), columns("", new, nowhere)
    return all(after.get(name) == kind for name, kind in before.items())
