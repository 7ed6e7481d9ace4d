"""Where something is served: a host and a port, as people write them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

_LAST_PORT = 65_535


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach what is served there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Listen:
    """Where something is served. Port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Listen | None:
        """From "[HOST:]PORT"; nobody outside this machine is answered unless a host is said. None if it is not one."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not port.isdecimal() or int(port) > _LAST_PORT:
            return None
        return cls(host or "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
