"""Which Spark type shows a column, exactly; what Spark has no type for is shown as PostgreSQL prints it.

Spark has no infinite moments: they become the last and the first that its type can hold, so that comparisons hold.
"""

from __future__ import annotations

import json
import re
from typing import Any

from millrace.capture import printed

_SIMPLE = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "oid": "bigint",
    "real": "float",
    "double precision": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "bytea": "binary",
}
MOST_DIGITS = 38
# Printed otherwise than it is in the topic. Rows are read again instead: it has a default that is not known.
_IS_MAP = re.compile(r"(.*\.)?hstore(\[\])?")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")


def postgres(row: Any) -> str:
    """The Spark type of a column of PostgreSQL's catalogue: `root` is its type with all domains looked through.

    An array that was declared with several `dimensions` is shown as text: Spark's arrays are lists.
    """
    if row.root.endswith("[]"):
        return f"array<{_simple(row.root[:-2])}>" if row.dimensions < 2 else "string"
    return _simple(row.root)


def _simple(name: str) -> str:
    if found := _NUMERIC.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        return f"decimal({precision},{scale})" if precision <= MOST_DIGITS and 0 <= scale <= precision else "string"
    return _SIMPLE.get(printed.plain(name), "string")


def missing(row: Any) -> str | None:
    """What rows from before the column was added hold in it, as JSON like the topic's; None if they hold nothing.

    PostgreSQL keeps it as an array of one element (`attmissingval`).
    """
    if row.missing is None or _IS_MAP.fullmatch(row.root):
        return None
    (text,) = printed.elements(row.missing, row.root == "box")
    return None if text is None else json.dumps(printed.in_json(text, row.root), ensure_ascii=False)
