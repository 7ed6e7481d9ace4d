"""What code is, as a short text that changes when it would compute something else from the same events.

It follows what the code names: functions, classes, constants, those of other modules of the user's too. Libraries it
does not look into, and what is reached by an attribute of a value (`account.rules.limit()`) it does not see.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, get_args

from millrace.events.aggregate import Aggregate
from millrace.events.kinds import kind_of

# Raised when what Millrace itself writes into a snapshot would be read otherwise.
_FORM = 1
_PLAIN = (str, bytes, int, float, bool, complex, type(None), type(...))
_LIBRARIES = {"site-packages", "dist-packages"}


def of_aggregate(cls: type[Aggregate]) -> str:
    """Of all its methods, its defaults and its events. Python's own version counts too: bytecode is its."""
    seen: set[Any] = set()
    words: list[str] = [str(_FORM), sys.implementation.cache_tag or "", cls.__aggregate__.name]
    for base in cls.__mro__:
        if base not in Aggregate.__mro__:
            words += _members(base, seen)
    for event in cls.__aggregate__.applies:
        words += _event(event, seen)
    for name, hint in cls.__aggregate__.state.items():
        words += [f"{name}: {hint}", *_hint(hint, seen)]
    return _digest(words)


def of_handlers(functions: Mapping[type, Any], *more: str) -> str:
    """Of functions by the event that each handles, and of those events."""
    seen: set[Any] = set()
    words = [*more]
    for event, function in functions.items():
        words += [*_event(event, seen), *_words(function, seen)]
    return _digest(words)


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogatepass")).hexdigest()[:24]


def _event(event: type, seen: set[Any]) -> list[str]:
    kind = kind_of(event)
    words = [repr((kind.name, kind.version, kind.record.shape)), *_members(event, seen)]
    for hint in kind.record.hints.values():
        words += _hint(hint, seen)
    for version, upcaster in sorted(kind.upcasters.items()):
        words += [str(version), *_words(upcaster, seen)]
    return words


def _hint(hint: Any, seen: set[Any]) -> list[str]:
    """The classes of the user's that an annotation names, in the order in which it does."""
    inner = [word for each in get_args(hint) for word in _hint(each, seen)]
    return inner + (_words(hint, seen) if isinstance(hint, type) and not get_args(hint) else [])


def _words(value: Any, seen: set[Any], names: tuple[str, ...] = ()) -> list[str]:
    """Texts that are the same in every process: no addresses, no order of a set. `names` are those by which a module is
    asked. What can be changed, and so hold itself, is looked at once."""
    if (
        hasattr(value, "__wrapped__")
        and not isinstance(value, type)
        and not (isinstance(value, FunctionType) and _own(value))
    ):
        return _words(value.__wrapped__, seen)  # what a decorator of a library's, or of ours, was given
    if isinstance(value, FunctionType | type | ModuleType) and not _own(value):
        return [getattr(value, "__module__", None) or "", getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, ModuleType):
        return _module(value, seen, names)
    if isinstance(value, FunctionType):
        return _function(value, seen)
    if isinstance(value, type):
        return [value.__qualname__, *(word for base in value.__mro__ if _own(base) for word in _members(base, seen))]
    if isinstance(value, BuiltinFunctionType):
        return [value.__qualname__]
    if isinstance(value, MethodType):
        return [*_words(value.__func__, seen), type(value.__self__).__qualname__]
    if isinstance(value, functools.partial):
        return [*_words(value.func, seen), *_words(value.args, seen), *_words(value.keywords, seen)]
    if isinstance(value, Enum):
        return [str(value), *_words(value.value, seen)]
    return _constant(value, seen)


def _constant(value: Any, seen: set[Any]) -> list[str]:
    if isinstance(value, list | dict | set):
        if id(value) in seen:
            return []
        seen.add(id(value))
    if isinstance(value, Mapping):
        return ["{", *(word for pair in value.items() for each in pair for word in _words(each, seen)), "}"]
    if isinstance(value, frozenset | set):
        return ["{", *sorted("\0".join(_words(each, seen)) for each in value), "}"]
    if isinstance(value, tuple | list):
        return ["[", *(word for each in value for word in _words(each, seen)), "]"]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = [getattr(value, each.name, None) for each in dataclasses.fields(value)]
        return [type(value).__qualname__, *_words(tuple(held), seen)]
    if type(value) in _PLAIN or type(value).__module__ in ("decimal", "datetime", "uuid", "fractions", "re"):
        return [repr(value)]
    return [type(value).__qualname__]


def _own(value: Any) -> bool:
    """Whether the user wrote it: neither Python's, nor a library's, nor what Millrace gives them."""
    if isinstance(value, FunctionType):
        name = value.__globals__.get("__name__")  # its `__module__` a decorator may have set
    else:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    if name is None:
        return True
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or (top == "millrace" and not name.startswith("millrace.demo")):
        return False
    module = sys.modules.get(name)
    return not _LIBRARIES & set(Path(getattr(module, "__file__", None) or "").parts)


def _module(module: ModuleType, seen: set[Any], names: tuple[str, ...]) -> list[str]:
    if (module, names) in seen:
        return []
    seen.add((module, names))
    return [word for name in names if name in vars(module) for word in (name, *_words(vars(module)[name], seen, names))]


def _members(cls: type, seen: set[Any]) -> list[str]:
    if cls in seen:
        return []
    seen.add(cls)
    words: list[str] = []
    for name, value in sorted(vars(cls).items()):
        value = value.fget if isinstance(value, property) else value
        value = value.func if isinstance(value, functools.cached_property) else value
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        written = isinstance(value, FunctionType) and value.__code__.co_filename != "<string>"  # by no decorator
        if written or not name.startswith("__"):
            words += [name, *_words(value, seen)]
    return words


def _function(function: FunctionType, seen: set[Any]) -> list[str]:
    """Its code, and what it names, whoever that calls in turn."""
    if function in seen:
        return []
    seen.add(function)
    words = [*_code(function.__code__, seen), *_words(function.__defaults__, seen)]
    words += _words(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        try:
            words += _words(cell.cell_contents, seen)
        except ValueError:  # a name that has no value yet
            words.append("")
    names = tuple(_names(function.__code__))
    for name in names:
        if name in function.__globals__:
            words += [name, *_words(function.__globals__[name], seen, names)]
    return words


def _code(code: CodeType, seen: set[Any]) -> list[str]:
    inner = [word for const in code.co_consts if isinstance(const, CodeType) for word in _code(const, seen)]
    consts = [word for const in code.co_consts if not isinstance(const, CodeType) for word in _words(const, seen)]
    return [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), *consts, *inner]


def _names(code: CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return sorted({*code.co_names, *inner})
