"""Where a sink's server is: by its name in millrace.toml, or the project's own."""

from __future__ import annotations

from millrace import local
from millrace.config import Settings


def url_of(settings: Settings, name: str | None, server: str) -> str:
    """The URL of `[sinks.NAME]`, passwords in clear: not to be shown. Without a name, and without a section called like
    the server, it is the local server (`valkey`, `opensearch`, …) of this project."""
    if name is None and server not in settings.sinks:
        return local.address(settings, server)
    return settings.sink(name or server).reveal()
