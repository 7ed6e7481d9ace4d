"""What `millrace status` makes of what runs left beside their checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.cli.flows import flows
from millrace.config import Settings
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
