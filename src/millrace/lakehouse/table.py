"""What Delta and Iceberg tables have in common: files below a folder, and commits that name them.

What holds: a commit follows on the version that was loaded, or fails (`LakeConflict`) and changes nothing. So who reads
the note of the last epoch, and then commits the next, is alone in having done so.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.lakehouse.footers import Footer, footers
from millrace.lakehouse.place import Disk, Place

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

# Below a table's folder: what Spark wrote, a folder for each attempt at an epoch.
DATA = "data"
# How a commit calls what it says for Millrace.
NOTE = "millrace"
# How a table calls the columns by which its rows lie side by side; their names have no commas.
CLUSTER = "millrace.cluster-by"
# And those of which it holds the last row of each value.
KEY = "millrace.key"
# The version in whose place other rows came last.
REBUILT = "millrace.rebuilt"
# So many rows say whether values come again; after so many epochs that is asked anew.
_TELLING_ROWS = 8_192
_TRIED_AGAIN = 32


@dataclass(frozen=True)
class Note:
    """What a commit says of itself: the ledger's entry of the epoch that it brought, and the folder (below `DATA`) in
    which that epoch's files are. A commit that brought none (a compaction) repeats the one before, and says in which
    folder its `own` files are."""

    flow: str
    epoch: int
    ranges: str
    folder: str
    own: str | None = None

    @property
    def written(self) -> str:
        """The folder of the files that came with this very commit."""
        return self.own or self.folder

    def text(self) -> str:
        words = {name: value for name, value in vars(self).items() if value is not None}
        return json.dumps(words, separators=(",", ":"))

    @classmethod
    def of(cls, text: object) -> Note | None:
        """None where somebody else committed."""
        try:
            said = json.loads(str(text))
            return cls(str(said["flow"]), int(said["epoch"]), str(said["ranges"]), str(said["folder"]), said.get("own"))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class DataFile:
    """One that a version has. `path` is taken from the table's folder. Of columns that are known to hold nothing below
    `low` and above `high`, those; others may hold anything."""

    path: str
    size_bytes: int
    rows: int
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Version:
    """`number` counts a table's commits; `id` is how its format knows it."""

    number: int
    id: int
    at: datetime
    operation: str
    note: Note | None = None


@dataclass(frozen=True)
class Committed:
    """What is to be committed. `files` are new ones, as paths from the table's folder; `gone` are files that the
    version has and the next does not. With `columns`, all older files go, and the table has these columns; of those
    that are `renamed` it is said how they are called now. `same` says that the rows stay what they are: a
    compaction."""

    note: Note | None
    files: Sequence[str] = ()
    gone: Sequence[str] = ()
    columns: StructType | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    same: bool = False


