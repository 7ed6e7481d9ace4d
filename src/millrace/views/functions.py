"""Functions and casts of the SQL, resolved. Those whose answer depends on the database's or the session's settings, or
that Spark computes otherwise and nobody rewrites here, are refused."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millrace.views import literals, types
from millrace.views.expressions import Reader, Resolver, also, settle
from millrace.views.refusal import only, refuse, shown
from millrace.views.terms import Call, Term, Value, cast
from millrace.views.types import BOOLEAN, DOUBLE, INTEGER, NUMERIC, TEXT, TIMESTAMP, TIMESTAMPTZ, Type

_UNITS = {
    "year": types.numeric(10, 0), "quarter": types.numeric(1, 0), "month": types.numeric(2, 0),
    "week": types.numeric(2, 0), "day": types.numeric(2, 0), "doy": types.numeric(3, 0), "dow": types.numeric(1, 0),
    "isodow": types.numeric(1, 0), "hour": types.numeric(2, 0), "minute": types.numeric(2, 0),
    "second": types.numeric(8, 6), "epoch": types.numeric(20, 6),
}  # fmt: skip
_OF_DAYS = ("year", "quarter", "month", "week", "day", "doy", "dow", "isodow")
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _cast(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "to", "_type", "type")
    wanted = node.args["to"]
    sizes = [int(str(each.this)) for each in wanted.expressions if str(each.this).isdigit()]
    name = wanted.sql(dialect="postgres").lower()
    type_ = types.named(name)
    if name.startswith(("timestamp", "time")) and sizes:
        refuse(node, "a cast that rounds a time is not supported", "write date_trunc('second', …)")
    if name == "interval":
        type_ = types.INTERVAL
    if type_ in (types.OPAQUE, types.JSON) or (type_.kind == "interval" and not isinstance(node.this, exp.Literal)):
        instead = f"write {shown(node.this)} alone, if that is an enum" if isinstance(node.this, exp.Literal) else ""
        refuse(node, f"a cast to {wanted.sql(dialect='postgres')} is not supported in a view", instead)
    if sizes and (type_.is_wide or type_.kind in ("real", "double")):
        refuse(node, f"a cast to {shown(wanted)} is not supported in a view", "numeric(p,s) has at most 38 digits")
    term = self.term(node.this)
    if isinstance(term, Value) and term.type.kind == "unknown" and term.value is not None and not type_.is_text:
        return literals.exact(node, term.value) if type_.is_wide else literals.text(node, term.value, type_)
    term = settle(node, term, TEXT if type_.is_text else type_)
    if type_.kind == "char" and type_.length and not sizes:
        sizes = [type_.length]
    if type_.is_text and sizes:
        whole = term if term.type.is_text else converted(node, term, TEXT)
        return cast(Call("substring", (cast(whole, TEXT),), TEXT, (1, sizes[0])), type_)
    if term.type == type_ or (term.type.kind == "numeric" and type_ == NUMERIC):
        return term
    return converted(node, term, type_)


# Kinds that are printed in one way, whatever the session's settings are.
_PRINTED = ("numeric", "boolean", "uuid", "time", "enum")


def converted(node: exp.Expression, term: Term, type_: Type) -> Term:
    """An explicit cast, if it means the same wherever it is computed."""
    one, other = term.type, type_
    if "timestamptz" in (one.kind, other.kind):
        refuse(node, "this cast depends on the session's time zone", "convert it first: … AT TIME ZONE 'UTC'")
    if one.kind in ("real", "double") and other.kind == "numeric":
        refuse(
            node,
            "this cast keeps 15 digits of a double precision and drops the others",
            "keep it as it is, or round() it",
        )
    if one.kind == "numeric" and other.is_text and (one.is_wide or one.mixed):
        refuse(node, "how many zeros a numeric ends with is not kept", "cast it before: (…)::numeric(20,2)::text")
    if one.is_text and other.is_wide:
        refuse(node, "a text as a numeric without a scale is not supported in a view", "say one: (…)::numeric(38,2)")
    allowed = (
        (one.is_number and other.is_number)
        or (other.is_text and (one.is_text or one.is_whole or one.kind in _PRINTED))
        or (one.is_text and (other.is_whole or other.precision > 0))
        or (one.kind, other.kind) in (("boolean", "integer"), ("integer", "boolean"), ("date", "timestamp"))
        or (one.kind, other.kind) == ("timestamp", "date")
    )
    if one.kind == "opaque":
        refuse(node, f"a cast of {one}", "show it as it is, and cast it where the view is read")
    if not allowed:
        refuse(node, f"a cast of {one} to {other} is not supported in a view")
    if other.kind == "char":
        return cast(cast(term, TEXT), other)
    return cast(term, types.as_numeric(one)) if one.is_whole and other == NUMERIC else cast(term, other)


def _at_time_zone(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "zone")
    term = self.term(node.this)
    zone = node.args["zone"]
    if not isinstance(zone, exp.Literal) or zone.this.upper() not in ("UTC", "GMT", "ETC/UTC"):
        refuse(node, "other time zones than 'UTC' are not supported in a view", "convert it when the view is read")
    if term.type.kind == "timestamptz":
        return Call("cast", (term,), TIMESTAMP)
    if term.type.kind == "timestamp":
        return Call("cast", (term,), TIMESTAMPTZ)
    refuse(node, f"{term.type} has no time zone")


def _extract(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression")
    unit = str(node.this.this).lower()
    seconds = node.expression.unnest()
    if unit == "epoch" and isinstance(seconds, exp.Sub):
        left, right = self.term(seconds.this), self.term(seconds.expression)
        if left.type == right.type and left.type.kind in ("timestamp", "timestamptz"):
            return Call("seconds", (left, right), _UNITS["epoch"])
    term = self.term(node.expression)
    known = _OF_DAYS if term.type.kind == "date" else tuple(_UNITS)
    if term.type.kind == "timestamptz" and unit != "epoch":
        refuse(node, f"the {unit} of a timestamptz depends on the session's time zone", "write … AT TIME ZONE 'UTC'")
    if unit not in known or term.type.kind not in ("date", "timestamp", "timestamptz"):
        refuse(node, f"{unit} of {term.type} is not supported in a view", f"choose from {', '.join(known)}")
    return Call("extract", (term,), _UNITS[unit], (unit,))


def _date_trunc(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "unit")
    term, unit = self.term(node.this), str(node.args["unit"].this).lower()
    if term.type.kind == "timestamptz":
        refuse(node, "date_trunc of a timestamptz depends on the session's time zone", "write … AT TIME ZONE 'UTC'")
    if term.type.kind != "timestamp":
        refuse(node, f"date_trunc of {term.type} is not supported in a view", "cast it to timestamp")
    if unit not in _TRUNCATED:
        refuse(node, f"date_trunc to {unit} is not supported", f"choose from {', '.join(_TRUNCATED)}")
    return Call("date_trunc", (term,), TIMESTAMP, (unit,))


def _text(self: Resolver, node: exp.Expression, part: exp.Expression) -> Term:
    term = settle(node, self.term(part), TEXT)
    if not term.type.is_text:
        refuse(node, f"a text is expected, and this is {term.type}", "cast it: …::text")
    return cast(term, TEXT)


def _letters(name: str) -> Reader:
    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this")
        term = self.term(node.this)
        if not term.type.is_text or term.type.collation != "C":
            refuse(
                node,
                f"{name} depends on the database's collation",
                f'{name}({shown(node.this)} COLLATE "C") changes the letters from A to Z',
            )
        return Call(name, (cast(term, TEXT),), TEXT)

    return read


def _length(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this")
    return Call("length", (_text(self, node, node.this),), INTEGER)


def _whole(node: exp.Expression | None) -> int | None:
    if isinstance(node, exp.Neg):
        found = _whole(node.this)
        return None if found is None else -found
    return int(node.this) if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit() else None


def _substring(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "start", "length")
    start, length = _whole(node.args.get("start")), _whole(node.args.get("length"))
    if start is None or (node.args.get("length") is not None and (length is None or length < 0)):
        refuse(node, "substring is supported with numbers that are written out")
    # Places before the first character count in PostgreSQL, and there is nothing at them.
    if length is not None:
        length = max(0, length + min(0, start - 1))
    return Call("substring", (_text(self, node, node.this),), TEXT, (max(1, start), length))


def _left(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression")
    count = _whole(node.expression)
    if count is None or count < 0:
        refuse(node, "left is supported with a number that is written out, and not negative")
    return Call("substring", (_text(self, node, node.this),), TEXT, (1, count))


def _trim(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "position")
    return Call(
        {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim"),
        (_text(self, node, node.this),),
        TEXT,
    )


def _replace(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression", "replacement")
    if node.args.get("replacement") is None:
        refuse(node, "replace() without what it puts in its place", "write replace(text, old, new)")
    parts = (node.this, node.expression, node.args["replacement"])
    return Call("replace", tuple(_text(self, node, part) for part in parts), TEXT)


def _position(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "substr")
    return Call("position", (_text(self, node, node.this), _text(self, node, node.args["substr"])), INTEGER)


def _pipe(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression", "safe")
    parts, is_text = [], False
    for each in (node.this, node.expression):
        term = settle(node, self.term(each), TEXT)
        if not (term.type.is_text or term.type.is_whole):
            refuse(node, f"|| with {term.type} is not supported in a view", "cast it: …::text")
        parts.append(cast(term, TEXT))
        is_text = is_text or term.type.is_text
    if not is_text:
        refuse(node, "there is no || of numbers", "cast one of them: …::text")
    return Call("||", tuple(parts), TEXT)


def _concat(self: Resolver, node: exp.Expression) -> Term:
    """Nulls are nothing, unlike in ||."""
    only(node, "expressions", "safe", "coalesce")
    nothing = Value("", TEXT)
    parts = []
    for each in node.expressions:
        term = settle(node, self.term(each), TEXT)
        if term.type.kind != "text":  # the spaces at the end of a char(n) count here, and nowhere else
            refuse(node, f"concat() with {term.type} is not supported in a view", f"cast it: {shown(each)}::text")
        parts.append(Call("coalesce", (cast(term, TEXT), nothing), TEXT))
    return Call("||", tuple(parts), TEXT)


def _like(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression", "negate")
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        refuse(node, "LIKE is supported with a pattern that is written out")
    if "\\" in pattern.this:
        refuse(node, "LIKE with a backslash is not supported", "use position() or =")
    term = settle(node, self.term(node.this), TEXT)
    if term.type.kind != "text":
        refuse(node, f"LIKE of {term.type} is not supported in a view", "cast it: …::text")
    found = Call("like", (cast(term, TEXT),), BOOLEAN, (pattern.this,))
    return Call("not", (found,), BOOLEAN) if node.args.get("negate") else found


def _member(type_: Type) -> Reader:
    """-> and ->> of a JSON object, by a name that is written out."""

    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this", "expression", "only_json_types")
        term, path = self.term(node.this), node.expression
        if term.type.kind != "json":
            refuse(node, f"a member of {term.type}, which is no JSON")
        steps = path.expressions if isinstance(path, exp.JSONPath) else []
        if [type(each) for each in steps] != [exp.JSONPathRoot, exp.JSONPathKey] or not isinstance(steps[1].this, str):
            remedy = "write (data ->> 'amount')::integer"
            refuse(node, "a member of JSON is found by a name that is written out", remedy)
        return Call("member", (term,), type_, (steps[1].this, type_ == TEXT))

    return read


def _number(self: Resolver, node: exp.Expression) -> Term:
    term = settle(node, self.term(node.this), DOUBLE)
    if not term.type.is_number:
        refuse(node, f"a number is expected, and this is {term.type}")
    return term


def _abs(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this")
    term = _number(self, node)
    return Call("abs", (term,), term.type)


def _rounded(name: str) -> Reader:
    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this", *(("decimals",) if name in ("round", "trunc") else ()))
        term = _number(self, node)
        digits = node.args.get("decimals")
        places = 0 if digits is None else _whole(digits)
        if places is None or places < 0:
            refuse(node, f"{name} is supported with a number of digits that is written out, and not negative")
        if term.type.kind in ("real", "double"):
            if digits is not None:
                refuse(node, f"PostgreSQL has no {name}(double precision, integer)", "round it to whole numbers")
            return Call(name, (cast(term, DOUBLE),), DOUBLE, (0,))
        if term.type.is_whole and digits is None:
            # PostgreSQL's are of double precision and numeric only, and it takes the former.
            return Call(name, (cast(term, DOUBLE),), DOUBLE, (0,))
        exact = types.as_numeric(term.type)
        if exact.is_wide:
            return Call(name, (term,), NUMERIC, (places,))
        return Call(name, (cast(term, exact),), types.fitted(exact.precision - exact.scale + 1, places), (places,))

    return read


def _best(name: str) -> Reader:
    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this", "expressions", "ignore_nulls")
        values, shared = self.alike(node, [node.this, *node.expressions])
        if not shared.is_ordered:
            from millrace.views.expressions import unordered

            unordered(node, shared)
        return Call(name, tuple(values), shared)

    return read


def _date_or_moment(self: Resolver, node: exp.Expression) -> Term:
    refuse(node, f"{type(node).__name__.lower()} is not supported in a view", "write a cast: …::date")


_READERS: dict[Any, Reader] = {
    exp.Cast: _cast,
    exp.AtTimeZone: _at_time_zone,
    exp.Extract: _extract,
    exp.TimestampTrunc: _date_trunc,
    exp.Lower: _letters("lower"),
    exp.Upper: _letters("upper"),
    exp.Length: _length,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Trim: _trim,
    exp.Replace: _replace,
    exp.StrPosition: _position,
    exp.DPipe: _pipe,
    exp.Concat: _concat,
    exp.Like: _like,
    exp.Abs: _abs,
    exp.Round: _rounded("round"),
    exp.Trunc: _rounded("trunc"),
    exp.Ceil: _rounded("ceil"),
    exp.Floor: _rounded("floor"),
    exp.Greatest: _best("greatest"),
    exp.Least: _best("least"),
    exp.TryCast: _date_or_moment,
    exp.JSONExtract: _member(types.JSON),
    exp.JSONExtractScalar: _member(TEXT),
}
also(_READERS)
