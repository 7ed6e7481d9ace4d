"""Apache Iceberg tables, by `pyiceberg`: known by a catalog in PostgreSQL, the ledger's entry in the summary of each
snapshot.

Files are as Spark wrote them, without numbers of columns; the table's name mapping says which is which.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.errors import (
    LakeConflict,
    LakeTableAway,
    LakeTableElsewhere,
)
from millrace.lakehouse.footers import Footer, only_value
from millrace.lakehouse.iceberg_told import lost_at, told
from millrace.lakehouse.iceberg_types import counted, iceberg_type, schema_of, spark_type
from millrace.lakehouse.place import Place
from millrace.lakehouse.table import KEY, NOTE, Committed, DataFile, LakeTable, Note, Version

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql.types import StructField, StructType

NAMESPACE = "millrace"
_AT_ONCE = 8
_MAPPING = "schema.name-mapping.default"
# How a table calls what its columns were called before, by their numbers.
_FORMER = "millrace.renamed"
_PROPERTIES = {
    "format-version": "2",
    # Who is second is told so, and looks at what the first one wrote.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


_FOR_EVER_MS = 100 * 365 * 24 * 3600 * 1000


class Iceberg(LakeTable):
    format: ClassVar[str] = "iceberg"
    grows: ClassVar[bool] = True

    _table: Table

    def __init__(self, name: str, place: Place, catalog: Catalog) -> None:
        super().__init__(name, place)
        _share_versions()
        self._catalog, self._known = catalog, (NAMESPACE, name)
        # By manifest of the version that was listed last.
        self._listed: dict[str, list[Entry]] = {}

    def _told(self) -> AbstractContextManager[None]:
        return told(self.name, self._catalog.properties.get("token"))

    def load(self) -> bool:
        from pyiceberg.exceptions import NoSuchTableError, RESTError

        with self._told():
            if self._is_newest():
                return True
            try:
                found = self._catalog.load_table(self._known)
            except NoSuchTableError:
                return False
            except FileNotFoundError:
                # A disk that is not mounted looks like this too, and a project that shares the catalog: it may be live.
                self._refuse_elsewhere(self._recorded() or self.place.spark)
                raise LakeTableAway(table=self.name, reason=f"nothing is at {self.place.url}") from None
            except RESTError as error:
                if (lost := lost_at(error)) is None:
                    raise
                self._refuse_elsewhere(lost)
                raise LakeTableAway(table=self.name, reason=f"nothing is at {self.place.url}") from None
        self._refuse_elsewhere(found.location())
        self._table = found
        return True

    def _is_newest(self) -> bool:
        """Whether the catalog names the metadata that are loaded, and they are there: each commit has its own file."""
        location = self._table.metadata_location if hasattr(self, "_table") else None
        return location is not None and location == self._recorded() and self._seen(location)

    def _seen(self, location: str) -> bool:
        return self.place.seen(self._relative(location)) is not None

    def create(
        self,
        columns: StructType,
        partition_by: Sequence[str],
        keep: timedelta | None = None,
        *,
        key: Sequence[str] = (),
        anew: bool = False,
    ) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        schema = schema_of(columns)
        fields = [
            PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
            for number, name in enumerate(partition_by)
        ]
        with self._told():
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            if anew:
                self._forget()
            elif (recorded := self._recorded()) is not None:
                self._refuse_elsewhere(recorded)
                raise LakeTableAway(table=self.name, reason=f"nothing is at {self.place.url}")
            try:
                self._table = self._catalog.create_table(
                    self._known,
                    schema,
                    location=self.place.spark,
                    partition_spec=PartitionSpec(*fields),
                    properties={**_PROPERTIES, **_keeping(keep), **({KEY: ",".join(key)} if key else {})},
                )
            except TableAlreadyExistsError:
                reason = "somebody else has just made it, or its files are gone"
                raise LakeTableAway(table=self.name, reason=reason) from None
        self._map()

    def _forget(self) -> None:
        """Lets the catalog forget a table of ours whose files are gone."""
        recorded = self._recorded() or self._missed()
        if recorded is None:
            return
        self._refuse_elsewhere(recorded)
        if self._seen(recorded):
            raise LakeConflict(table=self.name, reason="its files are there again")
        self._catalog.drop_table(self._known)

    def _recorded(self) -> str | None:
        """Where the catalog says that the table's metadata are, whether or not they can be read; None if it says
        nothing."""
        from sqlalchemy import text

        engine = getattr(self._catalog, "engine", None)
        if engine is None:
            return None
        asked = text(
            "SELECT metadata_location FROM iceberg_tables "
            "WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
        )
        named = {"catalog": self._catalog.name, "namespace": NAMESPACE, "name": self.name}
        with engine.connect() as connection:
            return next((str(row[0]) for row in connection.execute(asked, named)), None)

    def _missed(self) -> str | None:
        """By REST: where a catalog looked for the table's metadata in vain, if it says so."""
        from pyiceberg.exceptions import NoSuchTableError, RESTError

        try:
            self._catalog.load_table(self._known)
        except (NoSuchTableError, RESTError) as error:
            return lost_at(error)
        return None

    def _refuse_elsewhere(self, location: str) -> None:
        """Another project's table of the same name: to write there, or to take it from the catalog, would harm both."""
        location = location.rpartition("/metadata/")[0] or location
        if _bare(location) != _bare(self.place.spark):
            raise LakeTableElsewhere(table=self.name, there=location, here=self.place.url)

    def keeps(
        self, keep: timedelta | None, cluster_by: Sequence[str] | None = None, key: Sequence[str] | None = None
    ) -> None:
        wanted = {**_keeping(keep), **self._unsaid(cluster_by, key)}
        if not wanted.items() <= self._table.properties.items():
            self._say(wanted)

    def _say(self, words: Mapping[str, str]) -> None:
        with self._told(), self._table.transaction() as transaction:
            transaction.set_properties(dict(words))

    def _words(self) -> Mapping[str, str]:
        return dict(self._table.properties)

    def _map(self) -> None:
        self._say({_MAPPING: _mapping(self._table.schema(), self._former())})

    @property
    def version(self) -> int:
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None or snapshot.sequence_number is None else snapshot.sequence_number

    def columns_of(self, version: Version | None) -> StructType:
        from pyspark.sql.types import StructField, StructType

        snapshot = None if version is None else self._table.snapshot_by_id(version.id)
        number = None if snapshot is None else snapshot.schema_id
        fields = (self._table.schema() if number is None else self._table.schemas()[number]).fields
        return StructType([StructField(each.name, spark_type(each.field_type), True) for each in fields])

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._table.spec().fields)

    def add(self, fields: Iterable[StructField]) -> None:
        with self._told(), self._table.update_schema() as update:
            for each in fields:
                update.add_column(each.name, iceberg_type(each.dataType, counted()))
        self._map()

    def grow(self, columns: StructType) -> None:
        from pyiceberg.types import PrimitiveType

        kinds = {each.name: each.dataType for each in self.columns.fields}
        with self._told(), self._table.update_schema() as update:
            for each in columns.fields:
                if each.dataType != kinds[each.name]:
                    wider = iceberg_type(each.dataType, counted())
                    assert isinstance(wider, PrimitiveType)
                    update.update_column(each.name, wider)

    def files(self, version: Version | None = None) -> list[DataFile]:
        schema = self._table.schema()
        return [
            DataFile(
                self._relative(entry.file_path),
                entry.file_size_in_bytes,
                entry.record_count,
                dict(_bounds(schema, entry.lower_bounds)),
                dict(_bounds(schema, entry.upper_bounds)),
            )
            for entry in self._entries(version)
        ]

    def _entries(self, version: Version | None = None) -> list[Entry]:
        """By manifest, each of which never changes: an epoch adds one, and the others need not be read again."""
        from pyiceberg.manifest import ManifestContent

        snapshot = self._snapshot(version)
        told = [] if snapshot is None else snapshot.manifests(self._table.io)
        if any(each.content != ManifestContent.DATA for each in told):  # somebody else marked rows as gone
            found_by = self._table.scan(snapshot_id=None if version is None else version.id)
            return [task.file for task in found_by.plan_files()]
        manifests = {each.manifest_path: each for each in told}
        unread = [path for path in manifests if path not in self._listed]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            read = pool.map(lambda path: manifests[path].fetch_manifest_entry(self._table.io), unread)
            found = {path: self._listed[path] for path in manifests if path in self._listed}
            found |= {path: [each.data_file for each in entries] for path, entries in zip(unread, read, strict=True)}
        if version is None:
            self._listed = found
        return [entry for path in manifests for entry in found[path]]

    def _relative(self, location: str) -> str:
        return self.place.relative(location)

    def note(self) -> Note | None:
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            if snapshot.summary is not None and (note := Note.of(snapshot.summary.get(NOTE))) is not None:
                return note
            above = snapshot.parent_snapshot_id
            snapshot = None if above is None else self._table.snapshot_by_id(above)
        return None

    def commit(self, what: Committed) -> None:
        table, gone = self._table, set(what.gone)
        with self._told():
            transaction = table.transaction()
            if what.columns is not None:
                gone = {self._relative(entry.file_path) for entry in self._entries()}
                self._replace(transaction, what.columns, what.renamed)
            words = {} if what.note is None else {NOTE: what.note.text()}
            update = transaction.update_snapshot(snapshot_properties=words)
            metadata = transaction.table_metadata
            settling = self.place.settling(what.files)
            with settling, update.overwrite() if gone else update.fast_append() as snapshot:
                for each in self.footers(what.files):
                    snapshot.append_data_file(_data_file(self.place, metadata, each))
                self._ends.clear()
                for entry in self._entries() if gone else ():
                    if self._relative(entry.file_path) in gone:
                        snapshot.delete_data_file(entry)
            transaction.commit_transaction()  # which leaves the table as it is then

    def _replace(self, transaction: Any, columns: StructType, renamed: Mapping[str, str]) -> None:
        """Further columns, wider ones, and other names, for files that all are new. Columns that these no longer have
        stay: the files of older versions are known by their names."""
        known = {each.name: each.dataType for each in self.columns.fields}
        schema, former = self._table.schema(), self._former()
        with transaction.update_schema() as update:
            for each in columns.fields:
                name, kind = renamed.get(each.name, each.name), iceberg_type(each.dataType, counted())
                if name not in known:
                    update.add_column(each.name, kind)
                elif known[name] != each.dataType:
                    update.update_column(name, kind)
            for new, old in renamed.items():
                update.rename_column(old, new)
                number = schema.find_field(old).field_id
                former[number] = sorted({*former.get(number, ()), old} - {new})
        words = {} if not former else {_FORMER: json.dumps(former)}
        transaction.set_properties({**words, _MAPPING: _mapping(transaction.table_metadata.schema(), former)})

    def _former(self) -> dict[int, list[str]]:
        """By number, how columns were called before: files of versions from then have these names."""
        said = json.loads(self._table.properties.get(_FORMER, "{}"))
        return {int(number): names for number, names in said.items()}

    @property
    def former(self) -> frozenset[str]:
        return frozenset(name for names in self._former().values() for name in names)

    def versions(self) -> list[Version]:
        found = []
        for each in self._table.metadata.snapshots:
            summary = each.summary
            operation = "" if summary is None else summary.operation.value
            note = None if summary is None else Note.of(summary.get(NOTE))
            at = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
            found.append(Version(each.sequence_number or 0, each.snapshot_id, at, operation, note))
        return sorted(found, key=lambda version: version.number)

    def scan(self, version: Version | None = None) -> str:
        at = "" if version is None else f", snapshot_from_id={version.id}"
        location = self._table.metadata_location.replace("'", "''")
        return f"iceberg_scan('{location}'{at})"

    def bare(self, version: Version | None = None) -> bool:
        snapshot = self._snapshot(version)
        if snapshot is None or not self.plain(version):
            return False
        return snapshot.schema_id in (None, self._table.schema().schema_id)

    def plain(self, version: Version | None = None) -> bool:
        names: dict[int, set[str]] = defaultdict(set)
        for schema in self._table.schemas().values():
            for each in schema.fields:
                names[each.field_id].add(each.name)
        former = self._former()
        for number, called in names.items():
            # Where we renamed a column, all files were written again: each version's have the names of its schema.
            if len(called) > 1 and called - {self._table.schema().find_column_name(number), *former.get(number, ())}:
                return False  # somebody else renamed it
        if len(set().union(*names.values())) < sum(map(len, names.values())):
            return False
        snapshot = self._snapshot(version)
        return snapshot is None or not int((snapshot.summary or {}).get("total-delete-files", "0") or 0)

    def _snapshot(self, version: Version | None) -> Snapshot | None:
        return self._table.current_snapshot() if version is None else self._table.snapshot_by_id(version.id)

    def whole(self, version: Version) -> bool:
        return self._table.snapshot_by_id(version.id) is not None

    def arrow(self) -> Any:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def drop(self, oldest: Version) -> None:
        with self._told():
            self._table.maintenance.expire_snapshots().older_than(oldest.at).commit()
        assert self.load()

    def tidy(self, oldest: Version) -> None:
        """What commits that failed left, too: their lists, and what would have been the table's metadata."""
        with self._told():
            named = {self._table.metadata_location, self._recorded() or ""}
        named |= {each.metadata_file for each in self._table.metadata.metadata_log}
        for snapshot in self._table.metadata.snapshots:
            named |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(self._table.io))}
        # Each has a number of its own in its name, however the place before it is spelt.
        names = {each.rpartition("/")[2] for each in named}
        for each in (*self.place.files("metadata", ".avro"), *self.place.files("metadata", ".metadata.json")):
            old = datetime.fromtimestamp(each.modified_s, UTC) < oldest.at
            if old and each.path.rpartition("/")[2] not in names:
                self.place.remove(each.path)

    def close(self) -> None:
        engine = getattr(self._catalog, "engine", None)
        if engine is not None:
            engine.dispose()


