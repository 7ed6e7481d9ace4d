"""Random changes and random kills, a seed of today's; `make torture SEEDS=200` takes many."""

from __future__ import annotations

import pytest

from millrace.config import Settings
from tests.capture.torture import torture
from tests.rotation import today


@pytest.mark.turn(1, 2)
@pytest.mark.server
@pytest.mark.usefixtures("connect", "postgres")
def test_whatever_is_killed_when_the_topics_end_as_the_database_was(settings: Settings) -> None:
    seed = today() % 1000
    (result,) = torture(settings, [seed], kills=3, rows=1_000, spare_snapshot=True)
    assert result.faults == [], result.line()
