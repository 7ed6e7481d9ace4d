"""Topics that are fed from tables of the lake, by threads of the driver while an app runs."""

from __future__ import annotations

import contextlib
import threading

from millrace.engine.failures import first_line
from millrace.engine.plan import Flow
from millrace.errors import LakeFollowingFailed, LakeTableUnknown, MillraceError
from millrace.flow import Topic
from millrace.flow import schema as schemas
from millrace.lakehouse import Catalog
from millrace.lakehouse.following import Following
from millrace.log import Log

_LOOK_S = 1.0
# After a failure.
_AGAIN_S = 5.0


class LakeThread(threading.Thread):
    """Follows one table until stopped. One that is not there yet is waited for."""

    def __init__(self, topic: Topic, log: Log, wait_s: float = 0.0) -> None:
        super().__init__(name=f"follower of lake table {topic.lake}", daemon=True)
        self.topic, self._log, self._wait_s = topic, log, wait_s
        self._failure: MillraceError | None = None
        self._stopped = threading.Event()

    @property
    def told(self) -> str:
        return f"the follower of lake table {self.topic.lake}"

    def again(self) -> LakeThread:
        return LakeThread(self.topic, self._log, _AGAIN_S)

    def run(self) -> None:
        following = _following(self.topic, self._log, self._stopped)
        self._stopped.wait(self._wait_s)
        try:
            while not self._stopped.is_set():
                with contextlib.suppress(LakeTableUnknown):
                    _catch_up(self.topic, self._log, following)
                self._stopped.wait(_LOOK_S)
        except MillraceError as error:
            self._failure = error
        except Exception as error:  # of the libraries that read the table, and of the disk
            reason = first_line(str(error)) or type(error).__name__
            self._failure = LakeFollowingFailed(table=self.topic.lake, reason=reason, where=self.topic.where)

    def failure(self) -> MillraceError | None:
        """Why it ended by itself, if it did."""
        return self._failure

    def stop(self, timeout_s: float) -> None:
        self._stopped.set()
        self.join(timeout_s)


def catch_up(flow: Flow, log: Log) -> None:
    """Brings the topics that a flow reads to the newest versions of their tables."""
    for topic in flow.reads:
        if isinstance(topic, Topic) and topic.lake is not None:
            _catch_up(topic, log, _following(topic, log, threading.Event()))


def _following(topic: Topic, log: Log, stopped: threading.Event) -> Following:
    assert topic.schema is not None
    columns = list(schemas.columns(topic.name, topic.schema, topic.where))
    return Following(log, topic.name, columns, topic.where, stopped.is_set)


def _catch_up(topic: Topic, log: Log, following: Following) -> None:
    assert topic.lake is not None
    with Catalog(log.settings).opened(topic.lake, topic.where) as table:
        following.catch_up(table)
