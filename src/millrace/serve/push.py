"""Views and topics, pushed: a WebSocket that is told of everything from a place on, in order and once.

What a client of a view hears: a snapshot (in parts, the last of which says so), then changes; of one in real time rows
that are tentative before the changes that make them certain (`uncertain`). Each message that leaves
the client with a whole state has an `after`; whoever comes back with it hears what came since. If that is not known any
more, it hears a snapshot again, which takes the place of all it had.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketDisconnect

from millrace.errors import MillraceError, RequestInvalid, SnapshotTooLarge, TailUnready, ViewBehind, ViewUnfilled
from millrace.serve import resume
from millrace.serve.epochs import Filter
from millrace.serve.fanout import Batch, Channel, SocketWatcher, Watcher
from millrace.serve.feed import Feed
from millrace.serve.gate import PROTOCOL
from millrace.serve.pulling import wished
from millrace.serve.reading import Found, Shape, Wish
from millrace.serve.site import Site
from millrace.serve.sockets import BEHIND, EXTENSION, TOO_LARGE, UNWELCOME, Socket
from millrace.serve.tokens import Token

READY_S = 10.0
SNAPSHOT_ROWS = 100_000
_PART_ROWS = 500
BEHIND_S, _LOOK_S = 20.0, 0.25


async def view_changes(site: Site, websocket: WebSocket, token: Token) -> None:
    view = site.view(websocket.path_params["name"], token)
    parameters = websocket.query_params
    wish = wished(parameters, ("after",))
    shape = await site.reading.shape(view)
    wanted = await _filter(site, shape, wish)
    place = resume.place(parameters["after"], wanted) if "after" in parameters else None
    feed = site.feed(view)
    if not await feed.channel.ready(READY_S):
        raise feed.trouble or ViewUnfilled(view=view)
    if feed.in_real_time:
        place = None  # of what was tentative when the client left nobody knows what it heard
    with _entered(site, websocket, token) as socket:
        await _accept(websocket)
        leaving = asyncio.create_task(_left(websocket, socket))
        try:
            await _told_of_changes(site, websocket, leaving, feed, wish, wanted, place)
        finally:
            leaving.cancel()


async def topic_tail(site: Site, websocket: WebSocket, token: Token) -> None:
    topic = site.topic(websocket.path_params["name"], token, "tail")
    parameters = websocket.query_params
    for name in parameters:
        if name != "after":
            reason, remedy = "there is no such parameter here", "there is after alone"
            raise RequestInvalid(parameter="the parameter", given=name[:100], reason=reason, remedy=remedy)
    place = resume.place(parameters["after"], None) if "after" in parameters else None
    tail = site.tail(topic.name)
    if not await tail.channel.ready(READY_S):
        raise tail.trouble or TailUnready(topic=topic.name, seconds=READY_S)
    with _entered(site, websocket, token) as socket:
        await _accept(websocket)
        leaving = asyncio.create_task(_left(websocket, socket))
        try:
            while not leaving.done():
                channel = tail.channel
                topic_id = channel.topic or ""
                known = None if place is None else channel.since(*place)
                if place is not None and known is None:
                    await websocket.send_text('{"type":"gap","reason":"what came since is not remembered"}')
                ends = place[1] if known is not None and place is not None else await _now(site, topic.name)
                after = resume.after(topic_id, ends, None)
                await websocket.send_text(json.dumps({"type": "begin", "after": after}))
                watcher = SocketWatcher(socket, None, ends, site.figures.pushed)
                await _watching(channel, watcher, known or [], leaving)
                place = (topic_id, dict(watcher.ends))  # it is read anew, and may be another one
        finally:
            leaving.cancel()


async def _now(site: Site, topic: str) -> dict[int, int]:
    """Where a topic ends. Whoever reads it for all may not be there yet, or have read what came a while ago."""
    held = await asyncio.to_thread(site.log.topics.offsets, topic)
    return {number: last for number, (_, last) in held.items()}


async def _filter(site: Site, shape: Shape, wish: Wish) -> Filter:
    for column in (*wish.equal, *wish.null):
        if column not in shape.columns or shape.columns[column].endswith("[]"):
            reason = "the view has no such column" if column not in shape.columns else "it is an array"
            remedy = f"its columns are {', '.join(shape.columns)}"
            raise RequestInvalid(parameter="the parameter", given=column[:100], reason=reason, remedy=remedy)
    values = await site.reading.normal(shape, wish.equal)
    by_key = all(column in shape.key for column in (*wish.equal, *wish.null))
    return Filter(tuple(sorted(values.items(), key=lambda each: each[0])), tuple(sorted(wish.null)), by_key)


async def _told_of_changes(
    site: Site,
    websocket: WebSocket,
    leaving: asyncio.Task[None],
    feed: Feed,
    wish: Wish,
    wanted: Filter,
    place: tuple[str, dict[int, int]] | None,
) -> None:
    socket = _socket(websocket)
    while not leaving.done():
        known = None if place is None else feed.channel.since(*place)
        if place is None or known is None:
            try:
                found = await _whole(site, feed, wish)
            except MillraceError as error:
                socket.drop(TOO_LARGE if isinstance(error, SnapshotTooLarge) else BEHIND, error.code)
                return
            for part in _parts(found, wanted):
                await websocket.send_text(part)
            place = found.reached.topic, dict(found.reached.ends)
            known = feed.channel.since(*place)
        if known is not None:  # otherwise it took so long that it has to begin again
            watcher = SocketWatcher(socket, wanted, place[1], site.figures.pushed)
            await _watching(feed.channel, watcher, [*known, *feed.guess()], leaving)
        place = None


async def _whole(site: Site, feed: Feed, wish: Wish) -> Found:
    """All rows that are wanted, from which one can go on: the store may be behind the feed, or ahead with a changelog
    that the feed has not seen yet."""
    deadline = time.monotonic() + BEHIND_S
    while True:
        found = await site.reading.rows(feed.view, Wish(wish.equal, wish.null, (), SNAPSHOT_ROWS))
        if found.more:
            raise SnapshotTooLarge(view=feed.view, limit_rows=SNAPSHOT_ROWS)
        known = feed.channel.since(found.reached.topic, found.reached.ends) is not None
        if known and found.reached.epoch >= feed.least_epoch:
            return found
        if time.monotonic() > deadline:
            wanted, reached = "its changelog", found.reached.lsn or "an older changelog"
            raise ViewBehind(view=feed.view, reached=reached, wanted=wanted, seconds=BEHIND_S)
        await asyncio.sleep(_LOOK_S)


def _parts(found: Found, wanted: Filter) -> Iterator[str]:
    """Sent at the pace at which the client takes them."""
    parts = [found.rows[first : first + _PART_ROWS] for first in range(0, len(found.rows), _PART_ROWS)] or [()]
    for number, part in enumerate(parts, 1):
        yield _part(found, number, part, wanted, last=number == len(parts))


def _part(found: Found, number: int, rows: Sequence[str], wanted: Filter, *, last: bool) -> str:
    position = json.dumps(found.reached.told())
    told = f'"part":{number},"last":{json.dumps(last)},"position":{position},"rows":[{",".join(rows)}]'
    after = f',"after":"{resume.after(found.reached.topic, found.reached.ends, wanted)}"' if last else ""
    return f'{{"type":"snapshot",{told}{after}}}'


async def _watching(channel: Channel, watcher: Watcher, known: Sequence[Batch], leaving: asyncio.Task[None]) -> None:
    """Until the client leaves, or cannot go on. Nothing is awaited between what is known and what comes."""
    for batch in known:
        watcher(batch)
    channel.watchers.add(watcher)
    anew = asyncio.create_task(watcher.anew.wait())
    try:
        await asyncio.wait((anew, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        channel.watchers.discard(watcher)
        anew.cancel()


async def _accept(websocket: WebSocket) -> None:
    protocol = PROTOCOL if PROTOCOL in websocket.scope.get("subprotocols", ()) else None
    await websocket.accept(protocol)


async def _left(websocket: WebSocket, socket: Socket) -> None:
    """When the client is gone. It has nothing to say."""
    try:
        await websocket.receive_text()
        socket.drop(UNWELCOME, "nothing is expected from the client")
    except (WebSocketDisconnect, KeyError, RuntimeError):
        return


def _socket(websocket: WebSocket) -> Socket:
    extensions: Mapping[str, Any] = websocket.scope["extensions"]
    return cast(Socket, extensions[EXTENSION]["socket"])


@contextmanager
def _entered(site: Site, websocket: WebSocket, token: Token) -> Any:
    socket = _socket(websocket)
    site.gate.enter(socket, token)
    try:
        yield socket
    finally:
        site.gate.leave(socket)
        if socket.dropped is not None:
            site.figures.dropped(socket.dropped[0])
