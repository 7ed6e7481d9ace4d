"""Whether the files of a checkpoint are whole that a flow goes on from: a disk may have been full, a copy cut off, a
hand have slipped. Spark would go on from what it finds, or say so in a stack trace. And what a crash left half written
goes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from millrace.engine.plan import Flow
from millrace.engine.stopping import epochs
from millrace.errors import CheckpointDamaged

# An epoch that is done again reads from where the one before it ended.
_LOOKED_AT = 2
_NOTHING_READ = "-"


def refuse_damaged(flow: Flow, checkpoint: Path) -> None:
    begun, done = (epochs(checkpoint / log) for log in ("offsets", "commits"))
    for epoch in done[-1:]:
        if epoch not in begun:
            raise _damaged(flow, checkpoint / "offsets" / str(epoch), "it is missing, and the epoch was committed")
    lengths = set()
    for epoch in begun[-_LOOKED_AT:]:
        path = checkpoint / "offsets" / str(epoch)
        _, *rest = _lines(flow, path)
        _parsed(flow, path, rest[:1])
        sources = rest[1:]
        _parsed(flow, path, (line for line in sources if line != _NOTHING_READ))
        lengths.add(len(sources))
        if not sources or len(lengths) > 1:
            raise _damaged(flow, path, "it does not say how far each input was read")
    for epoch in done[-1:]:
        path = checkpoint / "commits" / str(epoch)
        _parsed(flow, path, _lines(flow, path)[1:])


def sweep(checkpoint: Path) -> None:
    """Removes what a killed process was writing: files get their name when they are whole (`CheckpointFiles.java`).
    Only for who holds the flow's lock."""
    for path in checkpoint.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def _lines(flow: Flow, path: Path) -> list[str]:
    """The version of the format, and then at least one line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise _damaged(flow, path, "it is no text") from None
    if len(lines) < len(("version", "content")) or not lines[0].startswith("v"):
        raise _damaged(flow, path, "it ends too early")
    return lines


def _parsed(flow: Flow, path: Path, lines: Iterable[str]) -> None:
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            raise _damaged(flow, path, "it ends too early, or was changed") from None


def _damaged(flow: Flow, path: Path, reason: str) -> CheckpointDamaged:
    return CheckpointDamaged(flow=flow.name, file=path, reason=reason, where=flow.where)
