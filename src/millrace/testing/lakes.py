"""Tables of the lake in a play: real ones, in the play's own folder."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.config import Settings
from millrace.errors import Where
from millrace.flow import LakeInput
from millrace.flow import schema as schemas
from millrace.lakehouse import Catalog, Committed
from millrace.log.record import json_bytes
from millrace.sinks.lake_files import fill
from millrace.testing import fed
from millrace.testing.tables import Rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def put(lake: LakeInput, schema: str, rows: Rows, spark: SparkSession, settings: Settings, where: Where) -> None:
    """Makes the table's next version, which holds these rows and no others."""
    kinds = schemas.columns(lake.name, schema, where)
    texts = [(json_bytes(row).decode(),) for row in fed.rows(lake.name, kinds, rows, where)]
    parsed = F.from_json("value", schema, {"mode": "FAILFAST"})
    frame = spark.createDataFrame(texts, "value string").select(parsed.alias("row")).select("row.*")
    with contextlib.closing(Catalog(settings).table(lake.table, "delta")) as table:
        columns: StructType = frame.schema
        if not table.load():
            table.create(columns, ())
        gone = [each.path for each in table.files()]
        files = fill(table, frame, f"play/{uuid.uuid4().hex[:8]}", ())
        table.commit(Committed(None, files, gone, columns if table.columns != columns else None))
