"""Why a record cannot be taken as a change of a row; the kernel's Refusals.java has the same sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable

NOT_JSON = "the value is not a JSON object in UTF-8"
NO_ENVELOPE = (
    "the value is not Debezium's envelope (an op with a before or an after); a topic whose values were flattened by"
    " ExtractNewRecordState cannot be read as a table"
)
TRUNCATION = "op t: the table was truncated, which is not a change of one row"
MESSAGE = "op m: a message, not a change of a row"
NO_KEY = "the record has no key, so its row cannot be told from others"


def unknown(op: str) -> str:
    return f"op {op} is not one of Debezium's"


def no_after(op: str) -> str:
    return f"op {op} has no row in its after"


def moved(partition: int) -> str:
    return f"the key was in partition {partition} before, so the order of its changes is not known"


def unavailable(columns: Iterable[str]) -> str:
    return f"the database left out the unchanged value of {', '.join(columns)}, and no earlier record has it"


def strange(columns: Iterable[str]) -> str:
    return f"nobody knows rows with the columns {json.dumps(list(columns), separators=(',', ':'), ensure_ascii=False)}"
