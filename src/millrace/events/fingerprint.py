"""What code is, as a short text that changes when it would compute something else from the same events.

It follows what the code names: functions, classes, constants, those of other modules of the user's too. Libraries it
does not look into. Of an object it sees the class, but not its attributes: they may be other ones in every process.
What a function imports in its own body it does not see.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta, tzinfo
from decimal import Context, Decimal
from enum import Enum
from fractions import Fraction
from operator import attrgetter, itemgetter, methodcaller
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, get_args, get_type_hints
from uuid import UUID

from millrace.events.aggregate import Aggregate
from millrace.events.kinds import kind_of

# Raised when what Millrace itself writes into a snapshot would be read otherwise.
_FORM = 2
_PLAIN = (bool, str, bytes, bytearray, int, float, complex)
# Values of Python's own whose text says all of them.
_TOLD = (type(None), type(...), Decimal, Fraction, UUID, date, time, timedelta, tzinfo, range, slice,
         attrgetter, itemgetter, methodcaller)  # fmt: skip
_LIBRARIES = {"site-packages", "dist-packages"}

# What a list, dict or set held when it was first looked at: code that keeps something in one is the same code after.
_FIRST: dict[int, tuple[Any, list[Any]]] = {}


def of_aggregate(cls: type[Aggregate]) -> str:
    """Of all its methods, its defaults and its events. Python's own version counts too: bytecode is its."""
    events = cls.__aggregate__.applies
    reading = _Reading([cls, *events])
    words = [str(_FORM), sys.implementation.cache_tag or "", cls.__aggregate__.name]
    for base in cls.__mro__:
        if base not in Aggregate.__mro__:
            words += reading.members(base)
    for event in events:
        words += reading.event(event)
    for name, hint in cls.__aggregate__.state.items():
        words += [f"{name}: {hint}", *reading.hint(hint)]
    return _digest(words)


def of_handlers(functions: Mapping[type, Any], *more: str) -> str:
    """Of functions by the event that each handles, and of those events."""
    reading = _Reading([*functions, *functions.values()])
    words = [*more]
    for event, function in functions.items():
        words += [*reading.event(event), *reading.words(function)]
    return _digest(words)


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogatepass")).hexdigest()[:24]


