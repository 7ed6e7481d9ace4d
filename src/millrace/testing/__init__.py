"""For users' own tests: whole flows under controlled time, on the real engine, without a broker.

`Play` is the harness; the pytest fixtures `play` and `spark` come with the plugin. Importing this room is light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Play"]

if TYPE_CHECKING:
    from millrace.testing.play import Play


def __getattr__(name: str) -> object:
    if name != "Play":
        raise AttributeError(f"module 'millrace.testing' has no attribute {name!r}; it has Play")
    from millrace.testing.play import Play

    return Play
