"""What was seen of each flow since the console began: a look a second at what its run writes beside the checkpoint.

Nothing is asked of the run. What is kept is bounded, and a run's sums begin at 0, so only looks of one run are
compared.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from millrace.config import Settings
from millrace.console.checkpoints import reached
from millrace.engine import generations, standing
from millrace.engine.definition import folders_of
from millrace.engine.flows import flow_facts
from millrace.engine.plan import Flow, flows_of
from millrace.engine.progress import PHASES
from millrace.flow import Graph

EVERY_S = 1.0
MOST_POINTS = 900  # a quarter of an hour
# Over how long a rate is measured; longer where epochs are.
RATE_S = 10.0
RATE_EPOCHS = 3
PHASE_WORDS = (*PHASES, "other")
RUNNING = ("running", "restarting")


@dataclass(frozen=True)
class Look:
    """`facts` are those of `millrace status`, `told` is all that the run has written."""

    at: float
    facts: Mapping[str, Any]
    told: Mapping[str, Any]

    @property
    def last(self) -> Mapping[str, Any]:
        """Its last epoch."""
        return self.told.get("last") or {}

    @property
    def run(self) -> tuple[Any, ...]:
        """What tells one run from another."""
        run = self.told.get("run") or {}
        return (run.get("host"), run.get("pid"), run.get("started"))

    @property
    def state(self) -> str:
        return str(self.facts["state"])


class Point(NamedTuple):
    """What is kept of a look: many are. Sums are since the run began, phases in the order of `PHASE_WORDS`. `rows_in`
    has those of the epoch at hand too, where they are known: see `Standing.under_way`."""

    at: float
    run: tuple[Any, ...]
    rows_in: int
    rows_out: int | None
    late: int
    dead: int
    gap_s: float | None
    epoch: int | None
    state_rows: int
    state_bytes: int
    phases_ms: tuple[int, ...]

    @classmethod
    def of(cls, look: Look) -> Point:
        told, last = look.told, look.last
        phases = last.get("phases_ms") or {}
        return cls(
            look.at,
            look.run,
            (told.get("rows_in") or 0) + (told.get("under_way") or 0),
            told.get("rows_out"),
            told.get("late") or 0,
            told.get("dead") or 0,
            look.facts.get("watermark_gap_s"),
            last.get("epoch"),
            last.get("state_rows") or 0,
            last.get("state_bytes") or 0,
            tuple(phases.get(word, 0) for word in PHASE_WORDS),
        )


@dataclass
class History:
    """`folder` is where its run shows it, whichever generation of a view counts. `reached` is the next offset that it
    will read, by topic and partition, while it does not run; `taken_at` is when it was last seen to take records, in
    the middle of an epoch too where that is known."""

    flow: Flow
    folder: Path
    look: Look | None = None
    reached: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    taken_at: float = 0.0

    def add(self, look: Look) -> None:
        self.look = look
        point, before = Point.of(look), self.points[-1] if self.points else None
        if before is not None and before.run == point.run and point.rows_in > before.rows_in:
            self.taken_at = look.at
        self.points.append(point)

    def rate(self, sum_of: Literal["rows_in", "rows_out"] = "rows_in") -> float | None:
        """Rows a second lately, pauses included: how much there is. None when it does not run."""
        if (last := self.look) is None or last.state not in RUNNING:
            return None
        known = sum_of == "rows_in" and last.told.get("under_way") is not None  # before an epoch's end
        epoch_s = 0.0 if known else (last.last.get("epoch_ms") or 0) / 1_000
        since = last.at - max(RATE_S, RATE_EPOCHS * epoch_s)
        points = [point for point in list(self.points) if point.at >= since and point.run == last.run]
        took_s = points[-1].at - points[0].at if points else 0.0
        if took_s <= 0:
            return None
        then, now = (getattr(point, sum_of) or 0 for point in (points[0], points[-1]))
        return float(max(now - then, 0)) / took_s


class Histories:
    """Those of all flows of an app, in the order of the data's way."""

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self._app, self._settings = graph.app, settings
        self.flows = {flow.name: History(flow, folders_of(settings, graph.app) / flow.name) for flow in flows_of(graph)}

    def look(self) -> Mapping[str, History]:
        for history in self.flows.values():
            told = standing.read(history.folder)
            look = Look(time.time(), flow_facts(self._app, history.folder, told), told)
            if look.state not in RUNNING:
                places = reached(generations.current(history.folder)).items()
                history.reached = {self._settings.unnamed(outside) or outside: place for outside, place in places}
            history.add(look)
        return self.flows
