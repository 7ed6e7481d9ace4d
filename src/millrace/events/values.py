"""Python values as JSON and back, exactly: what was written is what is read, or it is refused. No pickle.

| Python                         | JSON                                     | shape                           |
| ------------------------------ | ---------------------------------------- | ------------------------------- |
| str, bool, int                 | the same                                 | "text", "boolean", "integer"    |
| float                          | number; not NaN, not infinite            | "number"                        |
| Decimal                        | "12.50", digits and exponent as they are | "decimal"                       |
| datetime, with a zone          | "2026-01-01T10:00:00.000001+00:00"       | "time"                          |
| date, UUID                     | "2026-01-01", "5f0c…"                    | "date", "uuid"                  |
| Enum of texts or of integers   | the member's value                       | {"enum": [values]}              |
| dataclass                      | object                                   | {"record": {field: shape}}      |
| list, tuple[T, …], (frozen)set | array                                    | {"list": shape}                 |
| dict[str, T]                   | object                                   | {"map": shape}                  |
| dict[K, T]                     | array of pairs                           | {"pairs": [shape, shape]}       |
| T | None                       | null, or as T                            | {"optional": shape}             |

`shape` is what the registry of schemas compares. A value is refused (ValueError, TypeError) in both directions.

The state of an aggregate is computed, and may hold 0 where a Decimal or a float is meant: Python and type checkers take
whole numbers for these. So `of_state` keeps them, as the numbers that they are.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Shape: TypeAlias = str | dict[str, Any]
Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Codec:
    """How values of one type become JSON and come back."""

    encode: Convert
    decode: Convert
    shape: Shape


Plain: TypeAlias = Mapping[Any, Codec]


def of_state(hint: Any) -> Codec:
    """The codec of a type as an aggregate's state may hold it."""
    return codec(hint, plain=_IN_STATE)


