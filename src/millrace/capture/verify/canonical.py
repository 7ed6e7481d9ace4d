"""Every value of a column as one text, the same whether PostgreSQL makes it or we make it from the topic's JSON.

Both sides hash these texts, so only digests have to travel. Equal texts mean equal values: numbers without trailing
zeros, times and floats as PostgreSQL's own bytes. A value of a shape that its type never has becomes a text that the
database never makes, and so counts as different. A type is one `Form`: an expression in SQL and its twin in Python.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from psycopg import sql

from millrace.capture.verify import clock

# All other texts are netstrings: what stands side by side cannot run together.
NULL = "-"
_STRANGE = "!"
# How the topic's JSON begins the text of an array that is no plain list: of several dimensions, or not counted from 1.
_WHOLE = "\0"


@dataclass(frozen=True)
class Form:
    """`expression` has `{}` for the column; `text` takes what JSON holds, never None."""

    expression: str
    text: Callable[[Any], str]

    def in_sql(self, column: sql.Composable) -> sql.Composed:
        return sql.SQL(self.expression.replace("{}", "{column}")).format(column=column)

    def netstring(self, value: Any) -> str:
        if value is None:
            return NULL
        try:
            text = self.text(value)
        except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, struct.error):
            text = _STRANGE + json.dumps(value, ensure_ascii=False)
        return f"{len(text)}:{text}"


def netstring_in_sql(form: Form, column: sql.Composable) -> sql.Composed:
    text = form.in_sql(column)
    return sql.SQL("CASE WHEN {0} IS NULL THEN '-' ELSE length({1}) || ':' || {1} END").format(column, text)


def form_of(name: str, kind: str = "b", array: bool = False) -> Form:
    """Of a type by its name and kind in the catalog (`int4` is a base type, b; an enum is e), or of arrays of it.

    Domains are to be looked through before, except in arrays: there the topic has their elements as they are printed.
    """
    form = _FORMS.get(name, _PRINTED) if kind == "b" else _PRINTED
    return _array(form, composite=kind == "c") if array else form


def _array(inner: Form, composite: bool) -> Form:
    # `unnest` would take rows apart; picking elements one by one takes long for long arrays.
    if composite:
        element, source = "({})[place]", "generate_subscripts({}, 1) AS place"
    else:
        element, source = "element", "unnest({}) WITH ORDINALITY AS each(element, place)"
    item = inner.expression.replace("{}", element)
    netstrings = f"string_agg(CASE WHEN {element} IS NULL THEN '-' ELSE length({item}) || ':' || {item} END, ''"
    expression = (
        "(CASE WHEN array_ndims({}) > 1 OR array_lower({}, 1) <> 1 THEN '=' || concat({}) ELSE '[' || coalesce(("
        + " ".join(("SELECT", netstrings, "ORDER BY place) FROM", source))
        + "), '') || ']' END)"
    )

    def text(value: Any) -> str:
        if not isinstance(value, list):
            raise TypeError
        if len(value) == 1 and isinstance(value[0], str) and value[0].startswith(_WHOLE):
            return "=" + value[0][1:]
        return f"[{''.join(map(inner.netstring, value))}]"

    return Form(expression, text)


def _integer(value: Any) -> str:
    return str(int(value))


def _boolean(value: Any) -> str:
    return {True: "true", False: "false", "true": "true", "false": "false"}[value]


def _text(value: Any) -> str:
    """A text stays as it is; what was another type before an ALTER TABLE is as PostgreSQL casts it."""
    if isinstance(value, bool):
        return _boolean(value)
    if not isinstance(value, str | int):
        raise TypeError
    return str(value)


def _padded(value: Any) -> str:
    return _text(value).rstrip(" ")


_WORDS = ("NaN", "Infinity", "-Infinity")
_PLAIN = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _numeric(value: Any) -> str:
    text = str(value)
    if text in _WORDS:
        return text
    if not _PLAIN.fullmatch(text):
        text = format(Decimal(text), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _float(code: str) -> Callable[[Any], str]:
    def text(value: Any) -> str:
        number = float(value)
        return "NaN" if number != number else struct.pack(code, number).hex()

    return text


def _bytes(value: Any) -> str:
    return base64.b64decode(value, validate=True).hex()


def _map(value: Any) -> str:
    """As jsonb prints it: shorter keys first, then by their bytes."""
    pairs = json.loads(value) if isinstance(value, str) else value
    keys = sorted(pairs, key=lambda key: (len(key.encode()), key.encode()))
    return json.dumps({key: pairs[key] for key in keys}, ensure_ascii=False)


_PRINTED = Form("concat({})", _text)  # by the type's output function, from which a cast to text differs for some types
_CAST = Form("{}::text", _text)
_FORMS = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), Form("{}::text", _integer)),
    **dict.fromkeys(("text", "varchar", "name", "json", "jsonb", "xml", "uuid"), _CAST),
    "bool": Form("{}::text", _boolean),
    "bpchar": Form("{}::text", _padded),
    "float4": Form("(CASE WHEN {} = 'NaN' THEN 'NaN' ELSE encode(float4send({}), 'hex') END)", _float(">f")),
    "float8": Form("(CASE WHEN {} = 'NaN' THEN 'NaN' ELSE encode(float8send({}), 'hex') END)", _float(">d")),
    "numeric": Form("trim_scale({})::text", _numeric),
    "money": Form("trim_scale({}::numeric)::text", _numeric),
    "bytea": Form("encode({}, 'hex')", _bytes),
    "date": Form("encode(date_send({}), 'hex')", clock.date),
    "time": Form("encode(time_send({}), 'hex')", clock.time),
    "timetz": Form("encode(timetz_send({}), 'hex')", clock.zoned_time),
    "timestamp": Form("encode(timestamp_send({}), 'hex')", clock.moment),
    "timestamptz": Form("encode(timestamptz_send({}), 'hex')", clock.moment),
    "interval": Form("encode(interval_send({}), 'hex')", clock.interval),
    "hstore": Form("CAST({} AS jsonb)::text", _map),
}
