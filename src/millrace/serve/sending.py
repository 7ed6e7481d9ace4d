"""Events on their way into topics: what one request brings is written wholly and once, or not at all.

One thread writes what all requests brought meanwhile in one transaction of Kafka, together with their idempotency keys,
which are records of a topic of their own. So a key is known if and only if its events are there, also after kill -9.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import socket
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millrace.config import Listen
from millrace.errors import IdempotencyKeyReused, RecordTooLarge, ServerBusy
from millrace.flow import Topic
from millrace.flow.keys import record_key
from millrace.log import Draft, Log, Transactions
from millrace.log.topics import DEFAULT_LIMIT_BYTES, LIMIT
from millrace.serve.fitting import Event

KEYS = "_millrace.serve.keys"
# For how long, and of how many requests, a key is known.
KEYS_STAY, MOST_KEYS = timedelta(days=1), 200_000
WAITING = 1_000
AT_ONCE = 200
ANSWER_S = 60.0
# Kafka's own bytes around a record.
_AROUND_BYTES = 512


@dataclass(frozen=True)
class Post:
    """What one request brings, and where its answer goes."""

    topic: str
    drafts: Sequence[Draft]
    key: str | None
    digest: str
    answer: asyncio.Future[dict[str, Any]]

    @property
    def known_by(self) -> str:
        return f"{self.topic}\n{self.key}"


class Sender:
    """Its thread starts with the first events."""

    def __init__(self, log: Log, app: str, listen: Listen) -> None:
        self._log = log
        # A server that takes another's place, on the same address, ends what that left open.
        self._name = f"{app}-serve-{socket.gethostname()}-{listen.port}"
        self._posts: queue.Queue[Post | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limits: dict[str, int] = {}
        # These belong to the thread.
        self._keys: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()
        self._writer: Transactions | None = None

    async def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._posts.put(None)
            await asyncio.to_thread(self._thread.join, 10.0)

    async def send(self, topic: Topic, events: Sequence[Event], key: str | None) -> dict[str, Any]:
        """Returns when they are committed, on all in-sync replicas."""
        drafts = await self._drafts(topic, events)
        self._loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
            self._thread.start()
        digest = hashlib.sha256("\n".join(event.text for event in events).encode()).hexdigest()
        post = Post(topic.name, drafts, key, digest, self._loop.create_future())
        try:
            self._posts.put_nowait(post)
            async with asyncio.timeout(ANSWER_S):
                return await post.answer
        except (queue.Full, TimeoutError):
            raise ServerBusy(seconds=ANSWER_S) from None

    async def _drafts(self, topic: Topic, events: Sequence[Event]) -> list[Draft]:
        if topic.name not in self._limits:
            self._limits[topic.name] = await asyncio.to_thread(self._limit, topic)
        drafts = []
        for event in events:
            key = record_key(topic.key, event.row)
            draft = Draft(topic.name, event.text.encode(), None if key is None else key.encode())
            size_bytes = len(draft.value or b"") + len(draft.key or b"") + _AROUND_BYTES
            if size_bytes > self._limits[topic.name]:
                raise RecordTooLarge(topic=topic.name, size_bytes=size_bytes, limit_bytes=self._limits[topic.name])
            drafts.append(draft)
        return drafts

    def _limit(self, topic: Topic) -> int:
        self._log.topics.ensure(topic.name, partitions=topic.partitions)
        return int(self._log.topics.config(topic.name).get(LIMIT) or DEFAULT_LIMIT_BYTES)

    def _run(self) -> None:
        posts: list[Post] = []
        while True:
            # A key that came twice at once: the second is answered when the first is written.
            if not posts:
                if (first := self._posts.get()) is None:
                    return
                posts = [first]
            while len(posts) < AT_ONCE:
                try:
                    found = self._posts.get_nowait()
                except queue.Empty:
                    break
                if found is None:
                    self._posts.put(None)
                    break
                posts.append(found)
            posts = self._write(posts)

    def _write(self, posts: list[Post]) -> list[Post]:
        """Returns those that have to wait for others among them."""
        try:
            self._open()
            fresh, later = self._sorted(posts)
            if fresh:
                self._commit(fresh)
            return later
        except Exception as error:
            self._writer = None
            for post in posts:
                self._answered(post, error)
        return []

    def _sorted(self, posts: list[Post]) -> tuple[list[Post], list[Post]]:
        fresh: list[Post] = []
        later: list[Post] = []
        taken: set[str] = set()
        for post in posts:
            if post.key is None:
                fresh.append(post)
            elif (known := self._keys.get(post.known_by)) is not None:
                digest, answer = known
                again = {**answer, "repeated": True}
                self._answered(post, again if digest == post.digest else IdempotencyKeyReused(key=post.key))
            elif post.known_by in taken:
                later.append(post)
            else:
                taken.add(post.known_by)
                fresh.append(post)
        return fresh, later

    def _commit(self, posts: list[Post]) -> None:
        assert self._writer is not None
        keys = [
            Draft(KEYS, json.dumps({"digest": post.digest, "written": len(post.drafts)}).encode(), _bytes(post))
            for post in posts
            if post.key is not None
        ]
        places = self._writer.write([*(draft for post in posts for draft in post.drafts), *keys])
        first = 0
        for post in posts:
            own = places[first : first + len(post.drafts)]
            first += len(post.drafts)
            answer = {"topic": post.topic, "written": len(own), "repeated": False}
            if post.key is not None:
                self._known(post.known_by, post.digest, answer)
            offsets = {str(number): offset for number, offset in own}
            self._answered(post, {**answer, "offsets": offsets})

    def _known(self, name: str, digest: str, answer: dict[str, Any]) -> None:
        self._keys[name] = (digest, answer)
        if len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)

    def _open(self) -> None:
        """A writer, and then the keys: what an earlier one left open is ended by then."""
        if self._writer is not None:
            return
        stay_ms = str(round(KEYS_STAY.total_seconds() * 1_000))
        self._log.topics.ensure(
            KEYS, partitions=1, config={"cleanup.policy": "compact,delete", "retention.ms": stay_ms}
        )
        writer = self._log.transactions(self._name)
        self._keys.clear()
        for record in self._log.read(KEYS):
            told = record.json()
            name = (record.key or b"").decode()
            answer = {"topic": name.partition("\n")[0], "written": told["written"], "repeated": False}
            self._known(name, told["digest"], answer)
        self._writer = writer

    def _answered(self, post: Post, answer: dict[str, Any] | Exception) -> None:
        assert self._loop is not None

        def answered() -> None:
            if post.answer.done():
                return
            if isinstance(answer, Exception):
                post.answer.set_exception(answer)
            else:
                post.answer.set_result(answer)

        self._loop.call_soon_threadsafe(answered)


def _bytes(post: Post) -> bytes:
    return post.known_by.encode()
