"""Where flows stand, as consumer groups: a broker that is away holds up nobody, and is told of once."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from millrace import config
from millrace.engine.places import Places
from millrace.engine.progress import Span
from millrace.log import Log


def test_a_broker_that_is_away_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(config.load(tmp_path, {}), kafka=config.Kafka("127.0.0.1:1"))
    places = Places(Log(settings), "shop")
    places.note("counts", [Span("views", None, {"0": 4}, 0)])
    with caplog.at_level(logging.WARNING, "millrace.engine"):
        places.start()
        places.finish()
        places.join()
        places.note("others", [Span("views", None, {"0": 4}, 0)])
        places._commit()
    said = [record.getMessage() for record in caplog.records if record.name == "millrace.engine"]
    assert len(said) == 1
    assert said[0].startswith("consumer groups do not show the lag of flows: MR-KAFKA-UNREACHABLE")
    assert set(places._changed) == {"counts", "others"}  # for when it is back
