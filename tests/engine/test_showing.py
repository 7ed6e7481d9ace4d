"""A view in real time that cannot be shown: it is tried again, and said once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millrace.engine import showing
from millrace.engine.showing import Showing
from millrace.errors import ViewStoreUnfit
from millrace.views.store import Shape


def test_what_stays_wrong_is_said_once_and_what_changes_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unfit = [ViewStoreUnfit(view="revenue", reason=f"key {number}") for number in range(3)]
    errors = iter([*unfit, ValueError("odd"), ValueError("odder"), unfit[0]])

    def identity(_: str) -> str:
        if (error := next(errors, None)) is not None:
            raise error
        thread.end()
        raise unfit[0]

    log: Any = SimpleNamespace(topics=SimpleNamespace(identity=identity))
    thread = Showing(Shape("revenue", (), (), (), True), log, "shop")
    monkeypatch.setattr(showing, "_MENDED_S", 0.0)
    thread.run()
    said = [each.getMessage().rpartition(": ")[2] for each in caplog.records]
    assert len(said) == 3, said
