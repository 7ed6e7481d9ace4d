"""SQL over the lake, by DuckDB with its extensions for both formats, which are wheels and loaded by path."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from millrace.config import Settings
from millrace.errors import ExtraMissing, LakeQueryInvalid, LakeQueryTooSlow
from millrace.lakehouse.bucket import Bucket
from millrace.lakehouse.catalog import EXTRA, Catalog, extra
from millrace.lakehouse.place import Place
from millrace.lakehouse.table import LakeTable, Version

_EXTENSIONS = {"delta_scan": ("delta",), "iceberg_scan": ("avro", "iceberg")}
# Of so many files at most DuckDB is given the names. Of more, its extensions choose by what the commits say of them.
MOST_NAMED = 256
_AT_ONCE = 8
# Nothing is fetched from anywhere.
_OPTIONS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
# That a query with a limit may take.
MEMORY = "1GiB"

# Gives the version that is meant of a table; None for the newest.
Choose = Callable[[LakeTable], Version | None]


@contextlib.contextmanager
def asked(
    settings: Settings, query: str, choose: Choose = lambda _: None, *, limit_s: float | None = None
) -> Iterator[Any]:
    """DuckDB's relation for a query in which the lake's tables are called by their names. With a limit it is for
    somebody who need not be the one whose files these are: no file outside the lake is read, and it ends in time."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        (parsed,) = sqlglot.parse(query, dialect="duckdb")
    except (SqlglotError, ValueError):
        raise LakeQueryInvalid(reason="it is not one statement of SQL", remedy="mend it") from None
    if not isinstance(parsed, exp.Query):
        raise LakeQueryInvalid(reason="it is no query", remedy="begin with SELECT or WITH: nothing is changed here")
    catalog, scans = Catalog(settings), {}
    for name in sorted(_named({table.name for table in parsed.find_all(exp.Table)}, catalog.names())):
        with catalog.opened(name) as table:
            scans[name] = words(table, choose(table))
    with connected(*scans.values(), place=catalog.place) as connection:
        for name, scan in scans.items():
            connection.execute(f'CREATE VIEW "{name}" AS SELECT * FROM {scan}')  # noqa: S608 -- our own words
        with _told(catalog), _confined(connection, catalog, limit_s):
            yield connection.sql(query)


def _named(asked_for: Collection[str], known: Collection[str]) -> set[str]:
    """Names mean the same to DuckDB however they are spelt, and so the one table that is called so."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in known:
        alike[name.lower()].append(name)
    found = ([name] if name in known else alike[name.lower()] for name in asked_for)
    return {names[0] for names in found if len(names) == 1}


def words(table: LakeTable, version: Version | None = None) -> str:
    """DuckDB's words for reading a version as quickly as can be: its files by their names, where these are the whole
    truth, otherwise by the format's extension."""
    files = table.files(version)
    # From a bucket, the end of each file would be a request of its own.
    if isinstance(table.place, Bucket) or not 0 < len(files) <= MOST_NAMED or not table.bare(version):
        return table.scan(version)
    from pyarrow import parquet

    paths, wanted = [table.folder / each.path for each in files], _kinds(table.arrow())
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # An older file may lack columns, or have narrower ones; one that is gone is told by the extension.
        alike = pool.map(lambda path: path.exists() and _kinds(parquet.read_schema(path)) == wanted, paths)
        if not all(alike):
            return table.scan(version)
    named = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    # A folder that is called NAME=VALUE is no column: what a table is divided by is in its files.
    return f"read_parquet([{named}], hive_partitioning = false)"


def _kinds(schema: Any) -> list[tuple[str, Any]]:
    return [(each.name, _kind(each.type)) for each in schema]


def _kind(kind: Any) -> Any:
    """A type of Arrow without what does not matter: how texts are kept, what the parts of lists are called, and what
    may be null."""
    from pyarrow import types as of

    if of.is_map(kind):
        return "map", _kind(kind.key_type), _kind(kind.item_type)
    if of.is_list(kind) or of.is_large_list(kind):
        return "list", _kind(kind.value_type)
    if of.is_struct(kind):
        return "struct", *((each.name, _kind(each.type)) for each in kind)
    if of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind):
        return "string"
    if of.is_binary(kind) or of.is_large_binary(kind) or of.is_binary_view(kind):
        return "binary"
    return str(kind).replace("+00:00", "UTC")


@contextlib.contextmanager
def _confined(connection: Any, catalog: Catalog, limit_s: float | None) -> Iterator[None]:
    if limit_s is None:
        yield
        return
    import duckdb

    place, bucket = catalog.place.url.replace("'", "''"), isinstance(catalog.place, Bucket)
    for setting in (
        f"allowed_directories = ['{place}/'" + ("]" if bucket else f", 'file://{place}/']"),
        f"memory_limit = '{MEMORY}'",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")
    ending = threading.Timer(limit_s, connection.interrupt)
    ending.start()
    try:
        yield
    except duckdb.InterruptException:
        raise LakeQueryTooSlow(seconds=limit_s) from None
    finally:
        ending.cancel()


@contextlib.contextmanager
def connected(*scans: str, place: Place | None = None) -> Iterator[Any]:
    """A DuckDB of its own, which knows what these words need (`words`); without any, both formats. `place` is where the
    tables are, if that is not a disk."""
    with extra():
        import duckdb
    with contextlib.closing(duckdb.connect(config=dict(_OPTIONS))) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if isinstance(place, Bucket):
            connection.load_extension(str(_path("httpfs")))
            connection.execute(place.store.duckdb())
        for function, names in _EXTENSIONS.items():
            if not scans or any(each.startswith(f"{function}(") for each in scans):
                for name in names:
                    connection.load_extension(str(_path(name)))
        yield connection


def _path(extension: str) -> Path:
    module = f"duckdb_extension_{extension}"
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in Path(folder).rglob(f"{extension}.duckdb_extension"):
            return path
    raise ExtraMissing(what="the lakehouse", reason=f"no module {module}", extra=EXTRA)


@contextlib.contextmanager
def _told(catalog: Catalog) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        known = ", ".join(catalog.names()) or "none yet"
        raise LakeQueryInvalid(reason=lines[0][:500], remedy=f"mend it; the lake's tables are {known}") from None
