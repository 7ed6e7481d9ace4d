"""What is written down while a sink's new target takes the place of the old one: after a crash in between the switch is
brought to its end, and until then nobody writes to the sink.

<flow>/sinks/<sink>/rebuild.json     the epoch up to which the new one holds the flow
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from millrace.disk import sync_alone, write_whole
from millrace.engine.owed import FOLDER
from millrace.errors import RebuildUnfinished, Where
from millrace.sinks.ledger import Epoch, FileLedger, entry_text
from millrace.sinks.rebuilding import Rebuilding

_JOURNAL = "rebuild.json"
# With at most once: the last epoch that was begun.
BEGUN = "begun"


def switch(rebuilding: Rebuilding, folder: Path, epoch: Epoch) -> None:
    """Also goes on with a switch that a crash has cut off. `folder` is the sink's own beside the checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / _JOURNAL, entry_text(epoch))
    sync_alone(folder)
    rebuilding.switch(epoch)
    # What was owed is in it.
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    if (folder / BEGUN).exists():
        FileLedger(folder / BEGUN).write(epoch)
    (folder / _JOURNAL).unlink()


def unfinished(folder: Path) -> Epoch | None:
    """The epoch of a switch that was begun and not ended."""
    try:
        told = json.loads((folder / _JOURNAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Epoch(told["flow"], int(told["epoch"]), str(told["ranges"]))


def refuse_unfinished(folder: Path, sink: str, where: Where) -> None:
    if unfinished(folder) is not None:
        raise RebuildUnfinished(sink=sink, where=where)
