"""A log on the shared Kafka, and topics of a test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from millrace.config import Settings
from millrace.log import Log

_numbers = count(1)


@pytest.fixture(scope="session")
def log(settings: Settings) -> Log:
    return Log(replace(settings, prefix="tests-log"))


@pytest.fixture(scope="session")
def make_topic(log: Log) -> Callable[..., str]:
    def make(**options: Any) -> str:
        name = f"topic-{next(_numbers)}"
        log.topics.create(name, **options)
        return name

    return make


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"