class _Reading:
    """One look at code, as texts that are the same in every process: no addresses, no order of a set.

    What was met before is told by its number: that it is named once more says something, and it may hold itself.
    The packages of `roots` are the user's, also where they are installed among the libraries.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []  # so that no other object has the address of one that was met
        modules = {getattr(root, "__module__", None) or "" for root in roots}
        if "__main__" in modules and (spec := getattr(sys.modules["__main__"], "__spec__", None)) is not None:
            modules.add(spec.name)
        self._homes = {name.partition(".")[0] for name in modules} - {"millrace", "builtins", ""}

    def event(self, event: type) -> list[str]:
        kind = kind_of(event)
        shown = repr((kind.name, kind.version, kind.record.shape, sorted(kind.instead.items())))
        words = [shown, *self.words(event)]
        for hint in kind.record.hints.values():
            words += self.hint(hint)
        for version, upcaster in sorted(kind.upcasters.items()):
            words += [str(version), *self.words(upcaster)]
        return words

    def hint(self, hint: Any) -> list[str]:
        """The classes of the user's that an annotation names, in the order in which it does."""
        inner = [word for each in get_args(hint) for word in self.hint(each)]
        return inner + (self.words(hint) if isinstance(hint, type) and not get_args(hint) else [])

    def words(self, value: Any, names: tuple[str, ...] = ()) -> list[str]:
        """`names` are those by which a module is asked."""
        kind = type(value)  # not isinstance: what stands for another object may have none now
        if kind is FunctionType and (self._own(value) or not hasattr(value, "__wrapped__")):
            return self._function(value) if self._own(value) else _name(value)
        if issubclass(kind, type | ModuleType):
            if not self._own(value):
                return _name(value)
            return self._class(value) if issubclass(kind, type) else self._module(value, names)
        if kind is MethodType:
            return [*self.words(value.__func__), *self.words(value.__self__)]
        if kind is BuiltinFunctionType:
            of = value.__self__
            return [value.__qualname__, *([] if of is None or isinstance(of, ModuleType) else self.words(of))]
        if issubclass(kind, functools.partial | functools.partialmethod):
            return [*self.words(value.func), *self.words(value.args), *self.words(value.keywords)]
        if kind is functools.singledispatchmethod:
            return self.words(value.dispatcher)
        if (wrapped := _wrapped(value)) is not None:  # what a decorator of a library's, or of ours, was given
            return [*self._kind(value), *self.words(wrapped), *self.words(getattr(value, "registry", None))]
        return self._constant(value)

    def members(self, cls: type) -> list[str]:
        if (met := self._met(cls, cls)) is not None:
            return met
        words = [word for each in dataclasses.fields(cls) for word in self._field(each)] if _data(cls) else []
        words += [repr(vars(cls).get("__dataclass_params__"))]
        if issubclass(cls, Enum):
            words += [word for name, each in cls.__members__.items() for word in (name, *self.words(each.value))]
        for name, value in sorted(vars(cls).items()):
            value = value.fget if isinstance(value, property) else value
            value = value.func if isinstance(value, functools.cached_property) else value
            value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            written = isinstance(value, FunctionType) and value.__code__.co_filename != "<string>"  # by no decorator
            kept = issubclass(cls, Enum) and (name.startswith("_") or isinstance(value, Enum))  # by Enum, as it is used
            if written or not (kept or name.startswith("__")):
                words += [name, *self.words(value)]
        return words

    def _met(self, key: Any, value: Any) -> list[str] | None:
        if key in self._numbers:
            return [f"#{self._numbers[key]}"]
        self._numbers[key] = len(self._numbers)
        self._held.append(value)
        return None

    def _own(self, value: Any) -> bool:
        """Whether the user wrote it: neither Python's, nor a library's, nor what Millrace gives them."""
        if isinstance(value, FunctionType):
            name = value.__globals__.get("__name__")  # its `__module__` a decorator may have set
        else:
            name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        if not isinstance(name, str):
            return True
        top = name.partition(".")[0]
        if top in self._homes:
            return True
        if top in sys.stdlib_module_names or (top == "millrace" and not name.startswith("millrace.demo")):
            return False
        module = sys.modules.get(name)
        return not _LIBRARIES & set(Path(getattr(module, "__file__", None) or "").parts)

    def _kind(self, value: Any) -> list[str]:
        kind = type(value)
        return self._class(kind) if self._own(kind) else [kind.__qualname__]

    def _class(self, cls: type) -> list[str]:
        words = [cls.__qualname__]
        for base in cls.__mro__:
            words += self.members(base) if self._own(base) else _name(base)
        if _data(cls):
            with contextlib.suppress(Exception):  # a name that only a type checker knows
                words += [word for hint in get_type_hints(cls).values() for word in self.hint(hint)]
        return words

    def _field(self, field: dataclasses.Field[Any]) -> list[str]:
        made = field.default_factory
        return [field.name, repr((field.init, field.kw_only, field.compare)),
                *([] if made is dataclasses.MISSING else self.words(made))]  # fmt: skip

    def _constant(self, value: Any) -> list[str]:
        kind = type(value)
        if issubclass(kind, Enum):
            return [str(value.name), *self.words(value.value), *self._kind(value)]
        for plain in _PLAIN:
            if issubclass(kind, plain):
                return [plain.__repr__(value), *([] if kind is plain else self._kind(value))]
        if issubclass(kind, _TOLD):
            return [repr(value), *self._kind(value)]
        if kind is Context:
            traps = sorted(signal.__name__ for signal, raised in value.traps.items() if raised)  # not those it has seen
            return [repr((value.prec, value.rounding, value.Emin, value.Emax, value.capitals, value.clamp, traps))]
        if kind is re.Pattern:
            return [repr(value.pattern), str(value.flags)]
        return self._holder(value)

    def _holder(self, value: Any) -> list[str]:
        kind = type(value)
        if issubclass(kind, tuple):
            return ["[", *(word for each in value for word in self.words(each)), "]", *self._kind(value)]
        if (met := self._met(id(value), value)) is not None:
            return met
        if issubclass(kind, frozenset | set):
            each_alone = sorted("\0".join(self._apart(each)) for each in _first(value))
            return ["{", *each_alone, "}"]
        if issubclass(kind, list | deque):
            return ["[", *(word for each in _first(value) for word in self.words(each)), "]", *self._kind(value)]
        if issubclass(kind, Mapping) and kind is not type(os.environ):
            pairs = (each for pair in _first(value) for each in pair)
            return ["{", *(word for each in pairs for word in self.words(each)), "}", *self._kind(value)]
        if kind is SimpleNamespace:
            return self.words(vars(value))
        if _data(kind):
            held = tuple(getattr(value, each.name, None) for each in dataclasses.fields(kind))
            return [*self._kind(value), *self.words(held)]
        name = getattr(value, "__qualname__", None) if kind.__module__ == "builtins" else None
        return [*self._kind(value), name or ""]

    def _apart(self, value: Any) -> list[str]:
        """Of what stands in a set: its number must not depend on the order in which they are met."""
        apart = _Reading(())
        apart._homes = self._homes
        return apart.words(value)

    def _module(self, module: ModuleType, names: tuple[str, ...]) -> list[str]:
        if (met := self._met((module, names), module)) is not None:
            return met
        found = [name for name in names if name in vars(module)]
        return [word for name in found for word in (name, *self.words(vars(module)[name], names))]

    def _function(self, function: FunctionType) -> list[str]:
        """Its code, and what it names, whoever that calls in turn."""
        if (met := self._met(function, function)) is not None:
            return met
        words = [*self._code(function.__code__), *self.words(function.__defaults__)]
        words += self.words(tuple((function.__kwdefaults__ or {}).items()))
        for cell in function.__closure__ or ():
            try:
                words += self.words(cell.cell_contents)
            except ValueError:  # a name that has no value yet
                words.append("")
        names = tuple(_names(function.__code__))
        for name in names:
            if name in function.__globals__:
                words += [name, *self.words(function.__globals__[name], names)]
        return words

    def _code(self, code: CodeType) -> list[str]:
        inner = [word for const in code.co_consts if isinstance(const, CodeType) for word in self._code(const)]
        consts = [word for const in code.co_consts if not isinstance(const, CodeType) for word in self.words(const)]
        takes = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        # Which instructions stand in a `try` is written beside them.
        done = [code.co_code.hex(), code.co_exceptiontable.hex(), repr(takes)]
        return [*done, repr(code.co_names), repr(code.co_varnames), *consts, *inner]


def _name(value: Any) -> list[str]:
    return [getattr(value, "__module__", None) or "", getattr(value, "__qualname__", value.__name__)]


def _data(cls: type) -> bool:
    return dataclasses.is_dataclass(cls)


def _wrapped(value: Any) -> Any:
    try:
        return getattr(value, "__wrapped__", None)
    except Exception:  # what stands for an object that there is none of now
        return None


def _first(value: Any) -> list[Any]:
    held = list(value.items()) if isinstance(value, Mapping) else list(value)
    return _FIRST.setdefault(id(value), (value, held))[1]


def _names(code: CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return sorted({*code.co_names, *inner})
