"""Tables of the lakehouse, Delta Lake or Apache Iceberg: Spark writes Parquet files on its executors, and one commit
names them together with the ledger's entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from millrace import durations
from millrace.config import Settings
from millrace.errors import OptionInvalid, SinkColumnUnfit, SinkKeyUnknown, caller, nearest
from millrace.sinks.contract import DIFF, VERSION, Feed, Guarantee, Sink, Writer, sink_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

    from millrace.sinks.rebuilding import Rebuilding, Site

# For how long a version can be asked after another took its place, if nobody says. What readers and writers at work may
# still need is never let go.
KEEP, FOREVER = "1 day", "forever"
LEAST_KEPT = timedelta(hours=1)
# By what Spark divides the files of an epoch.
PART = "__part"
# Delta's names of columns have none of these.
_UNFIT = " ,;{}()\n\t="


def lake(
    table: str,
    *,
    format: Literal["delta", "iceberg"] = "delta",  # noqa: A002
    key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    cluster_by: str | Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
    keep: str | timedelta = KEEP,
    every: str | timedelta | None = None,
    compact: bool = True,
    name: str | None = None,
) -> Lake:
    """Writes to a table of the lake (`[lake] folder`, or `lake` in the project's folder) that DuckDB, Spark and all
    others can read who know Delta Lake or Apache Iceberg.

    With a `key`, and always for a captured table, it holds the last row of each key, with its place in the log as
    `__version`; every epoch is a version of the table, and older ones can be asked. Without, every row of a stream is
    appended. Files are divided by the values of `partition_by`. Rows that are appended lie side by side by the columns
    of `cluster_by` (with a key they lie by that), so that readers pass over most files. Columns that come later are
    added, types that grow are widened; what else does not fit is refused before anything is written. A column that has
    another name by now is `renamed={"new": "old"}`: the next epoch writes all files again, by that name, once.

    A version can be asked for as long as `keep` says after another took its place ("forever" is possible), and then
    goes with its files. `every` is the least time between two epochs of the flow, and so between two versions; if
    nobody says, 5 seconds, where the flow has no other output. Small files are written together in the background
    unless `compact=False`.

    Guarantee: exactly once. One commit names an epoch's files and says which epoch that is.
    """
    where = caller()
    from millrace.lakehouse.catalog import FORMATS, NAME

    keys, divided, clustered = _names(key), _names(partition_by), _names(cluster_by)
    if not isinstance(table, str) or not NAME.fullmatch(table):
        remedy = "name a table by letters, digits and _, beginning with a letter"
        raise OptionInvalid(name="mr.lake", option="table", given=table, remedy=remedy, where=where)
    if format not in FORMATS:
        remedy = f"choose from {', '.join(FORMATS)}"
        raise OptionInvalid(name="mr.lake", option="format", given=format, remedy=remedy, where=where)
    for option, given, names in (
        ("key", key, keys),
        ("partition_by", partition_by, divided),
        ("cluster_by", cluster_by, clustered),
    ):
        if names is None or (option == "key" and given is not None and not names):
            remedy = "name a column, or a list of columns"
            raise OptionInvalid(name="mr.lake", option=option, given=given, remedy=remedy, where=where)
    called = dict(renamed or {})
    if not all(isinstance(each, str) and each for pair in called.items() for each in pair) or (
        len({*called, *called.values()}) < 2 * len(called)
    ):
        remedy = 'say how columns are called, and how they were: {"new": "old"}'
        raise OptionInvalid(name="mr.lake", option="renamed", given=renamed, remedy=remedy, where=where)
    kept = None if keep == FOREVER else durations.parse(keep)
    if kept is not None and kept < LEAST_KEPT:
        remedy = f'keep versions for an hour at least, or "{FOREVER}": readers may be at work on them'
        raise OptionInvalid(name="mr.lake", option="keep", given=keep, remedy=remedy, where=where)
    return Lake(
        sink_name("lake", table, name),
        where,
        keys or (),
        table=table,
        format=format,
        partition_by=divided or (),
        cluster_by=clustered or (),
        renamed=called,
        keep=kept,
        every=None if every is None else durations.parse(every),
        compact=compact,
    )


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """None if they are no names."""
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    return names if all(isinstance(each, str) and each for each in names) else None


@dataclass(frozen=True, eq=False)
class Lake(Sink):
    kind: ClassVar[str] = "lake"
    guarantee: ClassVar[Guarantee] = "exactly once"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "either"
    # A version a second would be too many: each has files of its own, and of keys, files that are written again.
    pace_ms: ClassVar[int | None] = 5_000

    table: str = field(kw_only=True)
    format: str = field(kw_only=True)
    partition_by: tuple[str, ...] = field(kw_only=True, default=())
    cluster_by: tuple[str, ...] = field(kw_only=True, default=())
    renamed: Mapping[str, str] = field(kw_only=True, default_factory=dict)
    keep: timedelta | None = field(kw_only=True, default=None)
    every: timedelta | None = field(kw_only=True, default=None)
    compact: bool = field(kw_only=True, default=True)

    @property
    def every_ms(self) -> int | None:
        return None if self.every is None else durations.milliseconds(self.every)

    def check(self, feed: Feed) -> None:
        from millrace.lakehouse.types import DIVIDING, UNORDERED

        for column in (*feed.key, *self.partition_by, *self.cluster_by, *self.renamed):
            if column not in feed.columns.names:
                hint, known = nearest(column, feed.columns.names), ", ".join(feed.columns.names)
                raise SinkKeyUnknown(sink=self.name, key=column, hint=hint, known=known, where=self.where)
        seen: set[str] = set()
        for each in feed.columns.fields:
            if any(character in each.name for character in _UNFIT):
                reason = "names of a lake's columns have no spaces and none of , ; { } ( ) ="
                raise self._unfit(each.name, reason, "give it another name")
            if each.name in self.renamed.values():
                raise self._unfit(each.name, "it is renamed, and still there", "leave it out of renamed")
            if each.name.lower() in (*seen, PART, DIFF, VERSION):
                raise self._unfit(each.name, "the name is taken, however it is spelt", "give it another name")
            seen.add(each.name.lower())
            if each.name in self.partition_by and not isinstance(each.dataType, DIVIDING):
                reason = f"files are not divided by a {each.dataType.simpleString()}"
                raise self._unfit(each.name, reason, "divide by a text, a whole number, a boolean or a date")
            if each.name in self.cluster_by and (feed.key or isinstance(each.dataType, UNORDERED)):
                reason = f"files have no order by a {each.dataType.simpleString()}"
                if feed.key:
                    reason = "a table with a key lies side by side by that"
                raise self._unfit(each.name, reason, "leave it out of cluster_by")
        self.stored(feed)

    def stored(self, feed: Feed) -> list[StructField]:
        """The columns as the table has them."""
        from pyspark.sql.types import LongType, StructField

        from millrace.lakehouse.types import stored

        found = []
        for each in feed.columns.fields:
            kind = stored(each.dataType, self.format)
            if kind is None:
                reason = f"{self.format} has no type for {each.dataType.simpleString()}"
                raise self._unfit(each.name, reason, "cast it to another type, a string say")
            found.append(StructField(each.name, kind, True))
        return [*found, StructField(VERSION, LongType(), True)] if feed.key else found

    def _unfit(self, column: str, reason: str, remedy: str) -> SinkColumnUnfit:
        return SinkColumnUnfit(sink=self.name, column=column, reason=reason, remedy=remedy, where=self.where)

    def servers(self, settings: Settings) -> tuple[str, ...]:
        return ("postgres",) if self.format == "iceberg" and settings.lake.catalog is None else ()

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        from millrace.sinks.lake_writer import LakeWriter

        return LakeWriter(self, settings, flow, feed, folder)

    def rebuilding(self, site: Site) -> Rebuilding:
        from millrace.sinks.lake_rebuild import LakeRebuilding

        return LakeRebuilding(self, site)
