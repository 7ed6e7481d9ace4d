"""Archives from the cache, unpacked once for all projects."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def once(folder: Path, fill: Callable[[Path], object]) -> Path:
    """The folder; if absent it is filled beside its place and then moved, so that it is always whole."""
    if folder.exists():
        return folder
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        fill(draft)
        draft.replace(folder)
    except OSError:
        if not folder.exists():  # another project was not quicker: a true failure
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
