"""Kafka Connect's REST interface, as far as captures need it."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from millrace import local
from millrace.config import Settings
from millrace.errors import ConnectRefused, ConnectUnreachable

ANSWER_S = 30.0
# While a worker joins its group it answers 409 to whatever would change something, and for a moment 404 or 500.
SETTLE_S = 60.0
_AGAIN_S = 0.25
_PASSING = (409, 500, 503)


class Connect:
    def __init__(self, settings: Settings) -> None:
        self.address = local.address(settings, "connect").rstrip("/")

    def plugins(self) -> set[str]:
        return {plugin["class"] for plugin in self._ask("GET", "/connector-plugins")}

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Makes the connector, or changes it."""
        self._ask("PUT", f"/connectors/{quote(name)}/config", config)

    def config(self, name: str) -> dict[str, str] | None:
        found = self._ask("GET", f"/connectors/{quote(name)}/config", absent=None)
        return None if found is None else dict(found)

    def state(self, name: str) -> tuple[str, str]:
        """RUNNING, PAUSED, FAILED, STARTING, STOPPED or ABSENT, and the stack trace of a failure."""
        found = self._ask("GET", f"/connectors/{quote(name)}/status", absent=None)
        if found is None:
            return "ABSENT", ""
        tasks = found["tasks"]
        for part in (found["connector"], *tasks):
            if part["state"] == "FAILED":
                return "FAILED", part.get("trace", "")
        if found["connector"]["state"] in ("PAUSED", "STOPPED"):
            return found["connector"]["state"], ""
        if not tasks or found["connector"]["state"] == "UNASSIGNED" or tasks[0]["state"] != "RUNNING":
            return "STARTING", ""
        return "RUNNING", ""

    def offsets(self, name: str) -> dict[str, Any] | None:
        """Where the connector is, as it is stored; None before it has stored anything."""
        found = self._ask("GET", f"/connectors/{quote(name)}/offsets", absent=None)
        stored = [each["offset"] for each in (found or {}).get("offsets", []) if each["offset"]]
        return dict(stored[0]) if stored else None

    def restart(self, name: str) -> None:
        self._ask("POST", f"/connectors/{quote(name)}/restart?includeTasks=true&onlyFailed=false")

    def pause(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{quote(name)}/pause")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{quote(name)}/resume")

    def stop(self, name: str) -> None:
        """Ends its tasks, which `pause` does not: the slot is free then, and offsets can be changed."""
        self._ask("PUT", f"/connectors/{quote(name)}/stop")

    def forget_offsets(self, name: str) -> None:
        """Only of a connector that is stopped: it begins again with a snapshot."""
        self._ask("DELETE", f"/connectors/{quote(name)}/offsets")

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/connectors/{quote(name)}", absent=None)

    def _ask(self, method: str, path: str, body: object = None, **absent: Any) -> Any:
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                return self._once(method, path, body)
            except urllib.error.HTTPError as error:
                text = _message(error)
                if error.code == 404 and "absent" in absent:
                    return absent["absent"]
                if error.code not in _PASSING or time.monotonic() > deadline:
                    raise ConnectRefused(address=self.address, action=f"{method} {path}", reason=text) from None
            except (OSError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", error))
                raise ConnectUnreachable(address=self.address, reason=reason) from None
            time.sleep(_AGAIN_S)

    def _once(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the address is the user's own setting
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("message", text))
    return " ".join(text.split())[:500] or f"HTTP {error.code}"
