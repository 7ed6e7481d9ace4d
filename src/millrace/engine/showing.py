"""Tentative rows of a view in real time on their way into the view store: a plain consumer of their topic.

What holds: what is shown of an epoch is put back when the epoch's mark says otherwise (`views/overlay.py`), and when
another incarnation of the flow speaks. So nothing depends on this: what it misses is there with the next mark.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from millrace.errors import MillraceError, ServerError
from millrace.log import Log
from millrace.views.changelog import tentative_topic
from millrace.views.overlay import Tentative
from millrace.views.store import Shape, Store
from millrace.views.tentative import GATHER_S, Told, newest

_AGAIN_S, _MENDED_S = 1.0, 30.0

_logger = logging.getLogger("millrace.engine")


class Showing(threading.Thread):
    """Of one view."""

    def __init__(self, shape: Shape, log: Log, app: str) -> None:
        super().__init__(name=f"showing {shape.view}", daemon=True)
        self._shape, self._log, self._app = shape, log, app
        self._ended = threading.Event()
        self._trouble: str | None = None

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except ServerError as error:  # the store is away, which whoever applies the changelog says
                _logger.debug("%s: %s", self._shape.view, error)
                self._ended.wait(_AGAIN_S)
            except Exception as error:
                # Whoever applies the changelog meets it too, says so, and goes on when somebody has seen to it.
                self._troubled(error)
                self._ended.wait(_MENDED_S)

    def end(self) -> None:
        self._ended.set()

    def _troubled(self, error: Exception) -> None:
        """Says it once: it is tried again and again until somebody has seen to it."""
        kind = error.code if isinstance(error, MillraceError) else type(error).__name__
        if kind != self._trouble:
            _logger.warning("%s is not shown in real time for now: %s", self._shape.view, error)
        self._trouble = kind

    def _follow(self) -> None:
        topic = self._log.topics.identity(self._shape.view)
        told = tentative_topic(self._shape.view)
        reader = self._log.reader(told, "latest", follow=True, stop=self._ended, gather_s=GATHER_S)
        incarnation = 0
        with closing(Store(self._log.settings, self._app)) as store, closing(reader.batches()) as batches:
            for messages in batches:
                spoke = newest(messages)
                if spoke > incarnation:
                    store.put_back(self._shape, topic)
                    incarnation = spoke
                store.show(self._shape, topic, _last(messages, incarnation))
                self._trouble = None


def _last(messages: Sequence[Any], incarnation: int) -> dict[str, Tentative]:
    """Of each key what was said last."""
    found = {}
    for message in messages:
        told, value = Told.of(message), message.value()
        if told.incarnation == incarnation:
            found[message.key().decode()] = Tentative(value and value.decode(), told.epoch)
    return found
