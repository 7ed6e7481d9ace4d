"""`@event`: a frozen dataclass that the store can keep, with its name, its version, and the way up from older ones.

What an event is called and looks like outlives the code, so both are said, not derived: a class may be renamed if its
`name` stays, and a change of its fields is a new `version` with a small function that makes the old data new.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import FrameType, MappingProxyType, UnionType
from typing import Any, Generic, TypeAlias, TypeVar, Union, dataclass_transform, get_args, get_origin, overload

from millrace.errors import EventFromFuture, EventInvalid, EventUnreadable
from millrace.events.sealing import Personal, Subject
from millrace.events.values import Record

Class = TypeVar("Class", bound=type)
Kept = TypeVar("Kept", covariant=True)
Data: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[Data], Data]

_KIND = "__event__"


@dataclass(frozen=True)
class Kind:
    """What the store has to know of an event class. `personal` are the fields that are sealed, each with the field that
    names whose they are; None is the aggregate's own id."""

    name: str
    version: int
    record: Record
    upcasters: Mapping[int, Upcaster]
    personal: Mapping[str, str | None] = field(default_factory=dict)
    instead: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, event: object) -> Data:
        try:
            return self.record.encode(event)
        except (TypeError, ValueError) as error:
            remedy = "its fields are annotated with what they hold"
            raise EventInvalid(event=self.name, reason=error, remedy=remedy) from None

    def decode(self, data: Data, version: int, position: int, forgotten: bool = False) -> Any:
        """The event as the class has it now, from data of the given version. `forgotten`: some of it is, and a field
        that had another name then has nothing to stand instead."""
        if version > self.version:
            raise EventFromFuture(type=self.name, found=version, known=self.version)
        try:
            for number in range(version, self.version):
                data = self.upcasters[number](dict(data))
            if forgotten:
                empty = (name for name in self.instead if name in data and data[name] is None)
                data = {**data, **{name: self.instead[name] for name in empty if not self._optional(name)}}
            return self.record.decode(data)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise EventUnreadable(type=self.name, version=version, position=position, reason=reason) from error

    def _optional(self, name: str) -> bool:
        shape = self.record.fields[name].shape
        return isinstance(shape, dict) and "optional" in shape


@dataclass(frozen=True, slots=True)
class Recorded(Generic[Kept]):
    """One event as it stands in the store. `position` is its place among all, `version` that in its aggregate."""

    position: int
    aggregate: str
    id: str
    version: int
    at: datetime
    event: Kept
    type: str
    command: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def unchanged(data: Data) -> Data:
    """The upcaster of a version whose new fields all have defaults."""
    return data


@overload
def event(cls: Class, /) -> Class: ...
@overload
def event(
    *, name: str | None = None, version: int = 1, upcasters: Mapping[int, Upcaster] | None = None
) -> Callable[[Class], Class]: ...
@dataclass_transform(frozen_default=True)
def event(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    upcasters: Mapping[int, Upcaster] | None = None,
) -> Any:
    """Makes a class a frozen dataclass that the store can keep, under its name or the one given.

    `version` is that of its fields. `upcasters` lead there from older ones: the function under 1 is given the data of
    version 1 as a dict, and gives that of version 2. The chain has to be whole.
    """
    frame = sys._getframe(1)
    names = {**frame.f_globals, **frame.f_locals}

    def mark(made: type) -> type:
        if not dataclasses.is_dataclass(made):
            made = dataclass(frozen=True)(made)
        setattr(made, _KIND, _kind(made, name or made.__name__, version, upcasters or {}, names))
        return made

    return mark if cls is None else mark(cls)


def kind_of(made: type) -> Kind:
    found: Kind | None = vars(made).get(_KIND) if isinstance(made, type) else None
    if found is None:
        remedy = "write @event above its class"
        raise EventInvalid(event=getattr(made, "__name__", made), reason="it is not an event", remedy=remedy)
    return found


