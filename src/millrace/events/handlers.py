"""What projections and sagas share: functions by the event they handle, and a place in the store's order."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from millrace.errors import ProjectionInvalid
from millrace.events.kinds import Recorded, events_of

if TYPE_CHECKING:
    from millrace.events.store import Store

Handler: TypeAlias = Callable[..., None]

PAGE = 1_000
# How long a follower waits before it looks again. Writes of its own process wake it at once.
LOOK_S = 0.05

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


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
    """Repeats a step, which gives the position it has come to, in a thread for the time of a `with` block. What fails
    in it is raised at the block's end."""
    ended, failures = threading.Event(), []

    def work() -> None:
        try:
            while not ended.is_set():
                store.wait(step(), LOOK_S)
        except BaseException as error:  # told at the end of the block
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
