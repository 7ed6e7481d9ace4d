"""What code is, as a short text that changes when it would compute something else from the same events."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any

from millrace.events.aggregate import Aggregate
from millrace.events.kinds import kind_of

# Raised when what Millrace itself writes into a snapshot would be read otherwise.
_FORM = 1
_PLAIN = (str, bytes, int, float, bool, complex, type(None))


def of_aggregate(cls: type[Aggregate]) -> str:
    """Of all its methods, its defaults and its events. Python's own version counts too: bytecode is its."""
    words: list[str] = [str(_FORM), sys.implementation.cache_tag or "", cls.__aggregate__.name]
    for base in cls.__mro__:
        if issubclass(base, Aggregate) and base is not Aggregate:
            words += _members(base)
    words += [repr((kind_of(e).name, kind_of(e).version, kind_of(e).record.shape)) for e in cls.__aggregate__.applies]
    words += [f"{name}: {hint}" for name, hint in cls.__aggregate__.state.items()]
    return digest(words)


def of_functions(functions: Iterable[Any], *more: str) -> str:
    return digest([*more, *(word for function in functions for word in _function(function, set()))])


def digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]


def _members(cls: type) -> list[str]:
    words: list[str] = []
    for name, value in sorted(vars(cls).items()):
        if name.startswith("__"):
            continue
        value = value.fget if isinstance(value, property) else value
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        found = _function(value, set()) if isinstance(value, FunctionType) else [_constant(value)]
        words += [name, *found]
    return words


def _function(function: Any, seen: set[Any]) -> list[str]:
    """Its code, and that of the functions and constants of modules that it names, whoever they call in turn."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or function in seen:
        return []
    seen.add(function)
    words = [*_code(function.__code__), repr(function.__defaults__ and [_constant(v) for v in function.__defaults__])]
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType):
            words += [name, *_function(value, seen)]
        elif not isinstance(value, type | ModuleType) and value is not None:
            words += [name, _constant(value)]
    return words


def _code(code: CodeType) -> list[str]:
    inner = [word for const in code.co_consts if isinstance(const, CodeType) for word in _code(const)]
    consts = [_constant(const) for const in code.co_consts if not isinstance(const, CodeType)]
    return [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), *consts, *inner]


def _names(code: CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return sorted({*code.co_names, *inner})


def _constant(value: Any) -> str:
    """A text that is the same in every process: no addresses, no order of a set."""
    if isinstance(value, frozenset | set):
        return repr(sorted(map(_constant, value)))
    if isinstance(value, tuple | list):
        return repr([_constant(each) for each in value])
    if isinstance(value, Enum):
        return str(value)
    if type(value) in _PLAIN or type(value).__module__ in ("decimal", "datetime", "uuid"):
        return repr(value)
    return type(value).__qualname__
