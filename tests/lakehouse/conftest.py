"""Empty tables of both formats, for tests that commit files written by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millrace import config
from millrace.config import Lake, Secret, Settings
from millrace.lakehouse import Catalog, LakeTable
from tests.lakehouse.filled import COLUMNS


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A project of one's own; Iceberg's catalog is the shared PostgreSQL's."""
    found = config.load(tmp_path)
    if request.node.callspec.params["kind"] == "delta":
        return found
    url = request.getfixturevalue("postgres").rpartition("/")[0] + "/millrace"
    return replace(found, lake=Lake(catalog=Secret("lake.catalog", url)))


@pytest.fixture
def made(project: Settings, kind: str, request: pytest.FixtureRequest) -> Iterator[LakeTable]:
    """An empty table `orders`, divided by region where the test says so."""
    with contextlib.closing(Catalog(project).table(f"orders_{abs(hash(request.node.name))}", kind)) as table:
        assert not table.load()
        table.create(COLUMNS, ("region",) if "divided" in request.node.name else ())
        yield table
