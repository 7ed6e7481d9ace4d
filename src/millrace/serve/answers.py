"""Answers over HTTP: what is found, and errors as their sentence with a status."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.responses import Response

from millrace import errors
from millrace.errors import MillraceError, ServerError, Unexpected

_STATUSES: dict[type[MillraceError], int] = {
    errors.BodyUnreadable: 400,
    errors.TokenMissing: 401,
    errors.TokenInvalid: 401,
    errors.TokenExpired: 401,
    errors.ScopeMissing: 403,
    errors.OriginForeign: 403,
    errors.HostForeign: 403,
    errors.PathUnknown: 404,
    errors.ViewUnknown: 404,
    errors.TopicUnknown: 404,
    errors.RowUnknown: 404,
    errors.BodyTooSlow: 408,
    errors.IdempotencyKeyReused: 409,
    errors.BodyTooLarge: 413,
    errors.RecordTooLarge: 413,
    errors.EventUnfit: 422,
    errors.RequestsExceeded: 429,
    errors.QueryUnsafe: 503,
    errors.ViewBehind: 504,
}
# Said with every answer: nobody keeps it, guesses what it is, or shows it in a frame.
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
JSON = "application/json"

_logger = logging.getLogger("millrace.serve")


def status_of(error: MillraceError) -> int:
    return _STATUSES.get(type(error), 503 if isinstance(error, ServerError) else 400)


def answer(body: Any, status: int = 200, kind: str = JSON, **headers: str) -> Response:
    """`body` is a text, or what becomes JSON."""
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    return Response(text, status, {**HEADERS, **headers}, kind)


def refusal(error: MillraceError) -> Response:
    headers = {}
    if status_of(error) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status_of(error) in (429, 503):
        headers["Retry-After"] = "1"
    return answer({"error": {"code": error.code, "what": error.what, "fix": error.remedy}}, status_of(error), **headers)


def broken(error: Exception) -> Response:
    """What nobody foresaw: the log has it, the client learns nothing of what is inside."""
    _logger.error("a request failed", exc_info=error)
    code = Unexpected.code
    return answer({"error": {"code": code, "what": "the server failed", "fix": "see its log"}}, 500)
