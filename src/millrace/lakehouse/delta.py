"""Delta Lake tables, by `deltalake`. The ledger's entry of an epoch is a `txn` action, which outlives the log's
clean-up, and beside it words of the commit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.errors import LakeConflict
from millrace.lakehouse.bucket import Bucket
from millrace.lakehouse.footers import Footer, only_value, text_bounds
from millrace.lakehouse.place import Seen
from millrace.lakehouse.table import KEY, NOTE, Committed, DataFile, LakeTable, Note, Version

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructField, StructType

LOG = "_delta_log"
_APP = "millrace"
# The note is nearly always in the last commit; who comes in between is few.
_LOOKS = (1, 16, None)
_FOR_EVER_S = 100 * 365 * 24 * 3600
# What a reader of bare files need not know.
_HARMLESS = {"timestampNtz"}


class Delta(LakeTable):
    format: ClassVar[str] = "delta"
    grows: ClassVar[bool] = False

    _table: DeltaTable
    _commit: Seen | None = None
    # What was found in the log up to that commit.
    _noted: tuple[Seen, Note | None] | None = None

    def load(self) -> bool:
        from deltalake import DeltaTable

        if self._commit is not None and self._commit == self._last_commit():
            self._follow()  # what is known is still there: only what came since is read
        elif self.place.has_folder(LOG) and DeltaTable.is_deltatable(self.place.url, self._options):
            self._table = DeltaTable(self.place.url, storage_options=self._options)
            self._commit = self._last_commit()
        else:
            self._commit = None
            return False
        return True

    def _follow(self) -> None:
        self._table.update_incremental()
        self._commit = self._last_commit()

    def _last_commit(self) -> Seen | None:
        """That of the version that is loaded, as it lies there: of a table that was made anew it is another one."""
        return self.place.seen(f"{LOG}/{self.version:020}.json")

    @property
    def _options(self) -> dict[str, str] | None:
        return self.place.store.delta if isinstance(self.place, Bucket) else None

    def create(
        self,
        columns: StructType,
        partition_by: Sequence[str],
        keep: timedelta | None = None,
        *,
        key: Sequence[str] = (),
        anew: bool = False,  # noqa: ARG002 -- no catalog knows it
    ) -> None:
        from deltalake import DeltaTable, Schema

        self._table = DeltaTable.create(
            self.place.url,
            Schema.from_json(columns.json()),
            mode="error",
            storage_options=self._options,
            partition_by=list(partition_by),
            name=self.name,
            configuration={**_keeping(keep), **({KEY: ",".join(key)} if key else {})},
            raise_if_key_not_exists=False,
        )

    def keeps(
        self, keep: timedelta | None, cluster_by: Sequence[str] | None = None, key: Sequence[str] | None = None
    ) -> None:
        wanted = {**_keeping(keep), **self._unsaid(cluster_by, key)}
        if not wanted.items() <= self._words().items():
            self._say(wanted)

    def _say(self, words: Mapping[str, str]) -> None:
        self._table.alter.set_table_properties(dict(words), raise_if_not_exists=False)
        self._follow()

    def _words(self) -> Mapping[str, str]:
        return dict(self._table.metadata().configuration)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def columns_of(self, version: Version | None) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._at(version).schema().to_json()))

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    def add(self, fields: Iterable[StructField]) -> None:
        from deltalake import Field

        self._table.alter.add_columns([Field.from_json(each.json()) for each in fields])
        self._follow()

    def grow(self, columns: StructType) -> None:
        raise NotImplementedError  # `commit` with columns

    def files(self, version: Version | None = None) -> list[DataFile]:
        import pyarrow

        found = pyarrow.table(self._at(version).get_add_actions(flatten=True)).to_pylist()
        return [
            DataFile(
                row["path"],
                row["size_bytes"],
                row["num_records"] or 0,
                {name[4:]: value for name, value in row.items() if name.startswith("min.") and value is not None},
                {name[4:]: value for name, value in row.items() if name.startswith("max.") and value is not None},
            )
            for row in found
        ]

    def note(self) -> Note | None:
        if self._noted is not None and self._noted[0] == self._commit:
            return self._noted[1]
        note = self._last_note()
        self._noted = None if self._commit is None else (self._commit, note)
        return note

    def _last_note(self) -> Note | None:
        for limit in _LOOKS:
            for commit in self._table.history(limit):
                if (note := Note.of(commit.get(NOTE))) is not None:
                    return note
        # The log before was cleaned up: its number is known, and what was read for it is not.
        number = self._table.transaction_version(_APP)
        return None if number is None else Note("", number, "", "")

    def commit(self, what: Committed) -> None:
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction, Transaction

        now, divided, columns = _now_ms(), self.partition_by, what.columns or self.columns
        with self.place.settling(what.files):
            added = [
                AddAction(
                    each.path,
                    each.size_bytes,
                    {name: _partition_text(only_value(self.place, each, name)) for name in divided},
                    each.modified_ms,
                    not what.same,
                    _statistics(each),
                )
                for each in self.footers(what.files)
            ]
        self._ends.clear()
        values = self._partition_values() if divided else {}
        removed = [RemoveAction(path, not what.same, now, None, values.get(path, {})) for path in what.gone]
        properties = CommitProperties(
            custom_metadata={} if what.note is None else {NOTE: what.note.text()},
            max_commit_retries=0,
            app_transactions=[] if what.note is None else [Transaction(_APP, what.note.epoch, now)],
        )
        try:
            self._table.create_write_transaction(
                [*added, *([] if what.columns is not None else removed)],
                "append" if what.columns is None else "overwrite",
                Schema.from_json(columns.json()),
                list(divided),
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise LakeConflict(table=self.name, reason="somebody else committed first") from error
        follows = self.version + 1
        self._follow()
        if what.note is not None and self.version == follows and self._commit is not None:
            self._noted = self._commit, what.note

    def _partition_values(self) -> dict[str, dict[str, str | None]]:
        import pyarrow

        rows = pyarrow.table(self._table.get_add_actions(flatten=True)).to_pylist()
        names = self.partition_by
        return {row["path"]: {name: _partition_text(row[f"partition.{name}"]) for name in names} for row in rows}

    def versions(self) -> list[Version]:
        found = [
            Version(
                each["version"],
                each["version"],
                datetime.fromtimestamp(each["timestamp"] / 1000, UTC),
                str(each.get("operation", "")).lower(),
                Note.of(each.get(NOTE)),
            )
            for each in self._table.history()
        ]
        return sorted(found, key=lambda version: version.number)

    def scan(self, version: Version | None = None) -> str:
        at = "" if version is None else f", version={version.number}"
        return f"delta_scan({_quoted(self.place.url)}{at})"

    def bare(self, version: Version | None = None) -> bool:
        return self.plain(version) and not self.partition_by

    def plain(self, version: Version | None = None) -> bool:
        told = self._at(version).protocol()
        further = set(told.reader_features or ()) - _HARMLESS
        # By 2 columns may be called otherwise; by 3, whatever the features say.
        return told.min_reader_version != 2 and not further

    @property
    def emptied(self) -> tuple[str, ...]:
        from pyspark.sql.types import StringType

        return tuple(name for name in self.partition_by if isinstance(self.columns[name].dataType, StringType))

    def whole(self, version: Version) -> bool:
        return self.place.has_all(each.path for each in self.files(version))

    def _at(self, version: Version | None) -> DeltaTable:
        from deltalake import DeltaTable

        return self._table if version is None else DeltaTable(self.place.url, version.number, self._options)

    def arrow(self) -> Any:
        import pyarrow

        return pyarrow.schema(self._table.schema().to_arrow())

    def drop(self, oldest: Version) -> None:
        """Not by `cleanup_metadata`, which goes by when a version came: it would take one that was just replaced."""
        numbers = {name: name.partition(".")[0] for name in self.place.names(LOG)}
        old = [name for name, number in numbers.items() if number.isdecimal() and int(number) < oldest.number]
        if not old:
            return
        # What is left begins with a whole state; readers of the newest begin with that.
        self._at(oldest).create_checkpoint()
        self._table.create_checkpoint()
        for name in old:
            self.place.remove(f"{LOG}/{name}")


def _keeping(keep: timedelta | None) -> dict[str, str]:
    """By default the log would be cleaned after 30 days, and files be anybody's to remove after 7. What goes by itself
    goes by `drop`."""
    length = f"interval {_FOR_EVER_S if keep is None else max(1, math.ceil(keep.total_seconds()))} seconds"
    return {
        "delta.logRetentionDuration": length,
        "delta.deletedFileRetentionDuration": length,
        "delta.enableExpiredLogCleanup": "false",
    }


def _statistics(footer: Footer) -> str:
    low, high = dict(footer.low), dict(footer.high)
    for name, value in footer.low.items():
        if isinstance(value, str):
            low[name], end = text_bounds(value, footer.high[name])
            if end is None:
                del high[name]
            else:
                high[name] = end
    parts = {"minValues": _object(low), "maxValues": _object(high), "nullCount": json.dumps(footer.nulls)}
    return "{" + ", ".join([f'"numRecords": {footer.rows}', *(f'"{key}": {part}' for key, part in parts.items())]) + "}"


def _object(values: dict[str, Any]) -> str:
    """As JSON. Decimals are numbers with all their digits, which `json` has no way to write; infinity it has none."""
    known = {
        name: value
        for name, value in values.items()
        if not isinstance(value, bool) and not (isinstance(value, float) and not math.isfinite(value))
    }
    return "{" + ", ".join(f"{json.dumps(name)}: {_plain(value)}" for name, value in known.items()) + "}"


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        value = value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    elif isinstance(value, date):
        value = value.isoformat()
    return json.dumps(value)


def _partition_text(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(url: str) -> str:
    return "'" + url.replace("'", "''") + "'"


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
