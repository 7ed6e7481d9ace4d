"""What an Iceberg catalog knows is taken from it by nobody but whoever is told to."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace import config
from millrace.config import Settings
from millrace.errors import LakeTableAway, LakeTableElsewhere
from millrace.lakehouse import Catalog, LakeTable
from tests.lakehouse.filled import COLUMNS, epoch, file_of, ids

pytestmark = [pytest.mark.server, pytest.mark.parametrize("kind", ["iceberg"])]


def test_a_table_on_a_share_that_is_away_stays_in_the_catalog(project: Settings, made: LakeTable) -> None:
    epoch(made, 0, [file_of(made, [1, 2])])
    away = made.folder.rename(made.folder.with_name("away"))
    with contextlib.closing(Catalog(project).table(made.name, "iceberg")) as again:
        with pytest.raises(LakeTableAway, match=f"knows lake table '{made.name}'.*nothing is at {made.folder}"):
            again.load()
        with pytest.raises(LakeTableAway, match=r"nothing was changed.*millrace rebuild"):
            again.create(COLUMNS, ())
    away.rename(made.folder)
    assert ids(project, made) == [1, 2]
    # Somebody who wanted it built again, and whose share came back in that moment.
    with contextlib.closing(Catalog(project).table(made.name, "iceberg")) as again:
        with pytest.raises(Exception, match="its files are there again"):
            again.create(COLUMNS, (), anew=True)
        assert again.load()


def test_another_projects_table_of_the_same_name_is_neither_written_nor_dropped(
    project: Settings, made: LakeTable, tmp_path: Path
) -> None:
    epoch(made, 0, [file_of(made, [1, 2])])
    (tmp_path / "other").mkdir()
    other = replace(config.load(tmp_path / "other"), lake=project.lake)
    with contextlib.closing(Catalog(other).table(made.name, "iceberg")) as again:
        for there in (True, False):
            with pytest.raises(LakeTableElsewhere, match=f"at .*{made.folder}, and .* would be at {again.folder}"):
                again.load()
            with pytest.raises((LakeTableAway, LakeTableElsewhere)):
                again.create(COLUMNS, ())
            with pytest.raises(LakeTableElsewhere):
                again.create(COLUMNS, (), anew=True)
            if there:
                made.folder.rename(made.folder.with_name("away"))
    made.folder.with_name("away").rename(made.folder)
    assert made.load()
    assert ids(project, made) == [1, 2]


def test_one_that_is_to_be_built_again_takes_the_place_of_what_is_gone(project: Settings, made: LakeTable) -> None:
    epoch(made, 0, [file_of(made, [1, 2])])
    shutil.rmtree(made.folder)
    with contextlib.closing(Catalog(project).table(made.name, "iceberg")) as again:
        again.create(COLUMNS, (), anew=True)
        epoch(again, 0, [file_of(again, [3])])
        assert ids(project, again) == [3]


def test_metadata_of_commits_that_failed_go_with_the_versions_of_then(project: Settings, made: LakeTable) -> None:
    for number in range(3):
        epoch(made, number, [file_of(made, [number])])
    metadata = made.folder / "metadata"
    known = {path.name for path in metadata.iterdir()}
    current = Path(made._table.metadata_location)  # type: ignore[attr-defined]
    # Written before the catalog was asked, which then named another; and the same of somebody who is still at it.
    left, young = (metadata / f"00009-{name}.metadata.json" for name in ("left", "young"))
    for each in (left, young):
        each.write_bytes((metadata / current.name).read_bytes())
    now = time.time()
    for path in metadata.iterdir():
        if path != young:
            os.utime(path, (now - 7_200, now - 7_200))
    made.tidy(replace(made.versions()[0], at=datetime.fromtimestamp(now - 3_600, UTC)))
    kept = {path.name for path in metadata.iterdir()}
    assert kept == {*known, young.name}
    with contextlib.closing(Catalog(project).table(made.name, "iceberg")) as again:
        assert again.load()
    assert ids(project, made) == [0, 1, 2]
