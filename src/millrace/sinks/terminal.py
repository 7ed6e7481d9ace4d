"""The terminal, for development: the first rows of each epoch, on the standard output of the run."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from millrace.config import Settings
from millrace.errors import OptionInvalid, caller
from millrace.sinks.contract import DIFF, VERSION, Feed, Guarantee, Refuse, Sink, Writer
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.tasks import texts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 20


def terminal(*, rows: int = ROWS, name: str | None = None) -> Terminal:
    """Prints the first so many rows of each epoch, as JSON; of a table with `+` for those that came and `-` for those
    that went. A second one in an app wants a `name`.

    Guarantee: at least once. A terminal remembers nothing: after a crash the last epoch may be printed again.
    """
    where = caller()
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise OptionInvalid(name="mr.terminal", option="rows", given=rows, remedy="a whole number above 0", where=where)
    return Terminal("terminal" if name is None else name, where, rows=rows)


@dataclass(frozen=True, eq=False)
class Terminal(Sink):
    kind: ClassVar[str] = "terminal"
    guarantee: ClassVar[Guarantee] = "at least once"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "rows"

    rows: int = field(kw_only=True)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        return TerminalWriter(self, feed, FileLedger(folder))


class TerminalWriter(Writer):
    def __init__(self, sink: Terminal, feed: Feed, ledger: FileLedger) -> None:
        self._sink, self._feed, self._ledger = sink, feed, ledger

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- it takes every row
        if not due(self._sink.name, epoch, self._ledger.held(), self._sink.where):
            return
        count, most = rows.count(), self._sink.rows
        lines = [self._line(text) for text in texts_of(rows.limit(most))]
        if count > most:
            lines.append(f"… and {count - most} more")
        sys.stdout.write("".join(f"{self._sink.name}  {line}\n" for line in lines))
        sys.stdout.flush()
        self._ledger.write(epoch)

    def _line(self, text: str) -> str:
        row = json.loads(text)
        sign = "" if not self._feed.signed else "+ " if row.get(DIFF, 1) > 0 else "- "
        return sign + json.dumps({k: v for k, v in row.items() if k not in (DIFF, VERSION)}, ensure_ascii=False)
