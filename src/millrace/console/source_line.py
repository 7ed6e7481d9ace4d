"""The lines of the user's code around the one that made a node."""

from __future__ import annotations

from pathlib import Path

from millrace.errors import Where

AROUND = 3


def around(where: Where) -> str:
    """Numbered, the line itself marked; empty where the file cannot be read any more."""
    try:
        lines = Path(where.file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    first, last = max(where.line - AROUND, 1), min(where.line + AROUND, len(lines))
    return "\n".join(
        f"{'>' if number == where.line else ' '} {number:>4}  {lines[number - 1]}" for number in range(first, last + 1)
    )
