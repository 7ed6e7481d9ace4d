"""What a crash leaves of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from millrace.engine.stopping import epochs


def forget_commit(checkpoint: Path) -> None:
    """The last epoch was written, and nobody remembers: as after a crash between the write and the commit."""
    for last in epochs(checkpoint / "commits")[-1:]:
        (checkpoint / "commits" / str(last)).unlink()
        (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
