"""PostgreSQL as a sink: the suite, every type, and tables that grow."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from millrace import local
from millrace.config import Settings
from millrace.sinks import Sink
from millrace.sinks.postgres import postgres
from millrace.testing.sinks import SinkSuite

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)


class TestPostgres(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self, settings: Settings, postgres: str) -> None:
        self.project, self.url = settings, postgres

    def settings(self) -> Settings:
        return self.project

    def sink(self, *, keyed: bool) -> Sink:
        return postgres(f"held{next(_numbers)}", key="id" if keyed else None)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        return self.run(f'SELECT * FROM "{sink.table}"')  # type: ignore[attr-defined]

    def run(self, statement: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            found = connection.execute(statement)  # type: ignore[call-overload]
            return found.fetchall() if found.description else []

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:
        self.run(f'ALTER TABLE "{sink.table}" ADD CHECK (score < 100)')  # type: ignore[attr-defined]
        return {"id": 4711, "name": "odd", "score": 1000.0}

    def away(self) -> AbstractContextManager[None]:
        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            local.down(self.project, ("postgres",))
            try:
                yield
            finally:
                self.url = local.up(self.project, ("postgres",))["postgres"]

        return stopped()
