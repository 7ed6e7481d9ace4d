"""What is neither read from views nor pushed: queries, events in, and how everything stands."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from millrace.errors import BodyTooLarge, BodyTooSlow, BodyUnreadable, MillraceError, RequestInvalid
from millrace.exposition import CONTENT_TYPE
from millrace.serve import query, waiting
from millrace.serve.answers import answer
from millrace.serve.fitting import Fitting, events_of
from millrace.serve.site import Site
from millrace.serve.tokens import Token

BODY_BYTES, BODY_S = 1024 * 1024, 10.0
LONGEST_KEY = 200
# An Idempotency-Key: ASCII, without spaces around it, which HTTP takes away.
KEY = rf"[!-~]([ -~]{{0,{LONGEST_KEY - 2}}}[!-~])?"


async def body(request: Request, limit_bytes: int = BODY_BYTES) -> bytes:
    """The body, of JSON, as far as we are willing to wait and to hold it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A page of another origin cannot send this type without asking first.
    if kind != "application/json":
        raise BodyUnreadable(reason=f"its type is {kind[:50] or 'not said'}")
    told = request.headers.get("content-length", "0")
    if not told.isdecimal() or int(told) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > limit_bytes:
                    raise BodyTooLarge(limit_bytes=limit_bytes)
    except TimeoutError:
        raise BodyTooSlow(seconds=BODY_S) from None
    except ClientDisconnect:
        raise BodyUnreadable(reason="the client went away") from None
    return bytes(found)


async def run_query(site: Site, request: Request, token: Token) -> Response:  # noqa: ARG001 -- a handler's signature
    raw = await body(request, 4 * query.MOST_LETTERS)
    try:
        asked = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BodyUnreadable(reason=str(error)[:200]) from None
    known = {"sql", "limit", *waiting.PARAMETERS}
    if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str) or set(asked) - known:
        raise BodyUnreadable(reason='it is not {"sql": "SELECT …"}, with or without "limit", "wait_for" and "wait_s"')
    if not isinstance(asked.get("wait_for", ""), str):
        raise BodyUnreadable(reason='its "wait_for" is not a text')
    limit = asked.get("limit", query.MOST_ROWS)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= query.MOST_ROWS:
        reason, remedy = "it is no such number", f"send a whole number from 1 to {query.MOST_ROWS}"
        raise RequestInvalid(parameter="limit", given=limit, reason=reason, remedy=remedy)
    wait_s = waiting.seconds(asked.get("wait_s", waiting.WAIT_S))
    found = await site.queries.answer(asked["sql"], limit, asked.get("wait_for"), wait_s)
    positions = json.dumps(found.positions)
    rows = ",".join(found.rows)
    return answer(f'{{"positions":{positions},"rows":[{rows}],"more":{json.dumps(found.more)}}}')


async def send_events(site: Site, request: Request, token: Token) -> Response:
    topic = site.topic(request.path_params["name"], token, "send")
    key = request.headers.get("idempotency-key")
    if key is not None and not re.fullmatch(KEY, key := key.strip(" \t")):
        reason, remedy = "it is no such text", f"send from 1 to {LONGEST_KEY} letters of ASCII"
        raise RequestInvalid(parameter="Idempotency-Key", given=key[:50], reason=reason, remedy=remedy)
    events = events_of(await body(request))
    if topic.name not in site.fittings:
        site.fittings[topic.name] = Fitting(topic)
    site.fittings[topic.name].check(events)
    return answer(await site.sender.send(topic, events, key))


async def flows(site: Site, request: Request, token: Token) -> Response:  # noqa: ARG001 -- a handler's signature
    return answer({"flows": await site.flows()})


async def lag(site: Site, request: Request, token: Token) -> Response:  # noqa: ARG001 -- a handler's signature
    """How far behind: flows their topics, views their tables."""
    told = ("flow", "state", "lag_records", "lag_s", "at")
    positions = await site.reading.positions()
    views = [{"view": name, **reached.told()} for name, (reached, _) in sorted(positions.items())]
    found = [{name: flow[name] for name in told} for flow in await site.flows()]
    return answer({"flows": found, "views": views})


async def metrics(site: Site, request: Request, token: Token) -> Response:  # noqa: ARG001 -- a handler's signature
    try:
        positions = {name: reached for name, (reached, _) in (await site.reading.positions()).items()}
    except MillraceError:  # what we count ourselves is told nevertheless
        positions = {}
    watchers = {name: len(feed.channel.watchers) for name, feed in site.feeds.all.items()}
    return answer(site.figures.text(site.gate.sockets, positions, watchers), kind=CONTENT_TYPE)


async def health(site: Site, request: Request, token: Token | None) -> Response:  # noqa: ARG001 -- a handler's signature
    """Whether views can be read, and those that are run are true of now. Strangers hear just that."""
    reason = ""
    still = await site.still()
    views: dict[str, Any] = {}
    try:
        positions = await site.reading.positions()
        for name in site.reading.views:
            views[name] = positions[name][0].told() if name in positions else None
    except MillraceError as error:
        reason = str(error)
    reason = reason or "; ".join(f"the view {name} stands still: {why}" for name, why in still.items())
    status = 503 if reason else 200
    if token is None or not token.allows("status"):
        return answer({"healthy": not reason}, status)
    told = {"app": site.graph.app, "healthy": not reason, "reason": reason, "views": views, "stands_still": still}
    return answer(told, status)