def _share_versions() -> None:
    """`pyiceberg` 0.12 copies what it knows of a table some fifteen times a commit (`Transaction.table_metadata`), down
    to every part of every older version: 0.8 ms for each of these. They are never changed, so copies have the same."""
    from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

    for kind in (Snapshot, SnapshotLogEntry):
        kind.__deepcopy__ = lambda self, memo=None: self  # noqa: ARG005


def _mapping(schema: Schema, former: Mapping[int, Sequence[str]]) -> str:
    """Which column of a file is which: by the names of now, and those of before."""
    fields = json.loads(schema.name_mapping.model_dump_json())
    for each in fields:
        each["names"] = [*each["names"], *former.get(each["field-id"], ())]
    return json.dumps(fields)


def _bare(location: str) -> str:
    """Without what some write and some do not."""
    return re.sub("/+", "/", location.removeprefix("file:").rstrip("/"))


def _keeping(keep: timedelta | None) -> dict[str, str]:
    """As other programs that clean up read it."""
    length_ms = _FOR_EVER_MS if keep is None else max(1, round(keep.total_seconds() * 1000))
    return {"history.expire.max-snapshot-age-ms": str(length_ms)}


def _bounds(schema: Schema, bounds: dict[int, bytes] | None) -> Iterator[tuple[str, Any]]:
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import BinaryType, PrimitiveType, UUIDType

    for field in schema.fields:
        kind = field.field_type
        plain = isinstance(kind, PrimitiveType) and not isinstance(kind, BinaryType | UUIDType)
        if bounds and field.field_id in bounds and plain:
            yield field.name, from_bytes(kind, bounds[field.field_id])


