"""What an operator tells: its results, and what became of rows that came late; one column says which."""

from __future__ import annotations

# As in `Told.java`.
RESULT, REFUSED, REFUSED_TOO, ALLOWED, PARTIAL = range(5)

# Beside the names of a user's columns. ROW is a refused row, whole.
KIND, LATE_US, ROW = "__kind", "__late_us", "__row"
