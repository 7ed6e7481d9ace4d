"""What the server counts of itself, as metrics. Their names are a promise: `docs/guide/serve.md` lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from millrace.exposition import Metric, Sample, exposition
from millrace.serve.reading import Reached


def _metric(name: str, about: str) -> Metric:
    return Metric(f"millrace_serve_{name}", "counter" if name.endswith("_total") else "gauge", about)


REQUESTS = _metric("requests_total", "requests answered, by route and status")
SECONDS = _metric("request_seconds_total", "what answering them took, by route")
SOCKETS = _metric("sockets", "open WebSockets")
MESSAGES = _metric("messages_total", "messages pushed, to all WebSockets together")
DROPPED = _metric("dropped_sockets_total", "WebSockets that were dropped, by the code they were told")
AGE = _metric("view_age_seconds", "how long ago what a view's table shows was true, by view")
WATCHERS = _metric("watchers", "WebSockets that watch a view, by view")
METRICS = (REQUESTS, SECONDS, SOCKETS, MESSAGES, DROPPED, AGE, WATCHERS)


class Figures:
    def __init__(self, app: str) -> None:
        self._app = app
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._messages = 0
        self._dropped: Counter[int] = Counter()

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def pushed(self) -> None:
        self._messages += 1

    def dropped(self, code: int) -> None:
        self._dropped[code] += 1

    def text(self, sockets: int, positions: Mapping[str, Reached], watchers: Mapping[str, int]) -> str:
        return exposition(self._samples(sockets, positions, watchers))

    def _samples(self, sockets: int, positions: Mapping[str, Reached], watchers: Mapping[str, int]) -> Iterator[Sample]:
        app = {"app": self._app}
        for (route, status), count in self._requests.items():
            yield REQUESTS, {**app, "route": route, "status": str(status)}, count
        for route, seconds in self._seconds.items():
            yield SECONDS, {**app, "route": route}, seconds
        yield SOCKETS, app, sockets
        yield MESSAGES, app, self._messages
        for code, count in self._dropped.items():
            yield DROPPED, {**app, "code": str(code)}, count
        for view, reached in positions.items():
            yield AGE, {**app, "view": view}, reached.told()["age_s"]
        for view, count in watchers.items():
            yield WATCHERS, {**app, "view": view}, count
