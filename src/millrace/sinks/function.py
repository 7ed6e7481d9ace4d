"""A Python function as a sink: for what no other sink does, and told what it is not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from millrace.config import Settings
from millrace.errors import FunctionFailed, MillraceError, OptionInvalid, caller
from millrace.sinks.contract import Feed, Guarantee, Refuse, Sink, Writer, sink_name
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.tasks import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Body: TypeAlias = "Callable[[DataFrame, Epoch], Any]"


def function(body: Body, *, name: str | None = None) -> Function:
    """Calls a function of one's own with each epoch: `def write(rows, epoch)`, where `rows` is a DataFrame (with
    `__diff` and `__version`) and `epoch` says its number. It is called on the driver; what it does with `rows` runs on
    Spark.

    Guarantee: at least once, and it is no more than that by itself. After a crash the function is called again with the
    epoch that it may have written already, as a whole or in part: the same number, the same rows. It is exactly once
    only if the function makes it so, by writing `epoch.number` in one step with the rows and looking there first. An
    exception ends the flow. A `ServerError` (`millrace.errors`) is taken for a server that is away: the epoch is kept,
    and the function called again later.
    """
    where = caller()
    takes = len(inspect.signature(body).parameters) if callable(body) else 0
    if takes != len(("rows", "epoch")):
        remedy = "give a function of two parameters: def write(rows, epoch)"
        raise OptionInvalid(name="mr.function", option="body", given=body, remedy=remedy, where=where)
    return Function(sink_name("function", getattr(body, "__name__", "body"), name), where, body=body)


@dataclass(frozen=True, eq=False)
class Function(Sink):
    kind: ClassVar[str] = "function"
    guarantee: ClassVar[Guarantee] = "at least once"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "rows"

    body: Body = field(kw_only=True)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        return FunctionWriter(self, FileLedger(folder))


class FunctionWriter(Writer):
    def __init__(self, sink: Function, ledger: FileLedger) -> None:
        self._sink, self._ledger = sink, ledger

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- it takes every row
        if not due(self._sink.name, epoch, self._ledger.held(), self._sink.where):
            return
        try:
            self._sink.body(rows, epoch)
        except MillraceError:
            raise
        except Exception as error:
            kind, where = type(error).__name__, self._sink.where
            raise FunctionFailed(sink=self._sink.name, kind=kind, reason=reason_of(error), where=where) from error
        self._ledger.write(epoch)