def _data_file(place: Place, metadata: TableMetadata, footer: Footer) -> Entry:
    """What a commit says of a file: `parquet_file_to_data_file` would read its end once more, and takes a value that is
    too long to be told there for none."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    schema, spec = metadata.schema(), metadata.spec()
    told = _statistics(schema, metadata.properties, footer)
    values = told.partition(spec, schema)
    for number, field in enumerate(spec.fields):
        if values[number] is None:
            values[number] = only_value(place, footer, field.name)
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=place.location(footer.path),
        file_format=FileFormat.PARQUET,
        partition=values,
        file_size_in_bytes=footer.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **told.to_serialized_dict(),
    )
    _without_ends_of_floats(made, schema)
    return made


def _statistics(schema: Schema, properties: Mapping[str, str], footer: Footer) -> DataFileStatistics:
    from pyiceberg.io import pyarrow as reading
    from pyiceberg.types import DateType, TimestampType, TimestamptzType

    plan = reading.compute_statistics_plan(schema, dict(properties))
    columns = reading.parquet_path_to_id_mapping(schema)
    try:
        return reading.data_file_statistics_from_parquet_metadata(footer.whole, plan, columns)
    except (OverflowError, ValueError):  # days and moments that Python does not know: of these, how many there are
        counts, times = reading.match_metrics_mode("counts"), DateType | TimestampType | TimestamptzType
        for number, each in plan.items():
            if isinstance(each.iceberg_type, times) and each.column_name not in footer.low:
                plan[number] = replace(each, mode=counts)
        return reading.data_file_statistics_from_parquet_metadata(footer.whole, plan, columns)


def _without_ends_of_floats(file: Entry, schema: Schema) -> None:
    """What is not a number is above all numbers to those who ask, and not told in the file."""
    from pyiceberg.types import DoubleType, FloatType

    for field in schema.fields:
        if isinstance(field.field_type, FloatType | DoubleType) and file.upper_bounds:
            file.upper_bounds.pop(field.field_id, None)
