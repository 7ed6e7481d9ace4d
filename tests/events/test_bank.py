"""The demo tells its story."""

from __future__ import annotations

import pytest

from millrace.cli import main
from millrace.config import Settings
from millrace.demo.bank import app, story
from millrace.events import Store


@pytest.mark.server
def test_the_story(
    store: Store,
    settings: Settings,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = list(story(store))
    assert lines[0] == "transfer of 1200: done"
    assert lines[1].endswith("has 300")  # refused
    assert lines[2] == "transfer to nobody: there is no account nobody; bob has 1200"
    assert lines[3] == "ann has 300, and had 1500 before"
    assert "says 2700: a fault" in lines[4]
    assert lines[5].endswith("it says 300")
    assert lines[6].startswith("the account of (forgotten)")
    assert len(lines) == 10
    monkeypatch.setattr("millrace.config.load", lambda: settings)
    assert main(["events", "lag", database]) == 0
    assert "statements" in capsys.readouterr().out


def test_its_flow() -> None:
    assert [stream.name for stream in app.graph().streams] == ["large_withdrawals"]
