"""A sink's target that is built again beside the one that people read, compared with it, and put in its place.

    begin(epoch) -> writer          an empty one beside; what an earlier attempt left goes first
    writer.write(…)                 … everything that it is to hold
    there("live"), there("new")     what both hold, for the comparison
    switch(epoch)                   the new one takes the place of the old, and the ledger says `epoch`
    discard()                       or it goes again, and nothing has changed

Nothing that readers see changes before `switch`. What `switch` does, it does once, however often it is called: it is
called again when a crash came in between. Readers have an answer at every moment: the old row or the new one.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from millrace.config import Settings
from millrace.sinks.comparing import Differences, Held, compare
from millrace.sinks.contract import Feed, Writer
from millrace.sinks.ledger import Entry, Epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Which: TypeAlias = Literal["live", "new"]
REBUILT, VERIFIED = "rebuilt", "verified"


@dataclass(frozen=True)
class Site:
    """What a rebuilding is given. `key` are the columns by which rows are known, also where the sink takes every row;
    none of a stream's rows without a key. `purpose` keeps what is built beside apart from what others build."""

    settings: Settings
    spark: SparkSession
    flow: str
    feed: Feed
    folder: Path
    key: tuple[str, ...]
    purpose: str = REBUILT

    @property
    def flow_beside(self) -> str:
        """The name under which what is built beside has a ledger of its own."""
        return f"{self.flow}.{self.purpose}"

    @property
    def folder_beside(self) -> Path:
        return self.folder / self.purpose

    def forget_beside(self) -> None:
        shutil.rmtree(self.folder_beside, ignore_errors=True)


class Rebuilding(ABC):
    """Of one sink. Used by one thread; `close` lets go of connections."""

    # Whether rows go away by themselves after a time: those that are missing then say nothing.
    expires = False
    _site: Site

    @property
    @abstractmethod
    def keyed(self) -> bool:
        """Whether the target knows rows by a key; otherwise they are counted."""

    @abstractmethod
    def held(self) -> Entry | None:
        """What the ledger of the target that is read says."""

    @abstractmethod
    def begin(self, epoch: Epoch) -> Writer:
        """Makes an empty one beside, and gives its writer. `epoch` is what it is going to hold the flow up to."""

    @abstractmethod
    def there(self, which: Which) -> Iterable[Held]:
        """The rows that are there; none where nothing is."""

    @abstractmethod
    def wanted(self, rows: DataFrame) -> Iterable[Held]:
        """What the target would hold if it were given these rows, and no others."""

    def names(self, keys: DataFrame) -> DataFrame | None:
        """How `there` calls the rows with these keys, as one column; None where only the server could tell."""
        from millrace.sinks.texts import joined_key

        return keys.select(joined_key(Feed(keys.schema, self._site.feed.key or self._site.key)))

    @abstractmethod
    def switch(self, epoch: Epoch) -> None:
        """Puts the new one in the place of the old, which goes. Does nothing where that is done already."""

    @abstractmethod
    def discard(self) -> None:
        """Removes what was built beside."""

    def close(self) -> None:  # noqa: B027 -- some hold nothing
        """Lets go of connections."""

    def differences(self) -> Differences:
        """How the one that is read differs from the new one."""
        return compare(lambda: self.there("live"), lambda: self.there("new"), keyed=self.keyed)
