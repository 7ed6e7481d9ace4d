"""Views, pulled: rows that fit a filter, one row by its key, and what each view is true of."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from millrace.errors import RequestInvalid, ViewUnknown
from millrace.serve import waiting
from millrace.serve.answers import answer
from millrace.serve.reading import Found, Wish
from millrace.serve.site import Site
from millrace.serve.tokens import Token

ROWS, MOST_ROWS = 100, 10_000
MOST_PARAMETERS = 50


async def views(site: Site, request: Request, token: Token) -> Response:  # noqa: ARG001 -- a handler's signature
    """Those that the token may read."""
    found = await site.reading.positions()
    listed = []
    for name in site.reading.views:
        if token.allows(f"view:{name}"):
            reached, shape = found.get(name, (None, None))
            columns = None if shape is None else dict(shape.columns)
            key = None if shape is None else shape.key
            position = None if reached is None else reached.told()
            listed.append({"view": name, "position": position, "columns": columns, "key": key})
    return answer({"views": listed})


async def rows(site: Site, request: Request, token: Token) -> Response:
    name = site.view(request.path_params["name"], token)
    wish = wished(request.query_params, ("order", "limit", *waiting.PARAMETERS))
    await waiting.wait_as_asked(site.reading, name, request.query_params)
    found = await site.reading.rows(name, wish)
    told = f'"rows":[{",".join(found.rows)}],"more":{json.dumps(found.more)}'
    return answer(f"{{{_told(name, found)},{told}}}")


async def row(site: Site, request: Request, token: Token) -> Response:
    name = site.view(request.path_params["name"], token)
    for parameter in request.query_params:
        if parameter not in waiting.PARAMETERS:
            raise _unknown(parameter, waiting.PARAMETERS)
    await waiting.wait_as_asked(site.reading, name, request.query_params)
    # A slash within a value is written %2F: what is decoded already cannot tell it from one between values.
    _, _, _, raw_name, *parts = request.scope["raw_path"].decode("ascii").split("/")
    if unquote(raw_name) != name:
        raise ViewUnknown(view=unquote(raw_name), hint="")
    found = await site.reading.row(name, [unquote(part) for part in parts])
    return answer(f'{{{_told(name, found)},"row":{found.rows[0]}}}')


def _told(name: str, found: Found) -> str:
    return f'"view":{json.dumps(name)},"position":{json.dumps(found.reached.told())}'


def wished(parameters: QueryParams, own: tuple[str, ...]) -> Wish:
    """`own` are the parameters that are not columns: a column of that name is written with a dot in front."""
    if len(parameters.multi_items()) > MOST_PARAMETERS:
        reason, remedy = "these are too many parameters", f"send {MOST_PARAMETERS} at most"
        raise RequestInvalid(parameter="the filter", given=len(parameters.multi_items()), reason=reason, remedy=remedy)
    equal: dict[str, str] = {}
    null: list[str] = []
    for name, value in parameters.multi_items():
        if name == "null":
            null += [column for column in value.split(",") if column]
        elif name not in own:
            column = name.removeprefix(".")
            if column in equal:
                reason, remedy = "it is there twice", "send each column once"
                raise RequestInvalid(parameter="the parameter", given=column[:100], reason=reason, remedy=remedy)
            equal[column] = value
    order = tuple(
        (part.removeprefix("-"), part.startswith("-")) for part in parameters.get("order", "").split(",") if part
    )
    return Wish(equal, tuple(null), order if "order" in own else (), _limit(parameters) if "limit" in own else 0)


def _limit(parameters: QueryParams) -> int:
    text = parameters.get("limit", str(ROWS))
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= MOST_ROWS:
        reason, remedy = "it is no such number", f"send a whole number from 1 to {MOST_ROWS}"
        raise RequestInvalid(parameter="limit", given=text[:100], reason=reason, remedy=remedy)
    return int(text)


def _unknown(parameter: str, known: tuple[str, ...]) -> RequestInvalid:
    reason, remedy = "there is no such parameter here", f"there are {', '.join(known)}"
    return RequestInvalid(parameter="the parameter", given=parameter[:100], reason=reason, remedy=remedy)
