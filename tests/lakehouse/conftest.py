"""Empty tables of both formats, for tests that commit files written by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.lakehouse import Catalog, LakeTable
from tests.lakehouse.filled import COLUMNS, format_of, project_of


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return project_of(request.node.callspec.params["kind"], tmp_path, request)


@pytest.fixture
def made(project: Settings, kind: str, request: pytest.FixtureRequest) -> Iterator[LakeTable]:
    """An empty table `orders`, divided by region where the test says so."""
    with contextlib.closing(Catalog(project).table(f"orders_{abs(hash(request.node.name))}", format_of(kind))) as table:
        assert not table.load()
        table.create(COLUMNS, ("region",) if "divided" in request.node.name else ())
        yield table
