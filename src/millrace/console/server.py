"""The process: its address, who comes in by it, its pages, until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable

from millrace.config import Listen, Settings
from millrace.console.access import Access
from millrace.console.watch import Watch
from millrace.errors import AddressUnservable, ExtraMissing
from millrace.flow import App

_CLOSE_S = 1


def serve(app: App, settings: Settings, reference: str, listen: Listen, say: Callable[[str], None]) -> None:
    """Serves the console of an app. `reference` is what the app was called by."""
    access = Access(settings, listen)
    with bound(listen) as opened:
        try:
            import uvicorn
            from fastapi import FastAPI
            from nicegui import app as nicegui
            from nicegui import ui
        except ImportError as error:
            raise ExtraMissing(what="the console", reason=f"no module {error.name}", extra="console") from None
        from millrace.console.entrance import Entrance
        from millrace.console.frame import prepared
        from millrace.console.pages import pages

        served = FastAPI(openapi_url=None)
        served.add_middleware(Entrance, access=access)
        with Watch(app, settings, reference) as watch:
            prepared()
            pages(watch)
            nicegui.on_shutdown(watch.views.close)
            ui.run_with(
                served,
                title=f"{watch.graph.app} · Millrace",
                favicon="🌊",
                tailwind=False,
                dark=None,
                show_welcome_message=False,
                binding_refresh_interval=None,
            )
            say(f"console of {watch.graph.app} on http://{Listen(listen.host, opened.getsockname()[1])} until Ctrl-C")
            config = uvicorn.Config(served, log_level="warning", timeout_graceful_shutdown=_CLOSE_S)
            uvicorn.Server(config).run(sockets=[opened])


def bound(listen: Listen) -> socket.socket:
    """An open socket there."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((listen.host, listen.port))
        opened.listen()
    except OSError as error:
        opened.close()
        raise AddressUnservable(address=listen, reason=error.strerror or error) from None
    return opened
