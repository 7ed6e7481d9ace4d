"""What a sink is: it states its guarantee, says before anything runs what it cannot take, and writes epochs.

    check(feed)                      no server is asked yet
    open(settings, flow, feed, folder) -> writer
    writer.write(epoch, rows, refuse)      … epoch after epoch, in their order, one at a time
    writer.close()

Errors tell what is to be done: a `ServerError` may pass, and the epoch is written again later; a `UserError` stays
until somebody mends it, and ends the flow. After an error the writer is closed and another one opened.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from millrace.config import Settings
from millrace.errors import SinkKeyMissing, Where
from millrace.sinks.ledger import Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from millrace.sinks.rebuilding import Rebuilding, Site

# exactly once: after any crash the target is as if nothing had happened.
# exactly once per key: the same of each key's last row; a reader may see some keys of an epoch before others.
# at least once with ids: rows may come again, each with an id by which a reader can tell.
# at least once: the rows of an epoch may come again. at most once: they may be missing instead.
Guarantee: TypeAlias = Literal[
    "exactly once", "exactly once per key", "at least once with ids", "at least once", "at most once"
]
GUARANTEES: tuple[Guarantee, ...] = (
    "exactly once",
    "exactly once per key",
    "at least once with ids",
    "at least once",
    "at most once",
)

# Beside a row's own columns: +1 for one that came, -1 for one that went; and its version, which grows with each change
# of a key (of a table its offset in the log, of a stream the epoch).
DIFF, VERSION = "__diff", "__version"

# What a target refuses is kept row by row, by the driver. So many in one epoch are no odd rows: the sink is wrong.
MOST_REFUSED = 10_000


@dataclass(frozen=True)
class Feed:
    """What a sink is given: `columns`, then `__diff` and `__version`, in every row.

    With a `key` an epoch has at most one row of each: what has become of it, +1 with the row that it now has, or -1
    with the last that it had. A key may be null. Without one, rows are to be appended as they are: those of a stream
    all +1, those of a table (`signed`) with both signs.
    """

    columns: StructType
    key: tuple[str, ...] = ()
    signed: bool = False


@dataclass(frozen=True)
class RefusedRow:
    """A row that the target will never take: as JSON, with its key as text, and the target's reason."""

    key: str | None
    row: str
    reason: str


# Keeps rows among the dead letters, and returns when they are safe there.
Refuse: TypeAlias = Callable[[Sequence[RefusedRow]], None]


@dataclass(frozen=True, eq=False)
class Sink(ABC):
    """Frozen data: made where the app is defined, pickled to tasks. What reaches a server is opened by `open`.

    `name` is how ledger, dead letters (`<name>.dead`), status and errors call it; each sink of an app has its own.
    `key` are the columns by which the target knows a row; of a table, those of the table if nothing is said.
    """

    name: str
    where: Where
    key: tuple[str, ...] = ()

    kind: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    # "keys": it holds the last row of each key. "rows": it takes all rows as they come. "either": the first if a key is
    # known, by `key` or because a table is written.
    wants: ClassVar[Literal["keys", "rows", "either"]] = "either"
    # How long an epoch is best, where nobody else waits for it.
    pace_ms: ClassVar[int | None] = None

    @property
    def every_ms(self) -> int | None:
        """How long somebody said that an epoch is to be."""
        return None

    def keyed(self, table: Sequence[str], stream: Sequence[str]) -> tuple[str, ...]:
        """By which columns this sink is to be fed: `table` is the key of the table that is written, `stream` that of
        the stream's records. None if it takes every row."""
        if self.wants == "rows":
            return ()
        known = self.key or tuple(table) or (tuple(stream) if self.wants == "keys" else ())
        if self.wants == "keys" and not known:
            raise SinkKeyMissing(sink=self.name, kind=self.kind, where=self.where)
        return known

    def check(self, feed: Feed) -> None:  # noqa: B027 -- most take everything
        """Refuses, in one sentence, columns that this sink cannot take. Asks no server."""

    def servers(self, settings: Settings) -> tuple[str, ...]:  # noqa: ARG002 -- most need none
        """Which of the project's own servers (`postgres`, `valkey`, …) it writes to, where none is configured."""
        return ()

    @abstractmethod
    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        """Makes ready what has to be there (a table, an index), and gives the writer for the epochs of `flow`. `folder`
        is the sink's own beside the flow's checkpoint, for one whose target has no place for a ledger (`FileLedger`);
        it need not exist yet."""

    def rebuilding(self, site: Site) -> Rebuilding | None:  # noqa: ARG002 -- some hold nothing
        """By what its target is built again beside the one that is read (`millrace rebuild`), and compared with its
        source (`millrace verify`); None of a sink that holds nothing which could be."""
        return None


class Writer(ABC):
    """Used by one thread at a time."""

    @abstractmethod
    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        """Writes one epoch, whole or not at all where the target can, and has written down that it did when it returns.
        An epoch that the ledger has is left alone; what does not follow on it is refused (`ledger.due`).

        Rows that the target refuses are given to `refuse` *before* the ledger says that the epoch is there: a crash in
        between repeats dead letters and loses none. The other rows are written nevertheless. `rows` may be computed
        more than once and is the same each time.
        """

    def figures(self) -> Mapping[str, float]:
        """What there is to tell of the target, in the words of `serve/metrics.py`. Asked by any thread."""
        return {}

    def close(self) -> None:  # noqa: B027 -- most hold nothing
        """Lets go of connections. What is not written stays unwritten."""


def sink_name(kind: str, target: str, name: str | None) -> str:
    """What a sink is called if nobody says: `postgres.revenue`."""
    return name if name is not None else f"{kind}.{re.sub(r'[^A-Za-z0-9._-]+', '-', target).strip('-.')}"
