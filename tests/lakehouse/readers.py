"""What a format's own library reads of a version."""

from __future__ import annotations

from typing import Any

from millrace.lakehouse import LakeTable, Version


def by_library(table: LakeTable, version: Version | None = None) -> list[dict[str, Any]]:
    """By `deltalake` or `pyiceberg`."""
    own: Any = table
    if table.format == "delta":
        found: list[dict[str, Any]] = own._at(version).to_pyarrow_table().to_pylist()
    else:
        found = own._table.scan(snapshot_id=None if version is None else version.id).to_arrow().to_pylist()
    return found
