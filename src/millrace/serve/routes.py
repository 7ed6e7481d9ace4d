"""One table of all that is served: the server routes by it, and OpenAPI is written from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

import millrace
from millrace.serve import handlers, pulling, push, query, waiting
from millrace.serve.answers import answer
from millrace.serve.site import Site
from millrace.serve.tokens import Token

Schema: TypeAlias = Mapping[str, Any]

_LSN = {"type": "string", "pattern": f"^{waiting.LSN}$"}
_POSITION: Schema = {
    "type": "object",
    "required": ["lsn", "epoch", "at", "age_s"],
    "properties": {
        "lsn": {"type": ["string", "null"]},
        "epoch": {"type": "integer"},
        "at": {"type": "string"},
        "age_s": {"type": "number"},
        "tentative": {"type": "integer"},
    },
}
_ROWS: Schema = {"type": "array", "items": {"type": "object"}}
_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "what", "fix"],
            "properties": {name: {"type": "string"} for name in ("code", "what", "fix")},
        }
    },
}
_NAME: Schema = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _parameter(name: str, about: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": about, "schema": schema}


_WAITING = (
    _parameter("wait_for", "answer when the view has everything committed up to this LSN: read your writes", _LSN),
    _parameter(
        "wait_s",
        "for so many seconds at most",
        {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3})?$", "default": str(waiting.WAIT_S)},
    ),
)
_NULL = _parameter("null", "columns that are null, separated by commas", {"type": "string"})


@dataclass(frozen=True)
class Route:
    """`scope` is what a token needs; {name} is that of the path. None: nothing, not even a token. `answers` are the
    statuses beside those that every route has."""

    method: str
    path: str
    handler: Any
    scope: str | None
    summary: str
    parameters: tuple[Schema, ...] = ()
    body: Schema | None = None
    found: Schema | None = None
    answers: tuple[int, ...] = ()


async def openapi(site: Site, request: Request, token: Token) -> Response:  # noqa: ARG001 -- a handler's signature
    return answer(described())


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/v1/views",
        pulling.views,
        "",
        "the views that the token may read, and what each of them is true of",
        found=_object(views={"type": "array", "items": {"type": "object"}}),
        answers=(503,),
    ),
    Route(
        "GET",
        "/v1/views/{name}",
        pulling.rows,
        "view:{name}",
        "rows of a view: any other parameter is a column, and its value what it must be equal to",
        (
            _NAME,
            _parameter("order", "columns, separated by commas, - in front for descending", {"type": "string"}),
            _parameter(
                "limit",
                "rows at most",
                {"type": "integer", "minimum": 1, "maximum": pulling.MOST_ROWS, "default": pulling.ROWS},
            ),
            _NULL,
            *_WAITING,
        ),
        found=_object(view={"type": "string"}, position=_POSITION, rows=_ROWS, more={"type": "boolean"}),
        answers=(400, 404, 503, 504),
    ),
    Route(
        "GET",
        "/v1/views/{name}/{key:path}",
        pulling.row,
        "view:{name}",
        "the row with this key; of a key of several columns each is a part of the path",
        (_NAME, {**_NAME, "name": "key"}, *_WAITING),
        found=_object(view={"type": "string"}, position=_POSITION, row={"type": "object"}),
        answers=(400, 404, 503, 504),
    ),
    Route(
        "POST",
        "/v1/query",
        handlers.run_query,
        "query",
        "one SELECT over the views",
        body={
            "type": "object",
            "required": ["sql"],
            "additionalProperties": False,
            "properties": {
                "sql": {"type": "string", "maxLength": query.MOST_LETTERS},
                "limit": {"type": "integer", "minimum": 1, "maximum": query.MOST_ROWS},
                "wait_for": _LSN,
                "wait_s": {"type": "number", "exclusiveMinimum": 0, "maximum": waiting.LONGEST_WAIT_S},
            },
        },
        found=_object(positions={"type": "object"}, rows=_ROWS, more={"type": "boolean"}),
        answers=(400, 408, 413, 503, 504),
    ),
    Route(
        "POST",
        "/v1/topics/{name}",
        handlers.send_events,
        "send:{name}",
        "events into a topic: all of them, once, or none",
        (
            _NAME,
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "the same key again writes nothing, and is answered as before",
                "schema": {"type": "string", "pattern": f"^{handlers.KEY}$"},
            },
        ),
        body={"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}, "minItems": 1}]},
        found=_object(topic={"type": "string"}, written={"type": "integer"}, repeated={"type": "boolean"}),
        answers=(400, 404, 408, 409, 413, 422, 503),
    ),
    Route("GET", "/v1/flows", handlers.flows, "status", "how the flows stand", found=_object(flows=_ROWS)),
    Route(
        "GET",
        "/v1/lag",
        handlers.lag,
        "status",
        "how far flows are behind their topics, and views behind their tables",
        found=_object(flows=_ROWS, views=_ROWS),
        answers=(503,),
    ),
    Route("GET", "/metrics", handlers.metrics, "status", "metrics of this server, for Prometheus"),
    Route(
        "GET",
        "/health",
        handlers.health,
        None,
        "whether views can be read, and move",
        found={"type": "object", "required": ["healthy"], "properties": {"healthy": {"type": "boolean"}}},
        answers=(503,),
    ),
    Route("GET", "/openapi.json", openapi, None, "this description", found={"type": "object"}),
)

SOCKETS: tuple[Route, ...] = (
    Route(
        "WS",
        "/v1/views/{name}/changes",
        push.view_changes,
        "view:{name}",
        "a snapshot, then changes; any parameter but after and null is a column, as when rows are read",
        (_NAME, _NULL, _parameter("after", "go on from there", {"type": "string"})),
    ),
    Route(
        "WS",
        "/v1/topics/{name}",
        push.topic_tail,
        "tail:{name}",
        "records as they come",
        (_NAME, _parameter("after", "go on from there", {"type": "string"})),
    ),
)

_ALWAYS = {401: "a token is missing, unknown or expired", 403: "it lacks the scope, or a page has no business here"}
_SAID = {
    400: "the request is wrong",
    404: "there is no such thing",
    408: "it took too long",
    409: "the key was used for something else",
    413: "it is too large",
    422: "an event does not fit",
    429: "too many requests",
    503: "a server is away, or busy",
    504: "the view was not that far in time",
}


def described() -> dict[str, Any]:
    """OpenAPI has no words for WebSockets: they are listed beside its paths."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route)
    sockets = {
        route.path: {"summary": route.summary, "parameters": list(route.parameters), "scope": route.scope}
        for route in SOCKETS
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "millrace serve", "version": millrace.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "x-websockets": sockets,
    }


def _operation(route: Route) -> dict[str, Any]:
    kind = "text/plain" if route.found is None else "application/json"
    fine = {"description": "found", "content": {kind: {"schema": route.found or {"type": "string"}}}}
    refused = {"application/json": {"schema": _ERROR}}
    codes = {**_SAID, **_ALWAYS}
    needed = () if route.scope is None else (401, 403, 429)
    responses = {"200": fine}
    for code in sorted({*route.answers, *needed}):
        found = fine["content"] if route.path == "/health" else refused
        responses[str(code)] = {"description": codes[code], "content": found}
    told: dict[str, Any] = {"summary": route.summary, "parameters": [dict(each) for each in route.parameters]}
    told["responses"] = responses
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    if route.scope is not None:
        told["security"] = [{"token": []}, {}]
        told["x-scope"] = route.scope
    return told
