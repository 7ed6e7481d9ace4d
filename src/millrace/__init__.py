"""Millrace: stream processing on Spark, from Python.

`import millrace as mr` is light: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["App", "Log", "MillraceError", "__version__", "adaptive", "marked", "monotonic", "now"]

if TYPE_CHECKING:
    from millrace.engine import now
    from millrace.errors import MillraceError
    from millrace.flow import App, adaptive, marked, monotonic
    from millrace.log import Log

_HOMES = {
    "App": "millrace.flow",
    "Log": "millrace.log",
    "MillraceError": "millrace.errors",
    "adaptive": "millrace.flow",
    "marked": "millrace.flow",
    "monotonic": "millrace.flow",
    "now": "millrace.engine",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
