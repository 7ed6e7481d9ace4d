"""The types of a view's expressions, as PostgreSQL has them, and which of Spark's types carries each.

A `numeric` of at most 38 digits is one of Spark's decimals, of which every value has the same scale. What may have more
digits, or a scale that depends on the value (a quotient), is *wide*: it goes through the chain as the text that
PostgreSQL would print. `mixed` is a decimal some of whose values have fewer digits after the point in PostgreSQL: they
are equal, but a quotient of them may be rounded at another place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_DIGITS = 38
# A product whose digits may be more than fit is taken for a decimal as long as so many are left before the point: what
# does not fit is an error then, never another value.
_LEAST_WHOLE = 18


@dataclass(frozen=True)
class Type:
    """`precision` 0 is a wide numeric; `length` is that of a char(n); `collation` "C" orders a text by its bytes, ""
    is one that is not known here; `element` is the type of an array's elements; `name` is that of an enum."""

    kind: str
    precision: int = 0
    scale: int = 0
    mixed: bool = False
    length: int = 0
    collation: str = ""
    element: Type | None = None
    name: str = ""

    @property
    def is_wide(self) -> bool:
        return self.kind == "numeric" and not self.precision

    @property
    def is_number(self) -> bool:
        return self.kind in NUMBERS

    @property
    def is_whole(self) -> bool:
        return self.kind in WHOLE

    @property
    def is_text(self) -> bool:
        return self.kind in ("text", "char")

    @property
    def is_ordered(self) -> bool:
        """Whether the kernel orders its values as PostgreSQL does."""
        return self.kind in _ORDERED or (self.is_text and self.collation == "C") or bool(self.precision)

    @property
    def is_compared(self) -> bool:
        """Whether PostgreSQL and the kernel agree about which values are the same."""
        return self.kind not in ("opaque", "json", "interval", "array")

    def __str__(self) -> str:
        if self.kind == "numeric" and self.precision:
            return f"numeric({self.precision},{self.scale})"
        if self.kind == "char":
            return f"char({self.length})"
        if self.element is not None:
            return f"{self.element}[]"
        return self.name or _SPOKEN.get(self.kind, self.kind)


WHOLE = ("smallint", "integer", "bigint")
NUMBERS = (*WHOLE, "numeric", "real", "double")
_ORDERED = (*WHOLE, "real", "double", "boolean", "date", "timestamp", "timestamptz", "time", "uuid")
_SPOKEN = {"double": "double precision", "opaque": "a type that is only passed on", "unknown": "a literal"}

SMALLINT, INTEGER, BIGINT = (Type(kind) for kind in WHOLE)
NUMERIC, REAL, DOUBLE = Type("numeric"), Type("real"), Type("double")
TEXT, BOOLEAN, DATE, UUID = Type("text"), Type("boolean"), Type("date"), Type("uuid")
TIMESTAMP, TIMESTAMPTZ, BYTEA = Type("timestamp"), Type("timestamptz"), Type("bytea")
TIME = Type("time")  # as PostgreSQL prints it, 12:00:00.5: the order of these texts is that of the times
UNKNOWN, OPAQUE, INTERVAL, ROW = Type("unknown"), Type("opaque"), Type("interval"), Type("row")
JSON = Type("json")  # its members can be asked for; jsonb too, which is told as the text that PostgreSQL prints

