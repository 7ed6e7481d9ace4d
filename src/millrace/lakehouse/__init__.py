"""Tables of the lakehouse, Delta Lake and Apache Iceberg: their files, their commits and what these say, their history,
and SQL over them by DuckDB. No session: `sinks/lake*.py` let Spark write the files that are committed here.
"""

from __future__ import annotations

from millrace.lakehouse.catalog import Catalog
from millrace.lakehouse.table import Committed, DataFile, LakeTable, Note, Version

__all__ = ["Catalog", "Committed", "DataFile", "LakeTable", "Note", "Version"]
