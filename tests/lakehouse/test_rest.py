"""Iceberg tables whose catalog is reached by REST: Iceberg's own server, and the same promises."""

from __future__ import annotations

import contextlib
import shutil
import traceback
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField

from millrace import config
from millrace.config import Lake, Secret, Settings
from millrace.errors import (
    LakeCatalogFailed,
    LakeCatalogRefused,
    LakeCatalogUnreachable,
    LakeConflict,
    LakeTableAway,
    LakeTableElsewhere,
)
from millrace.lakehouse import Catalog
from millrace.lakehouse.compacting import compact
from millrace.lakehouse.iceberg import Iceberg
from millrace.lakehouse.place import Disk
from tests.command import millrace
from tests.lakehouse.filled import COLUMNS, epoch, file_of, ids
from tests.lakehouse.rest import guarded, rest_catalog

pytestmark = pytest.mark.server


def test_a_catalog_by_rest_keeps_the_same_promises(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        forgets_a_table_whose_files_are_gone(settings)
        refuses_without_its_token(tmp_path, url, name, monkeypatch)
    with pytest.raises(LakeCatalogUnreachable, match="does not answer"):
        Catalog(settings).table(name, "iceberg").load()


def forgets_a_table_whose_files_are_gone(settings: Settings) -> None:
    """Only for who builds it again, and only if it was this project's."""
    name = f"lost_{uuid.uuid4().hex[:8]}"
    with contextlib.closing(Catalog(settings).table(name, "iceberg")) as table:
        table.create(COLUMNS, ())
        epoch(table, 0, [file_of(table, [1])])
        shutil.rmtree(table.folder)
    with contextlib.closing(Catalog(settings).table(name, "iceberg")) as table:
        with pytest.raises(LakeTableAway, match="nothing is at"):
            table.load()
        elsewhere = Iceberg(name, Disk(settings.folder / "elsewhere" / name), table._catalog)  # type: ignore[attr-defined]
        with pytest.raises(LakeTableElsewhere):
            elsewhere.create(COLUMNS, (), anew=True)
        table.create(COLUMNS, (), anew=True)
        epoch(table, 0, [file_of(table, [2])])
        assert ids(settings, table) == [2]
        shutil.rmtree(table.folder)


def refuses_without_its_token(folder: Path, url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog behind a door. The token is the environment's, and in no sentence, not even where the door repeats it
    (here: to the library's own errors)."""
    token, wrong = uuid.uuid4().hex, uuid.uuid4().hex
    with guarded(url, token) as door:
        (folder / "millrace.toml").write_text(f'[lake]\ncatalog = "{door}"\ntoken = "env:CATALOG_TOKEN"\n')
        settings = config.load(folder)
        monkeypatch.setenv("CATALOG_TOKEN", token)
        with contextlib.closing(Catalog(settings).table(name, "iceberg")) as table:
            assert table.load()
            epoch(table, 4, [file_of(table, [6], more="y")])
        assert ids(settings, table) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(LakeCatalogUnreachable, match="does not answer") as said:
            Catalog(settings).table("unwell", "iceberg").load()
        assert token not in "".join(traceback.format_exception(said.value))
        for unfit, error in (
            ("unwell", LakeCatalogUnreachable),
            ("undone", LakeCatalogFailed),
            ("unspaced", LakeCatalogFailed),
            ("taken", LakeTableAway),
        ):
            with contextlib.closing(Catalog(settings).table(unfit, "iceberg")) as table, pytest.raises(error) as said:
                table.create(COLUMNS, ())
            assert token not in "".join(traceback.format_exception(said.value)), unfit
        monkeypatch.setenv("CATALOG_TOKEN", wrong)
        with pytest.raises(LakeCatalogRefused, match="the token is wrong or has expired") as told:
            Catalog(settings).table(name, "iceberg")
        assert wrong not in "".join(traceback.format_exception(told.value))
        (folder / "millrace.toml").write_text(f'[lake]\ncatalog = "{door}"\n')
        done = millrace("lake", "query", f"SELECT * FROM {name}", cwd=folder)
        assert done.returncode == 1
        assert "MR-LAKE-CATALOG-REFUSED" in done.stderr
        assert "it wants a token, and none is given" in done.stderr
