"""`Aggregate`: state that only its own events change, and commands that check and then emit.

A command sees the state as it is, and either raises (`Refused`, or any error) or emits events; they are applied when it
has ended, so a refused one leaves nothing behind. Only an `@apply` may set the state: everything else is told so.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, get_origin

from millrace.errors import AggregateInvalid, AggregateMisused, nearest
from millrace.events import checks
from millrace.events.kinds import events_of, kind_of

Given = ParamSpec("Given")
Result = TypeVar("Result")
Own = TypeVar("Own", bound="Aggregate")

_APPLIES = "__applies__"


class Refused(Exception):
    """What a command raises when the rules of the domain forbid it. Subclass it to name the rule."""


def apply(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Makes a method the one that changes the state by an event: that of its parameter's annotation (`A | B` of both).
    It must not fail: what happened, happened."""
    if len(inspect.signature(function).parameters) != 2:
        reason, remedy = "it takes self and the event", "def deposited(self, event: Deposited) -> None"
        raise AggregateInvalid(aggregate=function.__qualname__, reason=reason, remedy=remedy)
    kinds = events_of(function, sys._getframe(1))
    setattr(function, _APPLIES, kinds)
    return function


def command(function: Callable[Concatenate[Own, Given], Result]) -> Callable[Concatenate[Own, Given], Result]:
    """Makes a method a command: it checks, raises or emits, and never sets state."""

    @functools.wraps(function)
    def run(self: Own, /, *args: Given.args, **options: Given.kwargs) -> Result:
        if self._emitting is not None:
            reason = f"{function.__name__!r} is called by another command, whose events it would not see"
            raise AggregateMisused(aggregate=type(self).__name__, reason=reason)
        self._refuse_failed()
        emitted: list[Any] = []
        object.__setattr__(self, "_emitting", emitted)
        try:
            result = function(self, *args, **options)
        finally:
            object.__setattr__(self, "_emitting", None)
        # As they are now: a state that holds a list of theirs may change it later.
        happened = copy.deepcopy(emitted)
        self._take(emitted)
        self._pending.extend(happened)
        return result

    return run


@dataclass(frozen=True)
class Definition:
    """What is known of a class of aggregates: the name that the store knows it by, what changes it, and its state."""

    name: str
    applies: Mapping[type, Callable[[Any, Any], None]]
    state: Mapping[str, Any]


class Aggregate:
    """State of one thing, known by `id`, as its events made it.

    Annotated attributes are its state; those that have a default begin with it, others are set by the first event.
    `version` is the number of events so far, those not saved yet among them. The store knows it by the name of its
    class, or another: `class Account(Aggregate, name="account")`.
    """

    __aggregate__: ClassVar[Definition] = Definition("Aggregate", {}, {})

    _id: str
    _version: int
    _pending: list[Any]
    _emitting: list[Any] | None
    _applying: bool
    _failed: Exception | None

    def __init_subclass__(cls, name: str | None = None) -> None:
        super().__init_subclass__()
        name, applies = name or cls.__name__, dict(cls.__aggregate__.applies)
        for function in vars(cls).values():
            for event in getattr(function, _APPLIES, ()):
                if any(kind_of(known).name == kind_of(event).name and known is not event for known in applies):
                    reason = f"it has two events of the name {kind_of(event).name!r}"
                    raise AggregateInvalid(aggregate=name, reason=reason, remedy='@event(name="…")')
                applies[event] = function
        frame = sys._getframe(1)
        state = {**cls.__aggregate__.state, **_state(cls, name, {**frame.f_globals, **frame.f_locals})}
        cls.__aggregate__ = Definition(name, applies, state)

    def __init__(self, id: str) -> None:
        vars(self).update(
            _id=checks.text(f"the id of {self.__aggregate__.name}", id),
            _version=0,
            _pending=[],
            _emitting=None,
            _applying=False,
            _failed=None,
        )

    @property
    def id(self) -> str:
        return self._id

    @property
    def version(self) -> int:
        return self._version

    @property
    def pending(self) -> tuple[Any, ...]:
        """Events that were emitted and are not saved yet."""
        return tuple(self._pending)

    def emit(self, event: object) -> None:
        """Says that this happened. For commands, after all checks."""
        if self._emitting is None:
            raise AggregateMisused(aggregate=self.__aggregate__.name, reason="it emits outside of a @command")
        if type(event) not in self.__aggregate__.applies:
            raise self._unknown(type(event))
        self._emitting.append(event)

    def fold(self, events: typing.Iterable[Any]) -> Self:
        """Applies events that are in the store already."""
        self._take(events)
        return self

    def _take(self, events: typing.Iterable[Any]) -> None:
        own, applies = vars(self), self.__aggregate__.applies
        own["_applying"] = True
        try:
            for event in events:
                function = applies.get(type(event))
                if function is None:
                    raise self._unknown(type(event))
                function(self, event)
                own["_version"] += 1
        except Exception as error:  # of several events some are applied: it is neither what it was nor what it became
            own["_failed"] = error
            raise
        finally:
            own["_applying"] = False

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            reason = f"an @apply of it failed ({type(self._failed).__name__}: {self._failed}), so its state is no state"
            raise AggregateMisused(aggregate=self.__aggregate__.name, reason=reason) from self._failed

    def _unknown(self, event: type) -> AggregateMisused:
        hint = nearest(event.__name__, [known.__name__ for known in self.__aggregate__.applies])
        return AggregateMisused(
            aggregate=self.__aggregate__.name, reason=f"it has no @apply for {event.__name__}{hint}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._applying:
            raise AggregateMisused(aggregate=self.__aggregate__.name, reason=f"{name!r} is set outside of an @apply")
        if name not in self.__aggregate__.state:
            reason = f"{name!r} is set, and is no annotated attribute{nearest(name, self.__aggregate__.state)}"
            raise AggregateMisused(aggregate=self.__aggregate__.name, reason=reason)
        self.__dict__[name] = value

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__aggregate__.state if hasattr(self, name))
        return f"{type(self).__name__}({self.id!r}, version={self.version}{', ' if shown else ''}{shown})"


def _state(cls: type[Aggregate], aggregate: str, names: dict[str, Any]) -> dict[str, Any]:
    """The annotated attributes with their types. A default that can be changed would be shared by all."""
    found = {}
    for name, hint in inspect.get_annotations(cls).items():
        kind = _resolved(hint, names, cls, aggregate)
        if name.startswith("_") or get_origin(kind) is ClassVar or kind is ClassVar:
            continue
        if hasattr(Aggregate, name):
            reason = f"{name!r} is what every aggregate has already"
            raise AggregateInvalid(aggregate=aggregate, reason=reason, remedy="give the attribute another name")
        default = vars(cls).get(name)
        if type(default).__hash__ is None:  # as a list, a dict, a dataclass that is not frozen
            reason = f"{name!r} begins with a {type(default).__name__} that all would share"
            raise AggregateInvalid(aggregate=aggregate, reason=reason, remedy="set it in the @apply of the first event")
        found[name] = kind
    return found


def _resolved(hint: Any, names: dict[str, Any], cls: type[Aggregate], aggregate: str) -> Any:
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, {**vars(typing), **names}, dict(vars(cls)))  # noqa: S307 -- as typing.get_type_hints does
    except NameError as error:
        raise AggregateInvalid(aggregate=aggregate, reason=error, remedy="define it above the aggregate") from None
