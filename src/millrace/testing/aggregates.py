"""`given`: what an aggregate does, told in events. Given these, when this command, then these; no store, no server.

    given(Account, Opened("ann"), Deposited(Decimal(5))).when(Account.withdraw, Decimal(9)).refused(Overdrawn)

The code is that which runs: events go through the JSON of the store, and are read back from it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from millrace.errors import ExpectationMissed
from millrace.events import Aggregate, Refused
from millrace.events.kinds import kind_of

Own = TypeVar("Own", bound=Aggregate)


def given(kind: type[Own], *events: object, id: str = "1") -> Given[Own]:  # noqa: A002
    """An aggregate to which this has happened."""
    return Given(kind(id).fold(map(_through_json, events)))


class Given(Generic[Own]):
    def __init__(self, aggregate: Own) -> None:
        self.aggregate = aggregate

    def when(self, command: Callable[..., Any], *args: Any, **options: Any) -> Outcome[Own]:
        """The aggregate is given a command of its class: `Account.deposit`. What it raises is kept for `refused`."""
        before = copy.deepcopy(self.aggregate)
        raised: Exception | None = None
        try:
            command(self.aggregate, *args, **options)
        except Exception as error:
            raised = error
        return Outcome(self.aggregate, before, raised)

    def state(self, **expected: Any) -> Self:
        """Holds attributes of the aggregate to what they should be."""
        for name, value in expected.items():
            if getattr(self.aggregate, name) != value:
                raise ExpectationMissed(what=f"{name} is {getattr(self.aggregate, name)!r}, not {value!r}")
        return self


class Outcome(Given[Own]):
    """What came of a command."""

    def __init__(self, aggregate: Own, before: Own, raised: Exception | None) -> None:
        super().__init__(aggregate)
        self.raised = raised
        self._emitted = aggregate.pending[len(before.pending) :]
        before.fold(map(_through_json, self._emitted))
        ours, folded = _state(aggregate), _state(before)
        if ours != folded:
            differ = ", ".join(sorted(name for name in {*ours, *folded} if ours.get(name) != folded.get(name)))
            raise ExpectationMissed(what=f"the command changed {differ} itself: its events alone do not lead there")

    def then(self, *events: object) -> Self:
        """These were emitted, in this order, and no others."""
        if self.raised is not None:
            raise ExpectationMissed(what=f"the command was refused: {self.raised!r}") from self.raised
        if self._emitted != events:
            raise ExpectationMissed(what=f"it emitted {list(self._emitted)}, not {list(events)}")
        return self

    def refused(self, error: type[Exception] = Refused) -> Self:
        """The command raised this, and nothing was emitted."""
        if self.raised is None:
            raise ExpectationMissed(what=f"the command was not refused: it emitted {list(self._emitted)}")
        if not isinstance(self.raised, error):
            raise ExpectationMissed(what=f"it raised {self.raised!r}, not {error.__name__}") from self.raised
        return self


def _through_json(event: object) -> object:
    kind = kind_of(type(event))
    return kind.decode(kind.encode(event), kind.version, 0)


def _state(aggregate: Aggregate) -> dict[str, Any]:
    return {name: value for name, value in vars(aggregate).items() if not name.startswith("_")}
