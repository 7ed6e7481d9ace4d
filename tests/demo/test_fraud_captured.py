"""The customers of the fraud demo in a database: all of them, once, and one after the other changes. That alerts are
right when their table is captured is in `test_fraud_kills.py`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

from millrace.config import Settings
from millrace.demo import fraud, fraud_captured
from millrace.flow import Table
from tests.shop import Shop, opened


@pytest.fixture
def bank(settings: Settings, postgres: str) -> Iterator[Shop]:
    with opened(settings) as found:
        yield found


@pytest.mark.server
def test_customers_are_there_once_and_change(bank: Shop) -> None:
    with psycopg.connect(bank.url, autocommit=True) as connection:
        fraud_captured.stock(connection)
        began = set(bank.run("SELECT * FROM customers"))
        assert len(began) == fraud.CARDS // 2
        for seed in range(20):
            fraud_captured.change(connection, random.Random(seed))
        changed = set(bank.run("SELECT * FROM customers"))
        fraud_captured.stock(connection)
    assert 0 < len(changed - began) <= 20
    assert set(bank.run("SELECT * FROM customers")) == changed


def test_the_app_reads_profiles_from_the_captured_table() -> None:
    (table,) = (node for node in fraud_captured.app.graph().nodes if isinstance(node, Table))
    assert (table.capture.name if table.capture else None, table.table) == ("fraud_captured", "customers")
    assert "customers" not in {topic.name for topic in fraud_captured.app.graph().topics}
