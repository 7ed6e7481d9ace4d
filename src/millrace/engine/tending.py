"""What a run does for the captures that its flows read: tends them, and asks again about a table that was changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from millrace.capture import Captures, status, truncates
from millrace.engine.plan import Flow
from millrace.engine.running import RunningFlow
from millrace.engine.tables import TableSource, known
from millrace.errors import (
    CaptureFailed,
    MillraceError,
    RowUnreadable,
    ServerError,
    SlotLost,
    TableBroken,
    TableChanged,
)
from millrace.flow import Table

_logger = logging.getLogger("millrace.engine")


class Tending:
    def __init__(self, captures: Captures, names: Iterable[str]) -> None:
        self._captures, self._names = captures, tuple(names)
        self._troubles: dict[str, str] = {}

    def tend(self) -> None:
        for name in self._names:
            self._tend(name)

    def _tend(self, capture: str) -> None:
        """A server that is away is waited for, and told of once; a gap in the changes ends the run."""
        try:
            self._captures.tend(capture)
            for line in truncates.mend(self._captures, capture):
                _logger.warning(line)
        except (SlotLost, CaptureFailed):
            raise
        except MillraceError as error:
            self._told(f"capture {capture}", str(error))
        else:
            self._troubles.pop(f"capture {capture}", None)

    def _told(self, who: str, trouble: str) -> None:
        if self._troubles.get(who) != trouble:
            _logger.warning("%s: %s", who, trouble)
        self._troubles[who] = trouble

    def adapted(self, flow: RunningFlow, failure: TableChanged | RowUnreadable) -> bool:
        """Whether the flow can go on with a table that was changed: its columns are looked up again, and are other ones
        now. (Rows are kept as text, so the flow's state does not mind.)"""
        for source in flow.sources:
            if not isinstance(source, TableSource) or source.captured.name != failure.facts["table"]:
                continue
            capture = source.table.capture
            if capture is None:
                return False
            # A value may be too large for its column's type because that was made wider.
            columns = json.loads(str(failure.facts.get("columns", "null")))
            changed = self._captures.refresh(capture.name, {source.captured.name: [tuple(columns)]} if columns else {})
            change = changed.get(source.captured.name)
            if change is None:  # nothing happened, or another flow of this run has looked before
                return known(source.table, self._captures.log) != source.captured
            if change.breaks:
                raise TableBroken(flow=flow.flow.name, table=source.captured.name, reason=change.breaks)
            _logger.warning("%s goes on: %s", flow.flow.name, "; ".join(change.words))
            return True
        return False

    def unread(self, flow: Flow) -> list[str]:
        """The tables that a flow reads beside something else, and whose snapshot has not ended; one that it reads alone
        may come bit by bit."""
        if flow.shared is not None:
            return []
        tables = [source for source in flow.reads if isinstance(source, Table)]
        found: list[str] = []
        for capture in dict.fromkeys(table.capture.name for table in tables if table.capture is not None):
            mine = [table for table in tables if table.capture is not None and table.capture.name == capture]
            try:
                unread = status.unread(self._captures, capture)
            except ServerError as error:  # a server that is away is waited for
                self._told(f"{flow.name} waits", str(error))
                found += [table.name for table in mine]
                continue
            short = {name.partition(".")[2] for name in unread}
            found += [table.name for table in mine if table.table in unread or table.table in short]
        return found