def events_of(function: Callable[..., Any], frame: FrameType) -> tuple[type, ...]:
    """The events that a function's second parameter is annotated with; `A | B` are both.

    An annotation may be a text, as `from __future__ import annotations` makes it. It is read by the names where it
    stands: those of the module, of a class body (`frame`) and of a function around it.
    """
    hint = list(inspect.signature(function).parameters.values())[1].annotation
    reason: object = "its second parameter is annotated with no event"
    if isinstance(hint, str):
        around = frame.f_back.f_locals if frame.f_back else {}
        try:
            hint = eval(hint, {**function.__globals__, **around, **frame.f_locals})  # noqa: S307 -- as get_type_hints
        except NameError as error:
            reason = error
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if not all(isinstance(each, type) and _KIND in vars(each) for each in kinds):
        remedy = "annotate it with a class that is marked @event, and defined above"
        raise EventInvalid(event=function.__qualname__, reason=reason, remedy=remedy)
    return kinds


def _kind(made: type, name: str, version: int, upcasters: Mapping[int, Upcaster], names: Mapping[str, Any]) -> Kind:
    def refuse(reason: object, remedy: str) -> EventInvalid:
        return EventInvalid(event=name, reason=reason, remedy=remedy)

    if not made.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise refuse("it can be changed", "@dataclass(frozen=True), or @event alone")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise refuse(f"its version is {version!r}", "a whole number from 1 on")
    if missing := sorted(set(range(1, version)) - set(upcasters)):
        remedy = f"upcasters={{{missing[0]}: …}}: a function of a dict; `unchanged` where defaults are enough"
        raise refuse(f"nothing leads from version {missing[0]} to {missing[0] + 1}", remedy)
    if beyond := sorted(set(upcasters) - set(range(1, version))):
        raise refuse(f"an upcaster leads from version {beyond[0]}, and it has {version}", "raise its version")
    try:
        record = Record(made, names)
    except (TypeError, NameError) as error:
        raise refuse(error, "see the table of types in docs/guide/event-sourcing.md") from None
    personal, instead = _personal(record, names, refuse)
    return Kind(name, version, record, MappingProxyType(dict(upcasters)), personal, instead)


def _marked(hint: Any, names: Mapping[str, Any]) -> bool:
    """Whether a mark stands somewhere in an annotation, or in a dataclass that it names."""
    if any(isinstance(mark, Personal | Subject) for mark in getattr(hint, "__metadata__", ())):
        return True
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return any(_marked(each, names) for each in Record(hint, names).hints.values())
    return any(_marked(each, names) for each in get_args(hint))


def _personal(
    record: Record, names: Mapping[str, Any], refuse: Callable[[object, str], EventInvalid]
) -> tuple[dict[str, str | None], dict[str, Any]]:
    for name, hint in record.hints.items():
        if _marked(get_args(hint)[0] if hasattr(hint, "__metadata__") else hint, names):
            remedy = f"mark the whole of it: {name}: Annotated[…, personal]"
            raise refuse(f"a part of {name!r} is marked, and only fields of the event itself are sealed", remedy)
    marks = {name: get_args(hint)[1:] for name, hint in record.hints.items() if hasattr(hint, "__metadata__")}
    subjects = [name for name, found in marks.items() if any(isinstance(mark, Subject) for mark in found)]
    for name in subjects:
        if record.fields[name].shape not in ("text", "uuid"):
            raise refuse(f"its subject {name!r} is no text", "a subject is known by a text or a UUID")
    if len(subjects) > 1:
        raise refuse("it has several subjects", "mark one, and name others: personal(of='customer')")
    whose: dict[str, str | None] = {}
    instead = {}
    for name, found in marks.items():
        for mark in found:
            if not isinstance(mark, Personal):
                continue
            of = mark.of or (subjects[0] if subjects else None)
            if of is not None and of not in record.fields:
                raise refuse(f"{name!r} is personal data of {of!r}, which is no field of it", "name one of its fields")
            try:
                instead[name] = record.fields[name].encode(mark.instead)
            except (TypeError, ValueError):
                remedy = 'personal(instead="…"), or a type that may be None'
                raise refuse(f"{name!r} can be forgotten, and then has no value", remedy) from None
            whose[name] = of
    return whose, instead
