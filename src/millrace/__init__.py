"""Millrace: stream processing on Spark, from Python.

`import millrace as mr` is light: what a name needs is imported when the name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "App",
    "Log",
    "MillraceError",
    "__version__",
    "adaptive",
    "approx_distinct",
    "as_of",
    "avg",
    "count",
    "dedup",
    "distance",
    "distinct",
    "files",
    "first",
    "frequent",
    "function",
    "join",
    "lake",
    "last",
    "last_n",
    "late",
    "latest",
    "lookback",
    "lookup",
    "marked",
    "match",
    "max",
    "min",
    "monotonic",
    "now",
    "opensearch",
    "postgres",
    "quantile",
    "quantiles",
    "rabbitmq",
    "redis",
    "redis_ranking",
    "score",
    "session",
    "speed",
    "sum",
    "terminal",
    "top",
    "webhook",
    "window",
]

if TYPE_CHECKING:
    from millrace.engine import now
    from millrace.errors import MillraceError
    from millrace.flow import App, adaptive, late, marked, monotonic
    from millrace.flow.aggregates import (
        avg,
        count,
        distance,
        distinct,
        first,
        last,
        last_n,
        max,  # noqa: A004
        min,  # noqa: A004
        speed,
        sum,  # noqa: A004
    )
    from millrace.flow.as_of import as_of
    from millrace.flow.dedup import dedup
    from millrace.flow.joins import join
    from millrace.flow.lookback import lookback
    from millrace.flow.lookups import lookup
    from millrace.flow.matches import match
    from millrace.flow.score import score
    from millrace.flow.sketches import approx_distinct, frequent, quantile, quantiles
    from millrace.flow.top import latest, top
    from millrace.flow.windows import session, window
    from millrace.log import Log
    from millrace.sinks.files import files
    from millrace.sinks.function import function
    from millrace.sinks.lake import lake
    from millrace.sinks.opensearch import opensearch
    from millrace.sinks.postgres import postgres
    from millrace.sinks.rabbitmq import rabbitmq
    from millrace.sinks.redis import redis, redis_ranking
    from millrace.sinks.terminal import terminal
    from millrace.sinks.webhook import webhook

_HOMES = {
    **dict.fromkeys(("App", "adaptive", "late", "marked", "monotonic"), "millrace.flow"),
    **dict.fromkeys(
        ("avg", "count", "distance", "distinct", "first", "last", "last_n", "max", "min", "speed", "sum"),
        "millrace.flow.aggregates",
    ),
    **dict.fromkeys(("approx_distinct", "frequent", "quantile", "quantiles"), "millrace.flow.sketches"),
    **dict.fromkeys(("latest", "top"), "millrace.flow.top"),
    **dict.fromkeys(("redis", "redis_ranking"), "millrace.sinks.redis"),
    **dict.fromkeys(("session", "window"), "millrace.flow.windows"),
    "Log": "millrace.log",
    "as_of": "millrace.flow.as_of",
    "dedup": "millrace.flow.dedup",
    "files": "millrace.sinks.files",
    "function": "millrace.sinks.function",
    "join": "millrace.flow.joins",
    "lake": "millrace.sinks.lake",
    "lookback": "millrace.flow.lookback",
    "lookup": "millrace.flow.lookups",
    "match": "millrace.flow.matches",
    "MillraceError": "millrace.errors",
    "now": "millrace.engine",
    "opensearch": "millrace.sinks.opensearch",
    "postgres": "millrace.sinks.postgres",
    "rabbitmq": "millrace.sinks.rabbitmq",
    "score": "millrace.flow.score",
    "terminal": "millrace.sinks.terminal",
    "webhook": "millrace.sinks.webhook",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
