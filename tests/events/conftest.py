"""A store in a database of its own on the shared PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from millrace import local
from millrace.config import Settings
from millrace.events import Store

_numbers = itertools.count(1)


@pytest.fixture
def database(settings: Settings, postgres: str) -> Iterator[str]:
    name = f"bank{next(_numbers)}"
    yield name
    with psycopg.connect(local.address(settings, "postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def store(settings: Settings, database: str) -> Iterator[Store]:
    with Store.open(database, settings=settings) as found:
        yield found