def codec(hint: Any, names: Mapping[str, Any] | None = None, *, plain: Plain | None = None) -> Codec:
    """The codec of a type; TypeError, in words, of one that has none. `names` are for annotations of dataclasses."""
    plain = _PLAIN if plain is None else plain
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint in plain:
        return plain[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (list, set, frozenset, dict) and not inner:
        raise TypeError(f"{hint} does not say of what")
    if origin in (Union, types.UnionType):
        return _optional(inner, names, plain)
    if origin in (list, set, frozenset) or (origin is tuple and len(inner) == 2 and inner[1] is ...):
        return _collection(origin, codec(inner[0], names, plain=plain))
    if origin is dict:
        return _mapping(codec(inner[0], names, plain=plain), codec(inner[1], names, plain=plain))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return Record(hint, names, plain).codec()
    shown = getattr(hint, "__name__", None) if isinstance(hint, type) else None
    raise TypeError(f"{shown or hint} has no exact form in JSON")


def _same(kind: type, word: str) -> Codec:
    def checked(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not a {word}")
        return value

    return Codec(checked, checked, word)


def _by_text(kind: type, word: str, write: Convert, read: Convert) -> Codec:
    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not a {word}")
        return write(value)

    def decode(text: Any) -> Any:
        if type(text) is not str:
            raise TypeError(f"{text!r} is not a {word}")
        try:
            return read(text)
        except (ValueError, ArithmeticError):
            raise ValueError(f"{text!r} is not a {word}") from None

    return Codec(encode, decode, word)


def _finite(value: Any) -> Any:
    if type(value) is not float:
        raise TypeError(f"{value!r} is not a float")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return value


def _number(value: Any) -> float:
    """JSON writes 2.0 and may be given 2."""
    return _finite(float(value) if type(value) is int else value)  # type: ignore[no-any-return]


def _zoned(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no zone; say which moment is meant: datetime.now(UTC)")
    return value.isoformat()


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.utcoffset() is None:
        raise ValueError(text)
    return found


def _digits(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value!r} is not a finite number")
    return str(value)


_PLAIN: Plain = {
    str: _same(str, "text"),
    bool: _same(bool, "boolean"),
    int: _same(int, "integer"),
    float: Codec(_finite, _number, "number"),
    Decimal: _by_text(Decimal, "decimal", _digits, Decimal),
    datetime: _by_text(datetime, "time", _zoned, _moment),
    date: _by_text(date, "date", date.isoformat, date.fromisoformat),
    UUID: _by_text(UUID, "uuid", str, UUID),
}


def _or_whole(known: Codec) -> Codec:
    """Whole numbers too, which stay whole."""

    def encode(value: Any) -> Any:
        return value if type(value) is int else known.encode(value)

    def decode(value: Any) -> Any:
        return value if type(value) is int else known.decode(value)

    return Codec(encode, decode, known.shape)


_IN_STATE: Plain = {**_PLAIN, float: _or_whole(_PLAIN[float]), Decimal: _or_whole(_PLAIN[Decimal])}


def _optional(inner: tuple[Any, ...], names: Mapping[str, Any] | None, plain: Plain) -> Codec:
    given = [each for each in inner if each is not type(None)]
    if len(given) != 1 or len(inner) != 2:
        raise TypeError("of a union only `T | None` has an exact form in JSON")
    known = codec(given[0], names, plain=plain)
    encode, decode = known.encode, known.decode
    return Codec(
        lambda value: None if value is None else encode(value),
        lambda value: None if value is None else decode(value),
        {"optional": known.shape},
    )


def _collection(kind: Any, item: Codec) -> Codec:
    def encode(values: Any) -> list[Any]:
        if not isinstance(values, kind):
            raise TypeError(f"{values!r} is not a {kind.__name__}")
        return [item.encode(value) for value in values]

    def decode(values: Any) -> Any:
        if type(values) is not list:
            raise TypeError(f"{values!r} is not a list")
        return kind(item.decode(value) for value in values)

    return Codec(encode, decode, {"list": item.shape})


def _mapping(key: Codec, value: Codec) -> Codec:
    def encode(found: Any) -> Any:
        if type(found) is not dict:
            raise TypeError(f"{found!r} is not a dict")
        pairs = [(key.encode(name), value.encode(each)) for name, each in found.items()]
        return dict(pairs) if key.shape == "text" else [list(pair) for pair in pairs]

    def decode(found: Any) -> Any:
        if type(found) is not (dict if key.shape == "text" else list):
            raise TypeError(f"{found!r} is not a map")
        pairs = found.items() if isinstance(found, dict) else found
        return {key.decode(name): value.decode(each) for name, each in pairs}

    return Codec(encode, decode, {"map": value.shape} if key.shape == "text" else {"pairs": [key.shape, value.shape]})


def _enum(kind: type[Enum]) -> Codec:
    values = [member.value for member in kind]
    if len({type(value) for value in values} & {str, int}) != 1 or not all(type(v) in (str, int) for v in values):
        raise TypeError(f"{kind.__name__} is not an enum of texts or of integers alone")

    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not a {kind.__name__}")
        return value.value

    return Codec(encode, kind, {"enum": values})


class Record:
    """A dataclass as an object. A field that is absent takes its default; one that the class does not know is refused,
    because it would be lost."""

    def __init__(self, kind: type, names: Mapping[str, Any] | None = None, plain: Plain | None = None) -> None:
        self.kind = kind
        self.hints = get_type_hints(kind, localns=dict(names or {}), include_extras=True)
        self.fields = {
            field.name: codec(self.hints[field.name], names, plain=plain)
            for field in dataclasses.fields(kind)
            if field.init
        }
        self._encoders = [(name, each.encode) for name, each in self.fields.items()]
        self._decoders = {name: each.decode for name, each in self.fields.items()}
        # A frozen dataclass sets its fields one by one through a slow door. Past it, where nothing stands at it.
        self._plain = not hasattr(kind, "__post_init__") and not hasattr(kind, "__slots__")
        self._plain = self._plain and all(field.init for field in dataclasses.fields(kind))

    def codec(self) -> Codec:
        return Codec(self.encode, self.decode, {"record": self.shape})

    @property
    def shape(self) -> dict[str, Shape]:
        return {name: each.shape for name, each in self.fields.items()}

    def encode(self, value: Any) -> dict[str, Any]:
        if type(value) is not self.kind:
            raise TypeError(f"{value!r} is not a {self.kind.__name__}")
        found = {}
        for name, encode in self._encoders:
            try:
                found[name] = encode(getattr(value, name))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name}: {error}") from None
        return found

    def decode(self, data: Any) -> Any:
        if type(data) is not dict:
            raise TypeError(f"{data!r} is not an object")
        decoders, values, name = self._decoders, {}, ""
        try:
            for name, value in data.items():
                values[name] = decoders[name](value)
        except KeyError:
            raise ValueError(f"{self.kind.__name__} has no field {name!r}, and it would be lost") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
        if self._plain and len(values) == len(decoders):
            made: Any = object.__new__(self.kind)
            made.__dict__.update(values)
            return made
        try:
            return self.kind(**values)
        except TypeError as error:
            raise ValueError(str(error)) from None
