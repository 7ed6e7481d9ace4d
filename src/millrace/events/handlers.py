"""What projections and sagas share: functions by the event they handle, and a place in the store's order."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from millrace.errors import DatabaseUnreachable, ProjectionInvalid
from millrace.events.kinds import Recorded, events_of

if TYPE_CHECKING:
    from millrace.events.store import Store

Handler: TypeAlias = Callable[..., None]

PAGE = 1_000
# How long a follower waits before it looks again. Writes of its own process wake it at once.
LOOK_S = 0.05
# And one whose database is away.
AWAY_S = 0.5

logger = logging.getLogger("millrace.events")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


class Patience:
    """Passes over a database that does not answer, with a pause. That it is away, and back, is logged once each."""

    def __init__(self, name: str, pause: Callable[[float], object] = time.sleep) -> None:
        self._name, self._pause, self._away = name, pause, False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if isinstance(error, DatabaseUnreachable):
            if not self._away:
                logger.warning("%s waits: %s", self._name, error)
            self._away = True
            self._pause(AWAY_S)
            return True
        if error is None and self._away:
            logger.warning("%s goes on", self._name)
            self._away = False
        return False


class Handlers:
    """Functions `(work, event)` or `(work, event, recorded)`, by the class of the event."""

    def __init__(self, name: str) -> None:
        self.name = checked(name)
        self.functions: dict[type, Handler] = {}

    def add(self, function: Handler, frame: FrameType) -> None:
        if _parameters(function) not in (2, 3):
            remedy = "def deposited(work, event: Deposited) -> None, and `recorded` as a third if it is wanted"
            raise ProjectionInvalid(name=self.name, reason=f"{function.__name__!r} takes otherwise", remedy=remedy)
        for event in events_of(function, frame):
            if event in self.functions:
                reason = f"two functions handle {event.__name__}"
                raise ProjectionInvalid(name=self.name, reason=reason, remedy="do both in one")
            self.functions[event] = function

    @property
    def events(self) -> tuple[type, ...]:
        if not self.functions:
            raise ProjectionInvalid(name=self.name, reason="it handles no event", remedy=f"write @{self.name}.on")
        return tuple(self.functions)

    def call(self, work: Any, recorded: Recorded[Any]) -> None:
        function = self.functions[type(recorded.event)]
        more = (recorded,) if _parameters(function) == 3 else ()
        function(work, recorded.event, *more)


@functools.lru_cache(maxsize=1_000)
def _parameters(function: Handler) -> int:
    return len(inspect.signature(function).parameters)


def checked(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or "__" in name:
        remedy = "a lower-case letter, then letters, digits and single _, at most 41: it names a schema too"
        raise ProjectionInvalid(name=name, reason="its name is not one", remedy=remedy)
    return name


@contextlib.contextmanager
def running(store: Store, name: str, step: Callable[[], int]) -> Iterator[None]:
    """Repeats a step, which gives the position it has come to, in a thread for the time of a `with` block. It goes on
    when the database is back that was away. What fails otherwise is logged at once, and raised at the block's end."""
    ended, failures = threading.Event(), []
    patience = Patience(name, ended.wait)

    def work() -> None:
        try:
            while not ended.is_set():
                with patience:
                    store.wait(step(), LOOK_S)
        except BaseException as error:
            logger.error("%s has ended: %s", name, error)
            failures.append(error)

    thread = threading.Thread(target=work, name=f"millrace-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        store.wake(0)
        thread.join()
    if failures:
        raise failures[0]
