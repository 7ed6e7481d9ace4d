"""Databases as topics and tables: captures by Debezium, and whether they are true. No flows, no engine.

`Captures` is the entrance. Importing the room is light, since every graph does it; `Captures` itself is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.capture.database import CapturedTable, Column
from millrace.capture.definition import Capture, capture

if TYPE_CHECKING:
    from millrace.capture.captures import Captures

__all__ = ["Capture", "CapturedTable", "Captures", "Column", "capture"]


def __getattr__(name: str) -> object:
    if name != "Captures":
        raise AttributeError(f"module 'millrace.capture' has no attribute {name!r}")
    from millrace.capture.captures import Captures

    return Captures