class LakeTable(ABC):
    """A table as one version of it has it, loaded by `load`. Used by one thread."""

    format: ClassVar[str]
    # Whether a type can grow without the files being written again.
    grows: ClassVar[bool]

    def __init__(self, name: str, place: Place) -> None:
        self.name, self.place = name, place
        self._ends: dict[str, Footer] = {}
        self._varied: frozenset[str] = frozenset()
        self._filled = 0

    @property
    def folder(self) -> Path:
        """Of a table on a disk."""
        assert isinstance(self.place, Disk)
        return self.place.folder

    @abstractmethod
    def load(self) -> bool:
        """Brings it to the newest version; whether there is a table at all."""

    @abstractmethod
    def create(
        self,
        columns: StructType,
        partition_by: Sequence[str],
        keep: timedelta | None = None,
        *,
        key: Sequence[str] = (),
        anew: bool = False,
    ) -> None:
        """Makes an empty one, whose versions are to be kept for so long; None is for ever. With `anew`, also where a
        catalog still knows one whose files are gone: only whoever was told to build it again says so."""

    @abstractmethod
    def keeps(
        self, keep: timedelta | None, cluster_by: Sequence[str] | None = None, key: Sequence[str] | None = None
    ) -> None:
        """Lets its own words say for how long versions are kept, by which also other programs clean up; and by which
        columns rows lie side by side, and which are its key, if somebody has decided that."""

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """By which rows lie side by side: whoever writes files together keeps that."""
        known = set(self.columns.names)
        return tuple(each for each in self._named(CLUSTER) if each in known)

    @property
    def rebuilt(self) -> int | None:
        """The version in whose place other rows came last: as many rows need not be the same ones since then."""
        said = self._words().get(REBUILT)
        return None if said is None else int(said)

    def is_rebuilt(self) -> None:
        """Says so, before the rows change."""
        self._say({REBUILT: str(self.version)})

    @property
    def key(self) -> tuple[str, ...]:
        """Of which it holds the last row of each value; nothing of a table that rows are appended to."""
        named = self._named(KEY)
        return named if set(named) <= set(self.columns.names) else ()

    def _named(self, word: str) -> tuple[str, ...]:
        return tuple(filter(None, self._words().get(word, "").split(",")))

    def _unsaid(self, cluster_by: Sequence[str] | None, key: Sequence[str] | None) -> dict[str, str]:
        """What its words are to say of these, and do not."""
        said = ((CLUSTER, cluster_by), (KEY, key))
        return {
            word: ",".join(names) for word, names in said if names is not None and tuple(names) != self._named(word)
        }

    @abstractmethod
    def _say(self, words: Mapping[str, str]) -> None: ...

    @abstractmethod
    def _words(self) -> Mapping[str, str]:
        """What the table says of itself."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The number of the version that is loaded."""

    @property
    def columns(self) -> StructType:
        """As Spark knows them."""
        return self.columns_of(None)

    @abstractmethod
    def columns_of(self, version: Version | None) -> StructType:
        """Those of the version that is loaded, or of another one."""

    @property
    def former(self) -> frozenset[str]:
        """How columns were called before, where no other may be called so: older versions know theirs by it."""
        return frozenset()

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...]: ...

    @abstractmethod
    def add(self, fields: Iterable[StructField]) -> None:
        """Adds columns, which are null in the rows that are there."""

    @abstractmethod
    def grow(self, columns: StructType) -> None:
        """Lets columns have wider types, where `grows`."""

    @abstractmethod
    def files(self, version: Version | None = None) -> list[DataFile]:
        """Those of the version that is loaded, or of another one."""

    def footers(self, paths: Sequence[str]) -> list[Footer]:
        """What the ends of files say that are to be committed: each is read once."""
        unread = [path for path in paths if path not in self._ends]
        self._ends |= {each.path: each for each in footers(self.place, unread)}
        return [self._ends[path] for path in paths]

    @property
    def varied(self) -> frozenset[str]:
        """Columns for which the next files need not try a dictionary, which each group of rows would begin anew: the
        last ones had no use for it. Now and then it is tried all the same."""
        return frozenset() if self._filled % _TRIED_AGAIN == 0 else self._varied

    def vary(self, written: Sequence[Footer]) -> None:
        """What was found by files that were written as `varied` said."""
        self._filled += 1
        large = [each.varied for each in written if each.rows >= _TELLING_ROWS]
        if large:
            # Of names with dots or signs Parquet's own settings would make something else.
            self._varied = frozenset(name for name in frozenset.intersection(*large) if name.isidentifier())

    @abstractmethod
    def note(self) -> Note | None:
        """That of the last commit which has one."""

    @abstractmethod
    def commit(self, what: Committed) -> None:
        """Makes the next version, and loads it."""

    @abstractmethod
    def versions(self) -> list[Version]:
        """Those that are still known, the oldest first."""

    @abstractmethod
    def scan(self, version: Version | None = None) -> str:
        """The words of DuckDB's extension for reading it: a table function with its arguments."""

    @abstractmethod
    def bare(self, version: Version | None = None) -> bool:
        """Whether a reader of its files alone finds what `scan` finds: it is `plain`, and has the columns of now."""

    @abstractmethod
    def plain(self, version: Version | None = None) -> bool:
        """Whether the rows of a version are those of its files: nothing is said beside the files about rows that went,
        or columns that are called otherwise. `emptied` are null where a file has an empty text."""

    @property
    def emptied(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def whole(self, version: Version) -> bool:
        """Whether all files of a version are still there."""

    @abstractmethod
    def arrow(self) -> Any:
        """The columns as a schema of Arrow."""

    @abstractmethod
    def drop(self, oldest: Version) -> None:
        """Lets go of what is said about versions older than that one, as far as the format can; not of their files."""

    def tidy(self, oldest: Version) -> None:  # noqa: B027 -- some have none
        """Removes lists of files that no version since that one has."""

    def close(self) -> None:  # noqa: B027 -- some hold nothing
        """Lets go of connections."""
