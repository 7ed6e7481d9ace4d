"""Apache Iceberg tables, by `pyiceberg`: known by a catalog in PostgreSQL, the ledger's entry in the summary of each
snapshot.

Files are as Spark wrote them, without numbers of columns; the table's name mapping says which is which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from millrace.errors import LakeCatalogUnreachable, LakeConflict
from millrace.lakehouse.place import Place
from millrace.lakehouse.table import NOTE, Committed, DataFile, LakeTable, Note, Version

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql.types import DataType, StructField, StructType

NAMESPACE = "millrace"
_MAPPING = "schema.name-mapping.default"
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
        self._catalog, self._known = catalog, (NAMESPACE, name)

    def load(self) -> bool:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            with told(self.name):
                self._table = self._catalog.load_table(self._known)
        except (NoSuchTableError, FileNotFoundError):  # the second where somebody removed its folder
            return False
        return True

    def create(self, columns: StructType, partition_by: Sequence[str], keep: timedelta | None = None) -> None:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        schema = _schema(columns)
        fields = [
            PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
            for number, name in enumerate(partition_by)
        ]
        with told(self.name):
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            with contextlib.suppress(NoSuchTableError):
                self._catalog.drop_table(self._known)
            self._table = self._catalog.create_table(
                self._known,
                schema,
                location=self.place.spark,
                partition_spec=PartitionSpec(*fields),
                properties={**_PROPERTIES, **_keeping(keep)},
            )
        self._map()

    def keeps(self, keep: timedelta | None) -> None:
        wanted = _keeping(keep)
        if not wanted.items() <= self._table.properties.items():
            with told(self.name), self._table.transaction() as transaction:
                transaction.set_properties(wanted)

    def _map(self) -> None:
        with told(self.name), self._table.transaction() as transaction:
            transaction.set_properties({_MAPPING: self._table.schema().name_mapping.model_dump_json()})

    @property
    def version(self) -> int:
        snapshot = self._table.current_snapshot()
        return 0 if snapshot is None or snapshot.sequence_number is None else snapshot.sequence_number

    def columns_of(self, version: Version | None) -> StructType:
        from pyspark.sql.types import StructField, StructType

        snapshot = None if version is None else self._table.snapshot_by_id(version.id)
        number = None if snapshot is None else snapshot.schema_id
        fields = (self._table.schema() if number is None else self._table.schemas()[number]).fields
        return StructType([StructField(each.name, _spark_type(each.field_type), True) for each in fields])

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._table.spec().fields)

    def add(self, fields: Iterable[StructField]) -> None:
        with told(self.name), self._table.update_schema() as update:
            for each in fields:
                update.add_column(each.name, _iceberg_type(each.dataType, _counted()))
        self._map()

    def grow(self, columns: StructType) -> None:
        from pyiceberg.types import PrimitiveType

        kinds = {each.name: each.dataType for each in self.columns.fields}
        with told(self.name), self._table.update_schema() as update:
            for each in columns.fields:
                if each.dataType != kinds[each.name]:
                    wider = _iceberg_type(each.dataType, _counted())
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
        found = self._table.scan(snapshot_id=None if version is None else version.id)
        return [task.file for task in found.plan_files()]

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
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        table, gone = self._table, set(what.gone)
        with told(self.name):
            transaction = table.transaction()
            if what.columns is not None:
                gone = {self._relative(entry.file_path) for entry in self._entries()}
                self._replace(transaction, what.columns)
            words = {} if what.note is None else {NOTE: what.note.text()}
            update = transaction.update_snapshot(snapshot_properties=words)
            metadata = transaction.table_metadata
            with update.overwrite() if gone else update.fast_append() as snapshot:
                for path in what.files:
                    made = parquet_file_to_data_file(table.io, metadata, self.place.location(path))
                    _without_ends_of_floats(made, metadata.schema())
                    snapshot.append_data_file(made)
                for entry in self._entries() if gone else ():
                    if self._relative(entry.file_path) in gone:
                        snapshot.delete_data_file(entry)
            transaction.commit_transaction()
        assert self.load()

    def _replace(self, transaction: Any, columns: StructType) -> None:
        """Further columns and wider ones, for files that all are new. Those that these no longer have stay: the files
        of older versions are known by their names."""
        known = {each.name: each.dataType for each in self.columns.fields}
        with transaction.update_schema() as update:
            for each in columns.fields:
                kind = _iceberg_type(each.dataType, _counted())
                if each.name not in known:
                    update.add_column(each.name, kind)
                elif known[each.name] != each.dataType:
                    update.update_column(each.name, kind)
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({_MAPPING: mapping})

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
        names: dict[int, str] = {}
        for schema in self._table.schemas().values():
            for each in schema.fields:
                if names.setdefault(each.field_id, each.name) != each.name:
                    return False  # somebody renamed it
        if len(set(names.values())) < len(names):
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
        with told(self.name):
            self._table.maintenance.expire_snapshots().older_than(oldest.at).commit()
        assert self.load()

    def tidy(self, oldest: Version) -> None:
        named = set()
        for snapshot in self._table.metadata.snapshots:
            named |= {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(self._table.io))}
        for each in self.place.files("metadata", ".avro"):
            old = datetime.fromtimestamp(each.modified_s, UTC) < oldest.at
            if old and self.place.location(each.path) not in named:
                self.place.remove(each.path)

    def close(self) -> None:
        engine = getattr(self._catalog, "engine", None)
        if engine is not None:
            engine.dispose()


def _keeping(keep: timedelta | None) -> dict[str, str]:
    """As other programs that clean up read it."""
    length_ms = _FOR_EVER_MS if keep is None else max(1, round(keep.total_seconds() * 1000))
    return {"history.expire.max-snapshot-age-ms": str(length_ms)}


@contextlib.contextmanager
def told(table: str) -> Iterator[None]:
    """Who was second, or found no catalog, is told so in our words: SQLAlchemy's have the statement and more."""
    from pyiceberg.exceptions import CommitFailedException, RESTError
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except CommitFailedException as error:
        raise LakeConflict(table=table, reason="somebody else committed first") from error
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or type(error).__name__).strip().splitlines()
        raise LakeCatalogUnreachable(reason=said[0][:300] if said else type(error).__name__) from None
    except (RESTError, RequestException) as error:  # of a catalog by REST; whether it committed, the next look tells
        said = str(error).strip().splitlines()
        raise LakeCatalogUnreachable(reason=said[0][:300] if said else type(error).__name__) from None