_NAMED = {
    "smallint": SMALLINT, "int2": SMALLINT, "integer": INTEGER, "int": INTEGER, "int4": INTEGER,
    "bigint": BIGINT, "int8": BIGINT, "oid": OPAQUE, "real": REAL, "float4": REAL, "float": DOUBLE,
    "double precision": DOUBLE, "float8": DOUBLE, "double": DOUBLE, "text": TEXT, "varchar": TEXT,
    "character varying": TEXT, "boolean": BOOLEAN, "bool": BOOLEAN, "date": DATE, "uuid": UUID,
    "timestamp": TIMESTAMP, "timestamp without time zone": TIMESTAMP, "timestamptz": TIMESTAMPTZ,
    "timestamp with time zone": TIMESTAMPTZ, "bytea": BYTEA, "numeric": NUMERIC, "decimal": NUMERIC,
    "json": JSON, "jsonb": JSON, "time": TIME, "time without time zone": TIME,
}  # fmt: skip
_SIZED = re.compile(r"(\w[\w ]*\w)\s*\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
_ROUNDED = re.compile(r"^(timestamp|timestamptz|time) ?\( ?\d ?\)")
_COLLATED = re.compile(r'(.+?)\s+collate\s+"c"', re.IGNORECASE)

_SPARK = {
    "smallint": "smallint", "integer": "int", "bigint": "bigint", "real": "float", "double": "double",
    "text": "string", "char": "string", "uuid": "string", "opaque": "string", "json": "string",
    "time": "string", "enum": "string",
    "boolean": "boolean", "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "bytea": "binary",
}  # fmt: skip


def named(name: str) -> Type:
    """A type by PostgreSQL's name for it; one that is not known here can be passed on, and no more."""
    if found := _COLLATED.fullmatch(name.strip()):
        return replace(named(found[1]), collation="C")
    # Its values have fewer digits already; a cast to it, which would round, is refused.
    name = _ROUNDED.sub(r"\1", " ".join(name.lower().split()))
    if found := _SIZED.fullmatch(name):
        base, first, second = found[1], int(found[2]), int(found[3] or 0)
        if base in ("numeric", "decimal"):
            return numeric(first, second) if first <= MOST_DIGITS and 0 <= second <= first else NUMERIC
        if base in ("char", "character", "bpchar"):
            return Type("char", length=first)
        return TEXT if base in ("varchar", "character varying") else OPAQUE
    if name in ("char", "character"):
        return Type("char", length=1)
    return _NAMED.get(name, OPAQUE)


def enum(name: str) -> Type:
    """Its labels are the same or not; their order is that of their declaration, which is not known here."""
    return Type("enum", name=name)


def spark(type_: Type) -> str:
    """Spark's type, as its DDL has it."""
    if type_.kind == "numeric":
        return f"decimal({type_.precision},{type_.scale})" if type_.precision else "string"
    if type_.element is not None:
        return f"array<{spark(type_.element)}>"
    return _SPARK[type_.kind]


_OF_SPARK = {
    "byte": SMALLINT, "tinyint": SMALLINT, "short": SMALLINT, "smallint": SMALLINT, "int": INTEGER, "integer": INTEGER,
    "long": BIGINT, "bigint": BIGINT, "float": REAL, "real": REAL, "double": DOUBLE, "string": TEXT,
    "boolean": BOOLEAN, "date": DATE, "timestamp": TIMESTAMPTZ, "timestamp_ltz": TIMESTAMPTZ,
    "timestamp_ntz": TIMESTAMP, "binary": BYTEA,
}  # fmt: skip


def of_spark(written: str) -> Type:
    """PostgreSQL's type for one of Spark's, as its DDL has it."""
    plain = written.lower().removesuffix("not null").strip()
    if found := _SIZED.fullmatch(plain):
        return numeric(int(found[2]), int(found[3] or 0)) if found[1] in ("decimal", "dec", "numeric") else OPAQUE
    return numeric(10, 0) if plain in ("decimal", "dec", "numeric") else _OF_SPARK.get(plain, OPAQUE)


def numeric(precision: int, scale: int, *, mixed: bool = False) -> Type:
    return Type("numeric", precision=max(precision, scale, 1), scale=scale, mixed=mixed)


def fitted(whole: int, scale: int, *, mixed: bool = False) -> Type:
    """A numeric of so many digits before and after the point."""
    if whole + scale <= MOST_DIGITS:
        return numeric(whole + scale, scale, mixed=mixed)
    return numeric(MOST_DIGITS, scale, mixed=mixed) if scale + _LEAST_WHOLE <= MOST_DIGITS else NUMERIC


def as_numeric(type_: Type) -> Type:
    """The numeric that a number of any exact type is."""
    return {"smallint": numeric(5, 0), "integer": numeric(10, 0), "bigint": numeric(19, 0)}.get(type_.kind, type_)


def added(left: Type, right: Type) -> Type:
    """The numeric of a sum or difference."""
    if left.is_wide or right.is_wide:
        return _wide(left, right)
    whole = max(left.precision - left.scale, right.precision - right.scale) + 1
    unsure = (left.mixed and left.scale >= right.scale) or (right.mixed and right.scale >= left.scale)
    return fitted(whole, max(left.scale, right.scale), mixed=unsure)


def multiplied(left: Type, right: Type) -> Type:
    if left.is_wide or right.is_wide:
        return _wide(left, right)
    whole = left.precision - left.scale + right.precision - right.scale
    return fitted(whole, left.scale + right.scale, mixed=left.mixed or right.mixed)


def arithmetic(left: Type, right: Type) -> Type | None:
    """The type in which PostgreSQL computes with two numbers: of numerics only that they are."""
    if not (left.is_number and right.is_number):
        return None
    kinds = {left.kind, right.kind}
    if "double" in kinds or ("real" in kinds and kinds != {"real"}):
        return DOUBLE
    if kinds == {"real"}:
        return REAL
    if "numeric" in kinds:
        return NUMERIC
    return Type(WHOLE[max(WHOLE.index(left.kind), WHOLE.index(right.kind))])


def common(found: Sequence[Type]) -> Type | None:
    """The type that values of several can be compared in, or be in one column; None if there is none. Literals take
    that of the others."""
    known = [type_ for type_ in found if type_.kind != "unknown"]
    if not known:
        return TEXT
    found_type: Type | None = known[0]
    for other in known[1:]:
        found_type = None if found_type is None else _both(found_type, other)
    return found_type


def _both(one: Type, other: Type) -> Type | None:
    if one == other:
        return one
    if one.is_number and other.is_number:
        shared = arithmetic(one, other)
        return shared if shared != NUMERIC else _wider(as_numeric(one), as_numeric(other))
    if one.is_text and other.is_text:
        collation = one.collation or other.collation
        if one.kind != other.kind:  # whose spaces at the end count depends on whether it is a text or a varchar
            return None
        return replace(one, length=max(one.length, other.length), collation=collation)
    if {one.kind, other.kind} == {"date", "timestamp"}:
        return TIMESTAMP
    return None


def _wide(one: Type, other: Type) -> Type:
    return replace(NUMERIC, mixed=one.mixed or other.mixed)


def _wider(one: Type, other: Type) -> Type:
    if one.is_wide or other.is_wide:
        return _wide(one, other)
    whole, scale = max(one.precision - one.scale, other.precision - other.scale), max(one.scale, other.scale)
    if whole + scale > MOST_DIGITS:
        return _wide(one, other)
    return numeric(whole + scale, scale, mixed=one.mixed or other.mixed or one.scale != other.scale)
