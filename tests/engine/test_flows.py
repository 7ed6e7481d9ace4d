"""What `millrace status` makes of what runs left beside their checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.engine.definition import FILLING
from millrace.engine.flows import filling, flows
from millrace.engine.standing import FILE


@pytest.mark.parametrize(
    "written", ['{"last": 5}', '{"last": {"at": "soon"}}', '{"state": "restarting", "run": {"x": 1}}']
)
def test_what_another_version_wrote_is_unknown(settings: Settings, tmp_path: Path, written: str) -> None:
    own = replace(settings, folder=tmp_path)
    folder = own.checkpoints / own.named("shop") / "counts"
    folder.mkdir(parents=True)
    (folder / FILE).write_text(written)
    (found,) = flows(own)
    assert (found["app"], found["flow"], found["state"], found["epoch"]) == ("shop", "counts", "unknown", None)


def test_a_view_that_is_being_filled_says_how_far_it_is(settings: Settings, tmp_path: Path) -> None:
    own = replace(settings, folder=tmp_path)
    for view, told in (("revenue", {"rows_in": 1200, "last": {"lag_records": 300}}), ("best", {}), ("counts", None)):
        folder = own.checkpoints / own.named("shop") / view
        folder.mkdir(parents=True)
        if told is not None:
            (folder / FILLING).write_text("{}")
            (folder / FILE).write_text(json.dumps(told))
    found = filling(own)
    assert all(each.pop("since") <= datetime.now(UTC) for each in found)
    assert found == [
        {"app": "shop", "view": "best", "read": 0, "left": None},
        {"app": "shop", "view": "revenue", "read": 1200, "left": 300},
    ]
