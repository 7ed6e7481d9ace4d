"""The HTTP server of a run: `/metrics` for Prometheus and `/health` for whoever keeps the process running."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from millrace.config import Listen
from millrace.engine.standing import Standing
from millrace.errors import MetricsUnservable
from millrace.exposition import CONTENT_TYPE
from millrace.serve.health import health
from millrace.serve.metrics import metrics


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that went away before its answer is nobody's trouble."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """A context in which it answers. `standings` is asked at each request; before the flows start it is empty."""

    def __init__(self, listen: Listen, app: str, standings: Callable[[], Mapping[str, Standing]]) -> None:
        self._app, self._standings = app, standings
        try:
            kind = _Server6 if ":" in listen.host else _Server
            self._server = kind((listen.host, listen.port), self._answering())
        except (OSError, UnicodeError) as error:
            raise MetricsUnservable(address=listen, reason=getattr(error, "strerror", None) or error) from None
        self.address = f"http://{Listen(listen.host, self._server.server_port)}"

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str) -> tuple[HTTPStatus, str, str]:
        standings = tuple(self._standings().values())
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, metrics(self._app, standings)
        if path == "/health":
            wrong = health(standings, datetime.now(UTC))
            well = bool(standings) and not any(wrong.values())
            said = {
                "app": self._app,
                "healthy": well,
                "reason": "" if standings else "the flows have not started yet",
                "flows": {each.flow: {"state": each.state, "reason": wrong[each.flow]} for each in standings},
            }
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "application/json", json.dumps(said, indent=2) + "\n"
        return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", "there are /metrics and /health\n"

    def _answering(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 -- `self` is the request below
        class Request(BaseHTTPRequestHandler):
            timeout = 10.0  # a client that says nothing does not keep a thread

            def do_GET(self) -> None:
                status, kind, text = server._answer(self.path.partition("?")[0])
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nobody wants a line for each scrape."""

        return Request
