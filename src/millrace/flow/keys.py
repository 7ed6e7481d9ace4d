"""The key of a record, from its row: as streams write it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def record_key(columns: Sequence[str], row: Mapping[str, Any]) -> str | None:
    """Of one column its text, of several JSON, of none nothing."""
    if not columns:
        return None
    values = [row.get(column) for column in columns]
    if len(values) == 1:
        return None if values[0] is None else str(values[0])
    return json.dumps(dict(zip(columns, values, strict=True)), default=str)
