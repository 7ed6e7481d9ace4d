"""The tables of a project's lake: where each of them is, and in which format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from millrace import local
from millrace.config import Settings
from millrace.errors import ExtraMissing, LakeTableUncatalogued, LakeTableUnknown, MillraceError, Where, nearest
from millrace.lakehouse.bucket import Bucket, Store
from millrace.lakehouse.place import Disk, Place
from millrace.lakehouse.table import LakeTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as Known

EXTRA = "lake"
FORMATS = ("delta", "iceberg")
# By which folder of a table its format is known.
MARKS = {"delta": "_delta_log", "iceberg": "metadata"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DATABASE = "millrace"
CONNECT_S = 5
T = TypeVar("T")


@dataclass(frozen=True)
class Unseen:
    """A table that cannot be looked at, and why."""

    name: str
    format: str | None
    reason: str


class Catalog:
    """Of one project. What it gives is closed by whoever asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.place = _place(settings)

    @property
    def folder(self) -> Path:
        """Of a lake on a disk."""
        assert isinstance(self.place, Disk)
        return self.place.folder

    def table(self, name: str, format: str) -> LakeTable:  # noqa: A002
        """A table, which need not be there yet."""
        with extra():
            if format == "delta":
                import deltalake  # noqa: F401 -- what is missing is told here
                import pyarrow  # noqa: F401

                from millrace.lakehouse.delta import Delta

                return Delta(name, self.place.below(name))

            from millrace.lakehouse.iceberg import Iceberg

            return Iceberg(name, self.place.below(name), self._known())

    def format(self, name: str) -> str | None:
        """None if there is no such table."""
        if not NAME.fullmatch(name):
            return None
        return next((format_ for format_, folder in MARKS.items() if self.place.has_folder(f"{name}/{folder}")), None)

    def names(self) -> list[str]:
        with extra():
            return [name for name in self.place.names() if self.format(name) is not None]

    @contextlib.contextmanager
    def opened(self, name: str, where: Where | None = None) -> Iterator[LakeTable]:
        """One that is there, loaded; `where` is who asks."""
        table = None if (format_ := self.format(name)) is None else self.table(name, format_)
        if table is None:
            raise LakeTableUnknown(table=name, hint=nearest(name, self.names()), where=where)
        try:
            if not table.load():
                raise LakeTableUnknown(table=name, hint=nearest(name, self.names()), where=where)
            yield table
        finally:
            table.close()

    def looked(self, look: Callable[[LakeTable], T]) -> Iterator[T | Unseen]:
        """What is found in each table; of one that cannot be looked at, why: the others can be."""
        for name in self.names():
            try:
                with self.opened(name) as table:
                    found: T | Unseen = look(table)
            except LakeTableUnknown:
                found = Unseen(name, self.format(name), LakeTableUncatalogued(table=name).sentence())
            except MillraceError as error:
                found = Unseen(name, self.format(name), error.sentence())
            except Exception as error:  # of libraries too: a log that nobody can read
                lines = str(error).strip().splitlines() or [type(error).__name__]
                found = Unseen(name, self.format(name), lines[0][:300])
            yield found

    def _known(self) -> Known:
        from millrace.lakehouse.iceberg_told import told

        url, properties = self._url(), {"warehouse": self.place.spark}
        if isinstance(self.place, Bucket):
            properties |= self.place.store.iceberg
        secret = self._settings.lake.token
        token = None if secret is None else secret.reveal()
        with told("catalog", token):
            if url.startswith(("http:", "https:")):
                from pyiceberg.catalog.rest import RestCatalog

                # Without either it would send "Bearer None".
                known: dict[str, Any] = {"token": token} if token else {"auth": {"type": "noop"}}
                return RestCatalog("millrace", uri=url, **properties, **known)
            from pyiceberg.catalog.sql import SqlCatalog

            place = "postgresql+psycopg:" + url.partition(":")[2]
            joint = "&" if "?" in place else "?"
            place += f"{joint}connect_timeout={CONNECT_S}&application_name=millrace"
            return SqlCatalog("millrace", uri=place, **properties)

    def _url(self) -> str:
        if self._settings.lake.catalog is not None:
            return self._settings.lake.catalog.reveal()
        return local.address(self._settings, "postgres").rpartition("/")[0] + f"/{DATABASE}"


def _place(settings: Settings) -> Place:
    lake = settings.lake
    if lake.bucket is None:
        return Disk(settings.lake_folder.resolve())
    return Bucket(lake.bucket, Store(lake.endpoint, lake.region, lake.part_mb))


@contextlib.contextmanager
def extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "millrace":  # our own fault, which no package mends
            raise
        # Libraries that miss one of theirs often say so in words alone.
        reason = f"no module {error.name}" if error.name else str(error) or type(error).__name__
        raise ExtraMissing(what="the lakehouse", reason=reason, extra=EXTRA) from None
