"""Iceberg tables whose catalog is reached by REST: Iceberg's own server, and the same promises."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField

from millrace import config
from millrace.config import Lake, Secret
from millrace.errors import LakeCatalogUnreachable, LakeConflict
from millrace.lakehouse import Catalog
from millrace.lakehouse.compacting import compact
from tests.lakehouse.filled import COLUMNS, epoch, file_of, ids
from tests.lakehouse.rest import rest_catalog

pytestmark = pytest.mark.server


def test_a_catalog_by_rest_keeps_the_same_promises(postgres: str, tmp_path: Path) -> None:
    project, name = config.load(tmp_path), f"by_rest_{uuid.uuid4().hex[:8]}"
    with rest_catalog(postgres.rpartition("/")[0] + "/millrace", tmp_path) as url:
        settings = replace(project, lake=Lake(catalog=Secret("lake.catalog", url)))
        with contextlib.closing(Catalog(settings).table(name, "iceberg")) as table:
            assert not table.load()
            table.create(COLUMNS, ())
            epoch(table, 0, [file_of(table, [1, 2])])
            epoch(table, 1, [file_of(table, [3])])
            with contextlib.closing(Catalog(settings).table(name, "iceberg")) as other:
                other.load()
                epoch(other, 2, [file_of(other, [4])])
            with pytest.raises(LakeConflict, match="somebody else committed first"):
                epoch(table, 2, [file_of(table, [4])])
            table.load()
            note = table.note()
            assert note is not None
            assert (note.flow, note.epoch) == ("flow", 2)
            compact(table)
            table.add([StructField("more", StringType())])
            epoch(table, 3, [file_of(table, [5], more="x")])
            assert ids(settings, table) == [1, 2, 3, 4, 5]
            assert ids(settings, table, lambda each: each.versions()[1]) == [1, 2, 3]
            assert [each.number for each in table.versions()] == [1, 2, 3, 4, 5]
        assert Catalog(settings).names() == [name]
    with pytest.raises(LakeCatalogUnreachable, match="does not answer"):
        Catalog(settings).table(name, "iceberg").load()
