"""`Standing`: how a flow stands, summed up from its epochs' `Progress`. What is shown, measured and logged is read from
here, and never from Spark.

The run writes it beside the checkpoint (`progress.json`), so that `millrace status` of another process can read it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from millrace.engine import begun
from millrace.engine.lock import this_process
from millrace.engine.progress import Progress
from millrace.errors import FlowLocked, FlowReplaced, MillraceError

FILE = "progress.json"
SHOW_S = 1.0

# waiting: for those that feed it. restarting: it failed, and is started again soon. failed: not again in this run.
# ended: it has read what was there, or was stopped.
State: TypeAlias = Literal["waiting", "running", "restarting", "failed", "ended"]

# The error of a flow that waited in vain for one that feeds it.
NOT_STARTED = "it was not started, because"

_logger = logging.getLogger("millrace.engine")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class SinkStanding:
    """How a sink stands. `epoch` is the last that it holds, `dead` how many rows of this run its target refused, `lost`
    how many epochs were given up because at most once was asked for; `figures` is what its target tells of itself."""

    guarantee: str
    epoch: int | None = None
    owed_epochs: int = 0
    owed_bytes: int = 0
    dead: int = 0
    lost: int = 0
    trouble: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """A flow since the run began. `rows_out` is None while nobody has counted any; `phases_ms` is what its epochs spent
    on what, in the words of `progress.PHASES`. All figures are of epochs that have ended, but for `under_way`: the rows
    that one in real time has taken since then, None where nobody knows.

    `heard` is when it last gave a sign: it was started, an epoch ended, or it looked and found nothing new. `error` is
    the sentence of its last failure, `restarts` how often it was started again, `trouble` what is wrong while it runs,
    `sinks` how those that it writes stand, `guarantee` is that of the topics that it writes, None where it writes none.
    """

    flow: str
    state: State
    since: datetime
    heard: datetime
    epochs: int = 0
    rows_in: int = 0
    rows_out: int | None = None
    dead: int = 0
    late: int = 0
    allowed: int = 0
    refused: int = 0
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    error: str | None = None
    trouble: str | None = None
    last: Progress | None = None
    sinks: Mapping[str, SinkStanding] = field(default_factory=dict)
    left_out: int = 0
    under_way: int | None = None
    guarantee: str | None = None

    @classmethod
    def new(cls, flow: str, guarantee: str | None = None) -> Standing:
        now = _now()
        return cls(flow, "waiting", now, now, guarantee=guarantee)

    def after(self, progress: Progress) -> Standing:
        """One epoch later."""
        out = self.rows_out if progress.rows_out is None else (self.rows_out or 0) + progress.rows_out
        return replace(
            self,
            heard=max(progress.at, self.heard),
            epochs=self.epochs + 1,
            rows_in=self.rows_in + progress.rows_in,
            rows_out=out,
            dead=self.dead + progress.dead,
            late=self.late + progress.late,
            allowed=self.allowed + progress.allowed,
            refused=self.refused + progress.refused,
            left_out=self.left_out + progress.left_out,
            phases_ms={word: self.phases_ms.get(word, 0) + spent for word, spent in progress.phases_ms.items()},
            last=progress,
        )

    def becomes(self, state: State, error: str | None = None) -> Standing:
        """In another state from now on. The sentence of the last failure stays until the next."""
        again = self.state == "restarting" and state == "running"
        now = _now()
        return replace(
            self,
            state=state,
            since=now,
            heard=now if state == "running" else self.heard,
            restarts=self.restarts + again,
            error=error or self.error,
        )

    def sign(self, at: datetime) -> Standing:
        """It looked and found nothing new."""
        return replace(self, heard=at) if at > self.heard else self

    def troubled(self, sentence: str | None) -> Standing:
        """With something that is wrong beside it, or no more."""
        return replace(self, trouble=sentence) if sentence != self.trouble else self

    def delivering(self, sinks: Mapping[str, SinkStanding]) -> Standing:
        return replace(self, sinks=sinks) if sinks != self.sinks else self

    def taking(self, rows: int | None) -> Standing:
        """With so many rows of the epoch at hand."""
        return replace(self, under_way=rows) if rows != self.under_way else self

    @property
    def rows_taken(self) -> int:
        """Those of the epoch at hand too."""
        return self.rows_in + (self.under_way or 0)

    def facts(self) -> dict[str, Any]:
        """As plain values, times in UTC."""
        found = {name: value for name, value in vars(self).items() if name not in ("last", "sinks")}
        found["sinks"] = {name: vars(sink) for name, sink in self.sinks.items()}
        if self.last is not None:
            last = {**vars(self.last), "phases_ms": dict(self.last.phases_ms)}
            found["last"] = {name: _plain(value) for name, value in last.items() if name != "flow"}
        return {name: _plain(value) for name, value in found.items()}


class Board:
    """Where the flows of a run are shown to other processes. One that is not the run's own (any more) is left alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shown: dict[str, tuple[float, Standing]] = {}
        self._left: set[str] = set()
        self._begun: dict[str, int] = {}

    def leave(self, flow: str, error: MillraceError) -> None:
        """If the error says that another run has it."""
        if isinstance(error, FlowLocked | FlowReplaced):
            self._left.add(flow)

    def show(self, standings: Mapping[str, Standing], now: float, *, at_last: bool = False) -> None:
        """Writes what changed, not more often than somebody would look."""
        for flow, current in standings.items():
            shown_at, shown = self._shown.get(flow, (now - SHOW_S, None))
            if current is shown or current.state == "waiting" or flow in self._left:
                continue
            if at_last or now - shown_at >= SHOW_S:
                self._note(flow, current)
                with contextlib.suppress(OSError):
                    write(self._folder / flow, current)
                self._shown[flow] = (now, current)

    def _note(self, flow: str, current: Standing) -> None:
        """That it began, or began again."""
        before = self._begun.get(flow)
        if current.state != "running" or before == current.restarts:
            return
        self._begun[flow] = current.restarts
        folder = self._folder / flow
        left = read(folder).get("state") if before is None else None
        begun.note(folder, current.since, left=left, restarts=current.restarts, error=current.error)


def tell_troubles(standings: MutableMapping[str, Standing], troubles: Mapping[str, Exception]) -> None:
    """What is wrong beside each flow now; a warning for what is new."""
    for name, standing in standings.items():
        trouble = troubles.get(name)
        if trouble is not None and standing.trouble is None:
            _logger.warning("%s: %s", name, trouble)
        standings[name] = standing.troubled(None if trouble is None else str(trouble))


def write(folder: Path, standing: Standing) -> None:
    """A reader finds the old text or the new one. Nothing depends on it after a crash: the disk is not waited for."""
    temporary = folder / f"{FILE}.new"
    told = {**standing.facts(), "run": vars(this_process(standing.flow))}
    temporary.write_text(json.dumps(told, indent=2), encoding="utf-8")
    temporary.replace(folder / FILE)


def read(folder: Path) -> dict[str, Any]:
    """What a run wrote; empty where none did."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
