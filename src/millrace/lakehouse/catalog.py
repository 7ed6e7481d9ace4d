"""The tables of a project's lake: where each of them is, and in which format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millrace import local
from millrace.config import Settings
from millrace.errors import ExtraMissing, LakeTableUnknown, Where, nearest
from millrace.lakehouse.table import LakeTable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as Known

EXTRA = "lake"
FORMATS = ("delta", "iceberg")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DATABASE = "millrace"
CONNECT_S = 5


class Catalog:
    """Of one project. What it gives is closed by whoever asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.folder = settings.lake_folder.resolve()

    def table(self, name: str, format: str) -> LakeTable:  # noqa: A002
        """A table, which need not be there yet."""
        with extra():
            if format == "delta":
                import deltalake  # noqa: F401 -- what is missing is told here
                import pyarrow  # noqa: F401

                from millrace.lakehouse.delta import Delta

                return Delta(name, self.folder / name)

            from millrace.lakehouse.iceberg import Iceberg

            return Iceberg(name, self.folder / name, self._known())

    def format(self, name: str) -> str | None:
        """None if there is no such table."""
        if not NAME.fullmatch(name):
            return None
        folder = self.folder / name
        if (folder / "_delta_log").is_dir():
            return "delta"
        return "iceberg" if (folder / "metadata").is_dir() else None

    def names(self) -> list[str]:
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(path.name for path in found if self.format(path.name) is not None)

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

    def _known(self) -> Known:
        from pyiceberg.catalog.sql import SqlCatalog

        from millrace.lakehouse.iceberg import told

        place = "postgresql+psycopg:" + self._url().partition(":")[2]
        joint = "&" if "?" in place else "?"
        with told("catalog"):
            return SqlCatalog(
                "millrace",
                uri=f"{place}{joint}connect_timeout={CONNECT_S}&application_name=millrace",
                warehouse=f"file://{self.folder}",
            )

    def _url(self) -> str:
        if self._settings.lake.catalog is not None:
            return self._settings.lake.catalog.reveal()
        return local.address(self._settings, "postgres").rpartition("/")[0] + f"/{DATABASE}"


@contextlib.contextmanager
def extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ExtraMissing(what="the lakehouse", reason=f"no module {error.name}", extra=EXTRA) from None
