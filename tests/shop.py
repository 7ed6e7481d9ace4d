"""A database of one's own on the shared servers, whose capture is ended after the test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from millrace import local
from millrace.capture import Captures
from millrace.config import Settings

_numbers = itertools.count(1)


@dataclass
class Shop:
    """A new database `name`; `run` executes statements in it, each by itself. `reached` is an LSN that a test noted."""

    name: str
    url: str
    settings: Settings
    reached: int = 0

    @property
    def captures(self) -> Captures:
        return Captures(self.settings)

    def run(self, *statements: str) -> list[Any]:
        rows: list[Any] = []
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
                rows = cursor.fetchall() if cursor.description else []
        return rows


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Shop]:
    name = f"shop{next(_numbers)}"
    server = local.address(settings, "postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    shop = Shop(name, server.rpartition("/")[0] + f"/{name}", settings)
    yield shop
    if name in shop.captures.all():
        shop.captures.remove(name, topics=True)
    with psycopg.connect(local.address(settings, "postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