def _bounds(schema: Schema, bounds: dict[int, bytes] | None) -> Iterator[tuple[str, Any]]:
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import BinaryType, PrimitiveType, UUIDType

    for field in schema.fields:
        kind = field.field_type
        plain = isinstance(kind, PrimitiveType) and not isinstance(kind, BinaryType | UUIDType)
        if bounds and field.field_id in bounds and plain:
            yield field.name, from_bytes(kind, bounds[field.field_id])


def _without_ends_of_floats(file: Entry, schema: Schema) -> None:
    """What is not a number is above all numbers to those who ask, and not told in the file."""
    from pyiceberg.types import DoubleType, FloatType

    for field in schema.fields:
        if isinstance(field.field_type, FloatType | DoubleType) and file.upper_bounds:
            file.upper_bounds.pop(field.field_id, None)


def _counted() -> Iterator[int]:
    """Numbers for nested fields, which the catalog replaces by its own."""
    from itertools import count

    return count(10_000)


def _schema(columns: StructType) -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    numbers = _counted()
    fields = [
        NestedField(place, each.name, _iceberg_type(each.dataType, numbers), required=False)
        for place, each in enumerate(columns.fields, 1)
    ]
    return Schema(*fields)


def _iceberg_type(kind: DataType, numbers: Iterator[int]) -> Any:
    """Of a type as it is stored (`types.stored`)."""
    from pyiceberg import types as to
    from pyspark.sql import types as of

    simple: dict[type[DataType], Any] = {
        of.BinaryType: to.BinaryType,
        of.BooleanType: to.BooleanType,
        of.DateType: to.DateType,
        of.DoubleType: to.DoubleType,
        of.FloatType: to.FloatType,
        of.IntegerType: to.IntegerType,
        of.LongType: to.LongType,
        of.StringType: to.StringType,
        of.TimestampNTZType: to.TimestampType,
        of.TimestampType: to.TimestamptzType,
    }
    if type(kind) in simple:
        return simple[type(kind)]()
    if isinstance(kind, of.DecimalType):
        return to.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, of.ArrayType):
        return to.ListType(next(numbers), _iceberg_type(kind.elementType, numbers), element_required=False)
    if isinstance(kind, of.MapType):
        key, value = next(numbers), next(numbers)
        return to.MapType(
            key, _iceberg_type(kind.keyType, numbers), value, _iceberg_type(kind.valueType, numbers), False
        )
    assert isinstance(kind, of.StructType), kind
    fields = [
        to.NestedField(next(numbers), each.name, _iceberg_type(each.dataType, numbers), required=False)
        for each in kind.fields
    ]
    return to.StructType(*fields)


def _spark_type(kind: Any) -> DataType:
    from pyiceberg import types as of
    from pyspark.sql import types as to

    simple: dict[Any, DataType] = {
        of.BinaryType: to.BinaryType(),
        of.BooleanType: to.BooleanType(),
        of.DateType: to.DateType(),
        of.DoubleType: to.DoubleType(),
        of.FloatType: to.FloatType(),
        of.IntegerType: to.IntegerType(),
        of.LongType: to.LongType(),
        of.StringType: to.StringType(),
        of.TimestampType: to.TimestampNTZType(),
        of.TimestamptzType: to.TimestampType(),
    }
    if type(kind) in simple:
        return simple[type(kind)]
    if isinstance(kind, of.DecimalType):
        return to.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, of.ListType):
        return to.ArrayType(_spark_type(kind.element_type), True)
    if isinstance(kind, of.MapType):
        return to.MapType(_spark_type(kind.key_type), _spark_type(kind.value_type), True)
    assert isinstance(kind, of.StructType), kind
    return to.StructType([to.StructField(each.name, _spark_type(each.field_type), True) for each in kind.fields])
