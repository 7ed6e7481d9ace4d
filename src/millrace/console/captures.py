"""How captures stand: asked now and then, of Kafka, of Connect and of the databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.capture import Captures
from millrace.capture.memory import Remembered
from millrace.capture.status import CaptureStatus, TableStatus, status
from millrace.config import Settings
from millrace.errors import MillraceError

EVERY_S = 4.0


@dataclass(frozen=True)
class CapturesLook:
    """By the captures' names: their definitions, how they stand, and why that is not known of some."""

    remembered: Mapping[str, Remembered]
    statuses: Mapping[str, CaptureStatus]
    troubles: Mapping[str, MillraceError]


class CapturesWatch:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._captures: Captures | None = None

    def look(self) -> CapturesLook:
        try:
            captures = self._captures = self._captures or Captures(self._settings)
            remembered = captures.all()
        except MillraceError:
            self._captures = None  # a server that comes back may have another address
            raise
        statuses: dict[str, CaptureStatus] = {}
        troubles: dict[str, MillraceError] = {}
        for name in remembered:
            try:
                statuses[name] = status(captures, name)
            except MillraceError as error:
                troubles[name] = error
        if troubles:
            self._captures = None
        return CapturesLook(remembered, statuses, troubles)


def progress(table: TableStatus) -> float | None:
    """How much of a table's snapshot is done, by the database's own guess of its rows: it may be more in truth."""
    if table.phase == "streaming":
        return 1.0
    if table.phase == "waiting":
        return 0.0
    return min(table.records / table.estimated, 1.0) if table.estimated and table.estimated > 0 else None
