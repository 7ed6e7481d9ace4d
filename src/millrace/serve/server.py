"""The server: routes around the handlers, and uvicorn around the routes."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as HttpRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.config import Listen, Settings
from millrace.errors import AddressUnservable, MillraceError, PathUnknown, TokenMissing
from millrace.flow import Graph
from millrace.serve.answers import answer, broken, refusal
from millrace.serve.routes import ROUTES, SOCKETS, Route
from millrace.serve.site import Site
from millrace.serve.sockets import Requests, Socket
from millrace.serve.tokens import Token

# Beside the WebSockets.
CONNECTIONS = 500
# Files that the process has open beside its connections.
OTHER_FILES = 500
STOP_S = 5
MESSAGE_BYTES = 4_096  # that clients may send by WebSocket, where nothing is expected of them
_METHODS = "GET, POST"


def application(site: Site) -> Starlette:
    @contextlib.asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        await site.open()
        try:
            yield
        finally:
            await site.close()

    routes: list[BaseRoute] = [HttpRoute(each.path, _endpoint(site, each), methods=[each.method]) for each in ROUTES]
    routes += [WebSocketRoute(each.path, _pushing(site, each)) for each in SOCKETS]
    app = Starlette(routes=routes, lifespan=living, exception_handlers={404: _unknown, 405: _unknown})
    app.router.redirect_slashes = False
    return app


def _endpoint(site: Site, route: Route) -> Any:
    async def respond(request: Request) -> Response:
        began = time.monotonic()
        try:
            response = await _answered(site, route, request)
        except MillraceError as error:
            response = refusal(error)
        except Exception as error:
            response = broken(error)
        if (origin := site.gate.allowed_origin(request.headers)) is not None:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"
        site.figures.answered(route.path, response.status_code, time.monotonic() - began)
        return response

    return respond


async def _answered(site: Site, route: Route, request: Request) -> Response:
    client = request.client.host if request.client else ""
    token: Token | None = None
    try:
        token = site.gate.admitted(request.headers, client)
    except TokenMissing:
        if route.scope is not None:
            raise
    if token is not None and route.scope:
        token.require(route.scope.format(**request.path_params))
    found: Response = await route.handler(site, request, token)
    return found


def _pushing(site: Site, route: Route) -> Any:
    async def respond(websocket: WebSocket) -> None:
        client = websocket.client.host if websocket.client else ""
        try:
            token = site.gate.admitted(websocket.headers, client, websocket.scope["subprotocols"])
            token.require((route.scope or "").format(**websocket.path_params))
            await route.handler(site, websocket, token)
        except (WebSocketDisconnect, asyncio.CancelledError):
            raise
        except MillraceError as error:
            await _denied(websocket, refusal(error))
        except Exception as error:
            await _denied(websocket, broken(error))

    return respond


async def _denied(websocket: WebSocket, response: Response) -> None:
    """Refuses the handshake with an answer, or hangs up after it."""
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        if websocket.application_state.name == "CONNECTING":
            await websocket.send_denial_response(response)
        else:
            await websocket.close(1011)


async def _unknown(request: Request, _: Exception) -> Response:
    if request.method == "OPTIONS":
        return _preflight(request)
    return refusal(PathUnknown(method=request.method[:20], path=request.url.path[:200]))


def _preflight(request: Request) -> Response:
    """What a browser asks before a page of an origin that we know calls us. Of others it hears nothing that helps."""
    origin = request.headers.get("origin", "")
    if origin not in request.app.state.origins:
        return answer("", 403, "text/plain")
    allowed = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }
    return answer("", 204, "text/plain", **allowed)


class _Uvicorn(uvicorn.Server):
    """Ctrl-C and SIGTERM end it, and are not raised again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _asked(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


class Server:
    """Its address is taken when it is made; `run` answers until Ctrl-C, or until `stop` is called."""

    def __init__(self, settings: Settings, graph: Graph, listen: Listen) -> None:
        site = Site(settings, graph, listen)
        try:
            family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
            self._socket = socket.create_server((listen.host, listen.port), family=family, backlog=1_024)
        except (OSError, UnicodeError) as error:
            raise AddressUnservable(address=listen, reason=getattr(error, "strerror", None) or error) from None
        self._socket.setblocking(False)
        self.address = f"http://{Listen(listen.host, self._socket.getsockname()[1])}"
        self._files = settings.serve.sockets + CONNECTIONS + OTHER_FILES
        app = application(site)
        app.state.origins = settings.serve.origins
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=Requests,
                ws=Socket,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws_max_size=MESSAGE_BYTES,
                ws_per_message_deflate=False,
                limit_concurrency=settings.serve.sockets + CONNECTIONS,
                timeout_graceful_shutdown=STOP_S,
            )
        )

    @property
    def started(self) -> bool:
        return self._server.started

    def run(self) -> None:
        _allow_files(self._files)
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True


def _allow_files(wanted: int) -> None:
    """Each connection is an open file, of which systems allow 1,024 unless one asks for more."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if least != resource.RLIM_INFINITY and least < wanted:
        allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
