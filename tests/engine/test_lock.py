"""A lock that cannot be noted, because the disk is full, is not held."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from millrace.engine import lock


class Channel:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_flow_that_a_full_disk_kept_from_starting_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels: list[Channel] = []

    def opened(_: Any, path: Path) -> Channel:
        path.touch()
        channels.append(Channel())
        return channels[-1]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lock, "_try", opened)
    spark: Any = None
    with monkeypatch.context() as disk:
        disk.setattr(lock, "write_whole", full)
        with pytest.raises(OSError, match="No space left"):
            lock.acquire(spark, tmp_path, "copied")
    assert channels[0].closed
    held = lock.acquire(spark, tmp_path, "copied")
    assert not channels[1].closed
    held.release()
