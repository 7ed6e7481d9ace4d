"""The shared session, and projects of a test's own on the shared Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.log import Log


@dataclass(frozen=True)
class Project:
    """A prefix of its own for topics, and a folder of its own for checkpoints."""

    settings: Settings
    log: Log

    def write(self, topic: str, values: list[bytes], partition: int | None = None) -> None:
        with self.log.writer(topic) as writer:
            for value in values:
                writer.write(value, partition=partition)


@pytest.fixture
def project(settings: Settings, bootstrap: str, tmp_path: Path) -> Project:
    own = replace(
        settings,
        folder=tmp_path,
        prefix=f"engine{uuid.uuid4().hex[:8]}",  # other folders import this module under another name
        kafka=replace(settings.kafka, bootstrap=bootstrap),
    )
    return Project(own, Log(own))


@pytest.fixture
def whole_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time the first epochs are as long as all others: for tests that look into one."""
    from millrace.engine import realtime

    monkeypatch.setattr(realtime, "FIRST_EPOCH_MS", 0)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    from tests.command import until

    return until
