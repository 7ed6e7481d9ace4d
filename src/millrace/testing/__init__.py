"""For users' own tests: whole flows under controlled time, on the real engine, without a broker; aggregates by events.

`Play` is the harness of flows; the pytest fixtures `play` and `spark` come with the plugin. `given` is that of
aggregates. Importing this room is light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Play", "given"]

if TYPE_CHECKING:
    from millrace.testing.aggregates import given
    from millrace.testing.play import Play

_HOMES = {"Play": "millrace.testing.play", "given": "millrace.testing.aggregates"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'millrace.testing' has no attribute {name!r}; it has Play, given")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
