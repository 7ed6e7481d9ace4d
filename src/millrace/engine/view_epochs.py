"""The epochs of a view: which position each of them reached, and the mark that says so."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from millrace.engine.definition import FILLING
from millrace.engine.epochs import began_ms, now_ms, positions
from millrace.engine.generations import Generation
from millrace.engine.viewed import database_of
from millrace.errors import KafkaUnreachable
from millrace.flow import View
from millrace.log import Log
from millrace.views.changelog import Mark, marks_topic

# The position of an epoch that has only some rows of a snapshot (`Frontier.java`).
FIRST = 1
_SETTLE_S, _LOOK_S = 60.0, 0.005
# Among so many offsets at the end of a topic of marks is the last one.
_MARKS = 40


@dataclass(frozen=True)
class Reached:
    """What an epoch made a view true of: everything up to `lsn`, beginning `after` the epoch before."""

    lsn: int
    after: int
    at_ms: int
    whole: bool


class ViewEpochs:
    """Of one view, by its checkpoint; `folder` is the flow's own around that. Marks count the epochs of all generations
    of the view: `shift` is what these add to those of the checkpoint."""

    def __init__(self, view: View, log: Log, checkpoint: Path, folder: Path) -> None:
        self.view, self.log, self.checkpoint, self.folder = view, log, checkpoint, folder
        self._database = database_of(view)
        self.shift = Generation.read(folder.with_name(view.name)).shift

    def reached(self, number: int, *, at_its_end: bool = False) -> Reached:
        """An epoch in real time is true of its end, which is when its offsets were written."""
        now, before = (positions(self.checkpoint, each) for each in (number, number - 1))
        # A position of its own counts epochs, from where a whole view may be on.
        lsn, after = (number + self.shift + FIRST + 1, number + self.shift + FIRST)
        if self._database is not None:
            lsn, after = now[self._database], before.get(self._database, 0)
        at_ms = now_ms(self.checkpoint, number) or began_ms(self.checkpoint, number)
        if at_its_end:
            at_ms = int((self.checkpoint / "offsets" / str(number)).stat().st_mtime * 1_000)
        targets = json.loads((self.folder / FILLING).read_text(encoding="utf-8"))
        return Reached(lsn, after, at_ms, all(now.get(name, 0) >= target for name, target in targets.items()))

    def mark(self, number: int, reached: Reached) -> None:
        """After all records of the epoch are written."""
        told = number + self.shift
        mark = Mark(told, self._database, reached.lsn, reached.at_ms, self.ends(), reached.whole)
        self.log.write(marks_topic(self.view.name), mark.as_json(), key=self.view.name)

    def last_marked(self) -> int:
        """The last epoch that has a mark; -1 if none has."""
        found = marks(self.log, self.view.name)
        return max((mark.epoch for mark in found), default=self.shift - 1) - self.shift

    def ends(self) -> dict[int, int]:
        """Where the changelog ends when readers can see all of it: a commit is answered before every partition has it.
        Nobody else writes there."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            seen, written = (self.log.topics.last(self.view.name, committed=each) for each in (True, False))
            if seen == written:
                return seen
            if time.monotonic() > deadline:
                reason = f"the last epoch of {self.view.name} is written and cannot be seen"
                raise KafkaUnreachable(address=self.log.address, reason=reason)
            time.sleep(_LOOK_S)


def marks(log: Log, view: str, most: int = _MARKS) -> list[Mark]:
    """The last ones, in their order; fewer, or none, of a view that has just begun."""
    topic = marks_topic(view)
    end = log.topics.offsets(topic)[0][1]
    return [Mark.from_json(each.json()) for each in log.read(topic, max(end - most, 0), partition=0)]
